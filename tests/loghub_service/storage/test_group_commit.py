"""Group commit: all waiting items are committed together."""

import asyncio
import threading
from collections.abc import Sequence

import pytest

from loghub_service.storage.group_commit import Latencies, StorageFailed, ThreadedBatches
from tests.loghub_service.inline_batches import InlineBatches
from tests.support import HandClock


def _never(error: BaseException) -> None:
    raise AssertionError(error)


def test_all_waiting_items_are_one_batch() -> None:
    async def scenario() -> list[list[int]]:
        batches_seen: list[list[int]] = []
        started, go = threading.Event(), threading.Event()

        def commit(batch: Sequence[int]) -> list[object]:
            batches_seen.append(list(batch))
            started.set()
            assert go.wait(180)
            return [n * 10 for n in batch]

        batches = ThreadedBatches(name="test", commit=commit, on_failed=_never, clock=HandClock(0))
        first = batches.submit(1)
        await asyncio.to_thread(started.wait, 60)
        later = [batches.submit(n) for n in (2, 3, 4)]
        go.set()
        assert await asyncio.gather(first, *later) == [10, 20, 30, 40]
        await asyncio.to_thread(batches.close)
        return batches_seen

    assert asyncio.run(scenario()) == [[1], [2, 3, 4]]


def test_an_exception_as_an_outcome_fails_only_its_item() -> None:
    async def scenario() -> list[object]:
        def commit(batch: Sequence[int]) -> list[object]:
            return [OSError("odd") if n % 2 else n for n in batch]

        batches = ThreadedBatches(name="test", commit=commit, on_failed=_never, clock=HandClock(0))
        futures = [batches.submit(n) for n in range(4)]
        outcomes = await asyncio.gather(*futures, return_exceptions=True)
        await asyncio.to_thread(batches.close)
        return outcomes

    outcomes = asyncio.run(scenario())
    assert outcomes[0::2] == [0, 2]
    assert all(isinstance(outcome, OSError) for outcome in outcomes[1::2])


def test_nothing_is_committed_after_a_failure() -> None:
    async def scenario() -> tuple[list[int], list[BaseException]]:
        committed: list[int] = []
        reported: list[BaseException] = []

        def commit(batch: Sequence[int]) -> list[object]:
            committed.extend(batch)
            raise RuntimeError("the disk is gone")

        batches = ThreadedBatches(name="test", commit=commit, on_failed=reported.append, clock=HandClock(0))
        for number in range(2):
            with pytest.raises(StorageFailed, match="the disk is gone"):
                await batches.submit(number)
        await asyncio.to_thread(batches.close)
        return committed, reported

    committed, reported = asyncio.run(scenario())
    assert committed == [0]
    assert len(reported) == 1


def test_close_commits_what_was_submitted() -> None:
    async def scenario() -> list[object]:
        batches = ThreadedBatches(name="test", commit=list, on_failed=_never, clock=HandClock(0))
        futures = [batches.submit(n) for n in range(100)]
        await asyncio.to_thread(batches.close)
        return await asyncio.gather(*futures)

    assert asyncio.run(scenario()) == list(range(100))


def test_a_cancelled_waiter_does_not_disturb_the_others() -> None:
    async def scenario() -> object:
        batches = ThreadedBatches(name="test", commit=list, on_failed=_never, clock=HandClock(0))
        gone, stays = batches.submit(1), batches.submit(2)
        gone.cancel()
        outcome = await stays
        await asyncio.to_thread(batches.close)
        return outcome

    assert asyncio.run(scenario()) == 2


def test_inline_batches_commit_immediately() -> None:
    async def scenario() -> object:
        def commit(batch: Sequence[int]) -> list[object]:
            return [n + 1 for n in batch]

        return await InlineBatches(name="test", commit=commit, on_failed=_never, clock=HandClock(0)).submit(1)

    assert asyncio.run(scenario()) == 2


class _Gated:
    """A commit function that waits for its gate, and remembers the batches."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.started, self.go = threading.Event(), threading.Event()

    def __call__(self, batch: Sequence[int]) -> list[object]:
        self.batches.append(list(batch))
        self.started.set()
        assert self.go.wait(180)
        return list(batch)


def test_a_batch_is_bounded_by_the_size_of_its_items() -> None:
    """At least one item is committed, however large it is."""

    async def scenario() -> list[list[int]]:
        commit = _Gated()
        batches = ThreadedBatches(
            name="test", commit=commit, on_failed=_never, clock=HandClock(0), size=lambda n: n, max_size=25
        )
        first = batches.submit(1)
        await asyncio.to_thread(commit.started.wait, 60)
        later = [batches.submit(n) for n in (10, 15, 1, 99, 2)]
        commit.go.set()
        assert await asyncio.gather(first, *later) == [1, 10, 15, 1, 99, 2]
        await asyncio.to_thread(batches.close)
        return commit.batches

    assert asyncio.run(scenario()) == [[1], [10, 15], [1], [99], [2]]


def test_the_monitor_knows_how_much_waits_and_since_when_nothing_was_committed() -> None:
    async def scenario() -> None:
        commit, clock = _Gated(), HandClock(100.0)
        batches = ThreadedBatches(name="test", commit=commit, on_failed=_never, clock=clock)
        monitor = batches.monitor
        assert (monitor.waiting, monitor.stalled_s()) == (0, 0)
        first = batches.submit(1)
        clock.now += 7
        second = batches.submit(2)
        assert (monitor.waiting, monitor.stalled_s()) == (2, 7)
        commit.go.set()
        await asyncio.gather(first, second)
        assert (monitor.waiting, monitor.stalled_s()) == (0, 0)
        assert (monitor.latencies.count, monitor.latencies.total_s) == (2, 7)
        await asyncio.to_thread(batches.close)

    asyncio.run(scenario())


def test_latencies_are_counted_in_cumulative_buckets() -> None:
    latencies = Latencies((0.1, 1.0))
    for seconds in (0.05, 0.1, 0.5, 3.0):
        latencies.add(seconds)
    assert latencies.cumulative() == [(0.1, 2), (1.0, 3), (float("inf"), 4)]
    assert latencies.count == 4
