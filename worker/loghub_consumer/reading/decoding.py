"""Decodes pulled log groups into rows in Arrow.

One serialized LogGroupList (docs/sls-protocol.md 3) becomes one record batch of the view `logs`, without a
Python object for each log. A `Selection` names the columns that are made, and keys of the contents that
become columns of their own.

Where the native part is installed, it parses what is usual, and a parser of protobuf everything else.

The messages of a pulled body (docs/sls-protocol.md 3), as descriptors of protobuf.

This module gives them to the parser into Arrow, and `loghub_consumer.batch`
to protobuf itself, for handlers that take one log group after the other.

Parses LogGroupLists (docs/sls-protocol.md 3) into columns in Arrow, by a compiled parser of protobuf.

It parses into UTF-8 columns and fails on a body that contains other bytes. Such a body is parsed again into
binary columns, and each invalid text that is used is decoded with U+FFFD in place of the invalid bytes; the
number of these texts is known afterwards.

LogGroupLists as columns in Arrow, parsed by the native part: four times as fast as `parsed_lists`.

The native part fills the memory of the columns, which are read where they are.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Literal, Protocol

import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf import descriptor_pb2, descriptor_pool
from ptars import HandlerPool, PtarsConfig

from loghub.wire import native

if TYPE_CHECKING:
    from loghub_native import Buffer, DecodedLists, PairColumn, TextColumn


TextKind = Literal["text", "binary"]
_Field = descriptor_pb2.FieldDescriptorProto
_TIME_TYPES = {"Time": _Field.TYPE_UINT32, "Time_ns": _Field.TYPE_FIXED32}


@cache
def list_descriptor(kind: TextKind) -> Any:
    """The descriptor of LogGroupList, created once per process. Texts are UTF-8, or bytes."""
    text = _Field.TYPE_STRING if kind == "text" else _Field.TYPE_BYTES
    file = descriptor_pb2.FileDescriptorProto(name=f"loghub_{kind}.proto", package=kind, syntax="proto2")
    for name, fields in _messages(text).items():
        message = file.message_type.add(name=name)
        for number, (field, label, type_) in fields.items():
            of = {"type_name": f".{kind}.{type_}"} if isinstance(type_, str) else {"type": type_}
            described = message.field.add(name=field, number=number, label=label, **of)
            if isinstance(type_, str):
                described.type = _Field.TYPE_MESSAGE
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return pool.FindMessageTypeByName(f"{kind}.LogGroupList")


def _messages(text: int) -> dict[str, dict[int, tuple[str, int, int | str]]]:
    """The messages by field number. No field is required: as in other decoders, a missing field is empty."""
    optional, repeated = _Field.LABEL_OPTIONAL, _Field.LABEL_REPEATED
    pair: dict[int, tuple[str, int, int | str]] = {1: ("Key", optional, text), 2: ("Value", optional, text)}
    return {
        "Content": pair,
        "LogTag": pair,
        "Log": {
            1: ("Time", optional, _TIME_TYPES["Time"]),
            2: ("Contents", repeated, "Content"),
            4: ("Time_ns", optional, _TIME_TYPES["Time_ns"]),
        },
        "LogGroup": {
            1: ("Logs", repeated, "Log"),
            3: ("Topic", optional, text),
            4: ("Source", optional, text),
            6: ("LogTags", repeated, "LogTag"),
        },
        "LogGroupList": {1: ("LogGroups", repeated, "LogGroup")},
    }


TEXTS = pa.map_(pa.string(), pa.string())
TIME_TYPE = pa.timestamp("us", tz="UTC")
NANOSECONDS_TYPE = pa.int32()
NANOSECONDS = 1_000_000_000


class ParsedLists(Protocol):
    """Some lists. Unset texts are empty. Of a key that occurs twice in a log, or of a tag in a log group, the
    last value counts: a map with a key twice is none to many readers, and to functions of Spark."""

    @property
    def groups(self) -> tuple[int, ...]:
        """The number of log groups in each list."""

    @property
    def first_rows(self) -> pa.Array:
        """Where the logs of each log group begin, and at last the number of all logs."""

    @property
    def group_of_log(self) -> pa.Array:
        """The number of each log's log group."""

    @property
    def replaced(self) -> int:
        """In how many texts of the columns made so far bytes were replaced."""

    def times(self) -> pa.Array:
        """Of each log, in microseconds."""

    def nanoseconds(self) -> pa.Array:
        """The part of each log's time below a second; null if it has none."""

    def topics(self) -> pa.Array:
        """Of each log group."""

    def sources(self) -> pa.Array:
        """Of each log group."""

    def tags(self) -> pa.Array:
        """Of each log group, as a map."""

    def contents(self) -> pa.Array:
        """Of each log, as a map."""

    def of_keys(self, keys: Sequence[str]) -> list[pa.Array]:
        """For each of these keys its last value in each log; null if the log has none."""


