"""A stateful pipeline that is behind: no shard is read ahead of another, so that the watermark, which is one
for all shards of a worker, never passes what another shard still has.

A table of rates, backlogs, times and events, run in a simulated service on simulated time: the plans are
those of the source, and what comes late is decided as Spark does."""

import math
import random
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import pytest

from loghub_consumer.batch_plan import (
    EMPTY_PLAN,
    BatchLimits,
    BatchPlan,
    GroupSize,
    Range,
    levelled,
    next_even_plan,
    next_plan,
    ranges_to_date,
)

DELAY_S = 20  # of the watermark
BATCH_LOGS = 200
NOW_S = 1_000_000.0  # when the worker starts
LIMITS = BatchLimits(log_groups=10_000, bytes=1 << 40, logs=BATCH_LOGS)
LATER_S = 60  # how long logs go on to arrive after that


@dataclass(frozen=True)
class Entry:
    """A log group of one log."""

    received_s: float
    time_s: float


Times = Callable[[float, random.Random], float]


def in_order(received_s: float, _: random.Random) -> float:
    return received_s


def up_to_the_delay_late(received_s: float, chance: random.Random) -> float:
    return received_s - chance.uniform(0, DELAY_S - 1)  # receipts are known in whole seconds


def some_too_late(received_s: float, chance: random.Random) -> float:
    return received_s - (chance.uniform(DELAY_S, 10 * DELAY_S) if chance.random() < 0.1 else 0)


def some_of_the_future(received_s: float, chance: random.Random) -> float:
    return received_s + chance.choice([0, 0, 0, 5, 600, 3_000_000_000])


@dataclass
class Service:
    """Shards with what they will have received at any time, in the order of receipt."""

    shards: dict[int, list[Entry]]

    def ends(self, now_s: float) -> dict[int, int]:
        return {shard: self.cursor_at(shard, now_s) for shard in self.shards}

    def received(self, shard: int, cursor: int) -> int:
        return int(self.shards[shard][cursor].received_s)

    def cursor_at(self, shard: int, unix_s: float) -> int:
        return bisect_left(self.shards[shard], unix_s, key=lambda entry: entry.received_s)


@dataclass
class Worker:
    """A worker with one watermark, which drops what lies behind it."""

    service: Service
    plan_next: Callable[..., BatchPlan]
    positions: dict[int, int]
    watermark_s: float = -math.inf
    plan: BatchPlan = EMPTY_PLAN
    counted: list[Entry] = field(default_factory=list)
    dropped: list[Entry] = field(default_factory=list)

    def plan_batch(self, now_s: float) -> bool:
        """Plan a batch; False if there is nothing to read."""
        known = self.service.ends(now_s)
        ends = {shard: known[shard] for shard in self.positions}
        sizes = dict.fromkeys(ends, GroupSize(bytes=1, logs=1))
        before = self.plan
        self.plan = self.plan_next(
            self.service, before, positions=self.positions, ends=ends, sizes=sizes, limits=LIMITS
        )
        return self.plan is not before

    def deliver(self) -> None:
        highest = self.watermark_s
        assert self.plan.ranges
        for part in self.plan.ranges:
            for entry in self.service.shards[part.shard][part.begin : part.end]:
                latest_s = math.inf if self.plan.latest_s is None else self.plan.latest_s
                time_s = entry.time_s if entry.time_s < latest_s + 1 else latest_s
                (self.dropped if time_s < self.watermark_s else self.counted).append(entry)
                highest = max(highest, time_s - DELAY_S)
            self.positions[part.shard] = part.end
        self.watermark_s = highest


def level(service: Service, last: BatchPlan, *, ends: Mapping[int, int], **given: object) -> BatchPlan:
    """As the source plans with state."""
    plan = next_even_plan(last, ends=ends, **given)  # type: ignore[arg-type]
    if plan is last:
        return last
    received = {p.shard: service.received(p.shard, p.end - 1) for p in ranges_to_date(plan, ends)}
    shards = [part.shard for part in plan.ranges]
    return levelled(
        plan,
        ends,
        received=received,
        cursors=lambda unix_s: {shard: service.cursor_at(shard, unix_s) for shard in shards},
    )


def as_much_as_it_can(service: Service, last: BatchPlan, **given: object) -> BatchPlan:
    """As the source plans without state, which the table must find wrong."""
    return next_plan(last, **given)  # type: ignore[arg-type]


def arrivals(seed: str, *, per_s: float, batches: float, times: Times) -> Iterator[Entry]:
    """What a shard receives: so many batches before the worker starts, and then for a while longer."""
    chance = random.Random(seed)
    at_s = NOW_S - batches * BATCH_LOGS / max(per_s, 1.0)
    while per_s and (at_s := at_s + chance.expovariate(per_s)) < NOW_S + LATER_S:
        yield Entry(at_s, times(at_s, chance))


