"""PutLogs: checks a log group, chooses a shard, and commits it (docs/sls-protocol.md 2.3, 3).

`loghub.wire.loggroup_validation` checks the group, and `loghub.service.storage.commits` makes it durable.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from loghub.domain import shards as rules
from loghub.domain.hashrange import parse_key
from loghub.domain.shards import ShardMap
from loghub.kafka.broker.offsets import MAX_GROUP_LOGS
from loghub.service.api import lookup, parse
from loghub.service.api.routing import log_to_write
from loghub.service.api_errors import failure, needs_room
from loghub.service.engine import Engine
from loghub.service.messages import EMPTY, Request, ServiceResponse
from loghub.service.storage.stored_group import packed
from loghub.wire import compression, loggroup_validation
from loghub.wire.compression import Compression
from loghub.wire.errors import Code, TooLarge
from loghub.wire.loggroup import cut

_PROTOBUF = "application/x-protobuf"
_OFF_LOOP_BYTES = 32 << 10  # a larger group is checked in a thread, so that heartbeats continue meanwhile
_API_VERSION = "0.6.0"
# Logtail's mode batch_group sends several log groups in one body; x-log-compresstype says how a body is
# compressed, and no content-encoding.
_UNSUPPORTED = ("x-log-mode", "content-encoding")


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """A valid log group, or a part of a long one, in the form to store, and the number of its logs."""

    stored: bytes
    logs: int


async def put_logs(engine: Engine, request: Request, *, ls: str) -> ServiceResponse:
    """Store a log group; it is durable when the response is sent.

    A key chooses the shard on every path: with Java's SetRouteKey it arrives on that of balanced puts.
    """
    lookup.logstore(engine, request, ls)  # fail before the expensive check
    _check_options(request)
    text = request.query.get("key")
    key = None if text is None else parse_key(text)
    parts = await _check(engine, request)
    if not parts:
        return EMPTY  # an empty group would advance the cursor without any data
    log = await log_to_write(engine, lambda: lookup.logstore(engine, request, ls), _chooser(engine, key))
    with needs_room("the log group"):
        appended = [engine.append(log, part.stored, logs=part.logs) for part in parts]
        await (appended[0] if len(appended) == 1 else asyncio.gather(*appended))
    return EMPTY


def _check_options(request: Request) -> None:
    """Refuse what a client may ask of PutLogs and this service would not do (docs/sls-protocol.md 2.3)."""
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
    if raw_size > _OFF_LOOP_BYTES:
        async with engine.checking:
            return await asyncio.to_thread(
                check_group, request.body, how, raw_size=raw_size, max_size=max_size
            )
    return check_group(request.body, how, raw_size=raw_size, max_size=max_size)


def check_group(body: bytes, how: Compression | None, *, raw_size: int, max_size: int) -> tuple[Checked, ...]:
    """Decompress and validate the group, and cut it if it has more logs than Kafka's offsets can number. No
    parts if it has no logs. Raises MalformedInput, LogHubError."""
    group = body
    if how is not None:
        group = compression.decompress(body, how, raw_size=raw_size, max_size=raw_size)
    elif len(group) != raw_size:
        raise failure(Code.INVALID_BODY_RAW_SIZE, "x-log-bodyrawsize is not the size of the body")
    logs = loggroup_validation.scan(group)
    if logs <= MAX_GROUP_LOGS:
        received = body if how is Compression.LZ4 else None
        return (Checked(stored=packed(group, received), logs=logs),) if logs else ()
    parts = cut(group, most=MAX_GROUP_LOGS, max_bytes=max_size)
    return tuple(Checked(stored=packed(part), logs=count) for part, count in parts)


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


def _chooser(engine: Engine, key: int | None) -> Callable[[ShardMap], int]:
    if key is not None:
        return lambda shards: rules.route(shards, key=key).shard
    return lambda shards: _any_of(engine, shards)


def _any_of(engine: Engine, shards: ShardMap) -> int:
    writable = shards.writable()
    return writable[engine.dice.below(len(writable))].shard
