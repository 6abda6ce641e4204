"""Runs of logs that have the same fields in the same order, found by a regular expression.

Reading protobuf field by field in Python costs a microsecond for each field of each log. Nearly all logs of
a group have the same fields, so one regular expression splits many logs at what precedes their values, and
everything else is done column by column for all of them at once, by functions that are written in C. What it
finds is only a guess: it takes for the begin of a field whatever looks like one, wherever it is. `find_run`
therefore compares each begin with the one that the name and a value of that length have, and the logs with
their sizes, and leaves what does not fit to the reader of single logs. No step of the search is ever taken
back, so it is linear for any input.
"""

import re
import struct
from functools import lru_cache
from itertools import compress, count
from operator import add, ne
from typing import NamedTuple

from loghub.wire.protobuf import read_varint, varint

# Bounds what is searched at once.
MOST_WINDOW_BYTES = 1 << 17
_MAX_FIELDS, _MAX_NAME_BYTES = 64, 128
_MAX_CACHED = 1 << 16
_MAX_NAMES, _MAX_LENGTHS = 256, 512
_LENGTH = rb"[\x80-\xff]{0,2}+[\x00-\x7f]"
# Tag and length of a field, its name with tag and length, tag and length of its value.
_FIELD = re.compile(rb"(\x12" + _LENGTH + rb"\n" + _LENGTH + rb"(?!\x08)[^\x12]*+\x12" + _LENGTH + rb")")
# A log begins with its tag and length, and the tag of its time.
_BEGIN = re.compile(rb"\n(" + _LENGTH + rb")\x08")
_TIME = re.compile(rb"[\x80-\xff]{4}[\x00-\x0f]")
_TIME_BYTES, _MAX_LENGTH_BYTES = 5, 3
_NANOSECONDS, _NANOSECONDS_TAG = struct.Struct("<xI"), b"\x25"
_NONE = -1


class _ValueLengths(dict[bytes, int]):
    """The begin of a field -> the length of its value, if it is one; `find_run` compares all of it."""

    def __missing__(self, begin: bytes) -> int:
        end = len(begin)
        _, at = read_varint(begin, 1, end)
        name_size, at = read_varint(begin, at + 1, end)
        at += name_size + 1
        if not 0 < end - at <= _MAX_LENGTH_BYTES:
            return 0
        length, _ = read_varint(begin, at, end)
        return _kept(self, begin, length) if name_size <= _MAX_NAME_BYTES else length


class _Sizes(dict[bytes, int]):
    """The begin of a log -> the bytes of the log, its tag and length included."""

    def __missing__(self, begin: bytes) -> int:
        if not _BEGIN.fullmatch(begin):
            return _NONE
        return _kept(self, begin, read_varint(begin, 1, len(begin))[0] + len(begin) - 1)


class _TimesMs(dict[bytes, int]):
    """The varint of a time in seconds -> milliseconds."""

    def __missing__(self, encoded: bytes) -> int:
        if not _TIME.fullmatch(encoded):
            return _NONE
        return _kept(self, encoded, read_varint(encoded, 0, len(encoded))[0] * 1000)


def _kept(cache: dict[bytes, int], key: bytes, value: int) -> int:
    if len(cache) >= _MAX_CACHED:
        cache.clear()
    cache[key] = value
    return value


class _Begins(dict[int, bytes]):
    """The length of a value -> the begin of a field with it and one name."""

    def __init__(self, name: bytes) -> None:
        super().__init__()
        self._name = b"\n" + varint(len(name)) + name + b"\x12"

    def __missing__(self, length: int) -> bytes:
        begin = self._name + varint(length)
        begin = b"\x12" + varint(len(begin) + length) + begin
        if length < _MAX_LENGTHS:
            self[length] = begin
        return begin


_value_lengths, _sizes, _times_ms = _ValueLengths(), _Sizes(), _TimesMs()
_begins_of = lru_cache(_MAX_NAMES)(_Begins)


class Run(NamedTuple):
    """Logs of one shape, column by column. ``end`` is where they end."""

    times_ms: list[int]
    values: list[list[bytes]]
    lengths: list[list[int]]
    end: int


class _Between(NamedTuple):
    """What stands between the last value of a log and the first field of the next one: the nanoseconds of the
    one, and the begin of the other with its size and time. The first begin is that of the first log."""

    nanoseconds: list[bytes]
    begins: list[bytes]
    sizes: list[int]
    times_ms: list[int]