def run(worker: Worker, *, event: str = "none") -> None:
    """Work until everything is read, with what happens in the third batch."""
    now_s, away = NOW_S, None
    for number in range(10_000):
        now_s += 2.0
        if worker.plan_batch(now_s):
            if number == 2 and event == "kill":  # the batch is repeated with its plan, after a restart
                now_s += 30.0
                worker.plan = BatchPlan.from_json(worker.plan.to_json())
            worker.deliver()
        elif now_s > NOW_S + LATER_S:
            return
        if number == 2 and event == "move":  # to a worker that does nothing with it, and back
            away = worker.positions.pop(MOVES)
        if number == 4 and away is not None:
            worker.positions[MOVES] = away
    raise AssertionError("the worker does not get to the end")


ROWS = [
    (rate, batches, times, event)
    for rate in (1, 50, 0)
    for batches in (1, 3, 30)
    for times in (in_order, up_to_the_delay_late, some_too_late, some_of_the_future)
    for event in ("none", "kill", "move", "split")
]
MOVES = 1  # the shard that moves away and back


def service_of(rate: int, batches: int, times: Times, *, event: str) -> Service:
    quiet = list(arrivals("quiet", per_s=10 / max(rate, 1) if rate else 0, batches=batches, times=times))
    if rate:  # the quiet shard has been written for as long as the busy one
        busy_since_s = NOW_S - batches * BATCH_LOGS / 10
        quiet = [entry for entry in quiet if entry.received_s >= busy_since_s]
    busy = list(arrivals("busy", per_s=10, batches=batches, times=times))
    if event == "split":
        split_s = NOW_S - batches * BATCH_LOGS / 20
        children = [entry for entry in busy if entry.received_s >= split_s]
        parent = busy[: len(busy) - len(children)]
        return Service({0: quiet, 1: parent, 2: children[::2], 3: children[1::2]})
    return Service({0: quiet, 1: busy})


@pytest.mark.parametrize(
    ("rate", "batches", "times", "event"),
    [
        pytest.param(
            *row,
            id=f"1:{row[0]}-{row[1]}-{row[2].__name__}-{row[3]}",
            marks=[pytest.mark.deep] if row[1] == 30 and row[3] != "none" else [],
        )
        for row in ROWS
    ],
)
def test_every_log_is_counted_once_or_later_than_the_delay(
    rate: int, batches: int, times: Times, event: str
) -> None:
    service = service_of(rate, batches, times, event=event)
    worker = Worker(service, level, positions=dict.fromkeys(service.shards, 0))
    run(worker, event=event)
    sent = sorted((e.received_s, e.time_s) for entries in service.shards.values() for e in entries)
    assert sorted((e.received_s, e.time_s) for e in [*worker.counted, *worker.dropped]) == sent
    moved = set(service.shards[MOVES]) if event == "move" else set()  # the others did not wait for it
    for entry in set(worker.dropped) - moved:
        assert times is some_too_late
        assert entry.time_s < entry.received_s - DELAY_S + 1
    assert worker.watermark_s <= max(entry.received_s for entry in worker.counted) + 1 - DELAY_S


@pytest.mark.parametrize("batches", [3, 30])
def test_a_plan_that_takes_what_it_can_would_drop_logs(batches: int) -> None:
    """So the table can fail."""
    service = service_of(50, batches, in_order, event="none")
    worker = Worker(service, as_much_as_it_can, positions=dict.fromkeys(service.shards, 0))
    run(worker)
    assert len(worker.dropped) > BATCH_LOGS / 2


def test_a_shard_that_comes_with_a_backlog_is_level_again_after_what_is_late_of_it() -> None:
    """The watermark does not go back: what has waited elsewhere for longer than the delay is late."""
    service = service_of(1, 3, in_order, event="none")
    worker = Worker(service, level, positions={1: 0})
    now_s = NOW_S
    while worker.plan_batch(now_s):
        worker.deliver()
    worker.positions[0] = 0
    run(worker)
    assert {entry.received_s < NOW_S - DELAY_S + 2 for entry in worker.dropped} == {True}


def test_ranges_are_the_same_part_of_each_backlog() -> None:
    limits = replace(LIMITS, logs=102)
    sizes = {0: GroupSize(bytes=1, logs=2), 1: GroupSize(bytes=1, logs=1)}
    plan = next_even_plan(
        EMPTY_PLAN, positions={0: 5, 1: 0}, ends={0: 15, 1: 1000}, sizes=sizes, limits=limits
    )
    assert plan.ranges == (Range(0, 5, 6), Range(1, 0, 100))
    assert next_even_plan(plan, positions={0: 15}, ends={0: 15}, sizes=sizes, limits=limits) is plan


def test_the_shard_that_sets_the_level_is_read_even_if_a_second_has_more_than_a_batch() -> None:
    plan = BatchPlan(1, (Range(0, 0, 3), Range(1, 0, 10)))
    after = levelled(plan, {0: 9, 1: 11}, received={0: 7, 1: 9}, cursors=lambda unix_s: {0: 9, 1: unix_s - 8})
    assert after == BatchPlan(1, (Range(0, 0, 3),), latest_s=7)
