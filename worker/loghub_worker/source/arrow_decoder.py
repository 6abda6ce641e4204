"""Decodes pulled log groups into rows in Arrow.

One serialized LogGroupList (docs/sls-protocol.md 3) becomes one record batch of the view `logs`, without a
Python object for each log. A `Selection` names the columns that are made, and keys of the contents that
become columns of their own.

The fast path parses into UTF-8 columns and fails on a body that contains other bytes. Such a body is parsed
again into binary columns, and each invalid text is decoded with U+FFFD in place of the invalid bytes; the
number of these texts is returned.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from ptars import HandlerPool, PtarsConfig

from loghub_worker.source.list_descriptor import TextKind, list_descriptor

TEXTS = pa.map_(pa.string(), pa.string())
SCHEMA = pa.schema(
    [
        pa.field("__time__", pa.timestamp("us", tz="UTC")),
        # Below a second, since Spark's timestamps have microseconds; null if the log has none.
        pa.field("__time_ns__", pa.int32()),
        pa.field("__topic__", pa.string()),
        pa.field("__source__", pa.string()),
        pa.field("__tags__", TEXTS),
        pa.field("contents", TEXTS),
        pa.field("__shard__", pa.int32()),
        pa.field("__cursor__", pa.int64()),
        pa.field("__index__", pa.int32()),
    ]
)

NANOSECONDS = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The columns of the rows: those of the view, in this order, then a column of texts for each of `keys`.
    It has the value of the first content with this key, and null for a log without one."""

    view: tuple[str, ...] = tuple(SCHEMA.names)
    keys: tuple[str, ...] = ()


EVERYTHING = Selection()


@dataclass(frozen=True, slots=True)
class Decoded:
    """The rows of some bodies, the number of log groups of each body, the row at which each log group begins,
    with the number of all rows at the end, and the number of texts in which bytes were replaced."""

    rows: pa.RecordBatch
    groups: tuple[int, ...]
    first_rows: pa.Array
    replaced: int

    def until(self, groups: int) -> pa.RecordBatch:
        """The rows of the first log groups."""
        return self.rows.slice(0, self.first_rows[groups].as_py())


@dataclass(frozen=True, slots=True)
class Body:
    """One LogGroupList. Its first log group has the cursor `first_cursor`, and the others follow."""

    first_cursor: int
    content: bytes


def decode(bodies: Sequence[Body], *, shard: int, selection: Selection = EVERYTHING) -> Decoded:
    """Decode some LogGroupLists of one shard, in one step: each step costs, and a producer may write log
    groups of one log."""
    contents = [body.content for body in bodies]
    try:
        parsed = _handler("text").list_to_record_batch(contents)
    except Exception:  # noqa: BLE001 - ptars has one error type; an invalid body raises again below
        parsed = _handler("binary").list_to_record_batch(contents)
    texts, lists = _Texts(), parsed.column("LogGroups")
    groups = tuple(pc.fill_null(pc.list_value_length(lists), 0).to_pylist())
    cursors = [
        pa.arange(body.first_cursor, body.first_cursor + count)
        for body, count in zip(bodies, groups, strict=True)
    ]
    made = _Columns(lists.flatten(), cursors=pa.concat_arrays(cursors), shard=shard, text=texts)
    columns = [made.of_view(name) for name in selection.view] + made.of_keys(selection.keys)
    rows = pa.RecordBatch.from_arrays(columns, schema=schema_of(selection))
    return Decoded(rows=rows, groups=groups, first_rows=made.first_rows, replaced=texts.replaced)


def schema_of(selection: Selection) -> pa.Schema:
    """The schema of the rows of a selection."""
    texts = [pa.field(key, pa.string()) for key in selection.keys]
    return pa.schema([*(SCHEMA.field(name) for name in selection.view), *texts])


class _Texts:
    """Converts binary columns to text, and counts the texts in which bytes were replaced."""

    def __init__(self) -> None:
        self.replaced = 0

    def __call__(self, column: pa.Array) -> pa.Array:
        if not pa.types.is_binary(column.type):
            return column
        try:
            return column.cast(pa.string())
        except pa.ArrowInvalid:
            return pa.array([self._text(value) for value in column.to_pylist()], pa.string())

    def _text(self, value: bytes | None) -> str | None:
        if value is None:
            return None
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError:
            self.replaced += 1
            return value.decode("utf-8", errors="replace")


