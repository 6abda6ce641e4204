"""Reads values from queries and JSON bodies, checks their bounds, and resolves the names in a request to
projects, logstores, shards and groups.

All actions use these functions, so that invalid input and missing resources are rejected with the same codes
and messages everywhere.
"""

from typing import Any

import msgspec

from loghub.wire import names
from loghub.wire.errors import Code
from loghub_service.catalog import Logstore, Project
from loghub_service.engine import Engine
from loghub_service.errors import failure
from loghub_service.facts import ShardSaved
from loghub_service.groups import RegisteredGroup
from loghub_service.messages import Request
from loghub_service.storage.shardlog import ShardLog

_MAX_DIGITS = 18  # any number of this length fits 64 bits


def json_object(request: Request) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(request.body or b"{}")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:  # the last: nested too deeply
        raise failure(Code.JSON_INFO_INVALID, f"the body is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise failure(Code.JSON_INFO_INVALID, "the body is not a JSON object")
    return value


def shard_list(request: Request) -> frozenset[int]:
    """The body of a heartbeat: the shards that the consumer still works on."""
    try:
        return frozenset(msgspec.json.decode(request.body or b"[]", type=list[int]))
    except msgspec.DecodeError as error:
        raise failure(Code.JSON_INFO_INVALID, f"the body is not an array of shard ids: {error}") from error


def cursors_of_shards(request: Request) -> dict[int, str]:
    """The body of an extension: an object of shards and their cursors."""
    try:
        return msgspec.json.decode(request.body or b"{}", type=dict[int, str])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        message = f"the body is not an object of shard ids and cursors: {error}"
        raise failure(Code.JSON_INFO_INVALID, message) from error


def string(fields: dict[str, Any], name: str, default: str | None = None) -> str:
    value = fields.get(name, default)
    if not isinstance(value, str):
        raise failure(Code.PARAMETER_INVALID, f"{name} must be a string")
    return value


def integer(
    fields: dict[str, Any], name: str, *, minimum: int, maximum: int, default: int | None = None
) -> int:
    value = fields.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool) or not minimum <= value <= maximum:
        raise failure(Code.PARAMETER_INVALID, f"{name} must be a number from {minimum} to {maximum}")
    return value


def boolean(fields: dict[str, Any], name: str, default: bool) -> bool:
    value = fields.get(name, default)
    if not isinstance(value, bool):
        raise failure(Code.PARAMETER_INVALID, f"{name} must be true or false")
    return value


def number_query(
    request: Request, name: str, *, minimum: int, maximum: int, default: int | None = None
) -> int:
    text = request.query.get(name)
    if text is None and default is not None:
        return default
    value = None if text is None else decimal(text)
    if value is None or not minimum <= value <= maximum:
        raise failure(Code.PARAMETER_INVALID, f"{name} must be a number from {minimum} to {maximum}")
    return value


def decimal(text: str) -> int | None:
    """The value of a text of digits below 10^18, otherwise None. A longer text is not converted, since the
    conversion is slow or fails."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS else None


def consumer(request: Request) -> str:
    return names.CONSUMER.check(request.query.get("consumer", ""))


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
    value = decimal(number)
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
