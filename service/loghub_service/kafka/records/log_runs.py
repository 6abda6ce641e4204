"""Records of logs that have the same fields in the same order, which nearly all logs of a program have.

What depends on the names only is made once for such a shape: the text of the JSON object around the values,
or which field is the key. `parts` makes the record of one log, `columns` those of a run of logs, with a few
calls for all of them; both return everything that follows the offset of a record.

Runs of logs that have the same fields in the same order, found by a regular expression.

Reading protobuf field by field in Python costs a microsecond for each field of each log. Nearly all logs of
a group have the same fields, so one regular expression splits many logs at what precedes their values, and
everything else is done column by column for all of them at once, by functions that are written in C. What it
finds is only a guess: it takes for the begin of a field whatever looks like one, wherever it is. `find_run`
therefore compares each begin with the one that the name and a value of that length have, and the logs with
their sizes, and leaves what does not fit to the reader of single logs. No step of the search is ever taken
back, so it is linear for any input.

How a log and a record correspond: the forms, and the names of fields that they give a meaning to.
"""

import re
import struct
from collections.abc import Sequence
from enum import StrEnum
from functools import lru_cache
from itertools import compress, count
from operator import add, ne
from typing import NamedTuple

import msgspec

from loghub.wire.protobuf import read_varint, varint
from loghub_service.kafka.wire.record_batch import TABLE_SIZE, zigzag, zigzag_table

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


class RecordForm(StrEnum):
    """What becomes of a produced record (docs/kafka-protocol.md 5).

    PLAIN keeps the value in the field `content`; JSON makes each member of a JSON object a field, as SLS does
    for the topic `<logstore>.json`; RAW keeps key, value and headers exactly, and is a setting of a logstore.
    Reading knows two forms only: that of SLS for the first two, and RAW.
    """

    PLAIN = "plain"
    JSON = "json"
    RAW = "raw"


CONTENT_FIELD = "content"
KEY_FIELD, VALUE_FIELD = "key", "value"
# In RAW; a field of the second kind has an empty value and stands for a header that is null.
HEADER_PREFIX, NULL_HEADER_PREFIX = "header.", "null_header."
# Logs that SLS imported from Kafka have all of these, and their key and value are those of the record.
IMPORTED_FIELDS = frozenset(("kafka_topic", "kafka_partition", "kafka_offset", KEY_FIELD, VALUE_FIELD))


_MAX_SHAPES = 256
# What a JSON string may contain as it is: everything but quotes, backslashes and control characters.
_UNESCAPED = bytes(set(range(0x20, 0x100)) - set(b'"\\'))
_NULL, _NO_HEADERS = b"\1", b"\0"
Parts = list[bytes]


class RecordColumns(NamedTuple):
    """The parts of many records: those of one, what others have in their places, and the size of each."""

    parts: Parts
    columns: dict[int, Sequence[bytes]]
    sizes: list[int]


def _varint(size: int) -> bytes:
    return zigzag_table()[size] if size < TABLE_SIZE else zigzag(size)


def _sized(content: bytes | None) -> bytes:
    return _NULL if content is None else _varint(len(content)) + content


def _varints(sizes: list[int]) -> list[bytes]:
    table = zigzag_table()
    return [table[size] if size < TABLE_SIZE else zigzag(size) for size in sizes]


class LogShape:
    """The names of a log's fields in order, and how its record is made of their values."""

    def __init__(self, names: tuple[bytes, ...]) -> None:
        self.names = names
        self.can_be_runs = can_be_runs(names)

    def parts(self, values: Sequence[bytes]) -> tuple[Parts, int]:
        """Key, value and headers as they are in a record, and their size."""
        raise NotImplementedError

    def columns(self, run: Run) -> RecordColumns:
        """The same for every log of a run."""
        made = [self.parts(values) for values in zip(*run.values, strict=True)]
        return RecordColumns([b""], {0: [b"".join(parts) for parts, _ in made]}, [size for _, size in made])


class JsonShape(LogShape):
    """Several fields, or none: no key, and a JSON object as the value."""

    def __init__(self, names: tuple[bytes, ...]) -> None:
        super().__init__(names)
        texts = [str(name, "utf-8", "replace") for name in names]
        encoded = [msgspec.json.encode(text) for text in texts]
        around = [b'","' + name[1:] + b':"' for name in encoded]
        around[:1] = [b"{" + name + b':"' for name in encoded[:1]]
        self._texts = texts
        self._simple = len(set(names)) == len(names) > 0
        # Null key, size of the value, then text and value in turns, and no headers.
        self._template: Parts = [_NULL, b""]
        for text in around:
            self._template += (text, b"")
        self._template += (b'"}', _NO_HEADERS)
        self._around_size = sum(map(len, around)) + 2

    def parts(self, values: Sequence[bytes]) -> tuple[Parts, int]:
        """The object is put together from its text and the values if none of them needs an escape."""
        if not self._simple or _needs_escape(values):
            return self._escaped(values)
        size = self._around_size + sum(map(len, values))
        parts = self._template.copy()
        length = parts[1] = _varint(size)
        parts[3:-2:2] = values
        return parts, size + len(length) + 2

    def columns(self, run: Run) -> RecordColumns:
        """As in `parts`, if no value of the run needs an escape."""
        if not self._simple or any(map(_needs_escape, run.values)):
            return super().columns(run)
        value_sizes = [self._around_size + size for size in map(sum, zip(*run.lengths, strict=True))]
        lengths = _varints(value_sizes)
        sizes = [size + len(length) + 2 for size, length in zip(value_sizes, lengths, strict=True)]
        return RecordColumns(
            self._template, {1: lengths, **dict(zip(count(3, 2), run.values, strict=False))}, sizes
        )

    def _escaped(self, values: Sequence[bytes]) -> tuple[Parts, int]:
        """Bytes that are not UTF-8 become U+FFFD, which JSON cannot do without."""
        texts = (str(value, "utf-8", "replace") for value in values)
        sized = _sized(msgspec.json.encode(dict(zip(self._texts, texts, strict=True))))
        return [_NULL, sized, _NO_HEADERS], len(sized) + 2


