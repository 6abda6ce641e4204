"""Commands of Pulsar come back as they were, and what is wrong with them raises one named error."""

import contextlib
import struct
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct

from loghub.wire.protobuf import varint
from loghub_service.pulsar.wire.codec import MAX_FIELDS, decode, encode
from loghub_service.pulsar.wire.commands import COMMANDS
from loghub_service.pulsar.wire.consumers import (
    AckType,
    CommandAck,
    CommandFlow,
    CommandMessage,
    CommandSubscribe,
    SubType,
)
from loghub_service.pulsar.wire.errors import (
    MalformedCommand,
    RefusedMessage,
    ServerError,
    UnencodableCommand,
    UnsupportedCommand,
)
from loghub_service.pulsar.wire.frames import (
    LENGTH_BYTES,
    MAX_COMMAND_BYTES,
    decode_entry,
    decode_frame,
    encode_entry,
    encode_frame,
)
from loghub_service.pulsar.wire.producers import CommandProducerSuccess, CommandSend, MessageMetadata
from loghub_service.pulsar.wire.session import (
    AuthData,
    CommandConnect,
    CommandConnected,
    CommandPing,
    FeatureFlags,
)
from loghub_service.pulsar.wire.values import KeyValue, MessageIdData
from tests.loghub_service.pulsar.client_messages import entry_frame
from tests.loghub_service.pulsar.wire.messages import METADATA, commands, frame_of, messages_of

SEND = CommandSend(producer_id=1, sequence_id=2)
METADATA_OF_ONE = encode(MessageMetadata(producer_name="p", sequence_id=2, publish_time=3))
ENTRY = encode_entry(METADATA_OF_ONE, b"payload")
PING = encode_frame(CommandPing())[LENGTH_BYTES:]
EXAMPLES = pytest.mark.parametrize("examples", [150, pytest.param(20_000, marks=pytest.mark.deep)])


@EXAMPLES
def test_a_command_comes_back(examples: int) -> None:
    @settings(max_examples=examples)
    @given(commands())
    def check(command: Struct) -> None:
        frame = encode_frame(command)
        assert int.from_bytes(frame[:LENGTH_BYTES]) == len(frame) - LENGTH_BYTES
        assert decode_frame(frame[LENGTH_BYTES:]) == (command, None)

    check()


@given(st.sampled_from(METADATA).flatmap(messages_of))
def test_metadata_comes_back(metadata: Struct) -> None:
    assert decode(type(metadata), encode(metadata)) == metadata


@given(messages_of(MessageMetadata), st.binary(max_size=50))
def test_an_entry_follows_a_send_and_a_message(metadata: MessageMetadata, payload: bytes) -> None:
    entry = encode_entry(encode(metadata), payload)
    message = CommandMessage(consumer_id=1, message_id=MessageIdData(ledger_id=1, entry_id=2))
    for command in (SEND, message):
        frame = entry_frame(command, entry)
        assert int.from_bytes(frame[:LENGTH_BYTES]) == len(frame) - LENGTH_BYTES
        found = decode_frame(frame[LENGTH_BYTES:])
        assert found.command == command
        assert found.entry is not None
        assert decode_entry(found.entry) == (metadata, payload)


def test_an_entry_may_have_no_checksum_but_no_wrong_one() -> None:
    without = struct.pack(">I", len(METADATA_OF_ONE)) + METADATA_OF_ONE + b"payload"
    assert decode_entry(without) == decode_entry(ENTRY)
    for at in range(2, len(ENTRY)):
        damaged = bytearray(ENTRY)
        damaged[at] ^= 1
        with pytest.raises(RefusedMessage) as caught:
            decode_entry(damaged)
        assert caught.value.code is ServerError.CHECKSUM_ERROR


@EXAMPLES
def test_damaged_frames_are_decoded_or_raise_their_error(examples: int) -> None:
    """Some bytes are changed, some are cut off, some follow."""

    @settings(max_examples=examples)
    @given(commands(), st.lists(st.tuples(st.integers(0), st.integers(0, 255)), max_size=4), st.data())
    def check(command: Struct, changes: list[tuple[int, int]], data: st.DataObject) -> None:
        frame = bytearray(encode_frame(command)[LENGTH_BYTES:])
        for at, byte in changes:
            frame[at % len(frame)] = byte
        end = data.draw(st.integers(0, len(frame)) | st.just(len(frame)))
        with contextlib.suppress(MalformedCommand):
            decode_frame(bytes(frame[:end]) + data.draw(st.binary(max_size=3)))

    check()


