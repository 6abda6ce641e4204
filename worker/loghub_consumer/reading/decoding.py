"""Decodes pulled log groups into rows in Arrow.

One serialized LogGroupList (docs/sls-protocol.md 3) becomes one record batch of the view `logs`. A
`Selection` names the columns to make, and keys of the contents that become columns of their own.

The native part fills the memory of the columns, which are read where they are. Without it, and for lists that
are unusual, damaged or not UTF-8, `_PlainLists` reads log by log in Python, which is much slower, and makes
the same rows (docs/decisions/worker.md).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from loghub.wire import native
from loghub.wire.loggroup import RawLogGroup, RawPair, read_group, split
from loghub_consumer.reading.answers import NANOSECONDS

if TYPE_CHECKING:
    from loghub_native import Buffer, DecodedLists, PairColumn, TextColumn


TEXTS = pa.map_(pa.string(), pa.string())
TIME_TYPE = pa.timestamp("us", tz="UTC")
NANOSECONDS_TYPE = pa.int32()


class ParsedLists(Protocol):
    """Some parsed lists. Unset texts are empty. Of a key that occurs twice in a log, or of a tag in a log
    group, the last value counts: many readers, and functions of Spark, reject a map with a repeated key."""

    @property
    def groups(self) -> tuple[int, ...]:
        """The number of log groups in each list."""

    @property
    def first_rows(self) -> pa.Array:
        """The index of the first log of each log group, and at the end the number of all logs."""

    @property
    def group_of_log(self) -> pa.Array:
        """The number of each log's log group."""

    @property
    def replaced(self) -> int:
        """In how many texts of the columns made so far bytes were replaced."""

    def times(self) -> pa.Array:
        """The time of each log, in microseconds."""

    def nanoseconds(self) -> pa.Array:
        """The part of each log's time below a second; null if it has none."""

    def topics(self) -> pa.Array:
        """The topic of each log group."""

    def sources(self) -> pa.Array:
        """The source of each log group."""

    def tags(self) -> pa.Array:
        """The tags of each log group, as a map."""

    def contents(self) -> pa.Array:
        """The contents of each log, as a map."""

    def of_keys(self, keys: Sequence[str]) -> list[pa.Array]:
        """For each of these keys its last value in each log; null if the log lacks the key."""


def parse(bodies: Sequence[bytes], selection: "Selection") -> ParsedLists:
    """Raises MalformedLogGroup if a body is not a LogGroupList."""
    contents = "contents" in selection.view
    decoded = native.decode_lists(list(bodies), list(selection.keys), contents)
    return _PlainLists(bodies) if decoded is None else _NativeLists(decoded, selection.keys)


