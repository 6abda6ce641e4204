"""The service's extensions to the SLS API: info, the whole state of a group, and leave; the long polls are in
`long_polls`.

They give the operator the exact state of a group, and allow a consumer to leave without waiting for its
timeout. No SLS client needs them, and their paths do not overlap with SLS paths. `loghub.client.port`
declares the same fields for clients.
"""

import asyncio
from http import HTTPStatus

import msgspec

from loghub.domain.group import ConsumerEntry, Leave, ShardEntry
from loghub.domain.lag import NONE_LEFT, UNKNOWN, Lag
from loghub.service.api import lookup, parse
from loghub.service.api.groups import settings_json
from loghub.service.engine import Engine
from loghub.service.group_registry import RegisteredGroup
from loghub.service.messages import EMPTY, Request, ServiceResponse, json_response
from loghub.service.shard_bounds import known_place
from loghub.service.storage.shardlog import ShardLog
from loghub.wire import cursor as wire_cursor

EXTENSIONS = ("leave", "group_status", "kafka_groups", "await_ends", "await_group", "save_checkpoints")
SIGNATURES = ("v1", "v4")
VERSION = "0.1.0"


async def info(_engine: Engine) -> ServiceResponse:
    """A client calls this to detect the extensions, and how it may sign; it requires neither Host nor
    authentication."""
    return json_response(
        {
            "service": "loghub-embedded",
            "version": VERSION,
            "extensions": EXTENSIONS,
            "signatures": SIGNATURES,
        }
    )


async def health(engine: Engine) -> ServiceResponse:
    """200, or 503 if a commit thread hangs: no request that changes something would ever be answered."""
    for log, monitor in engine.commits.items():
        stalled_s = monitor.stalled_s()
        if stalled_s > engine.settings.commit_stall_s:
            message = f"no change of the {log} was committed for {stalled_s:.0f} s, although changes wait"
            body = msgspec.json.encode({"status": "stalled", "message": message})
            return ServiceResponse(status=HTTPStatus.SERVICE_UNAVAILABLE, body=body)
    return json_response({"status": "ok"})


async def leave(engine: Engine, request: Request, *, ls: str, cg: str) -> ServiceResponse:
    """Remove the consumer immediately; it no longer works on any shard. Unknown names are accepted."""
    group = lookup.group(engine, request, ls, cg)
    await engine.groups.step(group, Leave(consumer=parse.consumer(request)))
    return EMPTY


async def group_status(engine: Engine, request: Request, *, ls: str, cg: str) -> ServiceResponse:
    """The state of a group; the field names are those of `loghub.client.port.GroupStatus`."""
    group = lookup.group(engine, request, ls, cg)
    await group.durable()
    settings = settings_json(group)
    now_s = engine.clock.monotonic_s()
    consumers = [_consumer(group, entry, now_s) for entry in group.state.consumers.values()]
    now_us = engine.now_us()
    pairs = [
        (entry, engine.logs[group.logstore, entry.shard])
        for entry in group.state.shards.values()
        if (group.logstore, entry.shard) in engine.logs
    ]
    shards = await asyncio.to_thread(lambda: [_shard(entry, log, now_us) for entry, log in pairs])
    return json_response(
        {
            "group": {
                "name": settings["name"],
                "timeout_s": settings["timeout"],
                "order": settings["order"],
            },
            "consumers": consumers,
            "shards": shards,
        }
    )


def _consumer(group: RegisteredGroup, entry: ConsumerEntry, now_s: float) -> dict[str, object]:
    return {
        "name": entry.name,
        "last_heartbeat_age_s": max(0.0, now_s - entry.last_heartbeat_s),
        "held": sorted(entry.held),
        "owned": group.state.owned_by(entry.name),
    }


def _shard(entry: ShardEntry, log: ShardLog, now_us: int) -> dict[str, object]:
    saved = entry.checkpoint
    lag = _lag(log, saved.cursor if saved else None, now_us)
    return {
        "shard": entry.shard,
        "state": entry.state.value,
        "holder": entry.holder or "",
        "next_holder": entry.next_holder or "",
        "checkpoint": wire_cursor.encode(saved.cursor) if saved else "",
        "checkpoint_consumer": saved.consumer if saved else "",
        "checkpoint_updated_unix_us": saved.updated_unix_us if saved else 0,
        "end_cursor": wire_cursor.encode(log.extent.end_cursor),
        "lag_groups": lag.groups,
        "lag_logs": lag.logs,
        "lag_s": lag.seconds,
        "read_only": entry.log_shard.read_only,
        "parents": entry.log_shard.parents,
    }


def _lag(log: ShardLog, checkpoint: int | None, now_us: int) -> Lag:
    """The lag since the checkpoint. Without a checkpoint it depends on the consumers' start position, which
    the service does not know, so it is unknown unless the shard is empty."""
    cursor = log.extent.oldest_cursor if checkpoint is None else checkpoint
    place = known_place(log, cursor, now_us=now_us)
    if place is None:
        return UNKNOWN
    if place.received_us is None:
        return NONE_LEFT
    if checkpoint is None:
        return UNKNOWN
    age_s = max(0.0, (now_us - place.received_us) / 1_000_000)
    return Lag(groups=place.groups_left, logs=place.logs_left, seconds=age_s)