def parse(bodies: Sequence[bytes]) -> ParsedLists:
    """Raises if a body is not a LogGroupList."""
    try:
        return _Parsed(_handler("text").list_to_record_batch(bodies))
    except Exception:  # noqa: BLE001 - ptars has one error type; an invalid body raises again below
        return _Parsed(_handler("binary").list_to_record_batch(bodies))


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


class _Parsed:
    """The columns of what ptars has parsed, each made when it is used."""

    def __init__(self, parsed: pa.RecordBatch) -> None:
        lists = parsed.column("LogGroups")
        self.groups = tuple(pc.fill_null(pc.list_value_length(lists), 0).to_pylist())
        self._groups = lists.flatten()
        self._text = _Texts()
        logs_of_group = self._groups.field("Logs")
        self._logs = logs_of_group.flatten()
        offsets = logs_of_group.offsets
        begin = offsets[0] if len(offsets) else pa.scalar(0, offsets.type)
        self.first_rows = pc.subtract(offsets, begin) if len(offsets) else pa.array([0], pa.int32())
        self.group_of_log = pc.list_parent_indices(logs_of_group)

    @property
    def replaced(self) -> int:
        return self._text.replaced

    def times(self) -> pa.Array:
        seconds = pc.multiply(pc.fill_null(self._logs.field("Time"), 0).cast(pa.int64()), 1_000_000)
        part = pc.divide(pc.fill_null(self.nanoseconds(), 0).cast(pa.int64()), 1_000)
        return pc.add(seconds, part).cast(TIME_TYPE)

    def nanoseconds(self) -> pa.Array:
        part = self._logs.field("Time_ns")
        return pc.if_else(pc.less(part, NANOSECONDS), part, None).cast(NANOSECONDS_TYPE)

    def topics(self) -> pa.Array:
        return _filled(self._text(self._groups.field("Topic")))

    def sources(self) -> pa.Array:
        return _filled(self._text(self._groups.field("Source")))

    def tags(self) -> pa.Array:
        return _parsed_map(self._groups.field("LogTags"), self._text)

    def contents(self) -> pa.Array:
        return _parsed_map(self._logs.field("Contents"), self._text)

    def of_keys(self, keys: Sequence[str]) -> list[pa.Array]:
        if not keys:
            return []
        contents = self._logs.field("Contents")
        begin, end = contents.offsets[0].as_py(), contents.offsets[-1].as_py()
        pairs = contents.values.slice(begin, end - begin)
        names = _filled(self._text(pairs.field("Key")))
        values = _filled(self._text(pairs.field("Value")))
        same = same_keys(names, pc.list_value_length(contents))
        if same is not None:
            places = {key: place for place, key in enumerate(same)}
            return [_every(values, len(same), places.get(key)) for key in keys]
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
    """The last value of each of the keys in each log, whatever contents the logs have."""
    key_of_pair = pc.index_in(names, value_set=pa.array(keys, pa.string()))
    columns = []
    for number in range(len(keys)):
        here = pc.equal(key_of_pair, number)  # null, as for another key, is filtered out too
        found = log_of_pair.filter(here).cast(pa.int64())
        backwards = pa.arange(len(found) - 1, -1, -1)
        last = pc.index_in(pa.arange(0, logs), value_set=found.take(backwards))
        columns.append(values.filter(here).take(backwards).take(last))
    return columns


def _filled(texts: pa.Array) -> pa.Array:
    """An unset text is empty. Without one nothing is copied."""
    return pc.fill_null(texts, "") if texts.null_count else texts


def _parsed_map(pairs: pa.ListArray, text: _Texts) -> pa.Array:
    """Convert list<Key, Value> to map<Key, Value>; of the pairs of a list with one key the last one stays."""
    begin, end = pairs.offsets[0].as_py(), pairs.offsets[-1].as_py()
    values = pairs.values.slice(begin, end - begin)
    offsets = pairs.offsets if begin == 0 else pc.subtract(pairs.offsets, pairs.offsets[0])
    key, value = _filled(text(values.field("Key"))), _filled(text(values.field("Value")))
    kept = _last_of_each_key(key, pc.list_parent_indices(pairs), pc.list_value_length(pairs))
    if kept is None:
        return pa.MapArray.from_arrays(offsets, key, value)
    before = [0, *accumulate(map(int, kept))]
    offsets = pa.array([before[offset] for offset in offsets.to_pylist()], pa.int32())
    mask = pa.array(kept, pa.bool_())
    return pa.MapArray.from_arrays(offsets, key.filter(mask), value.filter(mask))


