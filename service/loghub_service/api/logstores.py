"""Logstores: create, get, list, update, delete (docs/sls-protocol.md 2.3).

These are the actions on ``/logstores``; `loghub_service.api.shards` has the actions on the shards of a
logstore.
"""

from dataclasses import dataclass, replace
from typing import Any

import msgspec

from loghub.domain import shards as rules
from loghub.wire import names
from loghub.wire.errors import Code
from loghub_service.api import parse
from loghub_service.api import parse as lookup
from loghub_service.catalog import Logstore, Project
from loghub_service.engine import Engine
from loghub_service.errors import failure, needs_room
from loghub_service.facts import LogstoreDeleted, LogstoreSaved, ShardSaved
from loghub_service.messages import EMPTY, Request, ServiceResponse, json_response
from loghub_service.settings import KEEP_FOREVER_DAYS, Limits

_PAGE = 500  # the maximum of SLS
DEFAULT_SHARDS = 2  # the default of SLS's console
DEFAULT_TTL_DAYS = 30  # the default of SLS's console
# Settings that clients store and read back; they have no effect in this service. The Python client
# requires the first four in the response.
_OPTION_DEFAULTS: dict[str, object] = {
    "enable_tracking": False,
    "appendMeta": False,
    "autoSplit": False,
    "maxSplitShard": 64,
    "telemetryType": "",
    "mode": "standard",
    "hot_ttl": -1,
}


async def create_logstore(engine: Engine, request: Request) -> ServiceResponse:
    """Create a logstore. Unknown keys are accepted (docs/sls-protocol.md 2.3)."""
    fields = parse.json_object(request)
    maximum = engine.settings.limits.shards_at_creation
    new = NewLogstore(
        name=names.LOGSTORE.check(parse.string(fields, "logstoreName")),
        shards=parse.integer(fields, "shardCount", minimum=1, maximum=maximum, default=DEFAULT_SHARDS),
        ttl_days=_ttl(fields, DEFAULT_TTL_DAYS),
        options=_options(fields, {}),
    )
    await create(engine, lookup.project_name(request), new)
    return EMPTY


@dataclass(frozen=True, slots=True, kw_only=True)
class NewLogstore:
    """A logstore to create; every value is checked."""

    name: str
    shards: int
    ttl_days: int
    options: str  # JSON object


async def create(engine: Engine, project_name: str, new: NewLogstore) -> None:
    """Create a logstore. Raises LogHubError, for example beyond a quota."""
    async with engine.admin:
        project = lookup.project_named(engine, project_name)
        check_room(project, new.name, new.shards, engine.settings.limits)
        now = engine.now_s()
        saved = LogstoreSaved(
            id=engine.catalog.next_logstore_id,
            project=project.saved.name,
            name=new.name,
            ttl_days=new.ttl_days,
            next_shard=new.shards,
            options=new.options,
            created_s=now,
            modified_s=now,
            first_ordinal=engine.catalog.deleted_names.get((project.saved.name, new.name), 0),
        )
        await _create(engine, saved, new.shards)


async def _create(engine: Engine, saved: LogstoreSaved, count: int) -> None:
    born_us = engine.now_us()
    created = [
        ShardSaved(logstore=saved.id, spec=spec, born_us=born_us, first_cursor=engine.first_cursor(born_us))
        for spec in rules.create(count).shards.values()
    ]
    with needs_room("the shards' folders"):
        await engine.create_shards(saved, created)


async def get_logstore(engine: Engine, request: Request, *, ls: str) -> ServiceResponse:
    """Get a logstore. A request with ``type`` is an SLS query, which this service does not support."""
    if "type" in request.query:
        return await refuse_query(engine, request, ls=ls)
    return json_response(_as_json(lookup.logstore(engine, request, ls)))


async def refuse_query(_engine: Engine, _request: Request, *, ls: str) -> ServiceResponse:
    """Reject a query with 400, since the Python SDK retries a status of 500 or above ten times."""
    raise failure(
        Code.PARAMETER_INVALID, f"this service does not support queries; read logstore {ls} with PullLogs"
    )


