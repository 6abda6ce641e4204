"""PutLogs: checks a log group, chooses a shard, and commits it (docs/sls-protocol.md 2.3, 3).

`loghub.wire.loggroup_validation` checks the group, and `loghub.service.storage.commits` makes it durable.
"""

import asyncio
from dataclasses import dataclass

from loghub.domain import shards as rules
from loghub.domain.hashrange import parse_key
from loghub.service.api import lookup, parse
from loghub.service.api_errors import failure, needs_room
from loghub.service.engine import Engine
from loghub.service.messages import EMPTY, Request, ServiceResponse
from loghub.service.storage.shardlog import ShardLog
from loghub.wire import compression, loggroup_validation
from loghub.wire.compression import Compression
from loghub.wire.errors import Code, TooLarge

BALANCED, BY_KEY = "lb", "route"
_PROTOBUF = "application/x-protobuf"
_OFF_LOOP_BYTES = 32 << 10  # a larger group is checked in a thread, so that heartbeats continue meanwhile
_MAX_RESHARDS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """A valid log group, as it was received, and the number of its logs."""

    group: bytes
    logs: int


async def put_logs(engine: Engine, request: Request, *, ls: str, how: str = BALANCED) -> ServiceResponse:
    """Store a log group; it is durable when the response is sent."""
    lookup.logstore(engine, request, ls)  # fail before the expensive check
    key = parse_key(request.query.get("key", "")) if how == BY_KEY else None
    checked = await _check(engine, request)
    if checked.logs == 0:
        return EMPTY  # an empty group would advance the cursor without any data
    log = await _choose(engine, request, ls, key)
    with needs_room("the log group"):
        await engine.append(log, checked.group, logs=checked.logs)
    return EMPTY


async def _check(engine: Engine, request: Request) -> Checked:
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
    if raw_size > _OFF_LOOP_BYTES:
        async with engine.checking:
            return await asyncio.to_thread(check_group, request.body, how, raw_size=raw_size)
    return check_group(request.body, how, raw_size=raw_size)


def check_group(body: bytes, how: Compression | None, *, raw_size: int) -> Checked:
    """Decompress and validate the group. Raises MalformedInput, LogHubError."""
    group = body
    if how is not None:
        group = compression.decompress(body, how, raw_size=raw_size, max_size=raw_size)
    elif len(group) != raw_size:
        raise failure(Code.INVALID_BODY_RAW_SIZE, "x-log-bodyrawsize is not the size of the body")
    return Checked(group=group, logs=loggroup_validation.scan(group))


def _compression(request: Request) -> Compression | None:
    kind = request.headers.get("x-log-compresstype", "")
    if not kind:
        return None
    try:
        return Compression(kind)
    except ValueError as error:
        raise failure(
            Code.INVALID_COMPRESS_TYPE, f"x-log-compresstype must be lz4 or zstd, not {kind!r}"
        ) from error


def _raw_size(request: Request) -> int:
    text = request.headers.get("x-log-bodyrawsize")
    if text is None:
        raise failure(Code.MISSING_BODY_RAW_SIZE, "x-log-bodyrawsize is missing")
    size = parse.decimal(text)
    if size is None:
        raise failure(Code.INVALID_BODY_RAW_SIZE, "x-log-bodyrawsize is not a number")
    return size


async def _choose(engine: Engine, request: Request, ls: str, key: int | None) -> ShardLog:
    """The log of the shard that receives the group. Waits while that shard is being split or merged.

    The caller must not await anything between this and the append: the shard could be closed meanwhile.
    """
    for _ in range(_MAX_RESHARDS):
        store = lookup.logstore(engine, request, ls)
        writable = store.shard_map().writable()
        if not writable:
            raise failure(Code.LOG_STORE_WITHOUT_SHARD, f"logstore {ls} has no shard that accepts writes")
        if key is None:
            shard = writable[engine.dice.below(len(writable))].shard
        else:
            shard = rules.route(store.shard_map(), key=key).shard
        sealing = engine.sealing.get((store.saved.id, shard))
        if sealing is None:
            return engine.logs[store.saved.id, shard]
        await sealing.wait()
    raise failure(Code.SERVER_BUSY, "the shards are being split or merged")
