"""The values of one Kafka consumer group: its members, offsets and deadlines, and the limits that hold.

All are immutable. Times named ``_s`` are monotonic seconds as passed to `step`, unless they are timeouts;
times named ``unix_ms`` are milliseconds of the wall clock, stored as they are. Metadata and assignments are
the clients' own bytes, which the coordinator passes on without a change.

What of a group survives a restart of the service, as facts, and the group that they restore.

A fact replaces an earlier one of the same subject. `changes` derives the facts of a step from the states
before and after it, so nothing durable can be forgotten by a rule. `restore` makes a group of the facts that
are left; what it cannot know begins again (docs/kafka-groups.md 4):

- Waiting requests and member ids that have not joined yet are gone: their clients ask again.
- A member that no generation includes yet is not durable. It joins again.
- Every session starts again, since how long a member was silent is not known.
- A group in CompletingRebalance comes back in PreparingRebalance with the generation that it had, which is
  therefore never used for another assignment.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from itertools import chain, compress, repeat
from operator import is_, not_

from loghub_service.kafka.coordinator.states import KafkaGroupState, KafkaTrigger, transition

NO_GENERATION = -1  # of a commit by a client that is no member
NO_OFFSET = -1


class GroupErrorCode(IntEnum):
    """The error codes of Kafka's protocol that the coordinator answers with, by their numbers there
    (https://kafka.apache.org/protocol.html#protocol_error_codes)."""

    NONE = 0
    OFFSET_METADATA_TOO_LARGE = 12
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    INVALID_REQUEST = 42
    POLICY_VIOLATION = 44
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    MEMBER_ID_REQUIRED = 79
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    GROUP_SUBSCRIBED_TO_TOPIC = 86


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaGroupLimits:
    """What a group may grow to, and the timers that Kafka's brokers have as settings.

    The names of those settings are given where they differ. A rebalance timeout beyond its bounds is taken as
    the bound: some clients send the largest number there is.
    """

    max_members: int = 1000  # group.max.size; with the member ids that have not joined yet
    max_protocols: int = 32  # of one member
    max_metadata_bytes: int = 1 << 18  # of one member, all protocols together
    max_assignment_bytes: int = 8 << 20  # of one generation
    max_name_bytes: int = 255  # of a group, member, instance, client, host or protocol
    max_offsets: int = 10_000  # committed partitions of a group
    max_offset_metadata_bytes: int = 4096  # offset.metadata.max.bytes
    min_session_timeout_ms: int = 6_000  # group.min.session.timeout.ms
    max_session_timeout_ms: int = 1_800_000
    min_rebalance_timeout_ms: int = 1_000
    max_rebalance_timeout_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 3_000  # group.initial.rebalance.delay.ms
    offsets_retention_ms: int = 7 * 24 * 3_600_000  # offsets.retention.minutes


@dataclass(frozen=True, slots=True, order=True)
class TopicPartition:
    """A shard of a logstore, by the logstore's internal id: one that is deleted and created again under its
    name is another topic."""

    logstore: int
    shard: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedOffset:
    """An offset as committed; ``metadata`` is the client's own text."""

    offset: int
    metadata: str
    commit_unix_ms: int


@dataclass(frozen=True, slots=True)
class MemberProtocol:
    """An assignor that a member supports, with the metadata that its leader would get."""

    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberInfo:
    """The part of a member that survives a restart of the service.

    ``protocols`` are in the member's order of preference. ``assignment`` is that of the present generation,
    and empty until the leader has sent it.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[MemberProtocol, ...]
    assignment: bytes = b""

    def metadata_of(self, protocol: str | None) -> bytes:
        return next((p.metadata for p in self.protocols if p.name == protocol), b"")


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    """A member of a group.

    ``is_new``: it has joined, and no generation includes it yet. ``join_request`` and ``sync_request`` are
    the numbers of its waiting requests. ``expires_s`` is the end of its session, which does not count while a
    request of it waits: its client does not send heartbeats then.
    """

    info: MemberInfo
    expires_s: float
    is_new: bool = False
    join_request: int | None = None
    sync_request: int | None = None

    @property
    def member_id(self) -> str:
        return self.info.member_id

    @property
    def is_static(self) -> bool:
        return self.info.group_instance_id is not None

    @property
    def session_end_s(self) -> float | None:
        """None while a request of the member waits."""
        return self.expires_s if self.join_request is None and self.sync_request is None else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A whole group at one moment.

    ``pending`` has the member ids that were given out and have not joined, with the time at which each
    expires. ``rebalance_end_s`` is set in PreparingRebalance only. ``initial_end_s`` is set with it during
    the initial delay: until then the delay may be extended, which it is if ``joined_in_delay``. ``unsynced``
    has the members that were answered their join and have not sent SyncGroup, until ``sync_end_s``.
    ``empty_since_unix_ms`` is when `Cleanup` first found the group empty.
    """

    group_id: str
    state: KafkaGroupState = KafkaGroupState.DEAD
    generation: int = 0
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str | None = None
    members: Mapping[str, GroupMember] = field(default_factory=dict)
    pending: Mapping[str, float] = field(default_factory=dict)
    offsets: Mapping[TopicPartition, CommittedOffset] = field(default_factory=dict)
    rebalance_end_s: float | None = None
    initial_end_s: float | None = None
    joined_in_delay: bool = False
    unsynced: frozenset[str] = frozenset()
    sync_end_s: float | None = None
    empty_since_unix_ms: int | None = None


def next_deadline(group: Group) -> float | None:
    """When to apply a `Tick` next, in monotonic seconds; None if nothing of the group can expire."""
    ends = [
        member.expires_s  # a plain loop over all members, which every heartbeat pays for
        for member in group.members.values()
        if member.join_request is None and member.sync_request is None
    ]
    ends += group.pending.values()
    ends += [end for end in (group.rebalance_end_s, group.sync_end_s) if end is not None]
    return min(ends, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaTransition:
    """One state change, for one log line; the generation is that after the change."""

    group_id: str
    old: KafkaGroupState
    new: KafkaGroupState
    trigger: KafkaTrigger
    generation: int
    members: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaGroupSaved:
    """The group itself. ``state`` is one of Empty, PreparingRebalance and Stable."""

    state: KafkaGroupState
    generation: int
    protocol_type: str | None
    protocol: str | None
    leader: str | None
    empty_since_unix_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupForgotten:
    """The group is gone, with its members and offsets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSaved:
    info: MemberInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberForgotten:
    member_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetSaved:
    partition: TopicPartition
    committed: CommittedOffset


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetForgotten:
    partition: TopicPartition


Offsets = Mapping[TopicPartition, CommittedOffset]
Fact = KafkaGroupSaved | GroupForgotten | MemberSaved | MemberForgotten | OffsetSaved | OffsetForgotten


def durable(group: Group) -> KafkaGroupSaved | None:
    """The group's own fact; None if nothing of it would be missed: it has no generation and no offsets, as
    one that does not exist."""
    if group.generation == 0 and not group.offsets:
        return None
    members = [m.member_id for m in group.members.values() if not m.is_new]
    state = KafkaGroupState.EMPTY
    if members:
        is_stable = group.state is KafkaGroupState.STABLE
        state = KafkaGroupState.STABLE if is_stable else KafkaGroupState.PREPARING_REBALANCE
    return KafkaGroupSaved(
        state=state,
        generation=group.generation,
        protocol_type=group.protocol_type,
        protocol=group.protocol if members else None,
        leader=group.leader if group.leader in members else None,
        empty_since_unix_ms=group.empty_since_unix_ms,
    )


def changes(old: Group, new: Group, changed_members: Collection[str]) -> tuple[Fact, ...]:
    """The difference that must be durable; sessions and waiting requests are not part of it.

    ``changed_members`` are the ids of members that came, went, or have another `MemberInfo`.
    """
    if not changed_members and old.offsets is new.offsets and _head(old) == _head(new):
        return ()  # a heartbeat
    before, after = durable(old), durable(new)
    if after is None:
        return () if before is None else (GroupForgotten(),)
    facts: list[Fact] = [] if before == after else [after]
    for member_id in changed_members:
        old_info, new_info = _durable_info(old, member_id), _durable_info(new, member_id)
        if old_info != new_info:
            facts.append(
                MemberForgotten(member_id=member_id) if new_info is None else MemberSaved(info=new_info)
            )
    if old.offsets is not new.offsets:
        facts += _changed_offsets(old.offsets, new.offsets)
    return tuple(facts)


def _changed_offsets(old: Offsets, new: Offsets) -> list[Fact]:
    """A commit moves few of many offsets and adds some at the end: they are found without hashing a key."""
    if all(map(is_, old, new)) and len(old) <= len(new):
        same = chain(map(is_, old.values(), new.values()), repeat(False))
        changed = compress(new.items(), map(not_, same))
        return [OffsetSaved(partition=p, committed=committed) for p, committed in changed]
    return [
        *(OffsetForgotten(partition=p) for p in old if p not in new),
        *(
            OffsetSaved(partition=p, committed=committed)
            for p, committed in new.items()
            if old.get(p) is not committed
        ),
    ]


def _head(group: Group) -> tuple[object, ...]:
    names = (group.protocol_type, group.protocol, group.leader)
    return (group.state, group.generation, group.empty_since_unix_ms, names)


def _durable_info(group: Group, member_id: str) -> MemberInfo | None:
    member = group.members.get(member_id)
    return None if member is None or member.is_new else member.info


def restore(group_id: str, facts: Iterable[Fact], *, now: float) -> Group:
    """The group after a restart. ``facts`` are those of its life in order, or the newest of each subject with
    the group's own first."""
    saved: KafkaGroupSaved | None = None
    members: dict[str, MemberInfo] = {}
    offsets: dict[TopicPartition, CommittedOffset] = {}
    for fact in facts:
        match fact:
            case KafkaGroupSaved():
                saved = fact
            case GroupForgotten():
                saved, members, offsets = None, {}, {}
            case MemberSaved(info=info):
                members[info.member_id] = info
            case MemberForgotten(member_id=member_id):
                del members[member_id]
            case OffsetSaved(partition=partition, committed=committed):
                offsets[partition] = committed
            case OffsetForgotten(partition=partition):
                del offsets[partition]
    if saved is None:
        return Group(group_id=group_id)
    group = Group(
        group_id=group_id,
        state=transition(KafkaGroupState.DEAD, _RESTORED[saved.state]),
        generation=saved.generation,
        protocol_type=saved.protocol_type,
        protocol=saved.protocol,
        leader=saved.leader,
        members={
            info.member_id: GroupMember(info=info, expires_s=now + info.session_timeout_ms / 1000)
            for info in members.values()
        },
        offsets=offsets,
        empty_since_unix_ms=saved.empty_since_unix_ms,
    )
    if group.state is KafkaGroupState.PREPARING_REBALANCE:
        longest_ms = max(info.rebalance_timeout_ms for info in members.values())
        group = replace(group, rebalance_end_s=now + longest_ms / 1000)
    return group


_RESTORED = {
    KafkaGroupState.EMPTY: KafkaTrigger.RESTORED_EMPTY,
    KafkaGroupState.PREPARING_REBALANCE: KafkaTrigger.RESTORED_REBALANCING,
    KafkaGroupState.STABLE: KafkaTrigger.RESTORED_STABLE,
}
