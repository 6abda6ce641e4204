"""Logs of a subscription that end the worker that processes them, as when memory runs out: in virtual time.

Nothing but the files of its state tells a worker what its earlier processes had. In each row all logs are
processed but the bad ones, which alone are in the dead letter, after a bounded number of deaths.
"""

import shutil
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from loghub.domain.log_position import position_of
from loghub.domain.subscription import SubscriptionType
from loghub.wire.subscriptions import SubscriptionSpec
from loghub_consumer import (
    Consumer,
    DeadLetterLogstore,
    LogBatch,
    OnFailure,
    Processor,
    SubscriptionOptions,
    Tracker,
)
from loghub_consumer.ended_logs import MAX_ENTRIES, EndedLogs, blamed, ran
from loghub_consumer.failure.handler import RanLogs
from loghub_consumer.unacknowledged import Unsettled
from tests.loghub_consumer.virtual import GROUP, PROJECT, Program, World, world
from tests.loghub_consumer.virtual_worker import DirectPool, in_worker

LOGSTORE = "access"
BAD = ("log-03", "log-17")
# Of each worker for each bad log: in a batch of several log groups, in a log group, in a part of it, alone
# three times, and twice with logs that come again for other reasons.
MAX_DEATHS = 8


@dataclass
class Deaths:
    """Workers that die whenever one of them has a bad log, and come back with the state that they had."""

    world: World
    kind: SubscriptionType
    folder: Path
    done: Counter[str] = field(default_factory=Counter)
    deaths: Counter[str] = field(default_factory=Counter)
    programs: dict[str, Program] = field(default_factory=dict)
    dying: set[str] = field(default_factory=set)
    states: dict[str, Path] = field(default_factory=dict)

    def factory(self, name: str) -> Processor:
        story = self

        class Dying(Processor):
            def process(self, logs: LogBatch, tracker: Tracker) -> None:
                for group in logs.groups:
                    for log in group.logs:
                        if str(log.get("id")) in BAD:
                            story.dying.add(name)
                            story.world.sleep(1e6)
                        story.done[str(log.get("id"))] += 1
                        tracker.ack(log)

        return Dying()

    def start(self, name: str) -> None:
        settings = self.world.settings(
            LOGSTORE,
            consumer=name,
            acknowledge="log",
            subscription=SubscriptionOptions(type=self.kind, key=self.key),
            timeout_s=10,
            redelivery_delay_s=0.5,
            on_failure=OnFailure(
                policy="DeadLetter",
                max_attempts=2,
                dead_letter=DeadLetterLogstore(project=PROJECT, logstore="rejected"),
            ),
        )

        state = self.states.setdefault(name, self.folder / name)

        def make() -> Consumer:
            pool = DirectPool(lambda: self.factory(name))
            return in_worker(settings, Processor, state, self.world.clock, pool=pool)

        self.programs[name] = self.world.start(make, name)

    @property
    def key(self) -> tuple[str, ...]:
        return ("id",) if self.kind is SubscriptionType.KEY_SHARED else ()

    def run(self, sizes: list[int], workers: int) -> None:
        self.world.make_logstore(LOGSTORE, has_group=False)
        self.world.make_logstore("rejected", has_group=False)
        spec = SubscriptionSpec(type=self.kind, key=self.key)
        self.world.client.create_subscription(LOGSTORE, GROUP, spec)
        ids = iter(f"log-{number:02}" for number in range(sum(sizes)))
        for size in sizes:
            self.world.put(LOGSTORE, [next(ids) for _ in range(size)])
        for number in range(workers):
            self.start(f"w-{number}")
        while not self.is_over(len(sizes)):
            self.world.until(lambda: bool(self.dying) or self.is_over(len(sizes)), "a death or the end")
            for name in sorted(self.dying):
                self.dying.discard(name)
                self.deaths[name] += 1
                assert self.deaths[name] <= MAX_DEATHS * len(BAD), self.deaths
                state = self.states[name]
                self.states[name] = self.folder / f"{name}-{self.deaths[name]}"
                shutil.copytree(state, self.states[name])  # the threads that are killed still write
                self.programs[name].kill()
                self.start(name)
        for program in self.programs.values():
            program.end()

    def is_over(self, groups: int) -> bool:
        subscriptions = self.world.server.subscriptions
        assert subscriptions is not None
        return subscriptions[PROJECT, LOGSTORE][GROUP].core.shards[0].acked.mark == position_of(groups)


