"""What decoding a batch costs: its memory is known before, and it is done in turn with other such work.

The batches are those that are expensive for their size.
"""

import asyncio
import random
import threading
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from loghub_service.connections.turns import in_turn
from loghub_service.kafka.broker.answer import BrokerLimits
from loghub_service.kafka.broker.call import Decoding, budget_bytes, need_of
from loghub_service.kafka.broker.forms import BatchSource, NewBatch, decode_batch
from loghub_service.kafka.records.record_forms import RecordForm
from loghub_service.kafka.wire.batch_compression import BatchCompression
from loghub_service.kafka.wire.errors import BadBatch
from loghub_service.kafka.wire.record_batch import Record
from loghub_service.messages import MemoryBudget
from tests.loghub_service.kafka.broker.batches import packed
from tests.loghub_service.kafka.client_batches import build_batch

LIMITS = BrokerLimits()
SLACK = 1 << 20  # of tables, and of a library's state


def one(value: bytes, headers: tuple[tuple[str, bytes | None], ...] = ()) -> Record:
    return Record(None, value, headers, 1_700_000_000_000)


MEMBERS = b"{" + b",".join(b'"%d":1' % number for number in range(100_000)) + b"}"
EXPENSIVE = {
    "records of a byte": (RecordForm.RAW, [one(b"x")] * 4000),
    "empty objects": (RecordForm.JSON, [one(b"{}")] * 4000),
    "headers of a byte": (RecordForm.RAW, [one(b"", (("h", None),) * 9_000)] * 3),
    "members of a byte": (RecordForm.JSON, [one(MEMBERS)]),
    "a large value": (RecordForm.PLAIN, [one(bytes(4 << 20))]),
    "random bytes": (RecordForm.PLAIN, [one(random.Random(1).randbytes(2 << 20))]),
}


@pytest.mark.parametrize("how", [BatchCompression.NONE, BatchCompression.ZSTD])
@pytest.mark.parametrize("name", EXPENSIVE)
def test_a_batch_takes_no_more_memory_than_its_header_says(name: str, how: BatchCompression) -> None:
    form, records = EXPENSIVE[name]
    batch = packed(records, how)
    need = need_of(batch, group_bytes=LIMITS.group_bytes)
    source = BatchSource(api_version=7, form=form, now_ms=0)
    decode_batch(source, packed(records[:1], how), limits=LIMITS)  # tables and buffers that stay
    tracemalloc.start()
    try:
        tracemalloc.reset_peak()
        before, _ = tracemalloc.get_traced_memory()
        decode_batch(source, batch, limits=LIMITS)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak - before <= need.memory + SLACK
    assert 2 * need.memory <= budget_bytes(LIMITS.group_bytes)


@pytest.mark.parametrize("how", list(BatchCompression))
def test_no_batch_becomes_larger_than_what_is_taken_for_it(how: BatchCompression) -> None:
    """The highest ratio that a codec reaches: of zeros."""
    raw = 8 << 20
    batch = packed([one(bytes(raw))], how)
    need = need_of(batch, group_bytes=LIMITS.group_bytes)
    assert raw < need.memory
    assert need.thread


def test_a_batch_with_more_headers_than_anybody_uses_is_refused() -> None:
    batch = build_batch([one(b"", (("h", None),) * 10_001)])
    with pytest.raises(BadBatch, match="at most 10000"):
        decode_batch(BatchSource(api_version=7, form=RecordForm.RAW, now_ms=0), batch, limits=LIMITS)


def test_an_object_with_more_members_than_anybody_uses_is_kept_whole() -> None:
    batch = build_batch([one(MEMBERS)])
    found = decode_batch(BatchSource(api_version=7, form=RecordForm.JSON, now_ms=0), batch, limits=LIMITS)
    assert MEMBERS in found.group


@pytest.mark.parametrize(
    ("count", "size", "how", "thread"),
    [
        (1, 100, BatchCompression.NONE, False),
        (500, 100, BatchCompression.NONE, False),
        (501, 1, BatchCompression.NONE, True),
        (1, 70_000, BatchCompression.NONE, True),
        (1, 100, BatchCompression.LZ4, False),
        (1, 70_000, BatchCompression.LZ4, True),
        (20_000, 1, BatchCompression.LZ4, True),  # 300 bytes of them, and a quarter of a second
        (1, 100, BatchCompression.ZSTD, True),  # there is no bound on what it becomes
    ],
)
def test_what_may_take_long_is_decoded_in_a_thread(
    count: int, size: int, how: BatchCompression, thread: bool
) -> None:
    batch = packed([one(b"x" * size)] * count, how)
    assert need_of(batch, group_bytes=LIMITS.group_bytes).thread is thread


@dataclass(slots=True)
class Threads:
    """How many decode at once, each until ``go_on``."""

    go_on: asyncio.Event
    now: int = 0
    maximum: int = 0

    async def __call__(self, work: Callable[[], NewBatch]) -> NewBatch:
        self.now += 1
        self.maximum = max(self.maximum, self.now)
        try:
            await self.go_on.wait()
            return work()
        finally:
            self.now -= 1


def test_batches_wait_for_memory_and_get_it_in_their_order() -> None:
    batch = packed([one(b"x" * 100_000)], BatchCompression.ZSTD)
    source = BatchSource(api_version=7, form=RecordForm.PLAIN, now_ms=0)
    need = need_of(batch, group_bytes=LIMITS.group_bytes).memory

    async def scenario() -> None:
        budget = MemoryBudget("decoding", limit=2 * need)
        threads = Threads(asyncio.Event())
        decoding = Decoding(budget, threads)
        ended: list[int] = []

        async def produce(number: int) -> None:
            found = await decoding.decode(source, batch, LIMITS)
            ended.append(number)
            decoding.release(len(found.group))

        tasks = [asyncio.ensure_future(produce(number)) for number in range(8)]
        for _ in range(20):
            await asyncio.sleep(0)
        assert (threads.now, budget.used) == (2, 2 * need)
        tasks[5].cancel()  # its client leaves while it waits
        threads.go_on.set()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert ended == [0, 1, 2, 3, 4, 6, 7]
        assert threads.maximum == 2
        assert budget.used == 0

    asyncio.run(scenario())


def test_a_client_that_leaves_does_not_end_the_turn_of_its_thread() -> None:
    async def scenario() -> None:
        loop, turns = asyncio.get_running_loop(), asyncio.Semaphore(1)
        begun, go_on, ran = asyncio.Event(), threading.Event(), list[str]()

        def work() -> None:
            loop.call_soon_threadsafe(begun.set)
            assert go_on.wait(120)
            ran.append("first")

        first = asyncio.ensure_future(in_turn(turns, work))
        await begun.wait()
        never = asyncio.ensure_future(in_turn(turns, lambda: ran.append("never")))
        second = asyncio.ensure_future(in_turn(turns, lambda: ran.append("second")))
        await asyncio.sleep(0)
        first.cancel()
        never.cancel()
        for _ in range(20):
            await asyncio.sleep(0)
        assert ran == []
        assert turns.locked()
        go_on.set()
        await second
        assert ran == ["first", "second"]

    asyncio.run(scenario())
