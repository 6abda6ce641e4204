"""PullLogs: returns log groups from a cursor on, as they were received (docs/sls-protocol.md 2.1, 2.2).

Reading and compressing run in a thread, so that heartbeats continue meanwhile.
"""

import asyncio
from collections.abc import Iterable

from loghub.service.api import lookup, parse
from loghub.service.api.cursors import check_cursor
from loghub.service.api_errors import failure
from loghub.service.engine import Engine
from loghub.service.messages import EMPTY, Request, ServiceResponse
from loghub.service.settings import Limits
from loghub.service.storage import stored_group
from loghub.service.storage.extent import Read
from loghub.service.storage.shardlog import ShardLog
from loghub.wire import compression, loggroup
from loghub.wire import cursor as wire_cursor
from loghub.wire.compression import Compression
from loghub.wire.errors import Code

_PROTOBUF = "application/x-protobuf"


async def pull_logs(engine: Engine, request: Request, *, ls: str, shard: str) -> ServiceResponse:
    """Respond immediately, even at the end of the shard: SLS has no long polling."""
    log = lookup.shard_log(engine, request, ls, shard)
    if request.query.get("query") or request.query.get("processor"):
        raise failure(Code.PARAMETER_INVALID, "this service does not support query or processor in PullLogs")
    limits = engine.settings.limits
    cursor = check_cursor(log, request.query.get("cursor", ""))
    count = parse.number_query(request, "count", least=1, most=limits.pull_groups, default=limits.pull_groups)
    end_cursor = _end_cursor(log, request)
    if cursor >= end_cursor:
        return _empty_response(log, cursor)
    how = _accepted(request)
    async with engine.pulling:
        if request.is_gone():  # otherwise clients that do not wait would delay everyone else's pulls
            return EMPTY
        return await asyncio.to_thread(
            _pull, log, cursor=cursor, end_cursor=end_cursor, count=count, how=how, limits=limits
        )


def _end_cursor(log: ShardLog, request: Request) -> int:
    text = request.query.get("end_cursor", "")
    end = log.extent.end_cursor
    return min(wire_cursor.decode(text), end) if text else end


def _accepted(request: Request) -> Compression:
    """lz4 unless the request accepts zstd and not lz4, because old Java clients always decode lz4
    (docs/sls-protocol.md 1.6)."""
    accepted = request.headers.get("accept-encoding", "").lower()
    return Compression.ZSTD if "zstd" in accepted and "lz4" not in accepted else Compression.LZ4


def _pull(
    log: ShardLog, *, cursor: int, end_cursor: int, count: int, how: Compression, limits: Limits
) -> ServiceResponse:
    read = log.read(cursor=cursor, end_cursor=end_cursor, max_groups=count, max_bytes=limits.pull_bytes)
    if not read.entries:
        return _empty_response(log, read.next_cursor)
    body, raw_size = _body((entry.group for entry in read.entries), how)
    last = read.entries[-1]
    return ServiceResponse(
        headers=(
            *_position(log, read),
            ("x-log-bodyrawsize", str(raw_size)),
            ("x-log-compresstype", how.value),
            ("x-log-read-last-cursor", str(last.cursor)),
            ("x-log-cursor-time", str(last.received_us // 1_000_000)),
        ),
        body=body,
        content_type=_PROTOBUF,
    )


def _body(stored: Iterable[bytes], how: Compression) -> tuple[bytes, int]:
    """The compressed list of log groups, and its size without compression."""
    if how is Compression.LZ4:
        return stored_group.lz4_list(stored)
    raw = loggroup.wrap(map(stored_group.unpacked, stored))
    return compression.compress(raw, how), len(raw)


def _position(log: ShardLog, read: Read) -> tuple[tuple[str, str], ...]:
    at_end = read.next_cursor >= log.extent.end_cursor
    return (
        ("x-log-cursor", wire_cursor.encode(read.next_cursor)),
        ("x-log-count", str(len(read.entries))),
        ("x-log-end-of-cursor", "1" if at_end else "0"),
    )


def _empty_response(log: ShardLog, cursor: int) -> ServiceResponse:
    """An empty response returns the cursor unchanged: the Go client waits by it and saves it as its
    checkpoint (docs/sls-protocol.md 2.1)."""
    headers = (*_position(log, Read(entries=(), next_cursor=cursor)), ("x-log-bodyrawsize", "0"))
    return ServiceResponse(headers=headers, content_type=_PROTOBUF)
