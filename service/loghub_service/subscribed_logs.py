"""The logs of a logstore for its subscriptions, and for the topics of Pulsar clients."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

from loghub.domain.log_position import ordinal_of, position_of
from loghub.wire.errors import MalformedLogGroup
from loghub_service.catalog import Logstore
from loghub_service.connections.turns import in_turn
from loghub_service.dispatch.ports import Unreadable
from loghub_service.engine import Engine
from loghub_service.facts import ShardSaved, form_of
from loghub_service.kafka.records.record_forms import RecordForm
from loghub_service.pulsar.records.entries import GroupToSend
from loghub_service.storage.segment import Entry as SegmentEntry
from loghub_service.storage.segment import LogDamaged
from loghub_service.storage.shardlog import ShardLog, cursor_of
from loghub_service.storage.shardlog import ordinal_of as ordinal_at
from loghub_service.storage.stored_group import pulsar_origin_of, unpacked
from loghub_service.subscription.events import ShardStart

T = TypeVar("T")
_GROUPS_AT_ONCE = 256  # a read holds no more of small groups in memory at a time
_MAX_UNIX_MS = (1 << 40) * 1000  # in microseconds it still fits 64 bits


@contextmanager
def readable() -> Iterator[None]:
    """Raise Unreadable in place of the errors of damaged logs."""
    try:
        yield
    except (LogDamaged, MalformedLogGroup) as error:
        raise Unreadable(str(error)) from error


class SubscribedLogstore:
    """One logstore (`loghub_service.dispatch.ports.SubscribedLogs`)."""

    def __init__(self, engine: Engine, store: Logstore, form: RecordForm | None = None) -> None:
        """Without ``form`` the records have the form of the logstore."""
        self._engine = engine
        self._store = store
        self.form = form_of(store.saved.options) if form is None else form

    @property
    def id(self) -> int:
        return self._store.saved.id

    @property
    def name(self) -> str:
        return self._store.saved.name

    def exists(self) -> bool:
        return self._engine.catalog.logstores_by_id.get(self.id) is self._store

    def shards(self) -> dict[int, ShardStart]:
        starts = ((number, self.shard(number)) for number in self._store.shards)
        return {number: start for number, start in starts if start is not None}

    def shard(self, number: int) -> ShardStart | None:
        saved, log = self._store.shards.get(number), self.log(number)
        return None if saved is None or log is None else _start(saved, log)

    def version(self) -> object:
        return self._store.shard_map()

    def changes(self) -> object:
        if not self.exists():
            return None
        logs = map(self.log, self._store.shards)
        return self.version(), [None if log is None else log.extent.oldest_cursor for log in logs]

    def key(self, shard: int) -> object | None:
        return self.log(shard)

    def log(self, shard: int) -> ShardLog | None:
        """None if there is no such shard any more."""
        return self._engine.logs.get((self.id, shard))

    async def read(
        self, shard: int, first: int, *, max_logs: int, max_bytes: int, make: Callable[[GroupToSend], T]
    ) -> tuple[list[T], int]:
        log = self.log(shard)
        if log is None:
            return [], first
        work = partial(self._read, log, first, max_logs, max_bytes, make)
        with readable():
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
                made.append(make(self.stored(log, entry)))
                logs += entry.logs
                size += len(entry.group)
                cursor = entry.cursor + 1
                if logs >= max_logs:
                    break
            if not read.entries:
                break
        return made, position_of(ordinal_at(log, cursor))

    def stored(self, log: ShardLog, entry: SegmentEntry) -> GroupToSend:
        return GroupToSend(
            ordinal=ordinal_at(log, entry.cursor),
            group=unpacked(entry.group),
            origin=pulsar_origin_of(entry.group),
            received_ms=entry.received_us // 1000,
            raw=self.form is RecordForm.RAW,
            logs=entry.logs,
        )

    async def position_at(self, shard: int, unix_ms: int) -> int:
        log = self.log(shard)
        if log is None:
            return 0
        at_us = min(max(unix_ms, 0), _MAX_UNIX_MS) * 1000
        with readable():
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
