"""Long random lives of a group: Hypothesis drives, the invariants of docs/shard-states.md 3 judge.

Two lives: one with well-behaved consumers and real seconds, where no two processes may ever work
on one shard; one with unruly consumers that name and checkpoint anything, which must not break
the group's own invariants. `Driver` checks state, step and persisted facts after every event.
"""

import copy
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from loghub.domain.coordinator import next_deadline
from loghub.domain.group import GroupState, Refusal
from tests.loghub.domain.driver import Driver

pytestmark = pytest.mark.long

NAMES = ("a", "b", "c", "d")
MARGIN_S = 2.0
MOST_SHARDS = 9

names = st.sampled_from(NAMES)
seconds = st.sampled_from([0.5, 1.0, 4.0, 9.0, 31.0])
index = st.integers(min_value=0, max_value=MOST_SHARDS)


@dataclass
class Process:
    """A consumer process that fences itself `MARGIN_S` before the service gives up on it."""

    works_on: set[int] = field(default_factory=set)
    told: set[int] = field(default_factory=set)
    last_good_s: float = 0.0

    def hear(self, answer: tuple[int, ...], *, sent_s: float) -> None:
        self.told = set(answer)
        self.works_on |= self.told
        self.last_good_s = sent_s

    def stop(self) -> None:
        self.works_on, self.told = set(), set()


class Life(RuleBasedStateMachine):
    """What both lives share: the logstore, the settings, the service."""

    driver: Driver

    def begin(self, shards: int, order: bool) -> None:
        self.driver = Driver(shards, timeout_s=10.0, order=order)
        self.next_shard = shards

    def _open_shards(self) -> list[int]:
        return [s for s, shard in self.driver.logstore.items() if not shard.read_only]

    @rule(pick=index, end=st.integers(0, 3))
    def split(self, pick: int, end: int) -> None:
        open_ones = self._open_shards()
        if len(self.driver.logstore) < MOST_SHARDS and open_ones:
            shard = open_ones[pick % len(open_ones)]
            self.driver.split(shard, end=end, into=(self.next_shard, self.next_shard + 1))
            self.next_shard += 2

    @rule(pick=index)
    def merge(self, pick: int) -> None:
        open_ones = self._open_shards()
        if len(open_ones) >= 2:
            start = pick % (len(open_ones) - 1)
            left, right = open_ones[start : start + 2]
            self.driver.close_shard(left, end=2)
            self.driver.close_shard(right, end=0)
            self.driver.put_shard(self.next_shard, parents=(left, right))
            self.driver.tell_shards()
            self.next_shard += 1

    @rule(pick=index, whole=st.booleans())
    def retention(self, pick: int, whole: bool) -> None:
        """A read-only shard loses its logs, or is gone."""
        closed = [s for s, shard in self.driver.logstore.items() if shard.read_only]
        if closed:
            shard = closed[pick % len(closed)]
            if whole:
                self.driver.drop_shard(shard)
                self.forget(shard)
            else:
                end = self.driver.logstore[shard].end_cursor or 0
                self.driver.close_shard(shard, begin=end, end=end)
            self.driver.tell_shards()

    def forget(self, shard: int) -> None:
        """A shard's pulls fail from now on."""

    @rule(order=st.booleans())
    def set_order(self, order: bool) -> None:
        self.driver.configure(order=order)

    @rule()
    def service_restarts(self) -> None:
        self.driver.restart()

    @rule()
    def tick(self) -> None:
        self.driver.tick()
        deadline = next_deadline(self.driver.state)
        assert deadline is None or deadline > self.driver.now


