"""The events of a group: requests of clients, and reports of the service itself; and the answers to requests,
and the result of a step.

The fields are the fields of Kafka's requests (https://kafka.apache.org/protocol.html#protocol_messages).
Random values and values of a connection are arguments: new member ids, the client's host, the wall clock.
"""

from dataclasses import dataclass

from loghub_service.kafka.coordinator.facts import Fact
from loghub_service.kafka.coordinator.group import (
    NO_GENERATION,
    CommittedOffset,
    Group,
    GroupErrorCode,
    KafkaTransition,
    MemberProtocol,
    TopicPartition,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedMember:
    """A member as its leader sees it; ``metadata`` belongs to the group's protocol."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinAnswer:
    """``members`` are for the leader; all other members get ()."""

    error: GroupErrorCode
    member_id: str
    generation: int = NO_GENERATION
    protocol_type: str = ""
    protocol: str = ""
    leader: str = ""
    members: tuple[JoinedMember, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncAnswer:
    error: GroupErrorCode
    assignment: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatAnswer:
    error: GroupErrorCode


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveAnswer:
    """``members`` has the error of each member of the request, in its order."""

    error: GroupErrorCode
    members: tuple[GroupErrorCode, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionsAnswer:
    """The answer to OffsetCommit and OffsetDelete. ``error`` is the error of the group; if it is not NONE,
    every partition has it."""

    error: GroupErrorCode
    partitions: tuple[tuple[TopicPartition, GroupErrorCode], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteAnswer:
    error: GroupErrorCode


Answer = JoinAnswer | SyncAnswer | HeartbeatAnswer | LeaveAnswer | PartitionsAnswer | DeleteAnswer


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchAnswer:
    """The committed offset of each requested partition; None where there is none."""

    error: GroupErrorCode
    offsets: tuple[tuple[TopicPartition, CommittedOffset | None], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedMember:
    """``metadata`` and ``assignment`` are empty unless the group is stable."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeAnswer:
    """``state`` is a name of KafkaGroupState; a group that does not exist is Dead."""

    error: GroupErrorCode
    group_id: str
    state: str
    protocol_type: str = ""
    protocol: str = ""
    members: tuple[DescribedMember, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupListing:
    group_id: str
    protocol_type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ListAnswer:
    error: GroupErrorCode
    groups: tuple[GroupListing, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of one event.

    ``answers``: requests that are answered now, by their numbers: perhaps the one of this event, and any that
    waited. Send none of them before ``facts`` are durable.
    ``facts``: persist all of them in one transaction. () means that nothing durable changed.
    ``transitions``: the state changes, in order.
    ``next_deadline_s``: when to apply a `TimePassed`, in monotonic seconds; None if nothing can expire.
    """

    group: Group
    answers: tuple[tuple[int, Answer], ...] = ()
    facts: tuple[Fact, ...] = ()
    transitions: tuple[KafkaTransition, ...] = ()
    next_deadline_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinGroup:
    """A client joins or rejoins.

    ``new_member_id`` is used if ``member_id`` is empty; it must never have been a member's.
    ``requires_member_id``: a client without id gets one with MEMBER_ID_REQUIRED, and joins with it
    (from version 4 on). Version 0 has no rebalance timeout; it is the session timeout then.
    """

    member_id: str
    protocol_type: str
    protocols: tuple[MemberProtocol, ...]
    session_timeout_ms: int
    rebalance_timeout_ms: int
    new_member_id: str = ""
    group_instance_id: str | None = None
    requires_member_id: bool = False
    client_id: str = ""
    client_host: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncGroup:
    """A member requests its assignment; the leader sends all assignments, as (member id, bytes)."""

    member_id: str
    generation: int
    group_instance_id: str | None = None
    assignments: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberHeartbeat:
    member_id: str
    generation: int
    group_instance_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveGroup:
    """Members leave, as (member id, instance id). A static member may be named by its instance id alone."""

    members: tuple[tuple[str, str | None], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommit:
    """Offsets to commit, as (partition, offset, metadata). A client that is no member has no generation and
    an empty member id."""

    offsets: tuple[tuple[TopicPartition, int, str], ...]
    unix_ms: int
    member_id: str = ""
    generation: int = NO_GENERATION
    group_instance_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetDelete:
    """Forget the offsets of partitions, as (name of the topic, partition)."""

    partitions: tuple[tuple[str, TopicPartition], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteKafkaGroup:
    """DeleteGroups names this group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLost:
    """The connection of a waiting request is gone. A member that has joined for the first time, and whose
    client therefore may not even know its member id, is removed; any other has its session."""

    request: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TimePassed:
    """Time has passed. Schedule it by `next_deadline`; only a tick lets anything expire."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseDetected:
    """The service did not run for this time (a frozen machine, a throttled CPU) and received nothing
    meanwhile, so the time counts for no timeout. Apply it before the `TimePassed` that follows."""

    pause_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleanup:
    """Let offsets expire by the wall clock, and forget a group that has no offsets left. Apply it every few
    minutes."""

    unix_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LogstoreGone:
    """The offsets of its shards are gone. Members notice by their metadata, and rejoin."""

    logstore: int


Request = (
    JoinGroup | SyncGroup | MemberHeartbeat | LeaveGroup | OffsetCommit | OffsetDelete | DeleteKafkaGroup
)
Event = Request | ConnectionLost | TimePassed | PauseDetected | Cleanup | LogstoreGone
