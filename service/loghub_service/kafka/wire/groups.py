"""The classic group protocol: FindCoordinator, JoinGroup, SyncGroup, Heartbeat and LeaveGroup;
DescribeGroups, ListGroups and DeleteGroups; OffsetCommit, OffsetFetch and OffsetDelete; and the assignments
that a leader writes for its members.

https://kafka.apache.org/protocol.html#protocol_messages, KIP-62 (rebalance timeout), KIP-345 (static
members), KIP-394 (a member id before the first join), KIP-229 (DeleteGroups), KIP-496 (OffsetDelete).

A coordinator passes subscriptions and assignments on unread. It reads a copy only where an answer depends on
it: OffsetDelete refuses topics to which the group is subscribed, and a status shows the partitions of each
member. The first two bytes are a version; newer versions append fields, so bytes after the known ones are
ignored (https://kafka.apache.org/documentation/#impl_consumer, KIP-429).
"""

from typing import Annotated, Any

from msgspec import Struct

from loghub_service.kafka.wire.codec import (
    MAX_REQUEST_ELEMENTS,
    Bool,
    Buffer,
    Bytes,
    Int8,
    Int16,
    Int32,
    Int64,
    NullableString,
    NullSince,
    Reader,
    Records,
    String,
    between,
    coder_of,
    since,
    until,
)
from loghub_service.kafka.wire.errors import MalformedFrame
from loghub_service.kafka.wire.topics import NO_OPERATIONS


class AssignedTopic(Struct, frozen=True, kw_only=True):
    """The partitions of one topic."""

    topic: String
    partitions: tuple[Int32, ...]


class ConsumerAssignment(Struct, frozen=True, kw_only=True):
    """The fields of version 0: the partitions of one member, and bytes of its assignor."""

    version: Int16 = 0
    assigned_partitions: tuple[AssignedTopic, ...]
    user_data: Records = None


def decode_assignment(assignment: Buffer) -> ConsumerAssignment:
    """The assignment that a leader wrote for a member. Raises MalformedFrame, also for no bytes at all."""
    decoded: ConsumerAssignment = _decode(ConsumerAssignment, assignment)
    return decoded


def _decode(message: type[Struct], content: Buffer) -> Any:
    value = coder_of(message, 0).decode(Reader(content, max_elements=MAX_REQUEST_ELEMENTS))
    if value.version < 0:
        raise MalformedFrame(f"version {value.version} of the consumer protocol")
    return value


class DescribeGroupsRequest(Struct, frozen=True, kw_only=True):
    """Groups by their ids."""

    groups: tuple[String, ...]
    include_authorized_operations: Annotated[Bool, since(3)] = False


class DescribedGroupMember(Struct, frozen=True, kw_only=True):
    """``member_metadata`` is the subscription for the chosen assignor."""

    member_id: String
    group_instance_id: Annotated[NullableString, since(4)] = None
    client_id: String
    client_host: String
    member_metadata: Bytes
    member_assignment: Bytes


class DescribedGroup(Struct, frozen=True, kw_only=True):
    """``group_state`` is one of Stable, Empty, Dead, PreparingRebalance, CompletingRebalance."""

    error_code: Int16 = 0
    group_id: String
    group_state: String = ""
    protocol_type: String = ""
    protocol_data: String = ""
    members: tuple[DescribedGroupMember, ...] = ()
    authorized_operations: Annotated[Int32, since(3)] = NO_OPERATIONS


class DescribeGroupsResponse(Struct, frozen=True, kw_only=True):
    """One entry for each group of the request."""

    throttle_time_ms: Annotated[Int32, since(1)] = 0
    groups: tuple[DescribedGroup, ...]


class ListGroupsRequest(Struct, frozen=True, kw_only=True):
    """A request without fields in the offered versions."""


class ListedGroup(Struct, frozen=True, kw_only=True):
    """A group; the protocol type of consumers is "consumer"."""

    group_id: String
    protocol_type: String


class ListGroupsResponse(Struct, frozen=True, kw_only=True):
    """The groups of this broker."""

    throttle_time_ms: Annotated[Int32, since(1)] = 0
    error_code: Int16 = 0
    groups: tuple[ListedGroup, ...] = ()


class DeleteGroupsRequest(Struct, frozen=True, kw_only=True):
    """Groups by their ids; only empty groups are deleted."""

    groups_names: tuple[String, ...]


class DeletableGroupResult(Struct, frozen=True, kw_only=True):
    """The result for one group."""

    group_id: String
    error_code: Int16 = 0


