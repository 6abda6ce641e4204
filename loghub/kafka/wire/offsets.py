"""OffsetCommit, OffsetFetch and OffsetDelete: the positions that a consumer group has saved.

https://kafka.apache.org/protocol.html#The_Messages_OffsetCommit, KIP-496 (OffsetDelete).
"""

from typing import Annotated

from msgspec import Struct

from loghub.kafka.wire.fields import (
    Int16,
    Int32,
    Int64,
    NullableString,
    NullSince,
    String,
    between,
    since,
)


class OffsetCommitRequestPartition(Struct, frozen=True, kw_only=True):
    """``committed_offset`` is the next offset to read."""

    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Annotated[Int32, since(6)] = -1
    committed_metadata: NullableString


class OffsetCommitRequestTopic(Struct, frozen=True, kw_only=True):
    """The partitions of one topic."""

    name: String
    partitions: tuple[OffsetCommitRequestPartition, ...]


class OffsetCommitRequest(Struct, frozen=True, kw_only=True):
    """Generation -1 and an empty member id: a commit by a client that is no member."""

    group_id: String
    generation_id: Int32 = -1
    member_id: String = ""
    group_instance_id: Annotated[NullableString, since(7)] = None
    retention_time_ms: Annotated[Int64, between(2, 4)] = -1
    topics: tuple[OffsetCommitRequestTopic, ...]


class OffsetCommitResponsePartition(Struct, frozen=True, kw_only=True):
    """What became of one offset."""

    partition_index: Int32
    error_code: Int16 = 0


class OffsetCommitResponseTopic(Struct, frozen=True, kw_only=True):
    """The partitions of one topic."""

    name: String
    partitions: tuple[OffsetCommitResponsePartition, ...]


class OffsetCommitResponse(Struct, frozen=True, kw_only=True):
    """An error of the group is repeated in each partition."""

    throttle_time_ms: Annotated[Int32, since(3)] = 0
    topics: tuple[OffsetCommitResponseTopic, ...]


class OffsetFetchRequestTopic(Struct, frozen=True, kw_only=True):
    """The partitions of one topic."""

    name: String
    partition_indexes: tuple[Int32, ...]


class OffsetFetchRequest(Struct, frozen=True, kw_only=True):
    """``topics`` None asks for every offset of the group."""

    group_id: String
    topics: Annotated[tuple[OffsetFetchRequestTopic, ...] | None, NullSince(2)]


class OffsetFetchResponsePartition(Struct, frozen=True, kw_only=True):
    """An offset of -1 without an error: none was committed."""

    partition_index: Int32
    committed_offset: Int64 = -1
    committed_leader_epoch: Annotated[Int32, since(5)] = -1
    metadata: NullableString = ""
    error_code: Int16 = 0


class OffsetFetchResponseTopic(Struct, frozen=True, kw_only=True):
    """The partitions of one topic."""

    name: String
    partitions: tuple[OffsetFetchResponsePartition, ...]


class OffsetFetchResponse(Struct, frozen=True, kw_only=True):
    """``error_code`` is about the group; before version 2 it is only in the partitions."""

    throttle_time_ms: Annotated[Int32, since(3)] = 0
    topics: tuple[OffsetFetchResponseTopic, ...]
    error_code: Annotated[Int16, since(2)] = 0


class OffsetDeleteRequestPartition(Struct, frozen=True, kw_only=True):
    """One partition."""

    partition_index: Int32


class OffsetDeleteRequestTopic(Struct, frozen=True, kw_only=True):
    """The partitions of one topic."""

    name: String
    partitions: tuple[OffsetDeleteRequestPartition, ...]


class OffsetDeleteRequest(Struct, frozen=True, kw_only=True):
    """Offsets that the group forgets; it must not be subscribed to their topics."""

    group_id: String
    topics: tuple[OffsetDeleteRequestTopic, ...]


class OffsetDeleteResponsePartition(Struct, frozen=True, kw_only=True):
    """What became of one offset."""

    partition_index: Int32
    error_code: Int16 = 0


class OffsetDeleteResponseTopic(Struct, frozen=True, kw_only=True):
    """The partitions of one topic."""

    name: String
    partitions: tuple[OffsetDeleteResponsePartition, ...]


class OffsetDeleteResponse(Struct, frozen=True, kw_only=True):
    """Here the error of the group comes before the throttle time."""

    error_code: Int16 = 0
    throttle_time_ms: Int32 = 0
    topics: tuple[OffsetDeleteResponseTopic, ...] = ()
