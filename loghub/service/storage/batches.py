"""Group commit: a thread that commits all waiting items at once and then resolves their futures.

One fdatasync, or one SQLite transaction, covers every request that waits. The event loop never waits for
the disk, so heartbeats continue while the disk is slow. `commits` contains the commit function for log data,
`database` that for metadata. Simulators have others, without a thread.
"""

import asyncio
import queue
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from loghub.clock import Clock
from loghub.service.faults import ServiceFault
from loghub.service.storage.commit_monitor import CommitMonitor

T = TypeVar("T")
Item = TypeVar("Item", contravariant=True)

MAX_BATCH = 4096
_SETTLED_AT_ONCE = 50  # what waits for them takes some 5 ms


class StorageFailed(ServiceFault):
    """The disk failed in a way after which nothing more may be acknowledged."""


class Batches(Protocol[Item]):
    """Accepts items on the event loop; the future of an item returns its outcome."""

    monitor: CommitMonitor

    def submit(self, item: Item) -> "asyncio.Future[object]": ...

    def close(self) -> None:
        """Commit the submitted items, then stop. Blocks."""


class StartBatches(Protocol):
    """How the engine creates `ThreadedBatches`, or a simulator others."""

    def __call__(
        self,
        *,
        name: str,
        commit: "Commit[T]",
        on_failed: Callable[[BaseException], None],
        clock: Clock,
        size: "Size[T]" = ...,
        max_size: int = ...,
    ) -> Batches[T]: ...


# Returns one outcome for each item of a batch; an exception among them fails only that item.
# An exception that the function raises fails all items and is final.
Commit = Callable[[Sequence[T]], Sequence[object]]
# How much of a batch's bound an item takes.
Size = Callable[[T], int]


def _no_size(_: object) -> int:
    return 0


@dataclass(frozen=True, slots=True)
class _Entry(Generic[T]):
    """An item that waits for its commit."""

    item: T
    future: "asyncio.Future[object]"
    size: int
    submitted_s: float


class ThreadedBatches(Generic[T]):
    """The production implementation: a daemon thread that is named after what it commits.

    A batch has items of at most ``max_size`` together, or one larger item.
    """

    def __init__(
        self,
        *,
        name: str,
        commit: Commit[T],
        on_failed: Callable[[BaseException], None],
        clock: Clock,
        size: Size[T] = _no_size,
        max_size: int = sys.maxsize,
    ) -> None:
        self.monitor = CommitMonitor(clock)
        self._commit = commit
        self._on_failed = on_failed
        self._size = size
        self._max_size = max_size
        self._queue: queue.SimpleQueue[_Entry[T] | None] = queue.SimpleQueue()
        self._next: _Entry[T] | None = None  # did not fit into the last batch
        self._unsettled: deque[tuple[_Entry[T], object]] = deque()
        self._failed: BaseException | None = None
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, item: T) -> "asyncio.Future[object]":
        future: asyncio.Future[object] = self._loop.create_future()
        size = self._size(item)
        self._queue.put(_Entry(item, future, size, self.monitor.submitted(size)))
        return future

    def close(self) -> None:
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        more = True
        while more:
            batch, more = self._next_batch()
            if batch:
                self._resolve(batch, self._outcomes([entry.item for entry in batch]))

    def _next_batch(self) -> tuple[list[_Entry[T]], bool]:
        """All waiting items within the bounds, at least one unless closed, and False once `close` was
        called."""
        batch: list[_Entry[T]] = []
        size = 0
        entry = self._next or self._queue.get()
        self._next = None
        while entry is not None:
            size += entry.size
            if batch and size > self._max_size:
                self._next = entry
                return batch, True
            batch.append(entry)
            if len(batch) >= MAX_BATCH:
                return batch, True
            try:
                entry = self._queue.get_nowait()
            except queue.Empty:
                return batch, True
        return batch, False

    def _outcomes(self, items: list[T]) -> Sequence[object]:
        if self._failed is None:
            try:
                return self._commit(items)
            except BaseException as error:  # noqa: BLE001 - reported to every waiter and to the owner
                self._failed = error
                self._loop.call_soon_threadsafe(self._on_failed, error)
        failure = StorageFailed(f"storage failed: {self._failed}")
        return [failure] * len(items)

    def _resolve(self, batch: list[_Entry[T]], outcomes: Sequence[object]) -> None:
        try:
            self._loop.call_soon_threadsafe(self._settle, batch, outcomes)
        except RuntimeError:
            # The loop is closed, so nothing waits any more.
            return

    def _settle(self, batch: list[_Entry[T]], outcomes: Sequence[object]) -> None:
        """In the order of the commits, and in parts: a batch may have thousands, and others run meanwhile."""
        is_settling = bool(self._unsettled)
        self._unsettled.extend(zip(batch, outcomes, strict=True))
        if not is_settling:
            self._settle_some()

    def _settle_some(self) -> None:
        for _ in range(min(_SETTLED_AT_ONCE, len(self._unsettled))):
            entry, outcome = self._unsettled.popleft()
            self.monitor.committed(size=entry.size, submitted_s=entry.submitted_s)
            _settle_one(entry.future, outcome)
        if self._unsettled:
            self._loop.call_soon(self._settle_some)


def _settle_one(future: "asyncio.Future[object]", outcome: object) -> None:
    if future.done():  # the waiter was cancelled; its item was committed nevertheless
        return
    if isinstance(outcome, BaseException):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)
