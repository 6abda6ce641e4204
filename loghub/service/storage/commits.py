"""The commit function for log data: appends every waiting log group, then syncs each shard once.

The group-commit thread for log data runs it (see `batches`). Only that thread writes to a `ShardLog`. It lets
other threads help with the syncs and waits for all of them, since syncs that run at the same time share what
is slow about one: the flush of the disk's cache and the commit of the file system's journal.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import cache
from typing import TypeVar

from loghub.service.faults import WriteFailed
from loghub.service.storage.segment import NewGroup
from loghub.service.storage.shardlog import NoRoom, ShardLog


@dataclass(frozen=True, slots=True, kw_only=True)
class Append:
    """The log group of one PutLogs request; the outcome follows when it is durable and readable."""

    log: ShardLog
    new: NewGroup


SYNCS_AT_ONCE = 8  # more save nothing
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
    """Commit a batch. The outcome of an append is the group's cursor, that of a task its result.

    If there is no room for a new segment, the outcome of the appends that were certainly not written is the
    OSError. Raises WriteFailed: it is unknown what the kernel has dropped by then, so nothing may be
    acknowledged afterwards (docs/decisions/storage.md).
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
    """What ``work`` returns for each part, at the same time: a part has every `SYNCS_AT_ONCE`-th item. Raises
    what one of them raised once none is in progress any more."""
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
    """As `run_tasks`, with several at the same time: tasks that sync, each in a folder of its own."""
    outcomes: list[object] = [None] * len(batch)
    for first, part in enumerate(_in_parts(run_tasks, batch)):
        outcomes[first::SYNCS_AT_ONCE] = part
    return outcomes


def _append(batch: Sequence[LogItem], indexes: list[int], outcomes: list[object]) -> ShardLog:
    items = [item for item in (batch[index] for index in indexes) if isinstance(item, Append)]
    log = items[0].log
    first = log.extent.end_cursor  # nothing is written that is not published: each batch ends with a sync
    for position, index in enumerate(indexes):
        outcomes[index] = first + position
    try:
        log.append([item.new for item in items])
    except NoRoom as error:
        for index in indexes[error.written :]:
            outcomes[index] = error.__cause__
    return log


def _result(task: Task) -> object:
    try:
        return task()
    except OSError as error:
        return error
