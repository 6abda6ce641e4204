"""A check of a LogGroup by the protobuf library's parser, several times as fast as our own.

The library is more lenient than `loggroup_validation`: it skips what it does not know and repairs what it
can. So only a group that it parses and serializes again to the same bytes, none of them in unknown fields,
counts as checked. Such a group has each field once, in order, with its own wire type and shortest lengths,
which is what every protobuf library writes. About any other group this module says nothing.
"""

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message, message_factory
from google.protobuf.descriptor_pb2 import FeatureSet
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field

# A parsed log takes 12 times its bytes if it has nothing but its time; larger groups would take too much.
MAX_BYTES = 1 << 20

_PACKAGE = "loghub_check"
# Message, then its fields: number, type, and what is special about them.
_REQUIRED, _OPTIONAL, _REPEATED = "required", "optional", "repeated"
_FIELDS: dict[str, tuple[tuple[int, int, str, str], ...]] = {
    "Content": ((1, Field.TYPE_STRING, _REQUIRED, ""), (2, Field.TYPE_BYTES, _REQUIRED, "")),
    "LogTag": ((1, Field.TYPE_STRING, _REQUIRED, ""), (2, Field.TYPE_STRING, _REQUIRED, "")),
    "Log": (
        (1, Field.TYPE_UINT32, _REQUIRED, ""),
        (2, Field.TYPE_MESSAGE, _REPEATED, "Content"),
        (4, Field.TYPE_FIXED32, _OPTIONAL, ""),
    ),
    "LogGroup": (
        (1, Field.TYPE_MESSAGE, _REPEATED, "Log"),
        *((number, Field.TYPE_STRING, _OPTIONAL, "") for number in (2, 3, 4, 5)),
        (6, Field.TYPE_MESSAGE, _REPEATED, "LogTag"),
    ),
}


def _group_class() -> Any:
    """The message of a LogGroup whose texts must be UTF-8."""
    file = descriptor_pb2.FileDescriptorProto(
        name=f"{_PACKAGE}.proto", package=_PACKAGE, syntax="editions", edition=descriptor_pb2.EDITION_2023
    )
    for name, fields in _FIELDS.items():
        described = file.message_type.add(name=name)
        for number, kind, presence, of in fields:
            label = Field.LABEL_REPEATED if presence == _REPEATED else Field.LABEL_OPTIONAL
            field = described.field.add(name=f"f{number}", number=number, type=kind, label=label)
            if of:
                field.type_name = f".{_PACKAGE}.{of}"
            if presence == _REQUIRED:
                field.options.features.field_presence = FeatureSet.LEGACY_REQUIRED
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.LogGroup"))


_new_group = _group_class()


def count_logs(body: bytes) -> int | None:
    """The number of logs in a LogGroup that is certainly valid; None if this check cannot tell."""
    if len(body) > MAX_BYTES:
        return None
    group = _new_group()
    try:
        group.ParseFromString(body)
        group.DiscardUnknownFields()
        if group.SerializeToString() != body:
            return None
    except (message.DecodeError, message.EncodeError):
        return None
    count: int = len(group.f1)
    return count
