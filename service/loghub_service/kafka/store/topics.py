"""Logstores as topics, with the checks, limits and quotas of the HTTP API, and the errors of the service's
actions as errors of Kafka's protocol."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from loghub.domain import shards as rules
from loghub.domain.shards import Shard
from loghub.wire import names
from loghub.wire.errors import Code, LogHubError, MalformedName
from loghub_service.api import logstores, parse
from loghub_service.api.logstores import NewLogstore
from loghub_service.api.shards import carry_out
from loghub_service.api.topics import partition_to_write
from loghub_service.catalog import Logstore
from loghub_service.durable_steps import converted
from loghub_service.engine import Engine
from loghub_service.errors import InvalidInput, refusal
from loghub_service.facts import FORM_OPTION, form_of
from loghub_service.kafka.broker.store import NewTopic, Partition, StoreError, TopicSettings, offset_of
from loghub_service.kafka.producers import BatchOrigin
from loghub_service.kafka.records.record_forms import RecordForm
from loghub_service.kafka.store.partitions import Placeholder, ShardPartition
from loghub_service.kafka.wire.errors import ErrorCode
from loghub_service.settings import KEEP_FOREVER_DAYS
from loghub_service.storage.group_commit import StorageFailed
from loghub_service.storage.shardlog import ordinal_of
from loghub_service.storage.stored_group import with_origin

# No action behind the endpoint raises an error that is missing here.
_CODES = {
    Code.PROJECT_NOT_EXIST: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    Code.LOG_STORE_NOT_EXIST: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    Code.SHARD_NOT_EXIST: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    Code.LOG_STORE_ALREADY_EXIST: ErrorCode.TOPIC_ALREADY_EXISTS,
    Code.LOG_STORE_WITHOUT_SHARD: ErrorCode.LEADER_NOT_AVAILABLE,
    Code.PROJECT_QUOTA_EXCEED: ErrorCode.POLICY_VIOLATION,
    Code.PARAMETER_INVALID: ErrorCode.INVALID_REQUEST,
    Code.UNAUTHORIZED: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    Code.POST_BODY_TOO_LARGE: ErrorCode.MESSAGE_TOO_LARGE,
    Code.SERVER_BUSY: ErrorCode.KAFKA_STORAGE_ERROR,  # clients repeat it
}


@contextmanager
def as_store_errors() -> Iterator[None]:
    """Raise StoreError in place of the errors that HTTP would return."""
    try:
        yield
    except LogHubError as error:
        raise _store_error(error) from error
    except InvalidInput as error:
        raise _store_error(refusal(error)) from error


def _store_error(error: LogHubError) -> StoreError:
    return StoreError(_CODES.get(Code(error.code), ErrorCode.UNKNOWN_SERVER_ERROR), error.message)


def of_append(error: BaseException) -> StoreError:
    """The error for an append that failed."""
    if isinstance(error, StorageFailed):
        return StoreError(ErrorCode.UNKNOWN_SERVER_ERROR, "storage failed, the service stops")
    if isinstance(error, OSError):
        return StoreError(ErrorCode.KAFKA_STORAGE_ERROR, f"no disk space for the logs: {error.strerror}")
    return StoreError(ErrorCode.UNKNOWN_SERVER_ERROR, "the append failed")


_DAY_MS = 86_400_000
_FOR_EVER = -1  # as retention.ms


class LogstoreTopic:
    """One logstore as a topic."""

    def __init__(self, engine: Engine, store: Logstore) -> None:
        self._engine = engine
        self._store = store

    @property
    def id(self) -> int:
        return self._store.saved.id

    @property
    def name(self) -> str:
        return self._store.saved.name

    @property
    def partitions(self) -> int:
        return self._store.saved.next_shard

    @property
    def settings(self) -> TopicSettings:
        saved = self._store.saved
        for_ever = saved.ttl_days >= KEEP_FOREVER_DAYS
        return TopicSettings(
            retention_ms=_FOR_EVER if for_ever else saved.ttl_days * _DAY_MS, form=form_of(saved.options)
        )

    def partition(self, number: int) -> Partition | None:
        if number in self._store.shards:
            return ShardPartition(self._engine, self._engine.logs[self.id, number])
        if 0 <= number < self.partitions:
            return Placeholder(self.id, number, self._store.final_offsets.get(number, 0))
        return None

    async def append(
        self, number: int, group: bytes, *, logs: int, origin: BatchOrigin | None = None
    ) -> "asyncio.Future[int]":
        with as_store_errors():
            log = await partition_to_write(
                self._engine, self._store, number, is_remembered=origin is not None
            )
        if origin is not None:
            group = with_origin(group, origin)
        cursor = self._engine.append(log, group, logs=logs)
        return converted(cursor, lambda at: offset_of(ordinal_of(log, at)), of_append)


async def create_topic(engine: Engine, project: str, new: NewTopic, *, check_only: bool) -> None:
    """Raises StoreError."""
    maximum = engine.settings.limits.shards_at_creation
    shards = logstores.DEFAULT_SHARDS if new.partitions is None else new.partitions
    if shards > maximum:
        raise StoreError(ErrorCode.INVALID_PARTITIONS, f"a logstore begins with at most {maximum} shards")
    try:
        names.LOGSTORE.check(new.name)
    except MalformedName as error:
        raise StoreError(ErrorCode.INVALID_TOPIC_EXCEPTION, str(error)) from error
    logstore = NewLogstore(
        name=new.name,
        shards=shards,
        ttl_days=_ttl_days(new.retention_ms),
        # A user who creates a topic with a Kafka client keeps Kafka's records in it, with keys and headers.
        options=msgspec.json.encode({FORM_OPTION: new.form or RecordForm.RAW}).decode(),
    )
    with as_store_errors():
        if check_only:
            project_now = parse.project_named(engine, project)
            logstores.check_room(project_now, new.name, shards, engine.settings.limits)
        else:
            await logstores.create(engine, project, logstore)


def _ttl_days(retention_ms: int | None) -> int:
    if retention_ms is None:
        return logstores.DEFAULT_TTL_DAYS
    if retention_ms == _FOR_EVER:
        return KEEP_FOREVER_DAYS
    return min(max(-(-retention_ms // _DAY_MS), 1), KEEP_FOREVER_DAYS)


async def add_partitions(engine: Engine, project: str, name: str, total: int, *, check_only: bool) -> None:
    """Split the widest shards until this many ids exist. Raises StoreError."""
    with as_store_errors():
        store = parse.logstore_of(parse.project_named(engine, project), name)
        check_total(store.saved.next_shard, total, maximum=engine.settings.limits.shards_per_project)
        while not check_only and store.saved.next_shard < total:
            async with engine.admin:
                place = parse.project_named(engine, project)
                store = parse.logstore_of(place, name)
                missing = total - store.saved.next_shard
                if missing < 2:  # another client has split meanwhile
                    return
                shards = store.shard_map()
                widest = max(shards.writable(), key=_width)
                parts = 3 if missing == 3 else 2
                await carry_out(engine, place, store, rules.split(shards, shard=widest.shard, parts=parts))


def check_total(count: int, total: int, *, maximum: int) -> None:
    """Raises StoreError unless splits can lead from ``count`` ids to ``total``: each split adds two or
    more."""
    if total <= count:
        raise StoreError(ErrorCode.INVALID_PARTITIONS, f"the topic has {count} partitions already")
    if total - count == 1:
        raise StoreError(
            ErrorCode.INVALID_PARTITIONS,
            f"a split adds two partitions at least, so {count} can become {count + 2}, but not {total}",
        )
    if total - count > maximum:
        raise StoreError(ErrorCode.POLICY_VIOLATION, f"a project may have at most {maximum} shards")


def _width(shard: Shard) -> int:
    return shard.keys.end - shard.keys.begin
