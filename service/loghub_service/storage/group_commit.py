"""Group commit: a thread that commits all waiting items at once and then resolves their futures.

One fdatasync, or one SQLite transaction, covers every waiting request. The event loop never waits for the
disk, so heartbeats continue while the disk is slow. A `CommitMonitor` has the thread's backlog and latencies,
for metrics and for ``/healthz``. Simulators have other implementations, without a thread.

`commit_logs` is the commit function for log data: it appends every waiting log group, then syncs each shard
once; `database` has the one for metadata. Only the thread for log data writes to a `ShardLog`. It lets other
threads help with the syncs and waits for all of them, since concurrent syncs share their slow parts: the
flush of the disk's cache and the commit of the file system's journal.
"""

import asyncio
import queue
import sys
import threading
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from typing import Generic, Protocol, TypeVar

from loghub.clock import Clock
from loghub_service.append_series import AppendSeries
from loghub_service.errors import ServiceFault, WriteFailed
from loghub_service.storage.segment import NewGroup
from loghub_service.storage.shardlog import NoRoom, ShardLog

# From the `fdatasync` of a fast disk to a disk that hangs.
_LATENCY_BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Latencies:
    """A histogram of seconds; `loghub_service.http.metrics` exposes it."""

    def __init__(self, bounds_s: Sequence[float] = _LATENCY_BOUNDS_S) -> None:
        self.total_s = 0.0
        self._bounds_s = bounds_s
        self._counts = [0] * (len(bounds_s) + 1)

    @property
    def count(self) -> int:
        return sum(self._counts)

    def add(self, seconds: float) -> None:
        self._counts[bisect_left(self._bounds_s, seconds)] += 1
        self.total_s += seconds

    def cumulative(self) -> list[tuple[float, int]]:
        """Each bound in seconds, infinity last, with the number of values up to it."""
        return list(zip((*self._bounds_s, float("inf")), accumulate(self._counts), strict=True))


class CommitMonitor:
    """The state of one commit thread for its submitters; on the event loop only."""

    def __init__(self, clock: Clock) -> None:
        self.waiting = 0
        self.waiting_size = 0
        self.latencies = Latencies()
        self._clock = clock
        self._progress_s = 0.0

    def submitted(self, size: int) -> float:
        """Note a submitted item. Returns the time, which `committed` requires."""
        now = self._clock.monotonic_s()
        if self.waiting == 0:
            self._progress_s = now
        self.waiting += 1
        self.waiting_size += size
        return now

    def committed(self, *, size: int, submitted_s: float) -> None:
        now = self._clock.monotonic_s()
        self.waiting -= 1
        self.waiting_size -= size
        self.latencies.add(now - submitted_s)
        self._progress_s = now

    def stalled_s(self) -> float:
        """How long nothing was committed although an item waits; 0 if nothing waits."""
        return self._clock.monotonic_s() - self._progress_s if self.waiting else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Append:
    """The log group of one PutLogs request; the outcome follows when it is durable and readable."""

    log: ShardLog
    new: NewGroup
    series: AppendSeries | None = None  # all of it that is in one batch goes to one log


SYNCS_AT_ONCE = 8  # more concurrent syncs save nothing
T = TypeVar("T")
R = TypeVar("R")

# Any other work that must not run concurrently with appends: retention's choice of segments, and the
# barrier before a shard becomes read-only or is deleted (a task that does nothing).
Task = Callable[[], object]
LogItem = Append | Task


def size_of(item: LogItem) -> int:
    """The bytes that an item adds to its batch."""
    return len(item.new.group) if isinstance(item, Append) else 0


def commit_logs(batch: Sequence[LogItem]) -> Sequence[object]:
    """Commit a batch. The outcome of an append is the group's cursor, the outcome of a task its result.

    If there is no room for a new segment, the outcome of the appends that were certainly not written is the
    OSError, and so is the outcome of later appends of their series. Raises WriteFailed: it is unknown what
    the kernel has dropped by then, so nothing may be acknowledged afterwards (docs/decisions/storage.md).
    """
    outcomes: list[object] = [None] * len(batch)
    appends: dict[int, list[int]] = {}
    for index, item in enumerate(batch):
        if isinstance(item, Append):
            appends.setdefault(id(item.log), []).append(index)
    touched = [_append(batch, indexes, outcomes) for indexes in appends.values()]
    _in_parts(_sync_each, touched)
    # Tasks run after the appends, so a barrier runs after every append submitted before it.
    for index, item in enumerate(batch):
        if not isinstance(item, Append):
            outcomes[index] = _result(item)
    return outcomes


@cache
def _helpers() -> ThreadPoolExecutor:
    """Threads are started when they are first needed, which a service with one shard never does."""
    return ThreadPoolExecutor(SYNCS_AT_ONCE - 1, thread_name_prefix="log-sync")