def can_be_runs(names: tuple[bytes, ...]) -> bool:
    """Whether `find_run` looks for logs with these fields."""
    return 0 < len(names) <= _MAX_FIELDS and max(map(len, names)) <= _MAX_NAME_BYTES


def find_run(
    names: tuple[bytes, ...], group: bytes, at: int, *, most: int, window_bytes: int = MOST_WINDOW_BYTES
) -> Run | None:
    """The logs with these fields that follow each other from ``at`` on, at most ``most``; None if none do.

    All of the window is searched, whatever is found in it: the caller bounds what may be in vain.
    """
    window = group[at : at + window_bytes]
    parts = _FIELD.split(window)
    # What begins the first log; then in turns the begin of a field and what follows it.
    step = 2 * len(names)
    found = min(len(parts) // step, most)
    if not found:
        return None
    used = 1 + found * step
    last_lengths = list(map(_value_lengths.__getitem__, parts[step - 1 : used : step]))
    lasts = parts[step:used:step]
    values = [parts[field:used:step] for field in range(2, step, 2)]
    values.append([last[:length] for last, length in zip(lasts, last_lengths, strict=True)])
    lengths = [list(map(len, column)) for column in values]
    between = _between(parts[0], [last[length:] for last, length in zip(lasts, last_lengths, strict=True)])
    rows = min(found, _place(_NONE, between.sizes), _place(_NONE, between.times_ms))
    for number, name in enumerate(names):
        begins = parts[1 + 2 * number : used : step]
        wanted = list(map(_begins_of(name).__getitem__, lengths[number]))
        if begins != wanted:
            rows = min(rows, next(compress(count(), map(ne, begins, wanted))))
    # What follows the last of them is no log, or not of this shape; or it is the rest of that log.
    for logs in (rows, rows - 1):
        milliseconds = _milliseconds(between.nanoseconds[:logs])
        end = _end(between, parts, logs, step=step, window_bytes=len(window)) if logs > 0 else 0
        if milliseconds is not None and end:
            if logs < found:
                values, lengths = [column[:logs] for column in values], [column[:logs] for column in lengths]
            return Run(list(map(add, between.times_ms, milliseconds)), values, lengths, at + end)
    return None


def _end(between: _Between, parts: list[bytes], logs: int, *, step: int, window_bytes: int) -> int:
    """Where so many logs end, from the begin of the first one; 0 if one has not the size that it begins with.

    A valid log is not larger than what was found from its begin to that of the next one, so the sum of these
    is right only if each size is. The last log may be followed by anything.
    """
    *sizes, last = between.sizes[:logs]
    after = len(between.begins[logs])
    fields = sum(map(len, parts[1 + (logs - 1) * step : 1 + logs * step]))
    end = window_bytes - sum(map(len, parts[1 + logs * step :])) - after
    is_whole = last == len(between.begins[logs - 1]) + fields - after
    return end if is_whole and sum(sizes) + last == end else 0


def _between(first: bytes, ends: list[bytes]) -> _Between:
    """All logs are taken to have nanoseconds if the first one has."""
    size = _NANOSECONDS.size if ends[0].startswith(_NANOSECONDS_TAG) else 0
    begins = [first, *[end[size:] for end in ends]]
    return _Between(
        [end[:size] for end in ends],
        begins,
        list(map(_sizes.__getitem__, [begin[:-_TIME_BYTES] for begin in begins])),
        list(map(_times_ms.__getitem__, [begin[-_TIME_BYTES:] for begin in begins])),
    )


def _place(value: int, column: list[int]) -> int:
    """How many others come before it."""
    return column.index(value) if value in column else len(column)


def _milliseconds(fields: list[bytes]) -> list[int] | None:
    """Of nanoseconds or nothing. None if it is anything else."""
    joined = b"".join(fields)
    if not joined:
        return [0] * len(fields)
    if len(joined) != _NANOSECONDS.size * len(fields):
        return None
    if joined[:: _NANOSECONDS.size] != _NANOSECONDS_TAG * len(fields):
        return None
    return [nanoseconds // 1_000_000 for (nanoseconds,) in _NANOSECONDS.iter_unpack(joined)]
