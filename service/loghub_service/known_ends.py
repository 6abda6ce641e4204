"""Persists how far each log has come, so that a start notices a lost tail.

A log that lost its tail looks like a log that was never longer, and would give the lost cursors to other log
groups. The database therefore knows an acknowledged end of each log: it is saved at a clean stop, whenever a
segment is full, and every few seconds while the log grows.
"""

import asyncio
from collections.abc import Callable, Iterable

from loghub_service.facts import EndsKnown, KnownEnd
from loghub_service.storage.shardlog import ShardLog

Submit = Callable[[EndsKnown], "asyncio.Future[object]"]
Key = tuple[int, int]  # logstore, shard


class KnownEnds:
    """The ends of all logs as last saved. Used on the event loop only."""

    def __init__(self, submit: Submit) -> None:
        self._submit = submit
        self._keys: dict[ShardLog, Key] = {}
        self._saved: dict[Key, KnownEnd] = {}
        self._last: asyncio.Future[object] | None = None  # commits are in order, so it is the last to end
        self._rolls: dict[ShardLog, int] = {}

    def restore(self, ends: Iterable[KnownEnd]) -> None:
        self._saved = {(end.logstore, end.shard): end for end in ends}

    def get(self, key: Key) -> KnownEnd | None:
        return self._saved.get(key)

    def add(self, key: Key, log: ShardLog) -> None:
        self._keys[log] = key
        self._rolls[log] = log.last_roll

    def remove(self, key: Key) -> None:
        self._saved.pop(key, None)
        for log in [log for log, known in self._keys.items() if known == key]:
            del self._keys[log], self._rolls[log]

    def appended(self, log: ShardLog) -> None:
        """Save the end if the log has begun a new segment; does not wait."""
        if self._rolls.get(log, log.last_roll) != log.last_roll:
            self._rolls[log] = log.last_roll
            self._submit_changed([log])

    async def save(self, log: ShardLog | None = None) -> None:
        """Save the ends that have changed, of one log or of all; durable on return."""
        self._submit_changed(self._keys if log is None else [log])
        if self._last is not None:  # another caller may have submitted the same changes first
            await asyncio.shield(self._last)

    def _submit_changed(self, logs: Iterable[ShardLog]) -> None:
        changed = self._changed(logs)
        if changed.ends:
            self._last = self._submit(changed)
            # A failed commit stops the service by itself, even if no request waits for this one.
            self._last.add_done_callback(lambda future: future.cancelled() or future.exception())

    def _changed(self, logs: Iterable[ShardLog]) -> EndsKnown:
        ends = []
        for log in logs:
            key = self._keys.get(log)
            if key is None:
                continue
            extent = log.extent
            end = KnownEnd(
                logstore=key[0],
                shard=key[1],
                oldest_cursor=extent.oldest_cursor,
                end_cursor=extent.end_cursor,
                expired_logs=extent.expired_logs,
            )
            if end != self._saved.get(key):
                self._saved[key] = end
                ends.append(end)
        return EndsKnown(ends=tuple(ends))
