"""The answers to requests, and the result of a step."""

from dataclasses import dataclass

from loghub.kafka.coordinator.facts import Fact
from loghub.kafka.coordinator.group import (
    NO_GENERATION,
    CommittedOffset,
    ErrorCode,
    Group,
    TopicPartition,
    Transition,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedMember:
    """A member as its leader sees it; ``metadata`` is that of the group's protocol."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinAnswer:
    """``members`` are for the leader; everybody else gets ()."""

    error: ErrorCode
    member_id: str
    generation: int = NO_GENERATION
    protocol_type: str = ""
    protocol: str = ""
    leader: str = ""
    members: tuple[JoinedMember, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncAnswer:
    error: ErrorCode
    assignment: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatAnswer:
    error: ErrorCode


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveAnswer:
    """``members`` has the error of each member of the request, in its order."""

    error: ErrorCode
    members: tuple[ErrorCode, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionsAnswer:
    """To OffsetCommit and OffsetDelete. ``error`` is that of the group; if it is not NONE, every partition
    has it."""

    error: ErrorCode
    partitions: tuple[tuple[TopicPartition, ErrorCode], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteAnswer:
    error: ErrorCode


Answer = JoinAnswer | SyncAnswer | HeartbeatAnswer | LeaveAnswer | PartitionsAnswer | DeleteAnswer


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchAnswer:
    """The committed offset of each requested partition; None where there is none."""

    error: ErrorCode
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
    """``state`` is a name of GroupState; a group that does not exist is Dead."""

    error: ErrorCode
    group_id: str
    state: str
    protocol_type: str = ""
    protocol: str = ""
    members: tuple[DescribedMember, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedGroup:
    group_id: str
    protocol_type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ListAnswer:
    error: ErrorCode
    groups: tuple[ListedGroup, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of one event.

    ``answers``: requests that are answered now, by their numbers: perhaps the one of this event, and any that
    waited. Send none of them before ``facts`` are durable.
    ``facts``: persist all of them in one transaction. () means that nothing durable changed.
    ``transitions``: the state changes, in order.
    ``next_deadline_s``: when to apply a `Tick`, in monotonic seconds; None if nothing can expire.
    """

    group: Group
    answers: tuple[tuple[int, Answer], ...] = ()
    facts: tuple[Fact, ...] = ()
    transitions: tuple[Transition, ...] = ()
    next_deadline_s: float | None = None
