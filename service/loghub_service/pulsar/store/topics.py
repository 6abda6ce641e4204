"""Logstores as topics and shards as partitions, for Pulsar clients."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

import msgspec

from loghub.domain.log_position import ordinal_of, position_of
from loghub.wire.errors import Code, LogHubError, MalformedLogGroup
from loghub_service.api import logstores
from loghub_service.api.logs import log_to_write
from loghub_service.api.logstores import DEFAULT_TTL_DAYS, NewLogstore
from loghub_service.catalog import Logstore
from loghub_service.connections.turns import in_turn
from loghub_service.declarations import TooManySchemas
from loghub_service.durable_steps import converted
from loghub_service.engine import Engine
from loghub_service.errors import InvalidInput, refusal
from loghub_service.facts import FORM_OPTION, ShardSaved, form_of
from loghub_service.kafka.records.record_forms import RecordForm
from loghub_service.pulsar.broker.refusals import RefusedCommand
from loghub_service.pulsar.broker.store import Unreadable
from loghub_service.pulsar.origin import PulsarOrigin
from loghub_service.pulsar.records.entries import GroupToSend
from loghub_service.pulsar.wire.errors import ServerError
from loghub_service.storage.segment import Entry as SegmentEntry
from loghub_service.storage.segment import LogDamaged
from loghub_service.storage.shardlog import ShardLog, cursor_of
from loghub_service.storage.shardlog import ordinal_of as ordinal_at
from loghub_service.storage.stored_group import pulsar_origin_of, unpacked, with_pulsar_origin
from loghub_service.subscription.events import ShardStart

T = TypeVar("T")
_GROUPS_AT_ONCE = 256  # small groups are read in few steps, and a step is bounded in memory
# That are looked at for the last message: nobody writes so many groups that are too large for a message.
_LAST_GROUPS = 1000
_MAX_UNIX_MS = (1 << 40) * 1000  # 30,000 years: in microseconds it still fits into 63 bits
_CODES = {
    Code.PROJECT_NOT_EXIST: ServerError.TOPIC_NOT_FOUND,
    Code.LOG_STORE_NOT_EXIST: ServerError.TOPIC_NOT_FOUND,
    Code.PROJECT_QUOTA_EXCEED: ServerError.NOT_ALLOWED_ERROR,
    Code.PARAMETER_INVALID: ServerError.NOT_ALLOWED_ERROR,
    Code.UNAUTHORIZED: ServerError.AUTHORIZATION_ERROR,
    Code.SERVER_BUSY: ServerError.SERVICE_NOT_READY,  # clients repeat it
}


@contextmanager
def as_refusals() -> Iterator[None]:
    """Raise RefusedCommand in place of the errors that HTTP would answer with."""
    try:
        yield
    except (LogHubError, *InvalidInput) as error:
        found = error if isinstance(error, LogHubError) else refusal(error)
        code = _CODES.get(Code(found.code), ServerError.UNKNOWN_ERROR)
        raise RefusedCommand(code, found.message) from error


def _of_append(error: BaseException) -> RefusedCommand:
    """For an append that failed. Clients send the message again, until there is room."""
    if isinstance(error, OSError):
        return RefusedCommand(ServerError.PERSISTENCE_ERROR, f"no disk space for the logs: {error.strerror}")
    return RefusedCommand(ServerError.UNKNOWN_ERROR, "storage failed, the service stops")


@contextmanager
def _readable() -> Iterator[None]:
    try:
        yield
    except (LogDamaged, MalformedLogGroup) as error:
        raise Unreadable(str(error)) from error


class LogstoreWithShards:
    """One logstore as a topic (`loghub_service.pulsar.broker.store.PulsarTopic`)."""

    def __init__(self, engine: Engine, store: Logstore, form: RecordForm | None = None) -> None:
        """``form`` None is that of the logstore."""
        self._engine = engine
        self._store = store
        self.form = form_of(store.saved.options) if form is None else form

    @property
    def id(self) -> int:
        return self._store.saved.id

    @property
    def name(self) -> str:
        return self._store.saved.name

    @property
    def partitions(self) -> int:
        return self._store.saved.next_shard

    def in_form(self, form: RecordForm) -> "LogstoreWithShards":
        return LogstoreWithShards(self._engine, self._store, form)

    def exists(self) -> bool:
        return self._engine.catalog.logstores_by_id.get(self.id) is self._store

    def shards(self) -> dict[int, ShardStart]:
        starts = ((number, self.shard(number)) for number in self._store.shards)
        return {number: start for number, start in starts if start is not None}

    def shard(self, number: int) -> ShardStart | None:
        saved, log = self._store.shards.get(number), self._log(number)
        return None if saved is None or log is None else _start(saved, log)

    def version(self) -> object:
        return self._store.shard_map()

    def changes(self) -> object:
        if not self.exists():
            return None
        logs = map(self._log, self._store.shards)
        return self.version(), [None if log is None else log.extent.oldest_cursor for log in logs]

    def key(self, shard: int) -> object | None:
        return self._log(shard)

    async def append(
        self, shard: int, group: bytes, *, logs: int, origin: PulsarOrigin
    ) -> "asyncio.Future[int]":
        log = await self._log_to_write(shard)
        if origin.is_named:
            journal = self._engine.producers
            while not journal.begin(log):
                await journal.mark(log)
                log = await self._log_to_write(shard)  # it may have been split meanwhile
        cursor = self._engine.append(log, with_pulsar_origin(group, origin), logs=logs)
        return converted(cursor, lambda at: ordinal_at(log, at), _of_append)

    async def _log_to_write(self, number: int) -> ShardLog:
        with as_refusals():
            return await log_to_write(self._engine, self._current, lambda shards: shards.in_place_of(number))

    def _current(self) -> Logstore:
        """The same logstore as it is now: its shards may be split while a write waits."""
        store = self._engine.catalog.logstores_by_id.get(self.id)
        if store is None:
            raise RefusedCommand(ServerError.TOPIC_NOT_FOUND, f"logstore {self.name} was deleted")
        return store

    def schema(self, version: int | None) -> tuple[int, bytes] | None:
        return self._engine.declarations.schema(self.id, version)

    async def declare_schema(self, schema: bytes) -> int:
        try:
            return await self._engine.declarations.declare(self.id, schema)
        except TooManySchemas as error:
            raise RefusedCommand(ServerError.NOT_ALLOWED_ERROR, str(error)) from error

    def producer_epoch(self, partition: int) -> int | None:
        return self._engine.declarations.epoch(self.id, partition)

    def save_producer_epoch(self, partition: int, epoch: int) -> "asyncio.Future[object]":
        return self._engine.declarations.save_epoch(self.id, partition, epoch)

    def _log(self, shard: int) -> ShardLog | None:
        return self._engine.logs.get((self.id, shard))

    async def read(
        self, shard: int, first: int, *, max_logs: int, max_bytes: int, make: Callable[[GroupToSend], T]
    ) -> tuple[list[T], int]:
        log = self._log(shard)
        if log is None:
            return [], first
        work = partial(self._read, log, first, max_logs, max_bytes, make)
        with _readable():
            return await in_turn(self._engine.pulling, work)

    def _read(
        self, log: ShardLog, first: int, max_logs: int, max_bytes: int, make: Callable[[GroupToSend], T]
    ) -> tuple[list[T], int]:
        end = log.extent.end_cursor
        cursor = max(cursor_of(log, ordinal_of(first)), log.extent.oldest_cursor)
        made: list[T] = []
        logs = size = 0
        while cursor < end and logs < max_logs and size < max_bytes:
            groups = min(_GROUPS_AT_ONCE, max_logs - logs)
            read = log.read(cursor=cursor, end_cursor=end, max_groups=groups, max_bytes=max_bytes - size)
            for entry in read.entries:
                made.append(make(self._stored(log, entry)))
                logs += entry.logs
                size += len(entry.group)
                cursor = entry.cursor + 1
                if logs >= max_logs:
                    break
            if not read.entries:
                break
        return made, position_of(ordinal_at(log, cursor))

    def _stored(self, log: ShardLog, entry: SegmentEntry) -> GroupToSend:
        return GroupToSend(
            ordinal=ordinal_at(log, entry.cursor),
            group=unpacked(entry.group),
            origin=pulsar_origin_of(entry.group),
            received_ms=entry.received_us // 1000,
            raw=self.form is RecordForm.RAW,
        )

    async def last(self, shard: int, make: Callable[[GroupToSend], T | None]) -> T | None:
        log = self._log(shard)
        if log is None:
            return None
        with _readable():  # each in its turn, as groups may be large
            newest = await in_turn(self._engine.pulling, lambda: log.newest().next_cursor - 1)
            for cursor in range(newest, max(newest - _LAST_GROUPS, log.extent.oldest_cursor - 1), -1):
                made = await in_turn(self._engine.pulling, partial(self._one, log, cursor, make))
                if made is not None:
                    return made
        return None

    def _one(self, log: ShardLog, cursor: int, make: Callable[[GroupToSend], T | None]) -> T | None:
        if cursor < log.extent.oldest_cursor:  # it has expired meanwhile
            return None
        read = log.read(cursor=cursor, end_cursor=cursor + 1, max_groups=1, max_bytes=1)
        return make(self._stored(log, read.entries[0])) if read.entries else None

    async def position_at(self, shard: int, unix_ms: int) -> int:
        log = self._log(shard)
        if log is None:
            return 0
        at_us = min(max(unix_ms, 0), _MAX_UNIX_MS) * 1000
        with _readable():
            cursor = await in_turn(
                self._engine.pulling, lambda: log.cursor_at(at_us, now_us=self._engine.now_us())
            )
        return position_of(ordinal_at(log, cursor))


def _start(saved: ShardSaved, log: ShardLog) -> ShardStart:
    extent = log.extent
    return ShardStart(
        parents=saved.spec.parents,
        mark=position_of(ordinal_at(log, extent.oldest_cursor)),
        end=position_of(ordinal_at(log, extent.end_cursor)),
        is_closed=saved.spec.read_only,
    )


async def create_topic(engine: Engine, project: str, name: str) -> None:
    """A topic that a Pulsar client creates keeps keys and properties. It may exist already: several clients
    may create it at once. Raises RefusedCommand."""
    new = NewLogstore(
        name=name,
        shards=1,  # Pulsar makes a topic without partitions, so that its messages have one order
        ttl_days=DEFAULT_TTL_DAYS,
        options=msgspec.json.encode({FORM_OPTION: RecordForm.RAW}).decode(),
    )
    with as_refusals():
        try:
            await engine.to_the_end(logstores.create(engine, project, new))
        except LogHubError as error:
            if error.code != Code.LOG_STORE_ALREADY_EXIST:
                raise
