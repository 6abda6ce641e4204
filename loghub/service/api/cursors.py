"""GetCursor and GetCursorTime (docs/sls-protocol.md 2.1, 2.3), which share a path with PullLogs."""

import asyncio

from loghub.service.api import lookup, parse
from loghub.service.api_errors import failure
from loghub.service.engine import Engine
from loghub.service.messages import Request, ServiceResponse, json_response
from loghub.service.storage.shardlog import ShardLog
from loghub.wire import cursor as wire_cursor
from loghub.wire.errors import Code

_SECOND_US = 1_000_000
_MAX_UNIX_S = 1 << 40


async def get_shard(engine: Engine, request: Request, *, ls: str, shard: str) -> ServiceResponse:
    log = lookup.shard_log(engine, request, ls, shard)
    kind = request.query.get("type")
    if kind == "cursor":
        return json_response(
            {"cursor": wire_cursor.encode(await _find(engine, log, request.query.get("from", "")))}
        )
    if kind == "cursor_time":
        return json_response({"cursor_time": await _time_of(engine, log, request.query.get("cursor", ""))})
    raise failure(Code.PARAMETER_INVALID, "type must be cursor, cursor_time, log or logs")


async def _find(engine: Engine, log: ShardLog, position: str) -> int:
    if position == "begin":
        return log.extent.oldest_cursor
    if position == "end":
        return log.extent.end_cursor
    unix_s = parse.decimal(position)
    if unix_s is None or unix_s > _MAX_UNIX_S:
        raise failure(Code.PARAMETER_INVALID, "from must be begin, end or unix seconds")
    return await asyncio.to_thread(log.cursor_at, unix_s * _SECOND_US, now_us=engine.now_us())


async def _time_of(engine: Engine, log: ShardLog, text: str) -> int:
    """The receive time, in unix seconds, of the log group at the cursor; at the end, of the newest group."""
    cursor = check_cursor(log, text)
    place = await asyncio.to_thread(log.place, cursor, now_us=engine.now_us())
    received_us = log.extent.received_us if place.received_us is None else place.received_us
    return received_us // _SECOND_US


def check_cursor(log: ShardLog, text: str) -> int:
    """The integer value of a cursor of this shard.

    A cursor below the oldest group is valid and is clamped later (docs/sls-protocol.md 7.8). Raises
    InvalidCursor for a cursor beyond the end, because nothing was ever written there.
    """
    cursor = wire_cursor.decode(text)
    if cursor > log.extent.end_cursor:
        raise failure(Code.INVALID_CURSOR, f"cursor {text} is beyond the end of the shard")
    return cursor
