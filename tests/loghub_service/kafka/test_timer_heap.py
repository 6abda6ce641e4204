"""One timer for many deadlines."""

import asyncio

from loghub.clock import SystemClock
from loghub_service.kafka.groups import TimerHeap
from tests.loghub_service.engines import ManualClock

HANG_S = 60.0  # a guard only


def test_each_key_is_due_once_at_its_earliest_deadline() -> None:
    timers: TimerHeap[str] = TimerHeap(ManualClock())
    for key, deadline_s in (("a", 5.0), ("a", 3.0), ("a", 4.0), ("b", 3.0), ("c", 9.0)):
        timers.set(key, deadline_s)
    timers.set("d", None)
    assert timers.due(2.9) == []
    assert sorted(timers.due(3.0)) == ["a", "b"]
    assert timers.due(8.9) == []  # the later entry of a does not count any more
    timers.set("a", 5.0)
    assert timers.due(9.0) == ["a", "c"]
    assert len(timers) == 0


def test_a_deadline_that_only_moves_to_later_times_adds_no_entry() -> None:
    timers: TimerHeap[str] = TimerHeap(ManualClock())
    for deadline_s in range(10, 1000):
        timers.set("a", float(deadline_s))
    assert len(timers) == 1


def test_waiting_ends_at_a_deadline_that_is_set_meanwhile() -> None:
    async def story() -> None:
        clock = SystemClock()
        timers: TimerHeap[str] = TimerHeap(clock)
        timers.set("late", clock.monotonic_s() + 1e6)
        async with asyncio.timeout(HANG_S):
            waiting = asyncio.create_task(timers.wait(at_most_s=1e6))
            await asyncio.sleep(0)
            timers.set("early", clock.monotonic_s() + 0.05)
            await waiting
        assert timers.due(clock.monotonic_s()) == ["early"]

    asyncio.run(story())


def test_waiting_ends_without_a_deadline() -> None:
    async def story() -> None:
        async with asyncio.timeout(HANG_S):
            await TimerHeap[str](SystemClock()).wait(at_most_s=0.01)

    asyncio.run(story())
