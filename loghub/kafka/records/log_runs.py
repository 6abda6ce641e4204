"""Runs of logs that have the same fields in the same order, found by a regular expression.

Reading protobuf field by field in Python costs a microsecond for each field of each log. Nearly all logs of
a group have the same fields, so one regular expression finds the values of many logs, and everything else is
done for all of them at once by functions that are written in C. What it finds is only a guess: it takes a
value to end at the next byte 0x12, which is the tag of a field and rare in text, and the last value of a log
where another log seems to begin. `find_run` therefore compares every length, and logs that do not fit are
left to the reader of single logs. No step of the search is ever taken back, so it is linear for any input.
"""

import re
import struct
from collections.abc import Iterable, Sequence
from itertools import chain, repeat
from operator import add
from typing import NamedTuple

from loghub.wire.protobuf import read_varint, varint

# Bounds what is searched in vain where logs differ.
_WINDOW_BYTES = 1 << 17
_MAX_FIELDS, _MAX_NAMES_BYTES = 64, 4096
_MAX_CACHED = 1 << 16
_LENGTH = rb"[\x80-\xff]{0,2}+[\x00-\x7f]"
_VALUE = rb"([^\x12]*+)"
_TIME = rb"[\x80-\xff]{4}[\x00-\x0f]"
_SIZE_AND_TIME = rb"(\n" + _LENGTH + rb"\x08)(" + _TIME + rb")"
_BEGIN = re.compile(_SIZE_AND_TIME)
# The last value of a log with its nanoseconds, up to the next log, whose size and time follow.
_LAST = rb"([^\n]*+(?:\n(?!" + _LENGTH + rb"\x08" + _TIME + rb"\x12)[^\n]*+)*+)" + _SIZE_AND_TIME
# The time with its tag; the tag is captured with the size before it.
_TIME_BYTES, _TIME_FIELD_BYTES = 5, 6
_NANOSECONDS, _NANOSECONDS_TAG = struct.Struct("<BI"), 0x25


class _ValueLengths(dict[bytes, int]):
    """The bytes before a value (tags, lengths, name) -> the length of the value; -1 if they disagree."""

    def __missing__(self, header: bytes) -> int:
        end = len(header)
        content_size, start = read_varint(header, 1, end)
        name_size, at = read_varint(header, start + 1, end)
        value_size, _ = read_varint(header, at + name_size + 1, end)
        if len(self) >= _MAX_CACHED:
            self.clear()
        result = self[header] = value_size if content_size == end - start + value_size else -1
        return result


class _Sizes(dict[bytes, int]):
    """A size between its tag and that of the time -> its value."""

    def __missing__(self, encoded: bytes) -> int:
        if len(self) >= _MAX_CACHED:
            self.clear()
        result = self[encoded] = read_varint(encoded, 1, len(encoded))[0]
        return result


class _TimesMs(dict[bytes, int]):
    """The varint of a time in seconds -> milliseconds."""

    def __missing__(self, encoded: bytes) -> int:
        if len(self) >= _MAX_CACHED:
            self.clear()
        result = self[encoded] = read_varint(encoded, 0, len(encoded))[0] * 1000
        return result


_value_lengths, _sizes, _times_ms = _ValueLengths(), _Sizes(), _TimesMs()


class Run(NamedTuple):
    """Logs of one shape, column by column. ``end`` is where the next log begins."""

    times_ms: list[int]
    values: list[Sequence[bytes]]
    lengths: list[list[int]]
    end: int


def pattern_of(names: tuple[bytes, ...]) -> re.Pattern[bytes] | None:
    """What `find_run` needs for logs with these fields; None if there are too many, or none."""
    if not 0 < len(names) <= _MAX_FIELDS or sum(map(len, names)) > _MAX_NAMES_BYTES:
        return None
    headers = [
        rb"(\x12" + _LENGTH + rb"\n" + re.escape(varint(len(name)) + name) + rb"\x12" + _LENGTH + rb")"
        for name in names
    ]
    return re.compile(_VALUE.join(headers) + _LAST, re.DOTALL)


def find_run(pattern: re.Pattern[bytes], group: bytes, at: int) -> Run | None:
    """The logs of the pattern's shape that follow each other from ``at`` on, and are followed by another log.

    None if there are none, or if one of them is not what it looks like.
    """
    begin = _BEGIN.match(group, at)
    if begin is None:
        return None
    start = begin.end()
    found = pattern.findall(group, start, at + _WINDOW_BYTES)
    joined = b"".join(chain.from_iterable(found))
    if not group.startswith(joined, start):
        found = _contiguous(found, group, start)
        joined = b"".join(chain.from_iterable(found))
    if not found:
        return None
    *fields, lasts, sizes, times = zip(*found, strict=True)
    lengths = [list(map(_value_lengths.__getitem__, headers)) for headers in fields[::2]]
    last_values = [last[:length] for last, length in zip(lasts, lengths[-1], strict=True)]
    values: list[Sequence[bytes]] = [*fields[1::2], last_values]
    if any(list(map(len, column)) != wanted for column, wanted in zip(values, lengths, strict=True)):
        return None
    milliseconds = _milliseconds([last[size:] for last, size in zip(lasts, lengths[-1], strict=True)])
    # A valid log is not larger than what was found in it, so the sum is right only if each size is.
    wanted_size = _sizes[begin[1]] + sum(map(_sizes.__getitem__, sizes[:-1]))
    between = sum(map(len, sizes)) + _TIME_BYTES * len(times)
    if milliseconds is None or wanted_size != len(joined) - between + _TIME_FIELD_BYTES * len(times):
        return None
    times_ms = list(map(add, map(_times_ms.__getitem__, (begin[2], *times[:-1])), milliseconds))
    return Run(times_ms, values, lengths, start + len(joined) - len(sizes[-1]) - _TIME_BYTES)


def _contiguous(found: list[tuple[bytes, ...]], group: bytes, at: int) -> list[tuple[bytes, ...]]:
    """The matches up to the first gap between two, where something else must be."""
    for number, parts in enumerate(found):
        match = b"".join(parts)
        if not group.startswith(match, at):
            return found[:number]
        at += len(match)
    return found


def _milliseconds(fields: list[bytes]) -> Iterable[int] | None:
    """What stands after the last values: nanoseconds or nothing. None if it is anything else."""
    if not any(fields):
        return repeat(0)
    if set(map(len, fields)) == {_NANOSECONDS.size}:
        parts = list(_NANOSECONDS.iter_unpack(b"".join(fields)))
        if all(tag == _NANOSECONDS_TAG for tag, _ in parts):
            return [nanoseconds // 1_000_000 for _, nanoseconds in parts]
    return None