async def get_index(engine: Engine, request: Request, *, ls: str) -> ServiceResponse:
    """Answer as for a logstore whose logs are not indexed, because clients that copy a logstore request its
    index."""
    lookup.logstore(engine, request, ls)
    raise failure(Code.INDEX_CONFIG_NOT_EXIST, f"logstore {ls} has no index, since this service has none")


async def list_logstores(engine: Engine, request: Request) -> ServiceResponse:
    offset = parse.number_query(request, "offset", minimum=0, maximum=1 << 31, default=0)
    size = parse.number_query(request, "size", minimum=0, maximum=_PAGE, default=_PAGE)
    part = request.query.get("logstoreName", "")
    matching = [name for name in sorted(lookup.project(engine, request).logstores) if part in name]
    page = matching[offset : offset + size]
    return json_response({"count": len(page), "total": len(matching), "logstores": page})


async def update_logstore(engine: Engine, request: Request, *, ls: str) -> ServiceResponse:
    """Change the ttl and the options. The number of shards changes only by split and merge."""
    fields = parse.json_object(request)
    async with engine.admin:
        saved = lookup.logstore(engine, request, ls).saved
        options = _options(fields, msgspec.json.decode(saved.options))
        ttl_days = _ttl(fields, saved.ttl_days)
        await engine.persist(replace(saved, ttl_days=ttl_days, options=options, modified_s=engine.now_s()))
    return EMPTY


async def delete_logstore(engine: Engine, request: Request, *, ls: str) -> ServiceResponse:
    """Delete a logstore with its shards, their data and its consumer groups."""
    await delete(engine, lookup.project_name(request), ls)
    return EMPTY


async def delete(engine: Engine, project_name: str, name: str) -> None:
    """Delete a logstore. Raises LogHubError if it does not exist."""
    async with engine.admin:
        saved = lookup.logstore_of(lookup.project_named(engine, project_name), name).saved
        engine.groups.forget_logstore(saved.id)
        engine.kafka_groups.forget_logstore(saved.project, saved.id)
        await engine.persist_deletion(LogstoreDeleted(id=saved.id, project=saved.project, name=saved.name))
        await engine.remove_logs(saved.id)


def check_room(project: Project, name: str, shards: int, limits: Limits) -> None:
    """Raises LogHubError if the name is taken, or if the logstore would exceed a quota."""
    if name in project.logstores:
        raise failure(Code.LOG_STORE_ALREADY_EXIST, f"logstore {name} already exists")
    if len(project.logstores) >= limits.logstores_per_project:
        raise failure(
            Code.PROJECT_QUOTA_EXCEED, f"a project may have at most {limits.logstores_per_project} logstores"
        )
    check_shard_room(project, shards, limits)


def check_shard_room(project: Project, more: int, limits: Limits) -> None:
    """Raises ProjectQuotaExceed if this number of additional shards exceeds the project's limit."""
    if sum(len(store.shards) for store in project.logstores.values()) + more > limits.shards_per_project:
        raise failure(
            Code.PROJECT_QUOTA_EXCEED, f"a project may have at most {limits.shards_per_project} shards"
        )


def _ttl(fields: dict[str, Any], default: int) -> int:
    return parse.integer(fields, "ttl", minimum=1, maximum=KEEP_FOREVER_DAYS, default=default)


def _options(fields: dict[str, Any], before: dict[str, Any]) -> str:
    chosen = {key: fields[key] for key in _OPTION_DEFAULTS if key in fields}
    return msgspec.json.encode(before | chosen).decode()


def _as_json(store: Logstore) -> dict[str, Any]:
    saved = store.saved
    writable = len(store.shard_map().writable())
    return {
        **_OPTION_DEFAULTS,
        **msgspec.json.decode(saved.options),
        "logstoreName": saved.name,
        "ttl": saved.ttl_days,
        "shardCount": writable,
        "createTime": saved.created_s,
        "lastModifyTime": saved.modified_s,
    }
