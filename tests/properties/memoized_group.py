"""The production coordinator as a table of numbered group states, for searches over many systems.

A search reaches the same state of a group with many states of its consumers and of the network. Each state
gets a number and each step of the coordinator is taken, and checked against the invariants, once: afterwards
it is a lookup. `step` is a pure function, so this leaves nothing out.

Two projections keep the states few, and no decision reads what they drop: who saved a checkpoint and when,
and the absolute time. Sessions are relative: a consumer's last heartbeat was ``-last_heartbeat_s`` units ago.

Renaming consumers would not be sound: the balance breaks ties by name, so a group and the same group with two
names exchanged do not go on alike.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from types import ModuleType

from loghub.domain import coordinator
from loghub.domain.fsm import ShardState, ShardTrigger
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

TIMEOUT = 2  # units of time
Row = tuple[ShardState | None, ShardTrigger, ShardState]


@dataclass(frozen=True, slots=True)
class Next:
    """What a step leads to: the number of the next state, and the shards of the answer as bits."""

    state: int
    answer: int
    is_refused: bool = False


@dataclass
class Coverage:
    """How many different steps of a search applied each kind of event, used each row of the table, and
    refused for each reason."""

    events: Counter[str] = field(default_factory=Counter)
    rows: Counter[Row] = field(default_factory=Counter)
    refusals: Counter[RefusalCode] = field(default_factory=Counter)

    def add(self, other: "Coverage") -> None:
        self.events += other.events
        self.rows += other.rows
        self.refusals += other.refusals


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


class MemoizedGroup:
    """Numbered states of one group. ``rules`` is `loghub.domain.coordinator`, or a changed copy of it."""

    def __init__(self, rules: ModuleType = coordinator) -> None:
        self.coverage = Coverage()
        self._rules = rules
        self._states: list[GroupState] = []
        self._numbers: dict[object, int] = {}
        self._next: dict[tuple[int, Event], Next] = {}
        self._later: dict[int, int] = {}
        self._restarted: dict[int, int] = {}

    def __getitem__(self, number: int) -> GroupState:
        return self._states[number]

    def __len__(self) -> int:
        return len(self._states)

    def create(self, shards: tuple[LogShard, ...], *, order: bool) -> int:
        created = self._rules.create_group(
            group="g", timeout_s=float(TIMEOUT), order=order, shards=shards, now=0.0
        )
        return self._number(created.state)

    def step(self, number: int, event: Event) -> Next:
        found = self._next.get((number, event))
        if found is None:
            found = self._next[number, event] = self._take(number, event)
        return found

    def refused(self, number: int, event: Event, code: RefusalCode) -> None:
        """Check that this event is refused with this code."""
        before = self.coverage.refusals[code]
        if (number, event) not in self._next:
            self.step(number, event)
            assert self.coverage.refusals[code] == before + 1, f"{event} was not refused with {code}"

    def one_unit_later(self, number: int) -> int:
        """The same state after one unit of time."""
        found = self._later.get(number)
        if found is None:
            state = self._states[number]
            consumers = {
                n: replace(c, last_heartbeat_s=c.last_heartbeat_s - 1) for n, c in state.consumers.items()
            }
            found = self._later[number] = self._number(replace(state, consumers=consumers))
        return found

    def is_tick_due(self, number: int) -> bool:
        deadline = self._rules.next_deadline(self._states[number])
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
        found = self._restarted.get(number)
        if found is None:
            state = self._states[number]
            restored = self._rules.restore(
                group="g",
                timeout_s=state.timeout_s,
                order=state.order,
                entries=state.shards.values(),
                now=0.0,
            )
            shards = {shard: entry.log_shard for shard, entry in state.shards.items()}
            found = self.report_shards(self._number(restored), shards)
            self._restarted[number] = found
        return found

    def _take(self, number: int, event: Event) -> Next:
        old = self._states[number]
        done = self._rules.step(old, event, now=0.0)
        check_step(old, done)
        check_state(done.state)
        self.coverage.events[type(event).__name__] += 1
        self.coverage.rows.update((t.old, t.trigger, t.new) for t in done.transitions)
        if done.refusal is not None:
            self.coverage.refusals[done.refusal] += 1
            return Next(number, 0, is_refused=True)
        return Next(self._number(done.state), bits(done.answer))

    def _number(self, state: GroupState) -> int:
        state = replace(state, shards={shard: _projected(entry) for shard, entry in state.shards.items()})
        consumers = tuple((c.name, c.last_heartbeat_s, c.held) for c in state.consumers.values())
        key = (state.order, state.timeout_s, consumers, tuple(state.shards.values()))
        number = self._numbers.setdefault(key, len(self._states))
        if number == len(self._states):
            self._states.append(state)
        return number