@EXAMPLES
def test_random_bytes_are_decoded_or_raise_their_error(examples: int) -> None:
    @settings(max_examples=examples)
    @given(st.binary(max_size=60), st.sampled_from(list(COMMANDS.values())))
    def check(body: bytes, number: int) -> None:
        for frame in (body, frame_of(body), frame_of(bytes((8, number)) + field(number, body))):
            with contextlib.suppress(MalformedCommand):
                decode_frame(frame)
        for entry in (body, frame_of(body)):
            with contextlib.suppress(MalformedCommand, RefusedMessage):
                decode_entry(entry)

    check()


def field(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


@given(commands())
def test_fields_that_are_newer_are_skipped(command: Struct) -> None:
    newer = b"".join(
        (
            varint(900 << 3),
            varint(7),
            field(901, b"text"),
            varint(902 << 3 | 1),
            bytes(8),
            varint(903 << 3 | 5),
        )
    )
    body = encode(command) + newer + bytes(4)
    number = COMMANDS[type(command)]
    assert (
        decode_frame(frame_of(newer + bytes(4) + bytes((8, number)) + field(number, body))).command == command
    )


def test_repeated_numbers_may_come_packed() -> None:
    message_id = MessageIdData(ledger_id=1, entry_id=2, ack_set=(-1, 5))
    body = encode(MessageIdData(ledger_id=1, entry_id=2)) + field(5, varint((1 << 64) - 1) + varint(5))
    assert decode(MessageIdData, body) == decode(MessageIdData, encode(message_id)) == message_id


def test_an_unknown_value_of_an_enumeration_counts_as_absent() -> None:
    body = encode(
        CommandSubscribe(topic="t", subscription="s", sub_type=SubType.SHARED, consumer_id=1, request_id=2)
    )
    position = varint(13 << 3) + b"\x09"
    assert decode(CommandSubscribe, body + position).initial_position == 0
    with pytest.raises(MalformedCommand, match="CommandAck without ack_type"):
        decode(CommandAck, b"\x08\x01\x10\x07")


def test_every_required_field_is_required() -> None:
    with pytest.raises(MalformedCommand, match="CommandFlow without message_permits"):
        decode(CommandFlow, b"\x08\x01")


@pytest.mark.parametrize(
    "body",
    [
        b"\x08",  # a varint that is cut off
        b"\x08" + b"\xff" * 10 + b"\x01",  # one of more than 64 bits
        b"\x00\x01",  # the field number 0
        b"\x0b\x08\x01\x0c",  # a group
        b"\x0f\x00",  # a wire type that is not defined
        b"\x0a\x7f\x00",  # a length that passes the end
        b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        b"\x09\x00",  # eight bytes of which one is there
    ],
)
def test_what_is_no_message_is_refused(body: bytes) -> None:
    for wrong in (body, frame_of(body), frame_of(b"\x08\x12" + field(18, body))):
        with pytest.raises(MalformedCommand):
            decode_frame(wrong)


def test_text_that_is_not_utf_8_is_refused() -> None:
    with pytest.raises(MalformedCommand, match="not UTF-8"):
        decode(KeyValue, field(1, b"\xff") + field(2, b""))


def test_a_command_that_is_not_offered_is_named() -> None:
    for number in (0, 1, 41, 50, 68, 2**64 - 1):
        with pytest.raises(UnsupportedCommand) as caught:
            decode_frame(frame_of(b"\x08" + varint(number)))
        assert caught.value.number == number


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\0\0\0",
        frame_of(b""),
        frame_of(b"\x92\x01\0"),  # PING without a type
        frame_of(b"\x08\x12"),  # the type of PING without its message
        PING + b"\0",  # PING with an entry
        encode_frame(SEND)[LENGTH_BYTES:],  # SEND without one
        struct.pack(">I", 2**32 - 1) + bytes(20),
    ],
)
def test_a_frame_has_a_command_and_an_entry_where_one_belongs(frame: bytes) -> None:
    with pytest.raises(MalformedCommand):
        decode_frame(frame)


