"""Fetch and ListOffsets: reading records, and the offset for a time. Produce and InitProducerId: the batches
of producers, and the ids of idempotent ones.

https://kafka.apache.org/protocol.html#protocol_messages, KIP-98 (idempotent producers). Fetch sessions are
KIP-227; a session id of 0 in an answer refuses a session, and the client continues to name every partition.
"""

from typing import Annotated

from msgspec import Struct

from loghub_service.kafka.wire.codec import Int8, Int16, Int32, Int64, NullableString, Records, String, since


class PartitionProduceData(Struct, frozen=True, kw_only=True):
    """Exactly one record batch in versions 3 and later; not yet checked."""

    index: Int32
    records: Records


class TopicProduceData(Struct, frozen=True, kw_only=True):
    """The partitions of one topic."""

    name: String
    partition_data: tuple[PartitionProduceData, ...]


class ProduceRequest(Struct, frozen=True, kw_only=True):
    """``acks`` is 0 (no answer is sent), 1, or -1 for all in-sync replicas."""

    transactional_id: NullableString = None
    acks: Int16
    timeout_ms: Int32
    topic_data: tuple[TopicProduceData, ...]


class PartitionProduceResponse(Struct, frozen=True, kw_only=True):
    """``log_append_time_ms`` is -1 where records keep the producer's time."""

    index: Int32
    error_code: Int16 = 0
    base_offset: Int64 = -1
    log_append_time_ms: Int64 = -1
    log_start_offset: Annotated[Int64, since(5)] = -1


class TopicProduceResponse(Struct, frozen=True, kw_only=True):
    """The partitions of one topic."""

    name: String
    partition_responses: tuple[PartitionProduceResponse, ...]


class ProduceResponse(Struct, frozen=True, kw_only=True):
    """Unlike elsewhere, the throttle time is the last field."""

    responses: tuple[TopicProduceResponse, ...]
    throttle_time_ms: Int32 = 0


class InitProducerIdRequest(Struct, frozen=True, kw_only=True):
    """A transactional id is a request for transactions; null means idempotence only."""

    transactional_id: NullableString
    transaction_timeout_ms: Int32


class InitProducerIdResponse(Struct, frozen=True, kw_only=True):
    """The id and epoch that the producer writes into its batches."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id: Int64 = -1
    producer_epoch: Int16 = -1


# ListOffsets has these in place of a time.
LATEST_TIMESTAMP = -1
EARLIEST_TIMESTAMP = -2


class FetchPartition(Struct, frozen=True, kw_only=True):
    """``log_start_offset`` is only for replicas."""

    partition: Int32
    current_leader_epoch: Annotated[Int32, since(9)] = -1
    fetch_offset: Int64
    log_start_offset: Annotated[Int64, since(5)] = -1
    partition_max_bytes: Int32


class FetchTopic(Struct, frozen=True, kw_only=True):
    """The partitions of one topic."""

    topic: String
    partitions: tuple[FetchPartition, ...]


class ForgottenTopic(Struct, frozen=True, kw_only=True):
    """Partitions that a fetch session no longer has."""

    topic: String
    partitions: tuple[Int32, ...]


class FetchRequest(Struct, frozen=True, kw_only=True):
    """Answered when ``min_bytes`` are there, or after ``max_wait_ms``; ``replica_id`` is -1 for consumers."""

    replica_id: Int32 = -1
    max_wait_ms: Int32
    min_bytes: Int32
    max_bytes: Int32 = 0x7FFF_FFFF
    isolation_level: Int8 = 0
    session_id: Annotated[Int32, since(7)] = 0
    session_epoch: Annotated[Int32, since(7)] = -1
    topics: tuple[FetchTopic, ...]
    forgotten_topics_data: Annotated[tuple[ForgottenTopic, ...], since(7)] = ()
    rack_id: Annotated[String, since(11)] = ""


class AbortedTransaction(Struct, frozen=True, kw_only=True):
    """A transaction whose records a consumer skips."""

    producer_id: Int64
    first_offset: Int64


class PartitionData(Struct, frozen=True, kw_only=True):
    """``records`` are whole batches; the first may begin before the requested offset."""

    partition_index: Int32
    error_code: Int16 = 0
    high_watermark: Int64
    last_stable_offset: Int64 = -1
    log_start_offset: Annotated[Int64, since(5)] = -1
    aborted_transactions: tuple[AbortedTransaction, ...] | None = None
    preferred_read_replica: Annotated[Int32, since(11)] = -1
    records: Records = b""


class FetchableTopicResponse(Struct, frozen=True, kw_only=True):
    """The partitions of one topic."""

    topic: String
    partitions: tuple[PartitionData, ...]


class FetchResponse(Struct, frozen=True, kw_only=True):
    """``error_code`` is about the session; each partition has its own."""

    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, since(7)] = 0
    session_id: Annotated[Int32, since(7)] = 0
    responses: tuple[FetchableTopicResponse, ...]


class ListOffsetsPartition(Struct, frozen=True, kw_only=True):
    """``timestamp`` is in ms, or LATEST_TIMESTAMP or EARLIEST_TIMESTAMP."""

    partition_index: Int32
    current_leader_epoch: Annotated[Int32, since(4)] = -1
    timestamp: Int64


class ListOffsetsTopic(Struct, frozen=True, kw_only=True):
    """The partitions of one topic."""

    name: String
    partitions: tuple[ListOffsetsPartition, ...]


class ListOffsetsRequest(Struct, frozen=True, kw_only=True):
    """For each partition the first offset whose record is not older than a time."""

    replica_id: Int32 = -1
    isolation_level: Annotated[Int8, since(2)] = 0
    topics: tuple[ListOffsetsTopic, ...]


class ListOffsetsPartitionResponse(Struct, frozen=True, kw_only=True):
    """Time and offset are -1 if no record is as young."""

    partition_index: Int32
    error_code: Int16 = 0
    timestamp: Int64 = -1
    offset: Int64 = -1
    leader_epoch: Annotated[Int32, since(4)] = -1


class ListOffsetsTopicResponse(Struct, frozen=True, kw_only=True):
    """The partitions of one topic."""

    name: String
    partitions: tuple[ListOffsetsPartitionResponse, ...]


class ListOffsetsResponse(Struct, frozen=True, kw_only=True):
    """One answer for each partition of the request."""

    throttle_time_ms: Annotated[Int32, since(2)] = 0
    topics: tuple[ListOffsetsTopicResponse, ...]