class WellBehaved(Life):
    """Consumers that keep the contract of docs/sls-protocol.md 4.3."""

    @initialize(shards=st.integers(1, 4), order=st.booleans())
    def start(self, shards: int, order: bool) -> None:
        self.begin(shards, order)
        self.processes = {name: Process() for name in NAMES}

    def forget(self, shard: int) -> None:
        for process in self.processes.values():
            process.works_on.discard(shard)
            process.told.discard(shard)

    @rule(name=names)
    def beat(self, name: str) -> None:
        process = self.processes[name]
        answer = self.driver.beat(name, *process.works_on)
        process.hear(answer, sent_s=self.driver.now)

    @rule(name=names)
    def beat_unheard(self, name: str) -> None:
        self.driver.beat(name, *self.processes[name].works_on)

    @rule(name=names)
    def finish(self, name: str) -> None:
        process = self.processes[name]
        process.works_on &= process.told

    @rule(name=names)
    def crash(self, name: str) -> None:
        self.processes[name].stop()

    @rule(name=names)
    def leave(self, name: str) -> None:
        self.processes[name].stop()
        self.driver.leave(name)

    @rule(seconds=seconds)
    def advance(self, seconds: float) -> None:
        self.driver.advance(seconds)
        for process in self.processes.values():
            if self.driver.now - process.last_good_s >= self.driver.state.timeout_s - MARGIN_S:
                process.stop()

    @rule(longer=st.sampled_from([10.0, 12.0, 30.0]))
    def lengthen_timeout(self, longer: float) -> None:
        if longer > self.driver.state.timeout_s:
            self.driver.configure(timeout_s=longer)

    @rule(name=names, pick=index, cursor=st.integers(0, 3))
    def checkpoint(self, name: str, pick: int, cursor: int) -> None:
        """A process saves what it works on; the service takes it only from the holder."""
        working = sorted(self.processes[name].works_on)
        if working:
            shard = working[pick % len(working)]
            holds = self.driver.state.shards[shard].holder == name
            refusal = self.driver.checkpoint(name, shard, cursor)
            assert refusal == (None if holds else Refusal.CONSUMER_NOT_MATCH)

    @rule(pick=index, cursor=st.integers(0, 3))
    def forced_checkpoint(self, pick: int, cursor: int) -> None:
        shards = list(self.driver.state.shards)
        if shards:
            assert self.driver.checkpoint("", shards[pick % len(shards)], cursor, force=True) is None

    @invariant()
    @precondition(lambda self: hasattr(self, "processes"))
    def no_two_processes_work_on_one_shard(self) -> None:
        busy = [shard for process in self.processes.values() for shard in process.works_on]
        assert len(busy) == len(set(busy)), {n: p.works_on for n, p in self.processes.items()}

    @invariant()
    @precondition(lambda self: hasattr(self, "processes"))
    def settles_within_two_heartbeats(self) -> None:
        """Liveness, tried on a copy: everybody beats twice and gives up at once what is dropped."""
        driver, processes = copy.copy(self.driver), copy.deepcopy(self.processes)
        driver.store = copy.deepcopy(driver.store)
        live = list(driver.state.consumers)
        for name in live * 2:
            process = processes[name]
            process.hear(driver.beat(name, *process.works_on), sent_s=driver.now)
            if process.works_on != process.told:
                process.works_on &= process.told
                process.hear(driver.beat(name, *process.works_on), sent_s=driver.now)
        assert_settled(driver.state, {name: processes[name].works_on for name in live})


def assert_settled(state: GroupState, works_on: dict[str, set[int]]) -> None:
    held = {s for shards in works_on.values() for s in shards}
    assert all(entry.state != "transfer" for entry in state.shards.values())
    if works_on:
        assert held == {s for s, e in state.shards.items() if e.state not in ("wait", "over")}
        sizes = [len(shards) for shards in works_on.values()]
        assert max(sizes) - min(sizes) <= 1


class Unruly(Life):
    """Anybody names and checkpoints anything, whenever."""

    @initialize(shards=st.integers(0, 4), order=st.booleans())
    def start(self, shards: int, order: bool) -> None:
        self.begin(shards, order)

    @rule(name=names, held=st.frozensets(index))
    def beat(self, name: str, held: frozenset[int]) -> None:
        answer = self.driver.beat(name, *held)
        assert answer == self.driver.state.owned_by(name)
        assert self.driver.state.consumers[name].held <= set(self.driver.state.shards)

    @rule(name=names)
    def leave(self, name: str) -> None:
        self.driver.leave(name)
        assert name not in self.driver.state.consumers

    @rule(seconds=seconds)
    def advance(self, seconds: float) -> None:
        self.driver.advance(seconds)

    @rule(timeout_s=st.sampled_from([1.0, 10.0, 60.0]))
    def set_timeout(self, timeout_s: float) -> None:
        self.driver.configure(timeout_s=timeout_s)

    @rule(name=st.sampled_from(["", *NAMES]), shard=index, cursor=st.integers(0, 5), force=st.booleans())
    def checkpoint(self, name: str, shard: int, cursor: int, force: bool) -> None:
        entry = self.driver.state.shards.get(shard)
        refusal = self.driver.checkpoint(name, shard, cursor, force=force)
        if not force and name == "":
            assert refusal is Refusal.PARAMETER_INVALID
        elif entry is None:
            assert refusal is Refusal.SHARD_NOT_EXIST
        elif force or entry.holder == name:
            assert refusal is None
            saved = self.driver.state.shards[shard].checkpoint
            assert saved is not None
            assert (saved.cursor, saved.consumer) == (cursor, name)
        else:
            assert refusal is Refusal.CONSUMER_NOT_MATCH


def _settings(examples: int, steps: int) -> settings:
    # No deadline: other work on the machine must not fail a test. Derandomised: the same lives in every run.
    return settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )


TestWellBehaved = WellBehaved.TestCase
TestWellBehaved.settings = _settings(120, 40)
TestUnruly = Unruly.TestCase
TestUnruly.settings = _settings(120, 40)


def _deep(case: type) -> type:
    # A long search needs a longer hang guard.
    return pytest.mark.timeout(3600)(pytest.mark.deep(case))


class WellBehavedDeep(WellBehaved):
    """The same, for longer."""


class UnrulyDeep(Unruly):
    """The same, for longer."""


WellBehavedDeep.TestCase.settings = _settings(2000, 80)
TestWellBehavedDeep = _deep(WellBehavedDeep.TestCase)
UnrulyDeep.TestCase.settings = _settings(2000, 80)
TestUnrulyDeep = _deep(UnrulyDeep.TestCase)