@pytest.mark.parametrize(
    "entry", [b"", b"\x0e\x01", b"\0\0\0\x09\x08", struct.pack(">I", 2**32 - 1) + bytes(20)]
)
def test_an_entry_has_metadata(entry: bytes) -> None:
    with pytest.raises((MalformedCommand, RefusedMessage)):
        decode_entry(entry)
    with pytest.raises(MalformedCommand):
        decode_entry(bytes(4) + entry)


def test_the_fields_of_a_frame_are_bounded_also_those_that_are_skipped() -> None:
    message_id = encode(MessageIdData(ledger_id=1, entry_id=2))
    for unit, fields in ((field(3, message_id), 3), (varint(900 << 3) + b"\0", 1), (b"\x42\x00", 1)):
        ack = encode(CommandAck(consumer_id=1, ack_type=AckType.INDIVIDUAL)) + unit * (
            MAX_FIELDS // fields + 1
        )
        body = b"\x08\x0a" + field(10, ack)
        assert len(body) < MAX_COMMAND_BYTES or fields == 3
        with pytest.raises(MalformedCommand):
            decode_frame(frame_of(body))
    packed = field(5, bytes(MAX_FIELDS + 1))
    with pytest.raises(MalformedCommand, match="more than 131072 fields"):
        decode(MessageIdData, encode(MessageIdData(ledger_id=1, entry_id=2)) + packed)


def test_ten_thousand_ids_are_an_ack_that_is_accepted() -> None:
    ids = tuple(
        MessageIdData(ledger_id=2**40, entry_id=number, batch_index=5, ack_set=(-1,), batch_size=60)
        for number in range(10_000)
    )
    ack = CommandAck(consumer_id=1, ack_type=AckType.INDIVIDUAL, message_id=ids, request_id=7)
    assert decode_frame(encode_frame(ack)[LENGTH_BYTES:]).command == ack


def test_a_claimed_length_takes_no_memory() -> None:
    tracemalloc.start()
    try:
        for size in (2**31, 2**63):
            with pytest.raises(MalformedCommand):
                decode(KeyValue, b"\x0a" + varint(size) + bytes(100))
        with pytest.raises(MalformedCommand):
            decode_frame(struct.pack(">I", 2**31) + bytes(100))
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "message",
    [
        CommandFlow(consumer_id=-1, message_permits=1),
        CommandFlow(consumer_id=1, message_permits=2**32),
        CommandFlow(consumer_id=1, message_permits="1"),  # type: ignore[arg-type]
        CommandFlow(consumer_id=1 << 64, message_permits=1),
        MessageIdData(ledger_id=1, entry_id=1, partition=1 << 31),
        MessageIdData(ledger_id=1, entry_id=1, ack_set=(1 << 63,)),
        KeyValue(key=b"k", value="v"),  # type: ignore[arg-type]
        KeyValue(key="\ud800", value="v"),
        CommandMessage(consumer_id=1, message_id=KeyValue(key="k", value="v")),  # type: ignore[arg-type]
    ],
)
def test_what_a_message_cannot_carry_is_not_encoded(message: Struct) -> None:
    with pytest.raises(UnencodableCommand):
        encode(message)


def test_what_is_no_command_is_not_encoded() -> None:
    with pytest.raises(UnencodableCommand, match="KeyValue is no command"):
        encode_frame(KeyValue(key="k", value="v"))


def test_java_finds_every_field_that_it_reads_in_an_answer() -> None:
    """Fields that are their default are on the wire, too: trap 1 of Java's clients."""
    success = encode(CommandProducerSuccess(request_id=1, producer_name="p"))
    assert b"\x22\x00" in success  # the version of no schema
    assert b"\x18" + varint((1 << 64) - 1) in success  # the last sequence id -1
    flags = FeatureFlags(supports_get_partitioned_metadata_without_auto_creation=True)
    connected = CommandConnected(server_version="s", max_message_size=5, feature_flags=flags)
    assert b"\x22\x0a\x08\x00\x10\x00\x18\x00\x20\x00\x28\x01" in encode(connected)


def test_secrets_of_a_login_are_not_in_its_text() -> None:
    connect = CommandConnect(client_version="c", auth_method_name="token", auth_data=b"p#i#secret")
    assert "secret" not in repr(connect)
    assert "secret" not in repr(AuthData(auth_method_name="token", auth_data=b"p#i#secret"))
