"""Group commit: all waiting items are committed together."""

import asyncio
import threading
from collections.abc import Sequence

import pytest

from loghub.service.storage.batches import InlineBatches, StorageFailed, ThreadedBatches


def _never(error: BaseException) -> None:
    raise AssertionError(error)


def test_all_waiting_items_are_one_batch() -> None:
    async def scenario() -> list[list[int]]:
        batches_seen: list[list[int]] = []
        started, go = threading.Event(), threading.Event()

        def commit(batch: Sequence[int]) -> list[object]:
            batches_seen.append(list(batch))
            started.set()
            assert go.wait(60)
            return [n * 10 for n in batch]

        batches = ThreadedBatches(name="test", commit=commit, on_failed=_never)
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

        batches = ThreadedBatches(name="test", commit=commit, on_failed=_never)
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

        batches = ThreadedBatches(name="test", commit=commit, on_failed=reported.append)
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
        batches = ThreadedBatches(name="test", commit=list, on_failed=_never)
        futures = [batches.submit(n) for n in range(100)]
        await asyncio.to_thread(batches.close)
        return await asyncio.gather(*futures)

    assert asyncio.run(scenario()) == list(range(100))


def test_a_cancelled_waiter_does_not_disturb_the_others() -> None:
    async def scenario() -> object:
        batches = ThreadedBatches(name="test", commit=list, on_failed=_never)
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

        return await InlineBatches(name="test", commit=commit, on_failed=_never).submit(1)

    assert asyncio.run(scenario()) == 2
