"""Fetch and ListOffsets: reading records, and the offset for a time.

https://kafka.apache.org/protocol.html#The_Messages_Fetch. Fetch sessions are KIP-227; a session id of 0 in
an answer refuses one, and the client goes on naming every partition.
"""

from typing import Annotated

from msgspec import Struct

from loghub.kafka.wire.fields import Int8, Int16, Int32, Int64, Records, String, since

# ListOffsets takes them in place of a time.
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
