"""Decodes pulled log groups into rows in Arrow.

One serialized LogGroupList (docs/sls-protocol.md 3) becomes one record batch of the view `logs`, without a
Python object for each log. A `Selection` names the columns that are made, and keys of the contents that
become columns of their own.

The fast path parses into UTF-8 columns and fails on a body that contains other bytes. Such a body is parsed
again into binary columns, and each invalid text is decoded with U+FFFD in place of the invalid bytes; the
number of these texts is returned.
"""

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
    """The rows of one body, the row at which each of its log groups begins, with the number of all rows at
    the
    end, and the number of its texts in which bytes were replaced."""

    rows: pa.RecordBatch
    first_rows: pa.Array
    replaced: int

    @property
    def groups(self) -> int:
        return max(0, len(self.first_rows) - 1)


def decode(body: bytes, *, shard: int, first_cursor: int, selection: Selection = EVERYTHING) -> Decoded:
    """Decode one LogGroupList. Its first log group has the cursor `first_cursor`, and the others follow."""
    texts = _Texts()
    try:
        parsed = _handler("text").list_to_record_batch([body])
    except Exception:  # noqa: BLE001 - ptars has one error type; an invalid body raises again below
        parsed = _handler("binary").list_to_record_batch([body])
    made = _Columns(parsed, shard=shard, first_cursor=first_cursor, text=texts)
    columns = {name: made.of_view(name) for name in selection.view}
    columns |= {key: made.of_key(key) for key in selection.keys}
    rows = pa.RecordBatch.from_arrays(list(columns.values()), schema=schema_of(selection))
    return Decoded(rows=rows, first_rows=_first_rows(parsed), replaced=texts.replaced)


def schema_of(selection: Selection) -> pa.Schema:
    """The schema of the rows of a selection."""
    texts = [pa.field(key, pa.string()) for key in selection.keys]
    return pa.schema([*(SCHEMA.field(name) for name in selection.view), *texts])


def _first_rows(parsed: pa.RecordBatch) -> pa.Array:
    offsets = parsed.column("LogGroups").flatten().field("Logs").offsets
    return pc.subtract(offsets, _first(offsets))


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
    """Makes the columns of one parsed LogGroupList, each only if it is selected."""

    def __init__(self, parsed: pa.RecordBatch, *, shard: int, first_cursor: int, text: _Texts) -> None:
        self._shard = shard
        self._first_cursor = first_cursor
        self._text = text
        self._groups = parsed.column("LogGroups").flatten()  # one struct for each group
        self._logs_of_group = self._groups.field("Logs")
        self._group_of_log = pc.list_parent_indices(self._logs_of_group)
        self._logs = self._logs_of_group.flatten()
        self._pairs: tuple[pa.Array, pa.Array, pa.Array] | None = None

    def of_view(self, name: str) -> pa.Array:
        groups, logs = self._groups, self._logs
        match name:
            case "__time__":
                return _time(logs)
            case "__time_ns__":
                return _nanoseconds(logs)
            case "__topic__":
                return self._of_group(pc.fill_null(self._text(groups.field("Topic")), ""))
            case "__source__":
                return self._of_group(pc.fill_null(self._text(groups.field("Source")), ""))
            case "__tags__":
                return self._of_group(_map(groups.field("LogTags"), self._text))
            case "contents":
                return _map(logs.field("Contents"), self._text)
            case "__shard__":
                return pa.repeat(pa.scalar(self._shard, pa.int32()), len(logs))
            case "__cursor__":
                return self._of_group(pa.arange(self._first_cursor, self._first_cursor + len(groups)))
            case _:
                return self._index()

    def _of_group(self, column: pa.Array) -> pa.Array:
        return column.take(self._group_of_log)

    def _index(self) -> pa.Array:
        begins = self._logs_of_group.offsets.slice(0, len(self._groups))
        before = pc.subtract(begins, _first(begins)).take(self._group_of_log)
        return pc.subtract(pa.arange(0, len(self._logs)), before).cast(pa.int32())

    def of_key(self, key: str) -> pa.Array:
        """The first value of this key in each log."""
        if self._pairs is None:
            contents = self._logs.field("Contents")
            pairs = contents.flatten()
            keys = pc.fill_null(self._text(pairs.field("Key")), "")
            self._pairs = (keys, pairs.field("Value"), pc.list_parent_indices(contents))
        keys, values, log_of_pair = self._pairs
        here = pc.equal(keys, key)
        first = pc.index_in(pa.arange(0, len(self._logs)), value_set=log_of_pair.filter(here))
        return pc.fill_null(self._text(values.filter(here)), "").take(first)


def _first(offsets: pa.Array) -> pa.Scalar:
    return offsets[0] if len(offsets) else pa.scalar(0, offsets.type)


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
    key = pc.fill_null(text(values.field("Key")), "")
    value = pc.fill_null(text(values.field("Value")), "")
    return pa.MapArray.from_arrays(offsets, key, value)


@cache
def _handler(kind: TextKind) -> Any:
    """The parser of LogGroupList, created once per process."""
    described = list_descriptor(kind)
    return HandlerPool([described.file], PtarsConfig()).get_for_message(described)
