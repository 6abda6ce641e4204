"""Resolves the names in a request to projects, logstores, shards and groups.

All actions use these functions, so that every "does not exist" error has the same code and message.
"""

from loghub.service.api import parse
from loghub.service.api_errors import failure
from loghub.service.catalog import Logstore, Project
from loghub.service.engine import Engine
from loghub.service.facts import ShardSaved
from loghub.service.group_registry import RegisteredGroup
from loghub.service.messages import Request
from loghub.service.storage.shardlog import ShardLog
from loghub.wire.errors import Code


def project_name(request: Request) -> str:
    if request.project is None:
        raise failure(Code.PROJECT_NOT_EXIST, "the Host header does not name a project")
    return request.project


def project(engine: Engine, request: Request) -> Project:
    return project_named(engine, project_name(request))


def project_named(engine: Engine, name: str) -> Project:
    existing = engine.catalog.projects.get(name)
    if existing is None:
        raise failure(Code.PROJECT_NOT_EXIST, f"The Project does not exist : {name}")
    return existing


def logstore(engine: Engine, request: Request, name: str) -> Logstore:
    return logstore_of(project(engine, request), name)


def logstore_of(project: Project, name: str) -> Logstore:
    existing = project.logstores.get(name)
    if existing is None:
        raise failure(Code.LOG_STORE_NOT_EXIST, f"logstore {name} does not exist")
    return existing


def shard(store: Logstore, number: str) -> ShardSaved:
    value = parse.decimal(number)
    existing = None if value is None else store.shards.get(value)
    if existing is None:
        raise failure(Code.SHARD_NOT_EXIST, f"shard {number[:64]} does not exist")
    return existing


def shard_log(engine: Engine, request: Request, name: str, number: str) -> ShardLog:
    existing = shard(logstore(engine, request, name), number)
    return engine.logs[existing.logstore, existing.shard]


def group(engine: Engine, request: Request, store_name: str, name: str) -> RegisteredGroup:
    store = logstore(engine, request, store_name)
    existing = engine.groups.of(store.saved.id).get(name)
    if existing is None:
        raise failure(Code.CONSUMER_GROUP_NOT_EXIST, f"consumer group {name} does not exist")
    return existing
