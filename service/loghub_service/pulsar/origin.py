"""What is stored together with the log group of a SEND, since no field of a log has a place for it.

With it a consumer gets messages as they were produced: a batch as a batch, a message alone as a message
alone, a chunk with its place among the others. The producer's name and sequence tell a message that is sent
again (`loghub_service.pulsar.sequences`).
"""

import msgspec

# Flags of one message. The time of its log is its event time, else its publish time; and its key was sent as
# bytes, which clients get as base64. Numbers, since an enumeration takes as long as all else of a message.
EVENT_TIME, BASE64_KEY = 1, 2


class MessageChunk(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A piece of a message that is larger than a frame. The message was compressed before it was cut, so the
    piece is stored as it was sent: ``compression`` and ``uncompressed_size`` describe the whole message."""

    uuid: str
    number: int  # from 0
    count: int
    total_size: int
    compression: int
    uncompressed_size: int


class PulsarOrigin(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """``partition`` is the one that the producer addressed (`loghub_service.kafka.producers.ProducerKey`),
    ``sequence`` the number of the first message and ``highest`` of the last one. ``flags`` has a byte for
    each message, or one byte if all have the same."""

    partition: int
    producer: str
    sequence: int
    highest: int
    publish_ms: int
    is_batch: bool
    is_named: bool  # by its user: only then is a message known that is sent again
    flags: bytes = b"\0"
    schema_version: bytes = b""
    deliver_at_ms: int | None = None
    chunk: MessageChunk | None = None
    # Event times that no log can have, in unix ms by the index of the message.
    late_event_ms: dict[int, int] | None = None

    def flags_of(self, index: int) -> int:
        """The flags of one message."""
        return self.flags[index if len(self.flags) > 1 else 0]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(PulsarOrigin).decode


def pack_origin(origin: PulsarOrigin) -> bytes:
    """The origin as it is stored."""
    return _encode(origin)


def unpack_origin(packed: bytes) -> PulsarOrigin:
    """Raises `msgspec.DecodeError`, which only damage can cause."""
    return _decode(packed)
