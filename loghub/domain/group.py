"""The values of one consumer group: its state, what may happen to it, what a step gives back.

What for: the words that the coordinator, the service and the simulator share. What it
must not know: how a step is decided, the wire, storage, clocks. Read next:
`loghub.domain.coordinator`, which decides.

Cursors are integers here, consecutive within a shard (docs/sls-protocol.md 2.1); the wire's
base64 is `loghub.wire.cursor`. ``now`` is monotonic seconds.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from loghub.domain.fsm import ShardState, Trigger


@dataclass(frozen=True, slots=True, kw_only=True)
class LogShard:
    """A shard as its logstore has it, as far as a group cares.

    While the shard is written to, ``end_cursor`` is None and ``begin_cursor`` does not
    matter. A read-only shard has both: ``end_cursor`` is the cursor that the next write
    would have got and never changes; ``begin_cursor`` is the oldest log group kept, and
    equals the end when the shard is empty.
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
        """Read-only, and no log group is kept."""
        return self.end_cursor is not None and self.begin_cursor >= self.end_cursor

    def is_end(self, cursor: int) -> bool:
        """Read-only, and nothing follows this cursor."""
        return self.end_cursor is not None and cursor >= self.end_cursor


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedCheckpoint:
    """A checkpoint as last saved; ``consumer`` is who saved it, maybe ""."""

    cursor: int
    consumer: str
    updated_unix_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardEntry:
    """One shard in one group. This is also what is persisted of it, whole.

    ``holder`` is set in ``already_alloc`` and ``transfer`` only, ``next_holder`` in
    ``transfer`` only. ``last_holder`` is set in ``over`` only: who held the shard when it
    ended, for as long as that consumer may still work on it, that is until it beats without
    naming the shard or is gone. A forced checkpoint that brings the shard back must not give
    it to another before.
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
        """The consumer in whose count balance puts the shard (docs/shard-states.md 3)."""
        return self.next_holder or self.holder

    @property
    def is_consumed(self) -> bool:
        """Read-only and nothing is left: empty, or checkpointed at its end."""
        saved = self.checkpoint
        return self.log_shard.is_empty or (saved is not None and self.log_shard.is_end(saved.cursor))


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerEntry:
    """One live consumer. ``held`` is what its last heartbeat named, of the shards that exist."""

    name: str
    last_heartbeat_s: float  # monotonic
    held: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupState:
    """A whole group at one moment; never changed in place. Mappings are in ascending key order."""

    group: str
    timeout_s: float
    order: bool
    consumers: Mapping[str, ConsumerEntry] = field(default_factory=dict)
    shards: Mapping[int, ShardEntry] = field(default_factory=dict)

    def owned_by(self, consumer: str) -> tuple[int, ...]:
        """What a heartbeat answer to this consumer names: its ``already_alloc`` shards, ascending."""
        return tuple(
            e.shard
            for e in self.shards.values()
            if e.state is ShardState.ALREADY_ALLOC and e.holder == consumer
        )


# --- what may happen -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """A consumer says which shards it works on; the first one registers it (docs/sls-protocol.md 4.3)."""

    consumer: str
    held: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Leave:
    """A consumer goes for good and works on nothing (our extension). Unknown consumer: nothing happens."""

    consumer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """Save a cursor. ``updated_unix_us`` is the wall clock at the edge, kept as it is."""

    consumer: str
    shard: int
    cursor: int
    force: bool
    updated_unix_us: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """Time has passed: consumers silent for the timeout are removed. Arm it by `next_deadline`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardsChanged:
    """All shards that the logstore has now: after create, split, merge, delete, retention, restart."""

    shards: tuple[LogShard, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Configure:
    """New settings (UpdateConsumerGroup). None keeps what is; the service refuses a timeout <= 0."""

    timeout_s: float | None = None
    order: bool | None = None


Event = Heartbeat | Leave | Checkpoint | Tick | ShardsChanged | Configure


# --- what a step gives back ------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSaved:
    """To persist: the group's settings as they are now."""

    timeout_s: float
    order: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardSaved:
    """To persist: this entry, in place of what was stored for the shard."""

    entry: ShardEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardForgotten:
    """To persist: the shard is no more; drop what was stored for it."""

    shard: int


Fact = GroupSaved | ShardSaved | ShardForgotten


class Refusal(StrEnum):
    """Why nothing was done. The values are error codes of the wire (docs/sls-protocol.md 2.4)."""

    # A checkpoint without force from one who does not hold the shard, known or not: the one
    # code that the Go and the Java client both understand.
    CONSUMER_NOT_MATCH = "ConsumerNotMatch"
    # A checkpoint for a shard that the group does not have.
    SHARD_NOT_EXIST = "ShardNotExist"
    # A checkpoint without force and without a consumer.
    PARAMETER_INVALID = "ParameterInvalid"


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """One passage through the gate, for one log line: group, shard, old -> new, trigger, holder."""

    group: str
    shard: int
    old: ShardState | None  # None: the shard is new to the group
    new: ShardState
    trigger: Trigger
    holder: str | None  # after the change
    next_holder: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What one event came to.

    ``answer``: the shards for the heartbeat answer, ascending; () for any other event.
    ``refusal``: None when the event was done; otherwise ``state`` is what it was.
    ``facts``: persist all of them in one transaction; no answer is sent before they are durable,
    see `coordinator`. () means that nothing durable changed.
    ``transitions``: in the order in which they were made.
    """

    state: GroupState
    answer: tuple[int, ...] = ()
    refusal: Refusal | None = None
    facts: tuple[Fact, ...] = ()
    transitions: tuple[Transition, ...] = ()
