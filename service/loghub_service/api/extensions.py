"""The service's extensions to the SLS API: info, health, the whole state of a group, leave, and long polls
for the ends of shards and for a consumer group.

They give the operator the exact state of a group, and allow a consumer to leave without waiting for its
timeout. No SLS client needs them, and their paths do not overlap with SLS paths. `loghub.client.port`
declares the same fields for clients.

With the two long polls an idle consumer has two requests under way instead of one for each shard and
interval. A poll is no heartbeat and returns no log groups; the consumer pulls them once there are some. With
``wait_ms`` 0 a poll answers at once. `loghub_service.polls` bounds the number of polls.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from http import HTTPStatus

import msgspec

from loghub import __version__
from loghub.domain.group import ConsumerEntry, Leave, ShardEntry
from loghub.domain.lag import NONE_LEFT, UNKNOWN, Lag
from loghub.wire import cursor as wire_cursor
from loghub.wire import names
from loghub_service.api import parse
from loghub_service.api import parse as lookup
from loghub_service.api.groups import settings_json
from loghub_service.engine import Engine
from loghub_service.groups import RegisteredGroup
from loghub_service.kafka.shard_bounds import known_place
from loghub_service.messages import EMPTY, Request, ServiceResponse, json_response
from loghub_service.polls import wait_for_change
from loghub_service.storage.shardlog import ShardLog

_MAX_REVISION = 1 << 53  # above, numbers in JSON are not exact in every client
_POLL = replace(names.CONSUMER, kind="poll")


async def await_ends(engine: Engine, request: Request, *, ls: str) -> ServiceResponse:
    """The first and the end cursors of the shards in the body, which has the end of each shard that the
    client knows.

    It waits until one of the ends differs. A shard that does not exist is missing from the answer, and is a
    reason to answer at once. Raises LogStoreNotExist, also if the logstore is deleted meanwhile.
    """
    known_ends = _known_ends(request)

    def present() -> dict[int, ShardLog]:
        store = lookup.logstore(engine, request, ls)
        return {
            shard: engine.logs[store.saved.id, shard]
            for shard in known_ends
            if (store.saved.id, shard) in engine.logs and shard in store.shards
        }

    def has_changed() -> bool:
        logs = present()
        return logs.keys() != known_ends.keys() or any(
            log.extent.end_cursor != known_ends[shard] for shard, log in logs.items()
        )

    wait_s = _wait_s(engine, request)
    watched = present().values()
    with (
        engine.log_changes.watched(watched) as appended,
        engine.polls.place(request, _name(request), watched=len(watched), wake=appended.set) as poll,
    ):
        await wait_for_change(request, poll, appended, wait_s=wait_s, has_changed=has_changed)
    if request.is_gone():
        return EMPTY
    return json_response([_cursors(shard, log) for shard, log in sorted(present().items())])


async def await_group(engine: Engine, request: Request, *, ls: str, cg: str) -> ServiceResponse:
    """The revision of a group, and the shards that are assigned to the consumer.

    It waits until the revision differs from the one that the client knows. Raises ConsumerGroupNotExist or
    LogStoreNotExist, also if either is deleted meanwhile.
    """
    known_revision = parse.number_query(request, "revision", minimum=0, maximum=_MAX_REVISION, default=0)
    consumer = parse.consumer(request)
    wait_s = _wait_s(engine, request)
    group = lookup.group(engine, request, ls, cg)

    def has_changed() -> bool:
        return lookup.group(engine, request, ls, cg).revision != known_revision

    with (
        engine.groups.changes.watched([group]) as changed,
        engine.polls.place(request, _name(request), watched=1, wake=changed.set) as poll,
    ):
        await wait_for_change(request, poll, changed, wait_s=wait_s, has_changed=has_changed)
    if request.is_gone():
        return EMPTY
    group = lookup.group(engine, request, ls, cg)
    revision, assigned = group.revision, group.state.owned_by(consumer)
    await engine.groups.durable(group)
    return json_response({"revision": revision, "assigned": assigned})


def _wait_s(engine: Engine, request: Request) -> float:
    max_ms = engine.settings.limits.poll_s * 1000
    return parse.number_query(request, "wait_ms", minimum=0, maximum=max_ms, default=0) / 1000


def _name(request: Request) -> str:
    """The poll's name. An access key has one waiting poll of each name; a new poll ends the earlier one."""
    return _POLL.check(request.query.get("poll", ""))


def _known_ends(request: Request) -> Mapping[int, int | None]:
    """Shard -> the end that the client knows; None if it knows none."""
    texts = parse.cursors_of_shards(request)
    return {shard: wire_cursor.decode(text) if text else None for shard, text in texts.items()}


def _cursors(shard: int, log: ShardLog) -> dict[str, object]:
    extent = log.extent
    return {
        "shard": shard,
        "begin": wire_cursor.encode(extent.oldest_cursor),
        "end": wire_cursor.encode(extent.end_cursor),
    }


EXTENSIONS = (
    "leave",
    "group_status",
    "kafka_groups",
    "await_ends",
    "await_group",
    "save_checkpoints",
    "subscriptions",
)
SIGNATURES = ("v1", "v4")


async def info(_engine: Engine) -> ServiceResponse:
    """A client calls this to detect the extensions, and how it may sign; it requires neither Host nor
    authentication."""
    return json_response(
        {
            "service": "loghub-embedded",
            "version": __version__,
            "extensions": EXTENSIONS,
            "signatures": SIGNATURES,
        }
    )


async def health(engine: Engine) -> ServiceResponse:
    """200, or 503 if a commit thread hangs, because then no request that changes something is ever
    answered."""
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
    await engine.groups.apply_durably(group, Leave(consumer=parse.consumer(request)))
    return EMPTY


async def group_status(engine: Engine, request: Request, *, ls: str, cg: str) -> ServiceResponse:
    """The state of a group, with the field names of `loghub.client.port.GroupStatus`."""
    group = lookup.group(engine, request, ls, cg)
    await engine.groups.durable(group)
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
