"""The Kafka offsets at which a shard begins and ends (docs/kafka.md 2).

An offset counts log groups, from the first ordinal of the logstore on. The begin is where the last expired
log group ended, so that the position of a consumer that has read all of it is not out of range. The end is
one after the last log.
"""

import asyncio

import structlog

from loghub.domain.shards import MAX_GROUP_LOGS
from loghub_service.kafka.broker.store import Bounds, offset_of, position
from loghub_service.storage.segment import LogDamaged
from loghub_service.storage.shardlog import Extent, Newest, ShardLog, ShardRemainder, cursor_of, ordinal_of

_log = structlog.get_logger("loghub_service")


async def shard_bounds(log: ShardLog) -> Bounds:
    """The offsets of a shard at this moment."""
    newest = log.known_newest()
    if newest is None:  # the first look since the start, and nothing was written since
        newest = await asyncio.to_thread(log.newest)
    extent = log.extent
    if extent.end_cursor != newest.end_cursor:  # written meanwhile, so it is known
        newest = log.newest()
    return _bounds_of(log, extent, newest)


def _bounds_of(log: ShardLog, extent: Extent, newest: Newest) -> Bounds:
    """Cursors that were skipped after a loss are not before the end: nobody can read up to them."""
    start = _end_before(log, extent.oldest_cursor, extent.expired_logs)
    is_empty = extent.end_cursor == extent.oldest_cursor
    return Bounds(
        start=start,
        end=start if is_empty else max(start, _end_before(log, newest.next_cursor, newest.logs)),
        next=offset_of(ordinal_of(log, extent.end_cursor)),
    )


def _end_before(log: ShardLog, cursor: int, logs_before: int | None) -> int:
    """The end of the group before a cursor; if its logs are not known, the begin of the next one."""
    ordinal = ordinal_of(log, cursor)
    if cursor == log.first_cursor or logs_before is None:
        return offset_of(ordinal)
    return offset_of(ordinal - 1, min(logs_before, MAX_GROUP_LOGS))


def logs_after(log: ShardLog, offset: int, *, now_us: int) -> int | None:
    """The number of readable logs at and after an offset: what a group that has committed it has yet to read.
    None if the log is damaged there. Blocks."""
    ordinal, index = position(offset)
    cursor = cursor_of(log, ordinal)
    left = _logs_left(log, cursor, now_us)
    if not index or cursor < log.extent.oldest_cursor:
        return left
    after = _logs_left(log, cursor + 1, now_us)
    return None if left is None or after is None else max(left - index, after)


def _logs_left(log: ShardLog, cursor: int, now_us: int) -> int | None:
    place = known_place(log, cursor, now_us=now_us)
    return None if place is None else place.logs_left


def known_place(log: ShardLog, cursor: int, *, now_us: int) -> ShardRemainder | None:
    """What follows a cursor; None if the log is damaged there. Who reads it gets an error; who counts what
    many have yet to read must not. Blocks."""
    try:
        return log.place(cursor, now_us=now_us)
    except LogDamaged as error:
        _log.error("what follows a cursor cannot be counted", error=str(error))
        return None
