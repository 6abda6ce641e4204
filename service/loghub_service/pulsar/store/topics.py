"""Logstores as topics and shards as partitions, for Pulsar clients."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

import msgspec

from loghub.wire.errors import Code, LogHubError
from loghub_service.api import logstores
from loghub_service.api.logstores import DEFAULT_TTL_DAYS, NewLogstore
from loghub_service.api.topics import partition_to_write
from loghub_service.append_series import AppendSeries
from loghub_service.connections.turns import in_turn
from loghub_service.declarations import TooManySchemas
from loghub_service.durable_steps import converted
from loghub_service.engine import Engine
from loghub_service.errors import InvalidInput, refusal
from loghub_service.facts import FORM_OPTION
from loghub_service.kafka.records.record_forms import RecordForm
from loghub_service.pulsar.broker.refusals import RefusedCommand
from loghub_service.pulsar.origin import PulsarOrigin
from loghub_service.pulsar.records.entries import GroupToSend
from loghub_service.pulsar.wire.errors import ServerError
from loghub_service.storage.shardlog import ShardLog
from loghub_service.storage.shardlog import ordinal_of as ordinal_at
from loghub_service.storage.stored_group import with_pulsar_origin
from loghub_service.subscribed_logs import SubscribedLogstore, readable

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
    """The refusal for an append that failed. Clients send the message again, until there is room."""
    if isinstance(error, OSError):
        return RefusedCommand(ServerError.PERSISTENCE_ERROR, f"no disk space for the logs: {error.strerror}")
    return RefusedCommand(ServerError.UNKNOWN_ERROR, "storage failed, the service stops")


class LiveShard:
    """A shard that accepts writes (`loghub_service.pulsar.broker.store.OpenPartition`)."""

    def __init__(self, engine: Engine, log: ShardLog) -> None:
        self._engine = engine
        self._log = log

    def append(
        self, group: bytes, *, logs: int, origin: PulsarOrigin, series: AppendSeries
    ) -> "asyncio.Future[int | None]":
        stored = with_pulsar_origin(group, origin)
        cursor = self._engine.append(self._log, stored, logs=logs, series=series)
        return converted(cursor, self._ordinal, _of_append)

    def _ordinal(self, cursor: int) -> int | None:
        return ordinal_at(self._log, cursor)


class LogstoreWithShards(SubscribedLogstore):
    """One logstore as a topic (`loghub_service.pulsar.broker.store.PulsarTopic`)."""

    @property
    def partitions(self) -> int:
        return self._store.saved.next_shard

    def in_form(self, form: RecordForm) -> "LogstoreWithShards":
        return LogstoreWithShards(self._engine, self._store, form)

    async def open_partition(self, shard: int, *, is_named: bool) -> LiveShard:
        with as_refusals():
            log = await partition_to_write(self._engine, self._store, shard, is_remembered=is_named)
        return LiveShard(self._engine, log)

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

    async def last(self, shard: int, make: Callable[[GroupToSend], T | None]) -> T | None:
        log = self.log(shard)
        if log is None:
            return None
        with readable():  # each in its turn, as groups may be large
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
        return make(self.stored(log, read.entries[0])) if read.entries else None


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
