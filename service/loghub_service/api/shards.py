"""Shards: list, split, merge, delete (docs/sls-protocol.md 2.3).

These are the actions on ``/logstores/{ls}/shards`` without the ones for log data and cursors
(`loghub_service.api.logs`). The rules are in `loghub.domain.shards`.
"""

import asyncio
from dataclasses import replace

from loghub.domain import shards as rules
from loghub.domain.shards import MAX_PARTS, Reshard, Shard, parse_key
from loghub.wire.errors import Code
from loghub_service.api import parse
from loghub_service.api import parse as lookup
from loghub_service.api.logstores import check_shard_room
from loghub_service.catalog import Logstore, Project
from loghub_service.engine import Engine
from loghub_service.errors import failure, needs_room
from loghub_service.facts import ShardDeleted, ShardSaved
from loghub_service.kafka.shard_bounds import shard_bounds
from loghub_service.messages import EMPTY, Request, ServiceResponse, json_response


async def list_shards(engine: Engine, request: Request, *, ls: str) -> ServiceResponse:
    store = lookup.logstore(engine, request, ls)
    return json_response([_as_json(shard) for _, shard in sorted(store.shards.items())])


async def change_shard(engine: Engine, request: Request, *, ls: str, shard: str) -> ServiceResponse:
    """Serve ``action=split`` with an optional ``key`` or ``shardCount``, or ``action=merge``. The response
    lists the old shards first."""
    async with engine.admin:
        store = lookup.logstore(engine, request, ls)
        number = lookup.shard(store, shard).shard
        action = request.query.get("action")
        if action == "split":
            reshard = _split(store, number, request)
        elif action == "merge":
            reshard = rules.merge(store.shard_map(), shard=number)
        else:
            raise failure(Code.PARAMETER_INVALID, "action must be split or merge")
        changed = await carry_out(engine, lookup.project(engine, request), store, reshard)
    return json_response([_as_json(saved) for saved in changed])


async def delete_shard(engine: Engine, request: Request, *, ls: str, shard: str) -> ServiceResponse:
    """Delete a read-only shard with its data."""
    async with engine.admin:
        store = lookup.logstore(engine, request, ls)
        saved = lookup.shard(store, shard)
        rules.delete(store.shard_map(), shard=saved.shard)
        # Otherwise the next start would have to read the sent sequences from the log.
        await engine.producers.save()
        bounds = await shard_bounds(engine.logs[saved.logstore, saved.shard])
        deleted = ShardDeleted(logstore=saved.logstore, shard=saved.shard, final_offset=bounds.end)
        await engine.persist_deletion(deleted)
        await engine.groups.shards_changed(saved.logstore, engine.log_shards(store))
        await engine.remove_log(logstore=saved.logstore, shard=saved.shard)
    return EMPTY


def _split(store: Logstore, shard: int, request: Request) -> Reshard:
    parts = parse.number_query(request, "shardCount", minimum=2, maximum=MAX_PARTS, default=2)
    text = request.query.get("key")
    if not text:
        return rules.split(store.shard_map(), shard=shard, parts=parts)
    if parts != 2:
        raise failure(Code.PARAMETER_INVALID, "a key splits a shard into 2: send shardCount or key")
    return rules.split_at(store.shard_map(), shard=shard, key=parse_key(text))


async def carry_out(engine: Engine, project: Project, store: Logstore, reshard: Reshard) -> list[ShardSaved]:
    """Close the old shards to writes, wait for writes in progress, then create the new shards.

    A write to a closing shard waits and then goes to a new shard. Every log in a child is therefore
    acknowledged after all logs in its parents. The caller holds `admin`. Returns the closed shards, then the
    new ones; raises LogHubError if the new shards exceed the quota.
    """
    check_shard_room(project, len(reshard.created), engine.settings.limits)
    logstore = store.saved.id
    closed = [replace(store.shards[spec.shard], spec=spec) for spec in reshard.closed]
    over = asyncio.Event()
    for saved in closed:
        engine.sealing[logstore, saved.shard] = over
    try:
        await engine.on_log_thread(lambda: None)  # runs after every append submitted so far
        created = [_new_shard(engine, store, spec) for spec in reshard.created]
        after = replace(store.saved, next_shard=reshard.after.next_shard)
        with needs_room("the shards' folders"):
            await engine.create_shards(after, created, closed=closed)
    finally:
        for saved in closed:
            del engine.sealing[logstore, saved.shard]
        over.set()
    await engine.groups.shards_changed(logstore, engine.log_shards(store))
    return [*closed, *created]


def _new_shard(engine: Engine, store: Logstore, spec: Shard) -> ShardSaved:
    born_us = engine.now_us()
    return ShardSaved(
        logstore=store.saved.id, spec=spec, born_us=born_us, first_cursor=engine.first_cursor(born_us)
    )


def _as_json(saved: ShardSaved) -> dict[str, object]:
    return {
        "shardID": saved.shard,
        "status": "readonly" if saved.spec.read_only else "readwrite",
        "inclusiveBeginKey": saved.spec.keys.begin_key,
        "exclusiveEndKey": saved.spec.keys.end_key,
        "createTime": saved.born_us // 1_000_000,
    }
