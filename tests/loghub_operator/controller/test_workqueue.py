"""The order and the concurrency of reconciles, on an event loop whose time passes at once."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable

import pytest

from loghub_operator.controller.liveness import TaskState
from loghub_operator.controller.requeue import SOON_S
from loghub_operator.controller.workqueue import (
    AT_ONCE,
    CHILDREN_EVERY_S,
    COLLECT_S,
    RESYNCS_AT_ONCE,
    UNANSWERED_AFTER,
    UNANSWERED_AT_ONCE,
    Key,
    Requeue,
    WorkQueue,
)
from tests.loghub_operator.support import virtual_time

RESYNC_S = 30.0


class Stage:
    """A queue whose reconciles take the time that a test sets; records when each began."""

    def __init__(self) -> None:
        self.clock = virtual_time.LoopClock()
        self.queue = WorkQueue(self._reconcile, self.clock)
        self.takes_s: dict[str, float] = {}
        self.ends: dict[str, Requeue] = {}
        self.began: list[tuple[str, float]] = []
        self.running: set[str] = set()
        self.maximum = 0

    async def _reconcile(self, key: Key) -> Requeue:
        self.began.append((key.name, self.clock.monotonic_s()))
        self.running.add(key.name)
        self.maximum = max(self.maximum, len(self.running))
        await asyncio.sleep(self.takes_s.get(key.name, 0.0))
        self.running.remove(key.name)
        return self.ends.get(key.name, Requeue(after_s=RESYNC_S, answered=True))

    def enqueue(self, *names: str) -> None:
        for name in names:
            self.queue.enqueue(Key("ns", name))

    def child(self, name: str) -> None:
        self.queue.enqueue_known(Key("ns", name))

    def times(self, name: str) -> list[float]:
        """When it was reconciled."""
        return [when for one, when in self.began if one == name]


def play(story: Callable[[Stage], Awaitable[None]]) -> Stage:
    async def run() -> Stage:
        on = Stage()
        await story(on)
        await on.queue.close()
        return on

    return virtual_time.run(run())


def many(name: str, number: int) -> list[str]:
    return [f"{name}-{one}" for one in range(number)]


def test_concurrent_reconciles_are_bounded() -> None:
    async def story(on: Stage) -> None:
        names = many("g", 3 * AT_ONCE)
        on.takes_s = dict.fromkeys(names, 1.0)
        on.enqueue(*names)
        await asyncio.sleep(2.5)

    on = play(story)
    assert on.maximum == AT_ONCE
    assert len(on.began) == 3 * AT_ONCE


def test_changed_groups_come_before_those_due_for_a_resync() -> None:
    async def story(on: Stage) -> None:
        idle = many("idle", 5 * RESYNCS_AT_ONCE)
        on.enqueue(*idle)
        await asyncio.sleep(RESYNC_S - 1)
        on.takes_s = dict.fromkeys(idle, 1000.0)
        await asyncio.sleep(2)
        assert len(on.running) == RESYNCS_AT_ONCE, "the other resyncs wait"
        waiting = next(name for name in idle if name not in on.running)
        on.enqueue("changed", waiting)
        await asyncio.sleep(1)
        assert waiting in on.running, "a change ends the wait among the resyncs"

    on = play(story)
    assert on.times("changed") == [RESYNC_S + 1]


def test_a_changed_group_takes_no_resync_slot() -> None:
    async def story(on: Stage) -> None:
        idle = many("idle", RESYNCS_AT_ONCE)
        on.enqueue(*idle)
        await asyncio.sleep(RESYNC_S - 1)
        on.takes_s = dict.fromkeys(idle, 1000.0)
        on.ends["acts"] = Requeue(after_s=SOON_S, answered=True)
        await asyncio.sleep(2)
        on.enqueue("acts")
        await asyncio.sleep(2.5 * SOON_S)

    assert len(play(story).times("acts")) == 3


def test_groups_with_an_unreachable_log_service_wait_only_for_each_other() -> None:
    async def story(on: Stage) -> None:
        away = many("away", 10)
        on.ends = dict.fromkeys(away, Requeue(after_s=RESYNC_S, answered=False))
        on.enqueue(*away, "well")
        await asyncio.sleep((UNANSWERED_AFTER - 0.5) * RESYNC_S)
        assert all(len(on.times(name)) == UNANSWERED_AFTER for name in away)
        on.takes_s = dict.fromkeys(away, 1000.0)
        await asyncio.sleep(10 * RESYNC_S)
        assert len(on.running) == UNANSWERED_AT_ONCE

    on = play(story)
    assert len(on.times("well")) == UNANSWERED_AFTER + 10


def test_an_answer_or_a_reconcile_without_a_request_keeps_a_group_in_the_normal_queue() -> None:
    async def story(on: Stage) -> None:
        for answered in (False, False, None, True, False, False, None):
            on.ends["g"] = Requeue(after_s=RESYNC_S, answered=answered)
            on.enqueue("g")
            await asyncio.sleep(1)
        blocking = many("away", UNANSWERED_AT_ONCE)
        on.ends |= dict.fromkeys(blocking, Requeue(after_s=RESYNC_S, answered=False))
        for _ in range(UNANSWERED_AFTER):
            on.enqueue(*blocking)
            await asyncio.sleep(1)
        on.takes_s = dict.fromkeys(blocking, 1000.0)
        before = len(on.times("g"))
        await asyncio.sleep(2 * RESYNC_S)
        assert on.running == set(blocking)
        assert len(on.times("g")) == before + 2

    play(story)


def _at(seconds: Iterable[float], on: Stage) -> "list[asyncio.TimerHandle]":
    loop = asyncio.get_running_loop()
    return [loop.call_at(second, on.child, "g") for second in seconds]


@pytest.mark.parametrize(
    ("changes_s", "expected_s"),
    [
        ([], [0.0, 30.0]),
        ([10.0], [0.0, 10.2, 40.2]),  # soon, if the last reconcile is long ago
        ([10.0, 10.1, 10.15], [0.0, 10.2, 40.2]),  # a burst together
        ([10.0, 10.3, 10.5], [0.0, 10.2, 11.2, 41.2]),
        ([0.25], [0.0, 1.0, 31.0]),
        ([10 + one / 100 for one in range(300)], [0.0, 10.2, 11.2, 12.2, 13.2]),  # at a bounded rate
        ([29.5], [0.0, 29.7]),
    ],
)
def test_changes_of_children_are_collected(changes_s: list[float], expected_s: list[float]) -> None:
    async def story(on: Stage) -> None:
        on.enqueue("g")
        _at(changes_s, on)
        await asyncio.sleep(max(expected_s) + 0.01)

    assert (COLLECT_S, CHILDREN_EVERY_S) == (0.2, 1.0)
    assert play(story).times("g") == pytest.approx(expected_s)


def test_a_change_of_the_group_is_not_delayed_by_changes_of_its_children() -> None:
    async def story(on: Stage) -> None:
        on.enqueue("g")
        await asyncio.sleep(0.1)
        on.child("g")
        await asyncio.sleep(0.1)
        on.enqueue("g")
        await asyncio.sleep(0.1)

    assert play(story).times("g") == pytest.approx([0.0, 0.2])


def test_a_change_during_a_reconcile_causes_one_more() -> None:
    async def story(on: Stage) -> None:
        on.takes_s["g"] = 5.0
        on.enqueue("g")
        for _ in range(3):
            await asyncio.sleep(1)
            on.enqueue("g")
            on.child("g")
        await asyncio.sleep(20)

    assert play(story).times("g") == [0.0, 5.0]


def test_a_child_starts_no_group_that_does_not_exist() -> None:
    async def story(on: Stage) -> None:
        on.child("g")
        await asyncio.sleep(1)
        assert on.began == []
        on.ends["g"] = Requeue(after_s=None)
        on.enqueue("g")
        await asyncio.sleep(1)
        assert on.queue.tasks() == ()
        on.child("g")
        await asyncio.sleep(1)

    assert play(story).times("g") == [1.0]


def test_a_group_recreated_during_its_last_reconcile_is_reconciled_again() -> None:
    async def story(on: Stage) -> None:
        on.takes_s["g"], on.ends["g"] = 5.0, Requeue(after_s=None)
        on.enqueue("g")
        await asyncio.sleep(1)
        on.enqueue("g")
        await asyncio.sleep(5)
        del on.ends["g"]
        await asyncio.sleep(5)
        (task,) = on.queue.tasks()
        assert task.state is TaskState.IDLE

    assert play(story).times("g") == [0.0, 5.0]


def test_the_task_state_follows_the_reconcile() -> None:
    async def story(on: Stage) -> None:
        running = many("running", AT_ONCE)
        on.takes_s = dict.fromkeys(running, 1000.0)
        on.enqueue("idle")
        await asyncio.sleep(1)
        on.enqueue(*running)
        await asyncio.sleep(1)
        on.enqueue("queued")
        await asyncio.sleep(1)
        result = {task.group: (task.state, task.since_s) for task in on.queue.tasks()}
        assert result["ns/idle"] == (TaskState.IDLE, RESYNC_S)
        assert result["ns/running-0"] == (TaskState.RUNNING, 1.0)
        assert result["ns/queued"] == (TaskState.QUEUED, 2.0)
        assert on.queue.reconcile_ended_s == 0.0

    play(story)


def test_a_closed_queue_accepts_nothing() -> None:
    async def story(on: Stage) -> None:
        on.enqueue("g")
        await asyncio.sleep(1)
        await on.queue.close()
        on.enqueue("g", "another")
        on.child("g")
        await asyncio.sleep(2 * RESYNC_S)

    assert play(story).began == [("g", 0.0)]
