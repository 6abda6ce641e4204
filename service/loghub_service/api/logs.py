"""The log data of the API: PutLogs, PullLogs, GetCursor and GetCursorTime (docs/sls-protocol.md 2.1 to 3).

PutLogs checks a log group (`loghub.wire.loggroup_validation`), chooses a shard by hash key or at random, also
while shards are being split or merged, and commits the group (`loghub_service.storage.group_commit`).
PullLogs returns log groups from a cursor on, as they were received; it shares its path with the two calls for
cursors.
Checking large groups, reading and compressing run in threads, so that heartbeats continue meanwhile.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass

from loghub.domain import shards as rules
from loghub.domain.shards import MAX_GROUP_LOGS, ShardMap, parse_key
from loghub.wire import compression, loggroup, loggroup_validation, native
from loghub.wire import cursor as wire_cursor
from loghub.wire.compression import Compression
from loghub.wire.errors import Code, TooLarge
from loghub.wire.loggroup import cut
from loghub_service.api import parse
from loghub_service.api import parse as lookup
from loghub_service.catalog import Logstore
from loghub_service.engine import Engine
from loghub_service.errors import failure, needs_room
from loghub_service.messages import EMPTY, Request, ServiceResponse, json_response
from loghub_service.settings import Limits
from loghub_service.storage import stored_group
from loghub_service.storage.shardlog import Read, ShardLog
from loghub_service.storage.stored_group import packed

_SECOND_US = 1_000_000
_MAX_UNIX_S = 1 << 40  # 30,000 years: in microseconds it still fits into 63 bits


async def get_shard(engine: Engine, request: Request, *, ls: str, shard: str) -> ServiceResponse:
    kind = request.query.get("type")
    if kind == "cursor":
        found = find_cursor(engine, request, ls=ls, shard=shard)
        return found if isinstance(found, ServiceResponse) else await found
    log = lookup.shard_log(engine, request, ls, shard)
    if kind == "cursor_time":
        return json_response({"cursor_time": await _time_of(engine, log, request.query.get("cursor", ""))})
    raise failure(Code.PARAMETER_INVALID, "type must be cursor, cursor_time, log or logs")


def find_cursor(
    engine: Engine, request: Request, *, ls: str, shard: str
) -> ServiceResponse | Coroutine[None, None, ServiceResponse]:
    """GetCursor; a coroutine if the log has to be read, which happens in a thread."""
    log = lookup.shard_log(engine, request, ls, shard)
    position = request.query.get("from", "")
    if position == "begin":
        return _cursor_response(log.extent.oldest_cursor)
    if position == "end":
        return _cursor_response(log.extent.end_cursor)
    unix_s = parse.decimal(position)
    if unix_s is None or unix_s > _MAX_UNIX_S:
        raise failure(Code.PARAMETER_INVALID, "from must be begin, end or unix seconds")
    return _cursor_since(log, unix_s * _SECOND_US, now_us=engine.now_us())


async def _cursor_since(log: ShardLog, received_us: int, *, now_us: int) -> ServiceResponse:
    return _cursor_response(await asyncio.to_thread(log.cursor_at, received_us, now_us=now_us))


def _cursor_response(cursor: int) -> ServiceResponse:
    return json_response({"cursor": wire_cursor.encode(cursor)})


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


_PROTOBUF = "application/x-protobuf"


async def pull_logs(engine: Engine, request: Request, *, ls: str, shard: str) -> ServiceResponse:
    """Respond immediately, even at the end of the shard: SLS has no long polling."""
    log = lookup.shard_log(engine, request, ls, shard)
    if request.query.get("query") or request.query.get("processor"):
        raise failure(Code.PARAMETER_INVALID, "this service does not support query or processor in PullLogs")
    limits = engine.settings.limits
    cursor = check_cursor(log, request.query.get("cursor", ""))
    count = parse.number_query(
        request, "count", minimum=1, maximum=limits.pull_groups, default=limits.pull_groups
    )
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


# One resharding makes a write choose again; more than this while one write waits is a fault of the caller.
_MAX_RESHARDS = 8


async def log_to_write(
    engine: Engine, find: Callable[[], Logstore], choose: Callable[[ShardMap], int]
) -> ShardLog:
    """The log of the shard that ``choose`` returns from the shards of the logstore, some of which accept
    writes. Waits while that shard is being split or merged, and then chooses again.

    The caller must not await anything between this and the append: the shard could be closed meanwhile.
    """
    for _ in range(_MAX_RESHARDS):
        store = find()
        shard = choose_shard(store, choose)
        sealing = engine.sealing.get((store.saved.id, shard))
        if sealing is None:
            return engine.logs[store.saved.id, shard]
        await sealing.wait()
    raise failure(Code.SERVER_BUSY, "the shards are being split or merged")


def choose_shard(store: Logstore, choose: Callable[[ShardMap], int]) -> int:
    """Choose a shard that accepts writes. Raises LogHubError if there is none."""
    shards = store.shard_map()
    if not shards.writable():
        raise failure(
            Code.LOG_STORE_WITHOUT_SHARD, f"logstore {store.saved.name} has no shard that accepts writes"
        )
    return choose(shards)


# Larger groups are checked in a thread, so that heartbeats continue meanwhile: the native part, which knows
# most of them, takes 2 ms for one of this size, and Python can take longer for a sixteenth of it.
ON_LOOP_NATIVELY_BYTES, _ON_LOOP_BYTES = 512 << 10, 32 << 10
_API_VERSION = "0.6.0"
# Logtail's mode batch_group sends several log groups in one body. A content-encoding is refused because
# x-log-compresstype says how a body is compressed.
_UNSUPPORTED = ("x-log-mode", "content-encoding")


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """A valid log group, or a part of a long one, in its stored form, and the number of its logs."""

    stored: bytes
    logs: int


async def put_logs(engine: Engine, request: Request, *, ls: str) -> ServiceResponse:
    """Store a log group; it is durable when the response is sent.

    A hash key chooses the shard on every path: Java's SetRouteKey sends it on the path of balanced puts.
    """
    lookup.logstore(engine, request, ls)  # fail before the expensive check
    _check_options(request)
    text = request.query.get("key")
    key = None if text is None else parse_key(text)
    parts = await _check(engine, request)
    if not parts:
        return EMPTY  # an empty group would advance the cursor without any data
    log = await log_to_write(engine, lambda: lookup.logstore(engine, request, ls), shard_chooser(engine, key))
    with needs_room("the log group"):
        appended = [engine.append(log, part.stored, logs=part.logs) for part in parts]
        await (appended[0] if len(appended) == 1 else asyncio.gather(*appended))
    return EMPTY


def _check_options(request: Request) -> None:
    """Refuse options of PutLogs that this service does not implement (docs/sls-protocol.md 2.3)."""
    unknown = sorted(request.query.keys() - {"key"})
    if unknown:
        message = f"PutLogs has the parameter key only, not {unknown[0][:64]!r}"
        if unknown[0] == "processor":
            message = "this service has no processors: send PutLogs without the parameter processor"
        raise failure(Code.PARAMETER_INVALID, message)
    version = request.headers.get("x-log-apiversion", _API_VERSION)
    if version != _API_VERSION:
        message = f"x-log-apiversion must be {_API_VERSION}, not {version[:64]!r}"
        raise failure(Code.INVALID_API_VERSION, message)
    for header in _UNSUPPORTED:
        value = request.headers.get(header, "")
        if value not in ("", "identity"):
            raise failure(
                Code.PARAMETER_INVALID, f"this service has no {header} {value[:64]!r}: leave it out"
            )


async def _check(engine: Engine, request: Request) -> tuple[Checked, ...]:
    content_type = request.headers.get("content-type", "")
    if content_type.partition(";")[0].strip() != _PROTOBUF:
        raise failure(
            Code.INVALID_CONTENT_TYPE, f"PutLogs requires the content type {_PROTOBUF}, not {content_type!r}"
        )
    max_size, raw_size, how = engine.settings.limits.raw_bytes, _raw_size(request), _compression(request)
    if raw_size > max_size:
        raise TooLarge(f"the announced size of {raw_size} bytes exceeds the limit of {max_size}")
    if how is not None:
        request.memory.take(raw_size)
    if raw_size <= ON_LOOP_NATIVELY_BYTES and (checked := _checked_natively(request.body, how, raw_size)):
        return checked
    if raw_size > _ON_LOOP_BYTES:
        async with engine.checking:
            return await asyncio.to_thread(
                check_group, request.body, how, raw_size=raw_size, max_size=max_size
            )
    return check_group(request.body, how, raw_size=raw_size, max_size=max_size)


def check_group(body: bytes, how: Compression | None, *, raw_size: int, max_size: int) -> tuple[Checked, ...]:
    """Decompress and validate the group, and cut it if it has more logs than a stored group may have. Returns
    no parts for a group without logs. Raises MalformedInput, LogHubError."""
    if checked := _checked_natively(body, how, raw_size):
        return checked
    group = body
    if how is not None:
        group = compression.decompress(body, how, raw_size=raw_size, max_size=raw_size)
    elif len(group) != raw_size:
        raise failure(Code.INVALID_BODY_RAW_SIZE, "x-log-bodyrawsize is not the size of the body")
    logs = loggroup_validation.scan(group)
    if logs <= MAX_GROUP_LOGS:
        received = body if how is Compression.LZ4 else None
        return (Checked(stored=packed(group, received), logs=logs),) if logs else ()
    parts = cut(group, maximum=MAX_GROUP_LOGS, max_bytes=max_size)
    return tuple(Checked(stored=packed(part), logs=count) for part, count in parts)


def _checked_natively(body: bytes, how: Compression | None, raw_size: int) -> tuple[Checked, ...]:
    """No parts for a group that only `check_group` can judge."""
    found = native.stored_group(body, raw_size, MAX_GROUP_LOGS) if how is Compression.LZ4 else None
    return () if found is None else (Checked(stored=found[1], logs=found[0]),)


def _compression(request: Request) -> Compression | None:
    kind = request.headers.get("x-log-compresstype", "")
    if not kind:
        return None
    try:
        return Compression(kind)
    except ValueError as error:
        raise failure(
            Code.INVALID_COMPRESS_TYPE, f"x-log-compresstype must be lz4, zstd or deflate, not {kind!r}"
        ) from error


def _raw_size(request: Request) -> int:
    text = request.headers.get("x-log-bodyrawsize")
    if text is None:
        raise failure(Code.MISSING_BODY_RAW_SIZE, "x-log-bodyrawsize is missing")
    size = parse.decimal(text)
    if size is None:
        raise failure(Code.INVALID_BODY_RAW_SIZE, "x-log-bodyrawsize is not a number")
    return size


def shard_chooser(engine: Engine, key: int | None) -> Callable[[ShardMap], int]:
    if key is not None:
        return lambda shards: rules.route(shards, key=key).shard
    return lambda shards: _random_writable_shard(engine, shards)


def _random_writable_shard(engine: Engine, shards: ShardMap) -> int:
    writable = shards.writable()
    return writable[engine.random.below(len(writable))].shard