def _needs_escape(values: Sequence[bytes]) -> bool:
    """Whether a value is not UTF-8, or has something that JSON escapes."""
    # A comma ends every sequence of bytes, so that the whole is UTF-8 if each value is.
    joined = b",".join(values)
    if joined.translate(None, _UNESCAPED):
        return True
    if joined.isascii():
        return False
    try:
        joined.decode()
    except UnicodeDecodeError:
        return True
    return False


class SingleFieldShape(LogShape):
    """One field: its name is the key, and its value the value."""

    def __init__(self, names: tuple[bytes, ...]) -> None:
        super().__init__(names)
        self._key = _sized(names[0])

    def parts(self, values: Sequence[bytes]) -> tuple[Parts, int]:
        """The value is not changed, so it need not be text."""
        (value,) = values
        length = _varint(len(value))
        return [self._key, length, value, _NO_HEADERS], len(self._key) + len(length) + len(value) + 1

    def columns(self, run: Run) -> RecordColumns:
        """As in `parts`."""
        lengths = _varints(run.lengths[0])
        size = len(self._key) + 1
        sizes = [size + len(varint) + length for varint, length in zip(lengths, run.lengths[0], strict=True)]
        return RecordColumns([self._key, b"", b"", _NO_HEADERS], {1: lengths, 2: run.values[0]}, sizes)


class KeyValueShape(LogShape):
    """Fields that are the key, the value and, in the form raw, the headers of a record."""

    def __init__(self, names: tuple[bytes, ...], *, headers: bool) -> None:
        super().__init__(names)
        self._key, self._value = (
            next((i for i, name in enumerate(names) if name == field.encode()), None)
            for field in (KEY_FIELD, VALUE_FIELD)
        )
        self._headers = [(i, name, null) for i, (name, null) in _header_names(names)] if headers else []

    def parts(self, values: Sequence[bytes]) -> tuple[Parts, int]:
        """A missing field is null."""
        parts = [
            _sized(None if self._key is None else values[self._key]),
            _sized(None if self._value is None else values[self._value]),
            _varint(len(self._headers)),
        ]
        for index, name, null in self._headers:
            parts += (name, _sized(None if null else values[index]))
        return parts, sum(map(len, parts))

    def columns(self, run: Run) -> RecordColumns:
        """As in `parts`, unless there are headers."""
        if self._headers:
            return super().columns(run)
        # Sizes and contents of key and value in turns.
        parts, columns = [_NULL, b"", _NULL, b"", _NO_HEADERS], dict[int, Sequence[bytes]]()
        sizes = [len(_NULL) * (self._key, self._value).count(None) + len(_NO_HEADERS)] * len(run.times_ms)
        for place, index in ((0, self._key), (2, self._value)):
            if index is not None:
                varints = _varints(run.lengths[index])
                columns |= {place: varints, place + 1: run.values[index]}
                sizes = list(map(add, sizes, map(add, map(len, varints), run.lengths[index])))
        return RecordColumns(parts, columns, sizes)


def _header_names(names: tuple[bytes, ...]) -> list[tuple[int, tuple[bytes, bool]]]:
    """For each field that is a header its index, the name with its length, and whether it is null."""
    found = []
    for index, name in enumerate(names):
        for prefix, null in ((HEADER_PREFIX.encode(), False), (NULL_HEADER_PREFIX.encode(), True)):
            if name.startswith(prefix):
                found.append((index, (_sized(name[len(prefix) :]), null)))
    return found


@lru_cache(maxsize=_MAX_SHAPES)
def shape_of(names: tuple[bytes, ...], *, raw: bool) -> LogShape:
    """The shape of logs with these fields. Shapes are shared, so that their logs are recognized next time."""
    if raw and _is_raw(names):
        return KeyValueShape(names, headers=True)
    if {str(name, "utf-8", "replace") for name in names} >= IMPORTED_FIELDS:
        return KeyValueShape(names, headers=False)
    return SingleFieldShape(names) if len(names) == 1 else JsonShape(names)


def _is_raw(names: tuple[bytes, ...]) -> bool:
    """Whether a log was produced in the form raw: at most one key and one value, and headers."""
    plain = [name for name in names if name in (KEY_FIELD.encode(), VALUE_FIELD.encode())]
    return len(set(plain)) == len(plain) and len(plain) + len(_header_names(names)) == len(names)
