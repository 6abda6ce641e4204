"""The values of one consumer group: its state, the events that change it, and the result of a step.

The coordinator, the service and the simulator share these values. Cursors are integers, consecutive
within a shard (docs/sls-protocol.md 2.1); the wire's base64 form is in `loghub.wire.cursor`. ``now`` is
in monotonic seconds.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from loghub.domain.fsm import ShardState, ShardTrigger


@dataclass(frozen=True, slots=True, kw_only=True)
class LogShard:
    """A shard of the logstore, with the properties that matter to a group.

    While the shard is written to, ``end_cursor`` is None and ``begin_cursor`` has no meaning. A
    read-only shard has both: ``end_cursor`` is the cursor that the next write would have got and never
    changes; ``begin_cursor`` is the oldest retained log group, and equals the end when the shard is
    empty.
    """

    shard: int
    parents: tuple[int, ...] = ()
    begin_cursor: int = 0
    end_cursor: int | None = None

    @property
    def read_only(self) -> bool:
        return self.end_cursor is not None

    @property
    def is_empty(self) -> bool:
        """Whether the shard is read-only and retains no log group."""
        return self.end_cursor is not None and self.begin_cursor >= self.end_cursor

    def is_end(self, cursor: int) -> bool:
        """Whether the shard is read-only and no log group follows this cursor."""
        return self.end_cursor is not None and cursor >= self.end_cursor


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedCheckpoint:
    """A checkpoint as last saved; ``consumer`` is the consumer that saved it and may be ""."""

    cursor: int
    consumer: str
    updated_unix_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardEntry:
    """One shard in one group. The whole entry is persisted.

    ``holder`` is set only in ``already_alloc`` and ``transfer``, ``next_holder`` only in ``transfer``.
    ``last_holder`` is set only in ``over``: the consumer that held the shard when it was completed,
    while that consumer may still work on it, that is, until it sends a heartbeat without the shard or
    is gone. A forced checkpoint that reopens the shard must not assign it to another consumer before
    that.
    """

    log_shard: LogShard
    state: ShardState
    holder: str | None = None
    next_holder: str | None = None
    checkpoint: SavedCheckpoint | None = None
    last_holder: str | None = None

    @property
    def shard(self) -> int:
        return self.log_shard.shard

    @property
    def counted_for(self) -> str | None:
        """The consumer for which balance counts the shard (docs/shard-states.md 3)."""
        return self.next_holder or self.holder

    @property
    def is_consumed(self) -> bool:
        """Whether the shard is read-only with nothing left: empty, or checkpointed at its end."""
        saved = self.checkpoint
        return self.log_shard.is_empty or (saved is not None and self.log_shard.is_end(saved.cursor))


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerEntry:
    """One live consumer. ``held`` has the existing shards that its last heartbeat reported."""

    name: str
    last_heartbeat_s: float  # monotonic
    held: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupState:
    """A whole group at one moment, immutable. Mappings are in ascending key order."""

    group: str
    timeout_s: float
    order: bool
    consumers: Mapping[str, ConsumerEntry] = field(default_factory=dict)
    shards: Mapping[int, ShardEntry] = field(default_factory=dict)

    def owned_by(self, consumer: str) -> tuple[int, ...]:
        """The ``already_alloc`` shards of this consumer, ascending: each heartbeat answer lists them."""
        return tuple(
            e.shard
            for e in self.shards.values()
            if e.state is ShardState.ALREADY_ALLOC and e.holder == consumer
        )


# --- events ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """A consumer reports the shards it works on. The first one registers it, and must report none
    (docs/sls-protocol.md 4.3)."""

    consumer: str
    held: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Leave:
    """A consumer leaves and works on no shard (our extension). An unknown consumer changes nothing."""

    consumer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveCheckpoint:
    """Save a cursor. ``updated_unix_us`` is the wall-clock time of the request, stored as it is."""

    consumer: str
    shard: int
    cursor: int
    force: bool
    updated_unix_us: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """Time has passed: consumers silent for the timeout are removed. Schedule it by `next_deadline`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServicePaused:
    """The service did not run for this time (a frozen machine, a throttled CPU) and received no heartbeat
    meanwhile, so no consumer was silent. Apply it before the `Tick` that follows."""

    pause_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardsChanged:
    """All current shards of the logstore, after create, split, merge, delete, retention or restart."""

    shards: tuple[LogShard, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Configure:
    """New settings (UpdateConsumerGroup). None keeps a value; the service refuses a timeout <= 0."""

    timeout_s: float | None = None
    order: bool | None = None


Event = Heartbeat | Leave | SaveCheckpoint | Tick | ServicePaused | ShardsChanged | Configure


# --- the result of a step --------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSaved:
    """To persist: the current settings of the group."""

    timeout_s: float
    order: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupShardSaved:
    """To persist: this entry, which replaces the stored entry of the shard."""

    entry: ShardEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupShardForgotten:
    """To persist: the shard no longer exists; delete its stored entry."""

    shard: int


Fact = GroupSaved | GroupShardSaved | GroupShardForgotten


class RefusalCode(StrEnum):
    """Why a request was refused. The values are error codes of the wire (docs/sls-protocol.md 2.4)."""

    # A checkpoint without force from a consumer, known or unknown, that does not hold the shard:
    # the only code that the Go and the Java client both understand.
    CONSUMER_NOT_MATCH = "ConsumerNotMatch"
    # A checkpoint of a shard that the group does not have.
    SHARD_NOT_EXIST = "ShardNotExist"
    # A checkpoint without force and without a consumer.
    PARAMETER_INVALID = "ParameterInvalid"
    # A heartbeat that reports shards, of a consumer that the group does not know.
    NOT_EXIST_CONSUMER_WITH_BODY = "NotExistConsumerWithBody"


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """One state change, for one log line: group, shard, old -> new, trigger, holder."""

    group: str
    shard: int
    old: ShardState | None  # None: the shard is new to the group
    new: ShardState
    trigger: ShardTrigger
    holder: str | None  # after the change
    next_holder: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The result of one event.

    ``answer``: the shards for the heartbeat answer, ascending; () for any other event.
    ``refusal``: None when the event was applied; otherwise ``state`` is unchanged.
    ``facts``: persist all of them in one transaction; no answer is sent before they are durable, see
    `coordinator`. () means that nothing durable changed.
    ``transitions``: the state changes, in order.
    """

    state: GroupState
    answer: tuple[int, ...] = ()
    refusal: RefusalCode | None = None
    facts: tuple[Fact, ...] = ()
    transitions: tuple[Transition, ...] = ()