class DeleteGroupsResponse(Struct, frozen=True, kw_only=True):
    """One entry for each group of the request."""

    throttle_time_ms: Int32 = 0
    results: tuple[DeletableGroupResult, ...]


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
    """The result for one offset."""

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
    """The result for one partition."""

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


# The kinds of keys of FindCoordinator.
GROUP_KEY, TRANSACTION_KEY = 0, 1


class FindCoordinatorRequest(Struct, frozen=True, kw_only=True):
    """``key`` is a group id, or a transactional id if ``key_type`` is TRANSACTION_KEY."""

    key: String
    key_type: Annotated[Int8, since(1)] = GROUP_KEY


class FindCoordinatorResponse(Struct, frozen=True, kw_only=True):
    """The broker for the group's requests."""

    throttle_time_ms: Annotated[Int32, since(1)] = 0
    error_code: Int16 = 0
    error_message: Annotated[NullableString, since(1)] = None
    node_id: Int32 = -1
    host: String = ""
    port: Int32 = -1


class JoinGroupRequestProtocol(Struct, frozen=True, kw_only=True):
    """An assignor that the member supports, and its subscription for that assignor."""

    name: String
    metadata: Bytes


class JoinGroupRequest(Struct, frozen=True, kw_only=True):
    """``rebalance_timeout_ms`` of -1, as from version 0, stands for the session timeout."""

    group_id: String
    session_timeout_ms: Int32
    rebalance_timeout_ms: Annotated[Int32, since(1)] = -1
    member_id: String
    group_instance_id: Annotated[NullableString, since(5)] = None
    protocol_type: String
    protocols: tuple[JoinGroupRequestProtocol, ...]


class JoinGroupResponseMember(Struct, frozen=True, kw_only=True):
    """A member as the leader sees it."""

    member_id: String
    group_instance_id: Annotated[NullableString, since(5)] = None
    metadata: Bytes


class JoinGroupResponse(Struct, frozen=True, kw_only=True):
    """``members`` is empty for every member but the leader."""

    throttle_time_ms: Annotated[Int32, since(2)] = 0
    error_code: Int16 = 0
    generation_id: Int32 = -1
    protocol_name: String = ""
    leader: String = ""
    member_id: String
    members: tuple[JoinGroupResponseMember, ...] = ()


class SyncGroupRequestAssignment(Struct, frozen=True, kw_only=True):
    """The leader's assignment for one member; only the members understand it."""

    member_id: String
    assignment: Bytes


class SyncGroupRequest(Struct, frozen=True, kw_only=True):
    """``assignments`` comes from the leader; other members send none."""

    group_id: String
    generation_id: Int32
    member_id: String
    group_instance_id: Annotated[NullableString, since(3)] = None
    assignments: tuple[SyncGroupRequestAssignment, ...] = ()


class SyncGroupResponse(Struct, frozen=True, kw_only=True):
    """The member's assignment, byte for byte as the leader wrote it."""

    throttle_time_ms: Annotated[Int32, since(1)] = 0
    error_code: Int16 = 0
    assignment: Bytes = b""


class HeartbeatRequest(Struct, frozen=True, kw_only=True):
    """A sign of life of one member in one generation."""

    group_id: String
    generation_id: Int32
    member_id: String
    group_instance_id: Annotated[NullableString, since(3)] = None


class HeartbeatResponse(Struct, frozen=True, kw_only=True):
    """Error 27 asks the member to join again."""

    throttle_time_ms: Annotated[Int32, since(1)] = 0
    error_code: Int16 = 0


class MemberIdentity(Struct, frozen=True, kw_only=True):
    """A member by its id, or a static one by its instance id and an empty member id."""

    member_id: String = ""
    group_instance_id: NullableString = None


class LeaveGroupRequest(Struct, frozen=True, kw_only=True):
    """One member up to version 2, any number from version 3 on."""

    group_id: String
    member_id: Annotated[String, until(2)] = ""
    members: Annotated[tuple[MemberIdentity, ...], since(3)] = ()


class MemberResponse(Struct, frozen=True, kw_only=True):
    """The result for one member."""

    member_id: String
    group_instance_id: NullableString = None
    error_code: Int16 = 0


class LeaveGroupResponse(Struct, frozen=True, kw_only=True):
    """``error_code`` is about the request; from version 3 on each member has its own."""

    throttle_time_ms: Annotated[Int32, since(1)] = 0
    error_code: Int16 = 0
    members: Annotated[tuple[MemberResponse, ...], since(3)] = ()
