"""Random commands by the annotations of their classes, and the bytes of frames."""

import struct
from enum import IntEnum
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import fields

from loghub_service.pulsar.wire.codec import UNSAID, FieldKind
from loghub_service.pulsar.wire.commands import COMMANDS
from loghub_service.pulsar.wire.consumers import CommandMessage
from loghub_service.pulsar.wire.producers import CommandSend, MessageMetadata, SingleMessageMetadata

SCALARS: dict[FieldKind, st.SearchStrategy[Any]] = {
    FieldKind.INT32: st.integers(-(1 << 31), (1 << 31) - 1),
    FieldKind.INT64: st.integers(-(1 << 63), (1 << 63) - 1),
    FieldKind.UINT32: st.integers(0, (1 << 32) - 1),
    FieldKind.UINT64: st.integers(0, (1 << 64) - 1),
    FieldKind.BOOL: st.booleans(),
    FieldKind.DOUBLE: st.floats(allow_nan=False),
    FieldKind.STRING: st.text(max_size=20),
    FieldKind.BYTES: st.binary(max_size=20),
}
# Enumerations that we keep as numbers, so that one that is newer is not taken for absent, and how many values
# they have.
AS_NUMBERS = {"compression": 5, "type": 21, "validation_error": 5}
WITH_ENTRY = (CommandSend, CommandMessage)
WITHOUT_ENTRY = tuple(command for command in COMMANDS if command not in WITH_ENTRY)
METADATA = (MessageMetadata, SingleMessageMetadata)


@cache
def fields_of(message: type[Struct]) -> dict[str, tuple[int, bool, Any]]:
    """By name the number of each field, whether it is repeated, and its kind, enumeration or class."""
    found = {}
    for name, hint in get_type_hints(message, include_extras=True).items():
        plain, *notes = get_args(hint)
        if get_origin(plain) in (Union, UnionType):
            (plain,) = set(get_args(plain)) - {NoneType}
        repeated = get_origin(plain) is tuple
        if repeated:
            plain = get_args(plain)[0]
        if get_origin(plain) is Annotated:
            plain, *inner = get_args(plain)
            notes += inner
        (number,) = (note for note in notes if isinstance(note, int))
        found[name] = number, repeated, next((note for note in notes if isinstance(note, FieldKind)), plain)
    return found


@cache
def unsaid_of(message: type[Struct]) -> dict[str, Any]:
    """The fields whose default is not written, with that default."""
    hints = get_type_hints(message, include_extras=True)
    return {each.name: each.default for each in fields(message) if UNSAID in get_args(hints[each.name])}


@cache
def messages_of(message: type[Struct]) -> st.SearchStrategy[Struct]:
    """Values of a class. What may be absent is absent now and then."""
    strategies = {
        name: st.lists(_values_of(name, kind), max_size=3).map(tuple) if repeated else _values_of(name, kind)
        for name, (_, repeated, kind) in fields_of(message).items()
    }
    required = {field.name: strategies.pop(field.name) for field in fields(message) if field.required}
    return st.fixed_dictionaries(required, optional=strategies).map(lambda values: message(**values))


def _values_of(name: str, kind: Any) -> st.SearchStrategy[Any]:
    if kind is FieldKind.INT32 and name in AS_NUMBERS:
        return st.integers(0, AS_NUMBERS[name] - 1)
    if isinstance(kind, FieldKind):
        return SCALARS[kind]
    if issubclass(kind, IntEnum):
        return st.sampled_from(list(kind))
    return messages_of(kind)


def commands() -> st.SearchStrategy[Struct]:
    """Commands of every kind that no entry follows."""
    return st.sampled_from(WITHOUT_ENTRY).flatmap(messages_of)


def frame_of(body: bytes, entry: bytes = b"") -> bytes:
    """A frame without its length, of an encoded command."""
    return struct.pack(">I", len(body)) + body + entry
