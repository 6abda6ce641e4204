"""Frames, the broker's half: a length of four bytes, a command with a length of its own, and for SEND and
MESSAGE an entry: checksum, metadata and payload.

A frame is passed in without its length, and comes out with it, ready to be sent. All pure: a socket belongs
to the caller. https://pulsar.apache.org/docs/4.0.x/developing-binary-protocol/#framing
"""

import struct
from typing import Final, NamedTuple

import google_crc32c
from msgspec import Struct

from loghub.wire.errors import MalformedLogGroup
from loghub.wire.protobuf import BYTES, VARINT, fields, read_varint, tag, varint
from loghub_service.pulsar.wire.codec import Buffer, FieldBudget, decode, decode_part, encode
from loghub_service.pulsar.wire.commands import COMMANDS, NUMBERED
from loghub_service.pulsar.wire.consumers import CommandMessage
from loghub_service.pulsar.wire.errors import (
    MalformedCommand,
    RefusedMessage,
    ServerError,
    UnencodableCommand,
    UnsupportedCommand,
)
from loghub_service.pulsar.wire.producers import CommandSend, MessageMetadata

LENGTH_BYTES: Final = 4  # of a frame, and of a command in it
# Pulsar's defaults: `maxMessageSize`, and what its frames may have besides a message.
MAX_MESSAGE_BYTES: Final = 5 * 1024 * 1024
FRAME_MARGIN_BYTES: Final = 10 * 1024

# Everything but a message is far smaller: the schema of a producer, or an ACK of 10,000 ids (0.5 MB).
MAX_COMMAND_BYTES: Final = 1 << 20

_U32 = struct.Struct(">I")
# Of what follows a command: magic number and checksum, which counts from the size of the metadata on.
_CHECKSUM = struct.Struct(">HI")
_MAGIC: Final = 0x0E01
_TYPE_FIELD: Final = 1
_TYPE = tag(_TYPE_FIELD, VARINT)


class CommandFrame(NamedTuple):
    """A command, and the entry that follows it."""

    command: Struct
    entry: memoryview | None


class MessageEntry(NamedTuple):
    """A message, a batch or a chunk: its metadata, and the payload as it was sent."""

    metadata: MessageMetadata
    payload: bytes


def decode_frame(frame: Buffer) -> CommandFrame:
    """The command of a frame without its length, and for SEND and MESSAGE a view of the entry behind it,
    which `decode_entry` reads. Raises MalformedCommand."""
    view = memoryview(frame)
    if len(view) < LENGTH_BYTES:
        raise MalformedCommand(f"a frame of {len(view)} bytes")
    end = LENGTH_BYTES + _U32.unpack_from(view)[0]
    if not end <= min(len(view), MAX_COMMAND_BYTES):
        raise MalformedCommand(f"a command of {end - LENGTH_BYTES} bytes in a frame of {len(view)}")
    command = _decode_command(bytes(view[LENGTH_BYTES:end]))
    has_entry = isinstance(command, CommandSend | CommandMessage)
    if has_entry != (end < len(view)):
        raise MalformedCommand(f"{len(view) - end} bytes follow {type(command).__name__}")
    return CommandFrame(command, view[end:] if has_entry else None)


def _decode_command(body: bytes) -> Struct:
    number = None
    extents: dict[int, tuple[int, int]] = {}
    budget = FieldBudget()
    try:
        for field, wire_type, start, stop in fields(body, 0, len(body)):
            budget.spend()
            if field == _TYPE_FIELD and wire_type == VARINT:
                number, _ = read_varint(body, start, stop)
            elif field in NUMBERED and wire_type == BYTES:
                extents[field] = start, stop
    except MalformedLogGroup as error:  # raised by the coder of varints, which log groups share
        raise MalformedCommand(str(error)) from error
    if number is None:
        raise MalformedCommand("a command without a type")
    command = NUMBERED.get(number)
    if command is None:
        raise UnsupportedCommand(number)
    if number not in extents:
        raise MalformedCommand(f"the type {number} without {command.__name__}")
    return decode_part(command, body, *extents[number], budget)


def encode_frame(command: Struct) -> bytes:
    """The frame of a command without an entry, with its length. Raises UnencodableCommand. A command with an
    entry is written by `loghub_service.pulsar.wire.message_heads`."""
    body = _encode_command(command)
    return b"".join((_U32.pack(LENGTH_BYTES + len(body)), _U32.pack(len(body)), body))


def _encode_command(command: Struct) -> bytes:
    number = COMMANDS.get(type(command))
    if number is None:
        raise UnencodableCommand(f"{type(command).__name__} is no command")
    body = encode(command)
    return b"".join((_TYPE, varint(number), tag(number, BYTES), varint(len(body)), body))


def encode_entry(metadata: bytes, payload: Buffer) -> bytes:
    """The entry with this metadata, encoded, and this payload, with its checksum."""
    body = b"".join((_U32.pack(len(metadata)), metadata, payload))
    return _CHECKSUM.pack(_MAGIC, google_crc32c.value(body)) + body


def decode_entry(entry: Buffer) -> MessageEntry:
    """The metadata and the payload of what follows a SEND. A client may leave the checksum out.

    Raises RefusedMessage if the checksum is wrong, and MalformedCommand.
    """
    body = bytes(entry)
    if len(body) >= _CHECKSUM.size and body[:2] == _MAGIC.to_bytes(2, "big"):
        _, checksum = _CHECKSUM.unpack_from(body)
        body = body[_CHECKSUM.size :]
        if google_crc32c.value(body) != checksum:
            raise RefusedMessage(ServerError.CHECKSUM_ERROR, "the checksum of the message is wrong")
    if len(body) < _U32.size:
        raise MalformedCommand(f"an entry of {len(body)} bytes")
    end = _U32.size + _U32.unpack_from(body)[0]
    if end > len(body):
        raise MalformedCommand(f"metadata of {end - _U32.size} bytes in an entry of {len(body)}")
    return MessageEntry(decode(MessageMetadata, body[_U32.size : end]), body[end:])