class _Columns:
    """Makes the columns of parsed log groups, each only if it is selected."""

    def __init__(self, groups: pa.StructArray, *, cursors: pa.Array, shard: int, text: _Texts) -> None:
        self._groups = groups
        self._cursors = cursors
        self._shard = shard
        self._text = text
        self._logs_of_group = groups.field("Logs")
        self._logs = self._logs_of_group.flatten()
        offsets = self._logs_of_group.offsets
        begin = offsets[0] if len(offsets) else pa.scalar(0, offsets.type)
        self.first_rows = pc.subtract(offsets, begin) if len(offsets) else pa.array([0], pa.int32())

    def of_view(self, name: str) -> pa.Array:
        groups, logs = self._groups, self._logs
        match name:
            case "__time__":
                return _time(logs)
            case "__time_ns__":
                return _nanoseconds(logs)
            case "__topic__":
                return self._of_group(_filled(self._text(groups.field("Topic"))))
            case "__source__":
                return self._of_group(_filled(self._text(groups.field("Source"))))
            case "__tags__":
                return self._of_group(_map(groups.field("LogTags"), self._text))
            case "contents":
                return _map(logs.field("Contents"), self._text)
            case "__shard__":
                return pa.repeat(pa.scalar(self._shard, pa.int32()), len(logs))
            case "__cursor__":
                return self._of_group(self._cursors)
            case _:
                return self._index()

    def _of_group(self, column: pa.Array) -> pa.Array:
        return column.take(pc.list_parent_indices(self._logs_of_group))

    def _index(self) -> pa.Array:
        before = self._of_group(self.first_rows.slice(0, len(self._groups)))
        return pc.subtract(pa.arange(0, len(self._logs)), before).cast(pa.int32())

    def of_keys(self, keys: Sequence[str]) -> list[pa.Array]:
        """For each of these keys its first value in each log."""
        if not keys:
            return []
        contents = self._logs.field("Contents")
        begin, end = contents.offsets[0].as_py(), contents.offsets[-1].as_py()
        pairs = contents.values.slice(begin, end - begin)
        names = _filled(self._text(pairs.field("Key")))
        values = _filled(self._text(pairs.field("Value")))
        same = same_keys(names, pc.list_value_length(contents))
        if same is not None:
            return [_every(values, len(same), same.index(key) if key in same else None) for key in keys]
        return _picked(names, values, pc.list_parent_indices(contents), keys, logs=len(contents))


def same_keys(names: pa.StringArray, numbers: pa.Array) -> tuple[str, ...] | None:
    """The keys of each log if every log has the same in the same order, as the logs of one producer mostly
    do; `numbers` are the numbers of their keys. Compared as bytes: the keys of all logs are those of the
    first log, repeated."""
    limits = pc.min_max(numbers)
    width = limits["max"].as_py()
    if not width or limits["min"].as_py() != width:
        return None
    first = tuple(names.slice(0, width).to_pylist())
    lengths = pc.binary_length(names).buffers()[1].to_pybytes()
    if lengths != pc.binary_length(names.slice(0, width)).buffers()[1].to_pybytes() * len(numbers):
        return None
    _, ends, data = names.buffers()
    at = memoryview(ends).cast("i")
    begin, end = at[names.offset], at[names.offset + len(names)]
    texts = data.slice(begin, end - begin).to_pybytes() if data is not None else b""
    return first if texts == "".join(first).encode() * len(numbers) else None


def _every(values: pa.Array, width: int, place: int | None) -> pa.Array:
    """The value at this place of each log, if all logs have `width` contents."""
    if place is None:
        return pa.nulls(len(values) // width, pa.string())
    return values.take(pa.arange(place, len(values), width))


def _picked(
    names: pa.Array, values: pa.Array, log_of_pair: pa.Array, keys: Sequence[str], *, logs: int
) -> list[pa.Array]:
    """The first value of each of the keys in each log, whatever contents the logs have."""
    key_of_pair = pc.index_in(names, value_set=pa.array(keys, pa.string()))
    columns = []
    for number in range(len(keys)):
        here = pc.equal(key_of_pair, number)  # null, as for another key, is filtered out too
        first = pc.index_in(pa.arange(0, logs), value_set=log_of_pair.filter(here).cast(pa.int64()))
        columns.append(values.filter(here).take(first))
    return columns


def _filled(texts: pa.Array) -> pa.Array:
    """An unset text is empty. Without one nothing is copied."""
    return pc.fill_null(texts, "") if texts.null_count else texts


def _time(logs: pa.StructArray) -> pa.Array:
    """Seconds, plus the nanoseconds part if there is one, as microseconds."""
    seconds = pc.multiply(pc.fill_null(logs.field("Time"), 0).cast(pa.int64()), 1_000_000)
    part = pc.divide(pc.fill_null(_nanoseconds(logs), 0).cast(pa.int64()), 1_000)
    return pc.add(seconds, part).cast(pa.timestamp("us", tz="UTC"))


def _nanoseconds(logs: pa.StructArray) -> pa.Array:
    part = logs.field("Time_ns")
    return pc.if_else(pc.less(part, NANOSECONDS), part, None).cast(pa.int32())


def _map(pairs: pa.ListArray, text: _Texts) -> pa.Array:
    """Convert list<Key, Value> to map<Key, Value> on the same offsets. Keys that occur twice stay twice."""
    begin, end = pairs.offsets[0].as_py(), pairs.offsets[-1].as_py()
    values = pairs.values.slice(begin, end - begin)
    offsets = pairs.offsets if begin == 0 else pc.subtract(pairs.offsets, pairs.offsets[0])
    key, value = _filled(text(values.field("Key"))), _filled(text(values.field("Value")))
    return pa.MapArray.from_arrays(offsets, key, value)


@cache
def _handler(kind: TextKind) -> Any:
    """The parser of LogGroupList, created once per process."""
    described = list_descriptor(kind)
    return HandlerPool([described.file], PtarsConfig()).get_for_message(described)
