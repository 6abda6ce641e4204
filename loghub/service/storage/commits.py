"""The commit of log data: append every waiting group, one sync a shard, then the answers.

What for: the function behind the log's group-commit thread, which owns every `ShardLog`'s
writing side. What it must not know: HTTP, SQLite. Read next: `batches`, `shardlog`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from loghub.service.storage.segment import NewGroup
from loghub.service.storage.shardlog import NoRoom, ShardLog


@dataclass(frozen=True, slots=True, kw_only=True)
class Append:
    """One PutLogs: done when its group is durable and readable."""

    log: ShardLog
    new: NewGroup


# Anything else that must not run beside appends: retention, opening and removing a shard's
# log, and the barrier before a shard becomes read-only (a task that does nothing).
Task = Callable[[], object]
LogItem = Append | Task


def commit_logs(batch: Sequence[LogItem]) -> Sequence[object]:
    """Outcome None for an append, the result for a task; having no room is the OSError of those
    appends that were surely not done.

    WriteFailed is let through: what the kernel has dropped by then is unknown, so nothing may
    be acknowledged after it (docs/decisions/service.md).
    """
    outcomes: list[object] = [None] * len(batch)
    appends: dict[int, list[int]] = {}
    for index, item in enumerate(batch):
        if isinstance(item, Append):
            appends.setdefault(id(item.log), []).append(index)
    touched = [_append(batch, indexes, outcomes) for indexes in appends.values()]
    for log in touched:
        log.sync()
    # Tasks after the appends: a barrier then stands behind every append submitted before it.
    for index, item in enumerate(batch):
        if not isinstance(item, Append):
            outcomes[index] = _result(item)
    return outcomes


def _append(batch: Sequence[LogItem], indexes: list[int], outcomes: list[object]) -> ShardLog:
    items = [item for item in (batch[index] for index in indexes) if isinstance(item, Append)]
    log = items[0].log
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