@pytest.mark.parametrize(
    ("kind", "sizes", "workers"),
    [
        (SubscriptionType.SHARED, [24], 1),
        (SubscriptionType.KEY_SHARED, [5, 7, 12], 2),
        (SubscriptionType.FAILOVER, [24], 1),
        pytest.param(SubscriptionType.SHARED, [1] * 24, 2, marks=pytest.mark.deep),
        pytest.param(SubscriptionType.EXCLUSIVE, [5, 7, 12], 1, marks=pytest.mark.deep),
    ],
)
def test_a_log_that_ends_its_worker_is_found_and_settled_alone(
    kind: SubscriptionType, sizes: list[int], workers: int, tmp_path: Path
) -> None:
    with world(seed=5) as one:
        story = Deaths(one, kind, tmp_path)
        story.run(sizes, workers)
        assert set(story.done) == {f"log-{number:02}" for number in range(24)} - set(BAD)
        rejected = Counter(one.ids("rejected"))
        assert set(rejected) == set(BAD)
        assert max(rejected.values()) <= 2, "once more only if a worker ends right after the write"
        assert story.deaths.total() >= 3 * len(BAD), "three attempts alone"


# -- as values


def part(cursor: int, only: set[int] | None = None, *, logs: int = 40, attempts: int = 0) -> Unsettled:
    made = Unsettled(cursor, b"", only, attempts, False, logs=logs)
    made.attempts = attempts
    return made


def test_only_what_ran_alone_is_blamed_and_several_logs_are_divided_first() -> None:
    one, two = part(1, {3}), part(2)
    assert [b.is_blamed for b in blamed(ran((one, two)), ended_alone=True)] == [False, False]
    assert [b.is_blamed for b in blamed(ran((one,)), ended_alone=False)] == [False]
    assert [(b.is_blamed, b.parts) for b in blamed(ran((two,)), ended_alone=True)] == [(False, 16)]
    ended = EndedLogs()
    ended.restore(0, blamed(ran((two,)), ended_alone=True))
    found = ended.marked(0, part(2, set(range(5, 40))))
    assert [len(p.only or ()) for p in found] == [3] * 11 + [2]
    assert all(p.is_suspect for p in found)
    assert {p.failure.cause for p in found if p.failure} == {"unavailable"}, "none is the cause yet"
    ended.restore(0, blamed(ran((one,)), ended_alone=True))
    found = ended.marked(0, part(1, attempts=2))
    assert [(sorted(p.only or ()), p.is_suspect, p.attempts) for p in found] == [
        ([3], True, 2),
        ([n for n in range(40) if n != 3], False, 2),
    ]
    assert found[0].failure is not None
    assert found[0].failure.cause == "ended"


def test_what_does_not_come_again_is_bounded_and_what_runs_is_not_counted_twice() -> None:
    ended = EndedLogs()
    many = tuple(RanLogs(cursor=number, only=(0,), attempts=0, is_blamed=True) for number in range(2_000))
    ended.restore(0, many)
    assert len(ended.of(0)) == MAX_ENTRIES
    (first,) = ended.marked(0, part(7, {0}))
    ended.sent_back(0, first)
    (again,) = ended.marked(0, part(7, {0}))
    assert [one.failure and one.failure.cause for one in (first, again)] == ["ended", "unavailable"]
    ended.began(0, [again])
    (after,) = ended.marked(0, part(7, {0}))
    assert not after.is_suspect
