"""The Kafka offsets at which a shard begins and ends (docs/kafka.md 2).

An offset counts log groups, from the first ordinal of the logstore on. The begin is the end of the last
expired log group, so that the position of a consumer that has read all of that group is not out of range. The
end is one after the last log.
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
    if newest is None:  # the first call since the start, and nothing was written since then
        newest = await asyncio.to_thread(log.newest)
    extent = log.extent
    if extent.end_cursor != newest.end_cursor:  # a group was written meanwhile, so the newest group is known
        newest = log.newest()
    return _bounds_of(log, extent, newest)


def _bounds_of(log: ShardLog, extent: Extent, newest: Newest) -> Bounds:
    """The offsets of an extent. Cursors that were skipped after a loss are not before the end, because no
    client can read up to them."""
    start = _end_before(log, extent.oldest_cursor, extent.expired_logs)
    is_empty = extent.end_cursor == extent.oldest_cursor
    return Bounds(
        start=start,
        end=start if is_empty else max(start, _end_before(log, newest.next_cursor, newest.logs)),
        next=offset_of(ordinal_of(log, extent.end_cursor)),
    )


def _end_before(log: ShardLog, cursor: int, logs_before: int | None) -> int:
    """The end of the group before a cursor; if the number of its logs is not known, the begin of the next
    group."""
    ordinal = ordinal_of(log, cursor)
    if cursor == log.first_cursor or logs_before is None:
        return offset_of(ordinal)
    return offset_of(ordinal - 1, min(logs_before, MAX_GROUP_LOGS))


def logs_after(log: ShardLog, offset: int, *, now_us: int) -> int | None:
    """The number of readable logs at and after an offset: the logs that a group with this committed offset
    has yet to read. None if the log is damaged there. Blocks."""
    ordinal, index = position(offset)
    cursor = cursor_of(log, ordinal)
    left = _logs_left(log, cursor, now_us)
    if not index or cursor < log.extent.oldest_cursor:
        return left
    after = _logs_left(log, cursor + 1, now_us)
    return None if left is None or after is None else max(left - index, after)


def logs_between(log: ShardLog, first: int, end: int, *, now_us: int) -> int | None:
    """The number of readable logs from an offset up to another one, whatever is written meanwhile. None if
    the log is damaged at one of them. Blocks."""
    before, after = (_logs_before(log, offset, now_us) for offset in (first, end))
    return None if before is None or after is None else max(0, after - before)


def _logs_before(log: ShardLog, offset: int, now_us: int) -> int | None:
    ordinal, index = position(offset)
    cursor = cursor_of(log, ordinal)
    begin = known_place(log, cursor, now_us=now_us)
    if begin is None or not index or cursor < log.extent.oldest_cursor:
        return None if begin is None else begin.logs_before
    after = known_place(log, cursor + 1, now_us=now_us)
    return None if after is None else min(begin.logs_before + index, after.logs_before)


def _logs_left(log: ShardLog, cursor: int, now_us: int) -> int | None:
    place = known_place(log, cursor, now_us=now_us)
    return None if place is None else place.logs_left


def known_place(log: ShardLog, cursor: int, *, now_us: int) -> ShardRemainder | None:
    """The groups and logs after a cursor; None if the log is damaged there. A reader of the damaged place
    gets an error, but a count over many places must not fail. Blocks."""
    try:
        return log.place(cursor, now_us=now_us)
    except LogDamaged as error:
        _log.error("what follows a cursor cannot be counted", error=str(error))
        return None
