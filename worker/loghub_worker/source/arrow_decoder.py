"""Decodes pulled log groups into rows in Arrow.

One serialized LogGroupList (docs/sls-protocol.md 3) becomes one record batch of the view `logs`, without a
Python object for each log.

The fast path parses into UTF-8 columns and fails on a body that contains other bytes. Such a body is parsed
again into binary columns, and each invalid text is decoded with U+FFFD in place of the invalid bytes; the
number of these texts is returned.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf import descriptor_pb2, descriptor_pool
from ptars import HandlerPool, PtarsConfig

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
_Field = descriptor_pb2.FieldDescriptorProto
_TIME_TYPES = {"Time": _Field.TYPE_UINT32, "Time_ns": _Field.TYPE_FIXED32}


@dataclass(frozen=True, slots=True)
class Decoded:
    """The rows of one body, the number of its log groups, and that of its texts in which bytes were
    replaced."""

    rows: pa.RecordBatch
    groups: int
    replaced: int


def decode(body: bytes, *, shard: int, first_cursor: int) -> Decoded:
    """Decode one LogGroupList. Its first log group has the cursor `first_cursor`, and the others follow."""
    try:
        parsed = _handler("text").list_to_record_batch([body])
    except Exception:  # noqa: BLE001 - ptars has one error type; an invalid body raises again below
        return _decode_binary(body, shard=shard, first_cursor=first_cursor)
    rows = _rows(parsed, shard=shard, first_cursor=first_cursor)
    return Decoded(rows=rows, groups=_groups(parsed), replaced=0)


def _decode_binary(body: bytes, *, shard: int, first_cursor: int) -> Decoded:
    parsed = _handler("binary").list_to_record_batch([body])
    texts = _Texts()
    rows = _rows(parsed, shard=shard, first_cursor=first_cursor, texts=texts)
    return Decoded(rows=rows, groups=_groups(parsed), replaced=texts.replaced)


def _groups(parsed: pa.RecordBatch) -> int:
    return len(parsed.column("LogGroups").flatten())


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


def _rows(
    parsed: pa.RecordBatch, *, shard: int, first_cursor: int, texts: _Texts | None = None
) -> pa.RecordBatch:
    text = texts or _Texts()
    groups = parsed.column("LogGroups").flatten()  # one struct for each group
    logs_of_group = groups.field("Logs")
    group_of_log = pc.list_parent_indices(logs_of_group)
    logs = logs_of_group.flatten()
    per_group = {
        "__topic__": pc.fill_null(text(groups.field("Topic")), ""),
        "__source__": pc.fill_null(text(groups.field("Source")), ""),
        "__tags__": _map(groups.field("LogTags"), text),
        "__cursor__": pa.arange(first_cursor, first_cursor + len(groups)),
    }
    begins = logs_of_group.offsets.slice(0, len(groups))
    index = pc.subtract(pa.arange(0, len(logs)), pc.subtract(begins, _first(begins)).take(group_of_log))
    columns = {name: column.take(group_of_log) for name, column in per_group.items()} | {
        "__time__": _time(logs),
        "__time_ns__": _nanoseconds(logs),
        "contents": _map(logs.field("Contents"), text),
        "__shard__": pa.repeat(pa.scalar(shard, pa.int32()), len(logs)),
        "__index__": index.cast(pa.int32()),
    }
    return pa.RecordBatch.from_arrays([columns[name] for name in SCHEMA.names], schema=SCHEMA)


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
def _handler(kind: str) -> Any:
    """The parser of LogGroupList, created once per process. ``kind`` is ``text`` or ``binary``."""
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
    described = pool.FindMessageTypeByName(f"{kind}.LogGroupList")
    return HandlerPool([described.file], PtarsConfig()).get_for_message(described)


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
