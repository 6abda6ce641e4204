"""Group commit: a thread that commits all waiting items at once and then resolves their futures.

One fdatasync, or one SQLite transaction, covers every request that waits. The event loop never waits for
the disk, so heartbeats continue while the disk is slow. `commits` contains the commit function for log data,
`database` that for metadata. A simulator uses `InlineBatches` instead of a thread.
"""

import asyncio
import queue
import threading
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

from loghub.service.faults import ServiceFault

T = TypeVar("T")
Item = TypeVar("Item", contravariant=True)

MAX_BATCH = 4096


class StorageFailed(ServiceFault):
    """The disk failed in a way after which nothing more may be acknowledged."""


class Batches(Protocol[Item]):
    """Accepts items on the event loop; the future of an item returns its outcome."""

    def submit(self, item: Item) -> "asyncio.Future[object]": ...

    def close(self) -> None:
        """Commit the submitted items, then stop. Blocks."""


class StartBatches(Protocol):
    """How the engine creates `ThreadedBatches` or `InlineBatches`."""

    def __call__(
        self, *, name: str, commit: "Commit[T]", on_failed: Callable[[BaseException], None]
    ) -> Batches[T]: ...


# Returns one outcome for each item of a batch; an exception among them fails only that item.
# An exception that the function raises fails all items and is final.
Commit = Callable[[Sequence[T]], Sequence[object]]


class ThreadedBatches(Generic[T]):
    """The production implementation: a daemon thread that is named after what it commits."""

    def __init__(self, *, name: str, commit: Commit[T], on_failed: Callable[[BaseException], None]) -> None:
        self._commit = commit
        self._on_failed = on_failed
        self._queue: queue.SimpleQueue[tuple[T, asyncio.Future[object]] | None] = queue.SimpleQueue()
        self._failed: BaseException | None = None
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, item: T) -> "asyncio.Future[object]":
        future: asyncio.Future[object] = self._loop.create_future()
        self._queue.put((item, future))
        return future

    def close(self) -> None:
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        more = True
        while more:
            batch, more = self._next_batch()
            if batch:
                outcomes = self._outcomes([item for item, _ in batch])
                self._resolve([future for _, future in batch], outcomes)

    def _next_batch(self) -> tuple[list[tuple[T, "asyncio.Future[object]"]], bool]:
        """All waiting items, at least one unless closed, and False once `close` was called."""
        batch: list[tuple[T, asyncio.Future[object]]] = []
        entry = self._queue.get()
        while entry is not None:
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

    def _resolve(self, futures: "list[asyncio.Future[object]]", outcomes: Sequence[object]) -> None:
        try:
            self._loop.call_soon_threadsafe(_settle_all, futures, outcomes)
        except RuntimeError:
            # The loop is closed, so nothing waits any more.
            return


class InlineBatches(Generic[T]):
    """Commits each item immediately, in the caller's thread, for simulators and tests."""

    def __init__(self, *, name: str, commit: Commit[T], on_failed: Callable[[BaseException], None]) -> None:
        self.name = name
        self._commit = commit
        self._on_failed = on_failed

    def submit(self, item: T) -> "asyncio.Future[object]":
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        try:
            outcomes = self._commit([item])
        except Exception as error:  # noqa: BLE001 - reported to the waiter and to the owner
            self._on_failed(error)
            outcomes = [StorageFailed(f"storage failed: {error}")]
        _settle_all([future], outcomes)
        return future

    def close(self) -> None:
        """Do nothing: no item ever waits."""


def _settle_all(futures: "list[asyncio.Future[object]]", outcomes: Sequence[object]) -> None:
    for future, outcome in zip(futures, outcomes, strict=True):
        if future.done():  # the waiter was cancelled; its item was committed nevertheless
            continue
        if isinstance(outcome, BaseException):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)
