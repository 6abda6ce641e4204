"""Decodes record batches within bounds of memory and of threads.

A compressed batch of some KiB may become 10 MiB, and reading records one by one is slow. So what decoding
will need at most is taken from a budget first, and what the log group has of it is given back once that is
durable. A batch that finds too little waits: what others hold depends on the disk only, never on another
client. Large batches are decoded in threads, as many at once as the service checks log groups.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from loghub.kafka.broker.forms import BatchSource, NewBatch, decode_batch
from loghub.kafka.broker.limits import BrokerLimits
from loghub.kafka.broker.store import Budget
from loghub.kafka.wire.batch_compression import decompressed_bytes
from loghub.kafka.wire.reader import Buffer
from loghub.kafka.wire.record_batch import HEADER_BYTES, MAX_FIELDS, read_header

# What is decoded on the event loop takes some milliseconds: as many records, and as many bytes of them.
_ON_LOOP_RECORDS, _ON_LOOP_BYTES = 500, 64 << 10
_FIELD_BYTES = 700  # of a header or member while its record is read, one record after the other
_LOG_BYTES = 64  # more than a log has besides the fields of its record: time, lengths, names


class InThread(Protocol):
    """Runs work in a thread once it is its turn; it goes on if the request that waits for it is cancelled."""

    def __call__(self, work: Callable[[], NewBatch]) -> Awaitable[NewBatch]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """What decoding a batch takes at most: bytes of memory; and whether a thread, for its time."""

    memory: int
    thread: bool


def need_of(records: Buffer | None, *, group_bytes: int) -> Need:
    """As the header says. A header that is wrong, or promises more than is accepted, is refused at once."""
    if records is None or len(records) < HEADER_BYTES:
        return Need(memory=0, thread=False)
    header = read_header(records)
    raw = decompressed_bytes(len(records), header.compression, max_bytes=group_bytes)
    logs = min(2 * raw + _LOG_BYTES * max(header.record_count, 0), group_bytes)
    small = raw <= _ON_LOOP_BYTES and header.record_count <= _ON_LOOP_RECORDS
    fields = _FIELD_BYTES * min(raw // 2, MAX_FIELDS)  # a header has two bytes at least
    return Need(memory=raw + 2 * logs + fields, thread=not small)  # the log group is copied once


def budget_bytes(group_bytes: int) -> int:
    """The size of the budget: two batches that need the most, and two log groups that wait for the disk."""
    return 2 * (3 * group_bytes + _FIELD_BYTES * MAX_FIELDS) + 2 * group_bytes


class Decoding:
    """The budget of all connections, and who waits for it in turn."""

    def __init__(self, budget: Budget, in_thread: InThread) -> None:
        self._budget = budget
        self._in_thread = in_thread
        self._turn = asyncio.Lock()
        self._freed = asyncio.Event()

    async def decode(self, source: BatchSource, records: Buffer | None, limits: BrokerLimits) -> NewBatch:
        """Raises BadBatch. Call `release` with the size of the group once it is stored, or is not going to
        be."""
        need = need_of(records, group_bytes=limits.group_bytes)
        await self._take(need.memory)
        work = partial(decode_batch, source, records, limits=limits)
        held = need.memory
        try:
            batch = await self._in_thread(work) if need.thread else work()
            held -= len(batch.group)
        finally:
            self.release(held)
        return batch

    async def _take(self, size: int) -> None:
        async with self._turn:
            while self._budget.used + size > self._budget.limit:
                self._freed.clear()
                await self._freed.wait()
            self._budget.used += size

    def release(self, size: int) -> None:
        self._budget.used -= size
        self._freed.set()
