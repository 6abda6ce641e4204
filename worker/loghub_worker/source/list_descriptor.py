"""The messages of a pulled body (docs/sls-protocol.md 3), as descriptors of protobuf.

`loghub_worker.source.arrow_decoder` gives them to the parser into Arrow, and `loghub_worker.consumer.batch`
to protobuf itself, for handlers that take one log group after the other.
"""

from functools import cache
from typing import Any, Literal

from google.protobuf import descriptor_pb2, descriptor_pool

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
