"""Our coder next to Google's, which has its description of the messages from Pulsar itself."""

import re
from enum import IntEnum
from typing import Any

import pytest
from google.protobuf.descriptor import FieldDescriptor
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import NODEFAULT, Struct
from msgspec.structs import fields

from loghub_service.pulsar.wire.codec import FieldKind, decode, encode
from loghub_service.pulsar.wire.commands import COMMANDS
from loghub_service.pulsar.wire.errors import ServerError
from loghub_service.pulsar.wire.frames import LENGTH_BYTES, decode_frame, encode_frame
from loghub_service.pulsar.wire.producers import CompressionType
from loghub_service.pulsar.wire.values import FirstChunkIdData
from tests.loghub_service.pulsar import official
from tests.loghub_service.pulsar.wire.messages import (
    AS_NUMBERS,
    METADATA,
    commands,
    fields_of,
    frame_of,
    messages_of,
    unsaid_of,
)

pytestmark = pytest.mark.tools
EXAMPLES = pytest.mark.parametrize("examples", [200, pytest.param(20_000, marks=pytest.mark.deep)])
TYPES = {
    FieldKind.INT32: FieldDescriptor.TYPE_INT32,
    FieldKind.INT64: FieldDescriptor.TYPE_INT64,
    FieldKind.UINT32: FieldDescriptor.TYPE_UINT32,
    FieldKind.UINT64: FieldDescriptor.TYPE_UINT64,
    FieldKind.BOOL: FieldDescriptor.TYPE_BOOL,
    FieldKind.DOUBLE: FieldDescriptor.TYPE_DOUBLE,
    FieldKind.STRING: FieldDescriptor.TYPE_STRING,
    FieldKind.BYTES: FieldDescriptor.TYPE_BYTES,
}
# Our classes that have a name of their own.
NAMES = {FirstChunkIdData: "MessageIdData"}
# What the broker always says, although Pulsar may leave it out.
ALWAYS_SAID = {
    "CommandConnected": {"max_message_size", "feature_flags"},
    "CommandAuthChallenge": {"challenge", "server_version"},
    "CommandPartitionedTopicMetadataResponse": {"response"},
    "CommandLookupTopicResponse": {"response"},
    "CommandSendReceipt": {"message_id"},
    "CommandAckResponse": {"request_id"},
}


# What the broker says unless it says something else.
OUR_DEFAULTS = ("protocol_version", "authoritative")


def theirs(message: type[Struct]) -> type[Any]:
    return official.messages()[NAMES.get(message, message.__name__)]


def plain(name: str) -> str:
    """Pulsar's names are in snake case and in camel case."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def every_class() -> dict[str, type[Struct]]:
    found: dict[str, type[Struct]] = {}
    waiting: list[type[Struct]] = [*COMMANDS, *METADATA]
    while waiting:
        message = waiting.pop()
        if message.__name__ not in found:
            found[message.__name__] = message
            kinds = [kind for _, _, kind in fields_of(message).values()]
            waiting += [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Struct)]
    return found


def test_commands_have_pulsars_numbers() -> None:
    base = official.messages()["BaseCommand"].DESCRIPTOR
    for message, number in COMMANDS.items():
        assert base.fields_by_number[number].message_type.name == message.__name__
        assert number in base.enum_types_by_name["Type"].values_by_number


@pytest.mark.parametrize("message", every_class().values(), ids=every_class())
def test_fields_are_as_pulsar_describes_them(message: type[Struct]) -> None:
    descriptor = theirs(message).DESCRIPTOR
    known = {field.name: field for field in fields(message)}
    for name, (number, repeated, kind) in fields_of(message).items():
        field = descriptor.fields_by_number[number]
        assert plain(field.name) == name
        assert (field.label == FieldDescriptor.LABEL_REPEATED) == repeated
        if name not in ALWAYS_SAID.get(message.__name__, ()):
            assert (field.label == FieldDescriptor.LABEL_REQUIRED) == known[name].required, name
        if isinstance(kind, FieldKind):
            is_number = field.enum_type is not None and name in AS_NUMBERS
            assert field.type == (FieldDescriptor.TYPE_ENUM if is_number else TYPES[kind])
        elif issubclass(kind, IntEnum):
            assert {int(one) for one in kind} == set(field.enum_type.values_by_number)
            names = {plain(one.name): one.number for one in field.enum_type.values}
            assert all(names[plain(one.name)] == one for one in kind if kind is not ServerError)
        else:
            assert field.message_type.name == NAMES.get(kind, kind.__name__)


def test_codecs_have_pulsars_numbers() -> None:
    compression = theirs(METADATA[0]).DESCRIPTOR.fields_by_name["compression"].enum_type
    assert {one.name: int(one) for one in CompressionType} == {
        one.name: one.number for one in compression.values
    }


def test_errors_have_pulsars_numbers() -> None:
    error = official.messages()["CommandError"].DESCRIPTOR.fields_by_name["error"].enum_type
    assert {plain(one.name): one.number for one in error.values} == {
        one.name.lower(): int(one) for one in ServerError
    }


def as_theirs(message: Struct) -> Any:
    """The same message as Google's protobuf makes it."""
    made = theirs(type(message))()
    for name, (number, repeated, kind) in fields_of(type(message)).items():
        value = getattr(message, name)
        field = made.DESCRIPTOR.fields_by_number[number].name
        if value is None or (name, value) in unsaid_of(type(message)).items():
            continue
        if isinstance(kind, type) and issubclass(kind, Struct):
            if repeated:
                getattr(made, field).extend(as_theirs(each) for each in value)
            else:
                getattr(made, field).CopyFrom(as_theirs(value))
        elif repeated:
            getattr(made, field).extend(value)
        else:
            setattr(made, field, value)
    return made


@EXAMPLES
def test_what_we_write_is_what_they_read_and_the_other_way_round(examples: int) -> None:
    @settings(max_examples=examples)
    @given(commands() | st.sampled_from(METADATA).flatmap(messages_of))
    def check(message: Struct) -> None:
        made = as_theirs(message)
        assert theirs(type(message)).FromString(encode(message)) == made
        assert decode(type(message), made.SerializeToString()) == message

    check()


@settings(max_examples=100)
@given(commands())
def test_frames_of_either_are_the_same_to_the_other(command: Struct) -> None:
    number = COMMANDS[type(command)]
    base = official.messages()["BaseCommand"]
    made = base(type=number)
    getattr(made, base.DESCRIPTOR.fields_by_number[number].name).CopyFrom(as_theirs(command))
    frame = encode_frame(command)[LENGTH_BYTES:]
    assert base.FromString(frame[LENGTH_BYTES:]) == made
    assert decode_frame(frame_of(made.SerializeToString())).command == command


@pytest.mark.parametrize("message", every_class().values(), ids=every_class())
def test_what_a_client_leaves_out_is_pulsars_default(message: type[Struct]) -> None:
    """The default of Pulsar, or None if it has none, so that absent and empty differ."""
    descriptor = theirs(message).DESCRIPTOR
    for known in fields(message):
        field = descriptor.fields_by_number[fields_of(message)[known.name][0]]
        if known.default is not NODEFAULT and known.default not in (None, ()):
            assert known.default == field.default_value or known.name in OUR_DEFAULTS
