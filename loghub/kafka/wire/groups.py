"""The classic group protocol: FindCoordinator, JoinGroup, SyncGroup, Heartbeat and LeaveGroup.

https://kafka.apache.org/protocol.html#The_Messages_JoinGroup, KIP-62 (rebalance timeout), KIP-345 (static
members), KIP-394 (a member id before the first join).
"""

from typing import Annotated

from msgspec import Struct

from loghub.kafka.wire.fields import Bytes, Int8, Int16, Int32, NullableString, String, since, until

# The kinds of keys that FindCoordinator takes.
GROUP_KEY, TRANSACTION_KEY = 0, 1


class FindCoordinatorRequest(Struct, frozen=True, kw_only=True):
    """``key`` is a group id, or a transactional id if ``key_type`` is TRANSACTION_KEY."""

    key: String
    key_type: Annotated[Int8, since(1)] = GROUP_KEY


class FindCoordinatorResponse(Struct, frozen=True, kw_only=True):
    """The broker that the group's requests go to."""

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
    """What the leader assigns to one member; only the members understand it."""

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
    """What became of one member."""

    member_id: String
    group_instance_id: NullableString = None
    error_code: Int16 = 0


class LeaveGroupResponse(Struct, frozen=True, kw_only=True):
    """``error_code`` is about the request; from version 3 on each member has its own."""

    throttle_time_ms: Annotated[Int32, since(1)] = 0
    error_code: Int16 = 0
    members: Annotated[tuple[MemberResponse, ...], since(3)] = ()
