"""The values of one Kafka consumer group: its members, offsets and deadlines, and its limits.

All are immutable. Times named ``_s`` are monotonic seconds as passed to `step`, unless they are timeouts;
times named ``unix_ms`` are milliseconds of the wall clock, stored unchanged. Metadata and assignments are the
clients' own bytes, which the coordinator passes on unchanged.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Annotated

from loghub_service.kafka.coordinator.states import KafkaGroupState, KafkaTrigger
from loghub_service.limit_flags import flag

NO_GENERATION = -1  # in a commit by a client that is no member


class GroupErrorCode(IntEnum):
    """The error codes of Kafka's protocol with which the coordinator answers, by their numbers there
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
    """The limits of a group, and the timers that Kafka's brokers have as settings.

    The names of those settings are given where they differ. A rebalance timeout beyond its bounds counts as
    the bound: some clients send the largest number there is.
    """

    # Member ids that have not joined yet count, too.
    max_members: Annotated[
        int,
        flag(
            "--max-kafka-members",
            1,
            10_000,
            "members of a consumer group of Kafka clients; Kafka's group.max.size",
        ),
    ] = 1000
    max_protocols: int = 32  # protocols of one member
    max_metadata_bytes: int = 1 << 18  # metadata of one member, for all protocols together
    max_assignment_bytes: int = 8 << 20  # assignments of one generation
    max_name_bytes: int = 255  # of a group, member, instance, client, host or protocol
    max_offsets: int = 10_000  # committed partitions of a group
    max_offset_metadata_bytes: int = 4096  # offset.metadata.max.bytes
    min_session_timeout_ms: Annotated[
        int,
        flag(
            "--min-kafka-session-s",
            1,
            24 * 3600,
            "least session timeout that a member may ask for, in seconds; Kafka's "
            "group.min.session.timeout.ms",
            unit=1000,
        ),
    ] = 6_000
    max_session_timeout_ms: Annotated[
        int,
        flag(
            "--max-kafka-session-s",
            1,
            24 * 3600,
            "greatest session timeout, in seconds; Kafka's group.max.session.timeout.ms",
            unit=1000,
        ),
    ] = 1_800_000
    min_rebalance_timeout_ms: int = 1_000
    max_rebalance_timeout_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 3_000  # group.initial.rebalance.delay.ms
    offsets_retention_ms: Annotated[
        int,
        flag(
            "--kafka-offsets-retention-hours",
            1,
            10 * 365 * 24,
            "time after which the offsets of a group without members expire, in hours; Kafka's "
            "offsets.retention.minutes",
            unit=3_600_000,
        ),
    ] = 7 * 24 * 3_600_000


@dataclass(frozen=True, slots=True, order=True)
class TopicPartition:
    """A shard of a logstore, by the logstore's internal id: a logstore that is created again under the name
    of a deleted one is another topic."""

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

    ``protocols`` are in the member's order of preference. ``assignment`` belongs to the present generation,
    and is empty until the leader has sent it.
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
    the numbers of its waiting requests. ``expires_s`` is the end of its session, which does not count while
    one of its requests waits, because its client does not send heartbeats then.
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
        """The end of the session; None while a request of the member waits."""
        return self.expires_s if self.join_request is None and self.sync_request is None else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A whole group at one moment.

    ``pending`` has the member ids that were given out and have not joined, with the time at which each
    expires. Invariants: ``rebalance_end_s`` is set if and only if the state is PreparingRebalance.
    ``initial_end_s`` is set with it during the initial delay: until then the delay may be extended, which
    happens if ``joined_in_delay``. ``unsynced`` has the members whose join was answered and that have not
    sent SyncGroup, until ``sync_end_s``. ``empty_since_unix_ms`` is the time at which `Cleanup` first found
    the group empty.
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