def _in_parts(work: Callable[[Sequence[T]], R], items: Sequence[T]) -> list[R]:
    """The results of ``work`` for each part, computed at the same time: a part has every `SYNCS_AT_ONCE`-th
    item. Raises the error of one part once no part is in progress any more."""
    others = [
        _helpers().submit(work, part)
        for first in range(1, SYNCS_AT_ONCE)
        if (part := items[first::SYNCS_AT_ONCE])
    ]
    try:
        own = work(items[::SYNCS_AT_ONCE])
    finally:
        wait(others)
    return [own, *(other.result() for other in others)]


def _sync_each(logs: Sequence[ShardLog]) -> None:
    for log in logs:
        log.sync()


def run_tasks(batch: Sequence[Task]) -> Sequence[object]:
    """Run tasks that append nothing. The outcome of each is its result, or the exception that it raised.

    Raises WriteFailed, after which no task runs any more.
    """
    outcomes: list[object] = []
    for task in batch:
        try:
            outcomes.append(task())
        except WriteFailed:
            raise
        except Exception as error:  # noqa: BLE001 - raised again where the task was submitted
            outcomes.append(error)
    return outcomes


def run_together(batch: Sequence[Task]) -> Sequence[object]:
    """`run_tasks` with several tasks at the same time, for tasks that sync, each in a folder of its own."""
    outcomes: list[object] = [None] * len(batch)
    for first, part in enumerate(_in_parts(run_tasks, batch)):
        outcomes[first::SYNCS_AT_ONCE] = part
    return outcomes


def _append(batch: Sequence[LogItem], indexes: list[int], outcomes: list[object]) -> ShardLog:
    items = [(index, item) for index in indexes if isinstance(item := batch[index], Append)]
    log = items[0][1].log
    for index, item in items:
        if item.series is not None:
            outcomes[index] = item.series.refused
    wanted = [(index, item) for index, item in items if outcomes[index] is None]
    # Nothing is written that is not published, because each batch ends with a sync.
    first = log.extent.end_cursor
    for position, (index, _) in enumerate(wanted):
        outcomes[index] = first + position
    try:
        log.append([item.new for _, item in wanted])
    except NoRoom as error:
        cause = error.__cause__
        for index, item in wanted[error.written :]:
            outcomes[index] = cause
            if item.series is not None and isinstance(cause, OSError):
                item.series.refused = cause
    return log


def _result(task: Task) -> object:
    try:
        return task()
    except OSError as error:
        return error


Item = TypeVar("Item", contravariant=True)

MAX_BATCH = 4096  # bounds the time of a commit, and so how long the first item of the next batch waits
_SETTLED_AT_ONCE = 50  # their waiters take some 5 ms of the event loop


class StorageFailed(ServiceFault):
    """The disk failed in a way after which nothing more may be acknowledged."""


class Batches(Protocol[Item]):
    """Accepts items on the event loop; the future of an item returns its outcome."""

    monitor: CommitMonitor

    def submit(self, item: Item) -> "asyncio.Future[object]": ...

    def close(self) -> None:
        """Commit the submitted items, then stop. Blocks."""


class StartBatches(Protocol):
    """How the engine creates `ThreadedBatches`; a simulator creates other batches."""

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
# The share of a batch's bound that an item takes.
Size = Callable[[T], int]


def _no_size(_: object) -> int:
    return 0


@dataclass(frozen=True, slots=True)
class _WaitingItem(Generic[T]):
    """An item that waits for its commit."""

    item: T
    future: "asyncio.Future[object]"
    size: int
    submitted_s: float


class ThreadedBatches(Generic[T]):
    """The production implementation: a daemon thread that is named after its items.

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
        self._queue: queue.SimpleQueue[_WaitingItem[T] | None] = queue.SimpleQueue()
        self._next: _WaitingItem[T] | None = None  # the item that did not fit into the last batch
        self._unsettled: deque[tuple[_WaitingItem[T], object]] = deque()
        self._failed: BaseException | None = None
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, item: T) -> "asyncio.Future[object]":
        future: asyncio.Future[object] = self._loop.create_future()
        size = self._size(item)
        self._queue.put(_WaitingItem(item, future, size, self.monitor.submitted(size)))
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

    def _next_batch(self) -> tuple[list[_WaitingItem[T]], bool]:
        """All waiting items within the bounds, at least one unless closed, and False once `close` was
        called."""
        batch: list[_WaitingItem[T]] = []
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

    def _resolve(self, batch: list[_WaitingItem[T]], outcomes: Sequence[object]) -> None:
        try:
            self._loop.call_soon_threadsafe(self._settle, batch, outcomes)
        except RuntimeError:
            # The loop is closed, so nothing waits any more.
            return

    def _settle(self, batch: list[_WaitingItem[T]], outcomes: Sequence[object]) -> None:
        """Resolve the futures in the order of the commits, and in parts: a batch may have thousands, and
        other work of the event loop runs meanwhile."""
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
