"""The production coordinator as a table of numbered group states.

Two projections keep the states few, and no decision reads what they drop: who saved a checkpoint and when,
and the absolute time. Sessions are relative: a consumer's last heartbeat was ``-last_heartbeat_s`` units ago.

Renaming consumers would not be sound: the balance breaks ties by name, so a group and the same group with two
names exchanged do not go on alike.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from types import ModuleType

from loghub.domain import coordinator
from loghub.domain.group import (
    Event,
    GroupState,
    LogShard,
    RefusalCode,
    SavedCheckpoint,
    ServicePaused,
    ShardEntry,
    ShardsChanged,
    Tick,
)
from tests.loghub.domain.invariants import check_state, check_step
from tests.properties.numbered_states import NumberedStates

TIMEOUT = 2  # units of time


@dataclass(frozen=True, slots=True)
class Next:
    """What a step leads to: the number of the next state, and the shards of the answer as bits."""

    state: int
    answer: int = 0
    refusal: RefusalCode | None = None


def bits(shards: frozenset[int] | tuple[int, ...]) -> int:
    return sum(1 << shard for shard in shards)


def shards_of(mask: int) -> Iterator[int]:
    return (shard for shard in range(mask.bit_length()) if mask >> shard & 1)


def _projected(entry: ShardEntry) -> ShardEntry:
    saved = entry.checkpoint
    if saved is None:
        return entry
    kept = SavedCheckpoint(cursor=saved.cursor, consumer="", updated_unix_us=0) if saved.cursor else None
    return replace(entry, checkpoint=kept)


class NumberedGroup(NumberedStates[GroupState]):
    """``rules`` is `loghub.domain.coordinator`, or a changed copy of it."""

    def __init__(self, rules: ModuleType = coordinator) -> None:
        super().__init__()
        self._rules = rules

    def create(self, shards: tuple[LogShard, ...], *, order: bool) -> int:
        created = self._rules.create_group(
            group="g", timeout_s=float(TIMEOUT), order=order, shards=shards, now=0.0
        )
        return self.number_of(created.state)

    def step(self, number: int, event: Event) -> Next:
        return self.once(number, event, lambda state: self._take(number, state, event))

    def one_unit_later(self, number: int) -> int:
        """The same state after one unit of time."""
        return self.once(number, "later", lambda state: self.number_of(_later(state)))

    def is_tick_due(self, number: int) -> bool:
        deadline = self._rules.next_deadline(self[number])
        return deadline is not None and deadline <= 0

    def tick(self, number: int) -> int:
        return self.step(number, Tick()).state

    def resume(self, number: int, paused: int) -> int:
        """What the service does when it runs again (`GroupRegistry.tick`)."""
        number = self.step(number, ServicePaused(pause_s=float(paused))).state
        return self.tick(number) if self.is_tick_due(number) else number

    def report_shards(self, number: int, shards: dict[int, LogShard]) -> int:
        return self.step(number, ShardsChanged(shards=tuple(shards.values()))).state

    def restart(self, number: int) -> int:
        """The service restarts from what it persisted, and learns the current shards."""
        return self.once(number, "restart", self._restarted)

    def _restarted(self, state: GroupState) -> int:
        restored = self._rules.restore(
            group="g", timeout_s=state.timeout_s, order=state.order, entries=state.shards.values(), now=0.0
        )
        shards = {shard: entry.log_shard for shard, entry in state.shards.items()}
        return self.report_shards(self.number_of(restored), shards)

    def _take(self, number: int, old: GroupState, event: Event) -> Next:
        done = self._rules.step(old, event, now=0.0)
        check_step(old, done)
        check_state(done.state)
        self.coverage.events[type(event).__name__] += 1
        self.coverage.rows.update((t.old, t.trigger, t.new) for t in done.transitions)
        if done.refusal is not None:
            self.coverage.refusals[done.refusal] += 1
            return Next(number, refusal=done.refusal)
        return Next(self.number_of(done.state), bits(done.answer))

    def canonical(self, state: GroupState) -> tuple[object, GroupState]:
        state = replace(state, shards={shard: _projected(entry) for shard, entry in state.shards.items()})
        consumers = tuple((c.name, c.last_heartbeat_s, c.held) for c in state.consumers.values())
        return (state.order, state.timeout_s, consumers, tuple(state.shards.values())), state


def _later(state: GroupState) -> GroupState:
    consumers = {n: replace(c, last_heartbeat_s=c.last_heartbeat_s - 1) for n, c in state.consumers.items()}
    return replace(state, consumers=consumers)
