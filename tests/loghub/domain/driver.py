"""A group driven by hand: the service's duties around the coordinator, without a service.

It keeps a clock, the logstore's shards, and a store that is filled from facts alone, so that
`Driver.restart` sees exactly what a restarted service would. Every step is checked.
"""

from dataclasses import dataclass, field, replace

from loghub.domain.coordinator import create_group, restore, step
from loghub.domain.fsm import ShardTrigger
from loghub.domain.group import (
    Configure,
    Event,
    Fact,
    GroupSaved,
    GroupShardForgotten,
    GroupState,
    Heartbeat,
    Leave,
    LogShard,
    RefusalCode,
    SaveCheckpoint,
    ShardEntry,
    ShardsChanged,
    Step,
    Tick,
)
from tests.loghub.domain.invariants import check_state, check_step


@dataclass
class Store:
    """The persisted facts of one group."""

    timeout_s: float = 0.0
    order: bool = False
    entries: dict[int, ShardEntry] = field(default_factory=dict)

    def save(self, facts: tuple[Fact, ...]) -> None:
        for fact in facts:
            if isinstance(fact, GroupSaved):
                self.timeout_s, self.order = fact.timeout_s, fact.order
            elif isinstance(fact, GroupShardForgotten):
                del self.entries[fact.shard]
            else:
                self.entries[fact.entry.shard] = fact.entry


class Driver:
    """One group ``g``, its logstore and its persisted facts."""

    def __init__(
        self, shards: int | tuple[LogShard, ...] = 1, *, timeout_s: float = 30.0, order: bool = False
    ) -> None:
        plain = tuple(LogShard(shard=n) for n in range(shards)) if isinstance(shards, int) else shards
        self.now = 100.0
        self.logstore = {s.shard: s for s in plain}
        self.store = Store()
        self.last = create_group(group="g", timeout_s=timeout_s, order=order, shards=plain, now=self.now)
        self.state = self.last.state
        self.store.save(self.last.facts)
        self._check_store()

    def do(self, event: Event) -> Step:
        before = self.state
        self.last = step(before, event, now=self.now)
        self.store.save(self.last.facts)
        self.state = self.last.state
        check_step(before, self.last)
        check_state(self.state)
        self._check_store()
        return self.last

    def _check_store(self) -> None:
        stored = (self.store.timeout_s, self.store.order, self.store.entries)
        assert stored == (self.state.timeout_s, self.state.order, dict(self.state.shards)), (
            "a change is missing from the facts"
        )

    def heartbeat(self, consumer: str, *held: int) -> tuple[int, ...]:
        return self.do(Heartbeat(consumer=consumer, held=frozenset(held))).answer

    def leave(self, consumer: str) -> None:
        self.do(Leave(consumer=consumer))

    def checkpoint(
        self, consumer: str, shard: int, cursor: int, *, force: bool = False
    ) -> RefusalCode | None:
        return self.do(SaveCheckpoint(consumer=consumer, shard=shard, cursor=cursor, force=force)).refusal

    def advance(self, seconds: float) -> None:
        self.now += seconds

    def tick(self) -> None:
        self.do(Tick())

    def configure(self, *, timeout_s: float | None = None, order: bool | None = None) -> None:
        self.do(Configure(timeout_s=timeout_s, order=order))

    def put_shard(self, shard: int, *, parents: tuple[int, ...] = ()) -> None:
        self.logstore[shard] = LogShard(shard=shard, parents=parents)

    def close_shard(self, shard: int, *, begin: int = 0, end: int) -> None:
        self.logstore[shard] = replace(self.logstore[shard], begin_cursor=begin, end_cursor=end)

    def delete_shard(self, shard: int) -> None:
        del self.logstore[shard]

    def report_shards(self) -> None:
        self.do(ShardsChanged(shards=tuple(self.logstore.values())))

    def split(self, shard: int, *, end: int, into: tuple[int, int], begin: int = 0) -> None:
        """What a SplitShard comes to: the old one closed, two new ones, reported at once."""
        self.close_shard(shard, begin=begin, end=end)
        for child in into:
            self.put_shard(child, parents=(shard,))
        self.report_shards()

    def restart(self) -> GroupState:
        """A new service over the old store, which then hears what shards the logstore has."""
        self.state = restore(
            group="g",
            timeout_s=self.store.timeout_s,
            order=self.store.order,
            entries=self.store.entries.values(),
            now=self.now,
        )
        self.report_shards()
        return self.state

    def line(self, shard: int) -> str:
        """A shard in one line: state, holder, next holder."""
        entry = self.state.shards[shard]
        parts: list[str] = [entry.state.value]
        if entry.holder:
            parts.append(entry.holder)
        if entry.next_holder:
            parts.append(f"-> {entry.next_holder}")
        return " ".join(parts)


def triggers(created: Step, shard: int) -> list[ShardTrigger]:
    return [p.trigger for p in created.transitions if p.shard == shard]


def two_consumers() -> Driver:
    """a holds 0, b holds 1, both have said so."""
    driver = Driver(2)
    driver.heartbeat("a")
    driver.heartbeat("b")
    driver.heartbeat("a", 0)
    driver.heartbeat("b", 1)
    return driver


def in_transfer() -> Driver:
    """a holds 0, and 1 is under way from a to b."""
    driver = Driver(2)
    driver.heartbeat("a")
    driver.heartbeat("a", 0, 1)
    driver.heartbeat("b")
    assert driver.heartbeat("a", 0, 1) == (0,)
    assert driver.line(1) == "transfer a -> b"
    return driver
