"""DescribeGroups, ListGroups and DeleteGroups: consumer groups as an administrator sees them.

https://kafka.apache.org/protocol.html#The_Messages_DescribeGroups, KIP-229 (DeleteGroups).
"""

from typing import Annotated

from msgspec import Struct

from loghub.kafka.wire.fields import Bool, Bytes, Int16, Int32, NullableString, String, since
from loghub.kafka.wire.metadata import NO_OPERATIONS


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
    """Without fields in the versions that are offered."""


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
    """Groups by their ids; only empty ones are deleted."""

    groups_names: tuple[String, ...]


class DeletableGroupResult(Struct, frozen=True, kw_only=True):
    """What became of one group."""

    group_id: String
    error_code: Int16 = 0


class DeleteGroupsResponse(Struct, frozen=True, kw_only=True):
    """One entry for each group of the request."""

    throttle_time_ms: Int32 = 0
    results: tuple[DeletableGroupResult, ...]
