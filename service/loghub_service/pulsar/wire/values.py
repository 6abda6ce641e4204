"""The values that several commands have: ids of messages, properties and schemas."""

from typing import Annotated, Final

from msgspec import Struct

from loghub_service.pulsar.wire.codec import UNSAID, Bytes, Int32, Int64, String, UInt64

# Both numbers of an id have this value if it stands for the first message, or for the one that is next.
EARLIEST: Final = (1 << 64) - 1
LATEST: Final = (1 << 63) - 1


class KeyValue(Struct, frozen=True, kw_only=True):
    """A property of a message, a producer or a consumer."""

    key: Annotated[String, 1]
    value: Annotated[String, 2]


class KeyLongValue(Struct, frozen=True, kw_only=True):
    """A property with a number."""

    key: Annotated[String, 1]
    value: Annotated[UInt64, 2]


class FirstChunkIdData(Struct, frozen=True, kw_only=True):
    """The id of the first chunk, inside the id of a message in chunks."""

    ledger_id: Annotated[UInt64, 1]
    entry_id: Annotated[UInt64, 2]
    partition: Annotated[Int32, 3, UNSAID] = -1
    batch_index: Annotated[Int32, 4, UNSAID] = -1


class MessageIdData(Struct, frozen=True, kw_only=True):
    """An entry, or with ``batch_index`` one message of it. ``ack_set`` has a bit for each message of the
    batch, 64 in each number: 1 is not acknowledged."""

    ledger_id: Annotated[UInt64, 1]
    entry_id: Annotated[UInt64, 2]
    partition: Annotated[Int32, 3, UNSAID] = -1
    batch_index: Annotated[Int32, 4, UNSAID] = -1
    ack_set: Annotated[tuple[Int64, ...], 5] = ()
    batch_size: Annotated[Int32 | None, 6] = None
    first_chunk_message_id: Annotated[FirstChunkIdData | None, 7] = None


NO_SCHEMA: Final = 0  # as the type of a schema


class Schema(Struct, frozen=True, kw_only=True):
    """A schema as a client declares it. Its type stays a number, since there may be newer ones."""

    name: Annotated[String, 1]
    schema_data: Annotated[Bytes, 3]
    type: Annotated[Int32, 4]
    properties: Annotated[tuple[KeyValue, ...], 5] = ()
