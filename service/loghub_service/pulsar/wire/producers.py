"""The commands of producers, and what precedes the payload of a message.

https://pulsar.apache.org/docs/4.0.x/developing-binary-protocol/#producer
"""

from enum import IntEnum
from typing import Annotated

from msgspec import Struct

from loghub_service.pulsar.wire.codec import Bool, Bytes, Int32, Int64, String, UInt32, UInt64
from loghub_service.pulsar.wire.errors import ServerError
from loghub_service.pulsar.wire.values import KeyValue, MessageIdData, Schema


class ProducerAccessMode(IntEnum):
    """Whether other producers may use the topic at the same time."""

    SHARED = 0
    EXCLUSIVE = 1
    WAIT_FOR_EXCLUSIVE = 2
    EXCLUSIVE_WITH_FENCING = 3


class CompressionType(IntEnum):
    """The codec of a payload: a stream of zlib, a frame of zstd, or a bare block of LZ4 or snappy."""

    NONE = 0
    LZ4 = 1
    ZLIB = 2
    ZSTD = 3
    SNAPPY = 4


class CommandProducer(Struct, frozen=True, kw_only=True):
    """Without a name the broker makes one. ``epoch`` is how often the client has made this producer again,
    and ``topic_epoch`` what the broker said when an exclusive one was made first."""

    topic: Annotated[String, 1]
    producer_id: Annotated[UInt64, 2]
    request_id: Annotated[UInt64, 3]
    producer_name: Annotated[String | None, 4] = None
    encrypted: Annotated[Bool, 5] = False
    metadata: Annotated[tuple[KeyValue, ...], 6] = ()
    schema: Annotated[Schema | None, 7] = None
    epoch: Annotated[UInt64, 8] = 0
    user_provided_producer_name: Annotated[Bool, 9] = True
    producer_access_mode: Annotated[ProducerAccessMode, 10] = ProducerAccessMode.SHARED
    topic_epoch: Annotated[UInt64 | None, 11] = None
    txn_enabled: Annotated[Bool, 12] = False
    initial_subscription_name: Annotated[String | None, 13] = None


class CommandProducerSuccess(Struct, frozen=True, kw_only=True):
    """``schema_version`` is empty if there is none: Java's clients raise an error if it is not set. A client
    that learns that the producer is not ready waits for another response."""

    request_id: Annotated[UInt64, 1]
    producer_name: Annotated[String, 2]
    last_sequence_id: Annotated[Int64, 3] = -1
    schema_version: Annotated[Bytes, 4] = b""
    topic_epoch: Annotated[UInt64 | None, 5] = None
    producer_ready: Annotated[Bool, 6] = True


class CommandSend(Struct, frozen=True, kw_only=True):
    """A message, a batch of them, or a chunk of one; metadata and payload follow."""

    producer_id: Annotated[UInt64, 1]
    sequence_id: Annotated[UInt64, 2]
    num_messages: Annotated[Int32, 3] = 1
    txnid_least_bits: Annotated[UInt64, 4] = 0
    txnid_most_bits: Annotated[UInt64, 5] = 0
    highest_sequence_id: Annotated[UInt64, 6] = 0
    is_chunk: Annotated[Bool, 7] = False
    marker: Annotated[Bool, 8] = False


class CommandSendReceipt(Struct, frozen=True, kw_only=True):
    """The message is durable."""

    producer_id: Annotated[UInt64, 1]
    sequence_id: Annotated[UInt64, 2]
    message_id: Annotated[MessageIdData, 3]
    highest_sequence_id: Annotated[UInt64, 4] = 0


class CommandSendError(Struct, frozen=True, kw_only=True):
    """The message is not stored."""

    producer_id: Annotated[UInt64, 1]
    sequence_id: Annotated[UInt64, 2]
    error: Annotated[ServerError, 3]
    message: Annotated[String, 4]


class CommandCloseProducer(Struct, frozen=True, kw_only=True):
    """A client says that the producer is done, or the broker says that the client has to create it again."""

    producer_id: Annotated[UInt64, 1]
    request_id: Annotated[UInt64, 2]
    assigned_broker_service_url: Annotated[String | None, 3] = None
    assigned_broker_service_url_tls: Annotated[String | None, 4] = None


class EncryptionKeys(Struct, frozen=True, kw_only=True):
    """A key with which the payload is encrypted."""

    key: Annotated[String, 1]
    value: Annotated[Bytes, 2]
    metadata: Annotated[tuple[KeyValue, ...], 3] = ()


class MessageMetadata(Struct, frozen=True, kw_only=True):
    """The metadata of an entry, and of its message if the entry is no batch. Times are in unix ms. Only a
    batch has ``num_messages_in_batch``, even a batch of one message."""

    producer_name: Annotated[String, 1]
    sequence_id: Annotated[UInt64, 2]
    publish_time: Annotated[UInt64, 3]
    properties: Annotated[tuple[KeyValue, ...], 4] = ()
    replicated_from: Annotated[String | None, 5] = None
    partition_key: Annotated[String | None, 6] = None
    replicate_to: Annotated[tuple[String, ...], 7] = ()
    compression: Annotated[Int32 | None, 8] = None
    uncompressed_size: Annotated[UInt32 | None, 9] = None
    num_messages_in_batch: Annotated[Int32 | None, 11] = None
    event_time: Annotated[UInt64 | None, 12] = None
    encryption_keys: Annotated[tuple[EncryptionKeys, ...], 13] = ()
    encryption_algo: Annotated[String | None, 14] = None
    encryption_param: Annotated[Bytes | None, 15] = None
    schema_version: Annotated[Bytes | None, 16] = None
    partition_key_b64_encoded: Annotated[Bool | None, 17] = None
    ordering_key: Annotated[Bytes | None, 18] = None
    deliver_at_time: Annotated[Int64 | None, 19] = None
    marker_type: Annotated[Int32 | None, 20] = None
    txnid_least_bits: Annotated[UInt64 | None, 22] = None
    txnid_most_bits: Annotated[UInt64 | None, 23] = None
    highest_sequence_id: Annotated[UInt64 | None, 24] = None
    null_value: Annotated[Bool | None, 25] = None
    uuid: Annotated[String | None, 26] = None
    num_chunks_from_msg: Annotated[Int32 | None, 27] = None
    total_chunk_msg_size: Annotated[Int32 | None, 28] = None
    chunk_id: Annotated[Int32 | None, 29] = None
    null_partition_key: Annotated[Bool | None, 30] = None


class SingleMessageMetadata(Struct, frozen=True, kw_only=True):
    """What precedes each message of a batch."""

    properties: Annotated[tuple[KeyValue, ...], 1] = ()
    partition_key: Annotated[String | None, 2] = None
    payload_size: Annotated[Int32, 3]
    compacted_out: Annotated[Bool | None, 4] = None
    event_time: Annotated[UInt64 | None, 5] = None
    partition_key_b64_encoded: Annotated[Bool | None, 6] = None
    ordering_key: Annotated[Bytes | None, 7] = None
    sequence_id: Annotated[UInt64 | None, 8] = None
    null_value: Annotated[Bool | None, 9] = None
    null_partition_key: Annotated[Bool | None, 10] = None