def _last_of_each_key(names: pa.StringArray, list_of_pair: pa.Array, numbers: pa.Array) -> list[bool] | None:
    """Which pairs are the last ones of their list with their key; None if all are."""
    same = same_keys(names, numbers)
    if same is not None and len(set(same)) == len(same):
        return None
    keys = names.dictionary_encode()
    places = pc.add(
        pc.multiply(list_of_pair.cast(pa.int64()), len(keys.dictionary)), keys.indices.cast(pa.int64())
    )
    if pc.count_distinct(places).as_py() == len(places):
        return None
    last = {place: number for number, place in enumerate(places.to_pylist())}
    kept = [False] * len(places)
    for number in last.values():
        kept[number] = True
    return kept


@cache
def _handler(kind: TextKind) -> Any:
    """The parser of LogGroupList, created once per process."""
    described = list_descriptor(kind)
    return HandlerPool([described.file], PtarsConfig()).get_for_message(described)


def parse_natively(bodies: Sequence[bytes], keys: Sequence[str], contents: bool) -> ParsedLists | None:
    """None without the native part, and for lists that only `parsed_lists` can judge. It has the columns of
    these keys, and the contents only if they are wanted."""
    if native.decode_lists is None:
        return None
    decoded = native.decode_lists(list(bodies), list(keys), contents)
    return None if decoded is None else _Native(decoded, tuple(keys))


class _Native:
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
        return _texts(self._decoded.topics, sum(self.groups))

    def sources(self) -> pa.Array:
        return _texts(self._decoded.sources, sum(self.groups))

    def tags(self) -> pa.Array:
        return _native_map(self._decoded.tags, sum(self.groups))

    def contents(self) -> pa.Array:
        assert self._decoded.contents is not None, "they were not wanted"
        return _native_map(self._decoded.contents, self._logs)

    def of_keys(self, keys: Sequence[str]) -> list[pa.Array]:
        assert tuple(keys) == self._keys, "others were wanted"
        return [_texts(texts, self._logs, valid, nulls) for valid, nulls, texts in self._decoded.keys]


def _fixed(values: "Buffer", kind: pa.DataType, length: int) -> pa.Array:
    return pa.Array.from_buffers(kind, length, [None, pa.py_buffer(values)], 0)


def _texts(texts: "TextColumn", length: int, valid: "Buffer | None" = None, nulls: int = 0) -> pa.Array:
    ends, data = map(pa.py_buffer, texts)
    bits = pa.py_buffer(valid) if valid is not None and nulls else None
    return pa.Array.from_buffers(pa.string(), length, [bits, ends, data], nulls)


def _native_map(pairs: "PairColumn", length: int) -> pa.Array:
    ends, keys, values = pairs
    offsets = _fixed(ends, pa.int32(), length + 1)
    number = offsets[-1].as_py()
    return pa.MapArray.from_arrays(offsets, _texts(keys, number), _texts(values, number))


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
    """The columns of the rows: those of the view, in this order, then a column of texts for each of `keys`.
    It has the value of the last content with this key, and null for a log without one."""

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
    lists = parse_natively(contents, selection.keys, "contents" in selection.view) or parse(contents)
    cursors = [
        pa.arange(body.first_cursor, body.first_cursor + count)
        for body, count in zip(bodies, lists.groups, strict=True)
    ]
    made = _Columns(lists, cursors=pa.concat_arrays(cursors), shard=shard)
    columns = [made.of_view(name) for name in selection.view] + lists.of_keys(selection.keys)
    rows = pa.RecordBatch.from_arrays(columns, schema=schema_of(selection))
    return Decoded(rows=rows, groups=lists.groups, first_rows=lists.first_rows, replaced=lists.replaced)


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
                first = self._of_group(lists.first_rows.slice(0, len(self._cursors)))
                return pc.subtract(pa.arange(0, logs), first).cast(pa.int32())

    def _of_group(self, column: pa.Array) -> pa.Array:
        return column.take(self._lists.group_of_log)