class _PlainLists:
    """The columns of lists that are read in Python, each made when it is used."""

    def __init__(self, bodies: Sequence[bytes]) -> None:
        lists = [[read_group(bytes(group)) for group in split(body)] for body in bodies]
        self.replaced = 0
        self.groups = tuple(map(len, lists))
        self._groups: list[RawLogGroup] = list(chain.from_iterable(lists))
        self._logs = [log for group in self._groups for log in group.logs]
        sizes = [len(group.logs) for group in self._groups]
        self.first_rows = pa.array([0, *accumulate(sizes)], pa.int32())
        numbers = (number for number, size in enumerate(sizes) for _ in range(size))
        self.group_of_log = pa.array(numbers, pa.int32())

    def times(self) -> pa.Array:
        times = [log.time * 1_000_000 + (_below_second(log.time_ns) or 0) // 1_000 for log in self._logs]
        return pa.array(times, TIME_TYPE)

    def nanoseconds(self) -> pa.Array:
        return pa.array([_below_second(log.time_ns) for log in self._logs], NANOSECONDS_TYPE)

    def topics(self) -> pa.Array:
        return self._texts([group.topic for group in self._groups])

    def sources(self) -> pa.Array:
        return self._texts([group.source for group in self._groups])

    def tags(self) -> pa.Array:
        return self._map([self._last_values(group.tags) for group in self._groups])

    def contents(self) -> pa.Array:
        return self._map(self._contents)

    def of_keys(self, keys: Sequence[str]) -> list[pa.Array]:
        return [self._texts([values.get(key) for values in self._contents]) for key in keys]

    @cached_property
    def _contents(self) -> list[dict[str, bytes]]:
        return [self._last_values(log.contents) for log in self._logs]

    def _last_values(self, pairs: Iterable[RawPair]) -> dict[str, bytes]:
        """The last value of each key."""
        values: dict[str, bytes] = {}
        for raw, value in pairs:
            key = self._text(raw)
            values.pop(key, None)
            values[key] = value
        return values

    def _map(self, lists: list[dict[str, bytes]]) -> pa.Array:
        keys = [key for values in lists for key in values]
        values = [value for values in lists for value in values.values()]
        ends = pa.array([0, *accumulate(map(len, lists))], pa.int32())
        return pa.MapArray.from_arrays(ends, pa.array(keys, pa.string()), self._texts(values))

    def _texts(self, values: Sequence[bytes | None]) -> pa.Array:
        column = pa.array(values, pa.binary())
        try:
            return column.cast(pa.string())  # much faster than making a text of each value
        except pa.ArrowInvalid:
            return pa.array([None if raw is None else self._text(raw) for raw in values], pa.string())

    def _text(self, raw: bytes) -> str:
        try:
            return raw.decode()
        except UnicodeDecodeError:
            self.replaced += 1
            return raw.decode(errors="replace")


def _below_second(time_ns: int | None) -> int | None:
    """Nanoseconds that are less than a second, otherwise None. A producer may write larger numbers, with
    which no log could be written again."""
    return time_ns if time_ns is not None and time_ns < NANOSECONDS else None


class _NativeLists:
    """The columns that the native part has filled."""

    replaced = 0

    def __init__(self, decoded: "DecodedLists", keys: tuple[str, ...]) -> None:
        self._decoded = decoded
        self._keys = keys
        self.groups = tuple(decoded.groups)
        self.first_rows = _fixed(decoded.first_rows, pa.int32(), sum(self.groups) + 1)
        self._logs = self.first_rows[-1].as_py()
        self.group_of_log = _fixed(decoded.group_of_log, pa.int32(), self._logs)

    def times(self) -> pa.Array:
        return _fixed(self._decoded.times_us, TIME_TYPE, self._logs)

    def nanoseconds(self) -> pa.Array:
        valid, nulls, values = self._decoded.time_ns
        buffers = [pa.py_buffer(valid), pa.py_buffer(values)]
        return pa.Array.from_buffers(NANOSECONDS_TYPE, self._logs, buffers, nulls)

    def topics(self) -> pa.Array:
        return _texts_of(self._decoded.topics, sum(self.groups))

    def sources(self) -> pa.Array:
        return _texts_of(self._decoded.sources, sum(self.groups))

    def tags(self) -> pa.Array:
        return _map_of(self._decoded.tags, sum(self.groups))

    def contents(self) -> pa.Array:
        assert self._decoded.contents is not None, "they were not wanted"
        return _map_of(self._decoded.contents, self._logs)

    def of_keys(self, keys: Sequence[str]) -> list[pa.Array]:
        assert tuple(keys) == self._keys, "others were wanted"
        return [_texts_of(texts, self._logs, valid, nulls) for valid, nulls, texts in self._decoded.keys]


def _fixed(values: "Buffer", kind: pa.DataType, length: int) -> pa.Array:
    return pa.Array.from_buffers(kind, length, [None, pa.py_buffer(values)], 0)


def _texts_of(texts: "TextColumn", length: int, valid: "Buffer | None" = None, nulls: int = 0) -> pa.Array:
    ends, data = map(pa.py_buffer, texts)
    bits = pa.py_buffer(valid) if valid is not None and nulls else None
    return pa.Array.from_buffers(pa.string(), length, [bits, ends, data], nulls)


def _map_of(pairs: "PairColumn", length: int) -> pa.Array:
    ends, keys, values = pairs
    offsets = _fixed(ends, pa.int32(), length + 1)
    number = offsets[-1].as_py()
    return pa.MapArray.from_arrays(offsets, _texts_of(keys, number), _texts_of(values, number))


SCHEMA = pa.schema(
    [
        pa.field("__time__", TIME_TYPE),
        # Below a second, since Spark's timestamps have microseconds; null if the log has none.
        pa.field("__time_ns__", NANOSECONDS_TYPE),
        pa.field("__topic__", pa.string()),
        pa.field("__source__", pa.string()),
        pa.field("__tags__", TEXTS),
        pa.field("contents", TEXTS),
        pa.field("__shard__", pa.int32()),
        pa.field("__cursor__", pa.int64()),
        pa.field("__index__", pa.int32()),
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The columns of the rows: columns of the view, in this order, then a column of texts for each of `keys`,
    with the value of the last content with this key, and null for a log without one."""

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

    def between(self, begin: int, end: int, only: tuple[int, ...] | None = None) -> pa.RecordBatch:
        """The rows of the log groups from one index to another, or only of their logs in `only`."""
        first = self.first_rows[begin].as_py()
        rows = self.rows.slice(first, self.first_rows[end].as_py() - first)
        return rows if only is None else rows.take(pa.array(only, pa.int32()))


@dataclass(frozen=True, slots=True)
class Body:
    """One LogGroupList. Its first log group has the cursor `first_cursor`, and the others follow."""

    first_cursor: int
    content: bytes


def decode(bodies: Sequence[Body], *, shard: int, selection: Selection = EVERYTHING) -> Decoded:
    """Decode some LogGroupLists of one shard, in one step: each step has a fixed cost, and a producer may
    write log groups of one log. Raises MalformedLogGroup."""
    lists = parse([body.content for body in bodies], selection)
    cursors = [
        pa.arange(body.first_cursor, body.first_cursor + count)
        for body, count in zip(bodies, lists.groups, strict=True)
    ]
    made = _Columns(lists, cursors=pa.concat_arrays(cursors), shard=shard)
    columns = [made.of_view(name) for name in selection.view] + lists.of_keys(selection.keys)
    rows = pa.RecordBatch.from_arrays(columns, schema=schema_of(selection))
    return Decoded(rows=rows, groups=lists.groups, first_rows=lists.first_rows, replaced=lists.replaced)


def table(batches: Sequence[pa.RecordBatch]) -> pa.Table:
    """The rows of all batches, of which there may be none."""
    return pa.Table.from_batches(batches, schema=SCHEMA)


def schema_of(selection: Selection) -> pa.Schema:
    """The schema of the rows of a selection."""
    texts = [pa.field(key, pa.string()) for key in selection.keys]
    return pa.schema([*(SCHEMA.field(name) for name in selection.view), *texts])


class _Columns:
    """Makes the columns of the view from parsed lists, each only if it is selected."""

    def __init__(self, lists: ParsedLists, *, cursors: pa.Array, shard: int) -> None:
        self._lists = lists
        self._cursors = cursors
        self._shard = shard

    def of_view(self, name: str) -> pa.Array:
        lists, logs = self._lists, len(self._lists.group_of_log)
        match name:
            case "__time__":
                return lists.times()
            case "__time_ns__":
                return lists.nanoseconds()
            case "__topic__":
                return self._of_group(lists.topics())
            case "__source__":
                return self._of_group(lists.sources())
            case "__tags__":
                return self._of_group(lists.tags())
            case "contents":
                return lists.contents()
            case "__shard__":
                return pa.repeat(pa.scalar(self._shard, pa.int32()), logs)
            case "__cursor__":
                return self._of_group(self._cursors)
            case _:
                # Takes 0.05 s of CPU time, and processes of Spark that read no log load this module as well.
                import pyarrow.compute as pc

                first = self._of_group(lists.first_rows.slice(0, len(self._cursors)))
                return pc.subtract(pa.arange(0, logs), first).cast(pa.int32())

    def _of_group(self, column: pa.Array) -> pa.Array:
        return column.take(self._lists.group_of_log)
