"""Shards as partitions: offsets from cursors, and record batches from log groups.

A deleted shard keeps its last end, so that an offset that was committed there is never out of range.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import structlog

from loghub.wire.errors import MalformedLogGroup
from loghub_service.connections.turns import in_turn
from loghub_service.engine import Engine
from loghub_service.kafka.broker.store import (
    Bounds,
    Encode,
    RecordBatches,
    StoreError,
    TimedOffset,
    is_past,
    offset_of,
    position,
)
from loghub_service.kafka.shard_bounds import shard_bounds
from loghub_service.kafka.wire.errors import ErrorCode
from loghub_service.storage.segment import LogDamaged
from loghub_service.storage.shardlog import ShardLog, cursor_of, ordinal_of
from loghub_service.storage.stored_group import unpacked

_log = structlog.get_logger("loghub_service.kafka")
_GROUPS_AT_ONCE = 256  # small groups of a fetch are read in few steps, and a step is bounded in memory
_MAX_UNIX_MS = (1 << 40) * 1000  # 30,000 years: in microseconds it still fits into 63 bits


@contextmanager
def _readable() -> Iterator[None]:
    """Raises StoreError where the log is damaged."""
    try:
        yield
    except (LogDamaged, MalformedLogGroup) as error:
        _log.error("log data cannot be read", error=str(error))
        raise StoreError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error


class ShardPartition:
    """The partition of a shard that exists."""

    def __init__(self, engine: Engine, log: ShardLog) -> None:
        self._engine = engine
        self._log = log

    @property
    def key(self) -> object:
        return self._log

    async def bounds(self) -> Bounds:
        return await shard_bounds(self._log)

    async def read(self, offset: int, *, max_bytes: int, encode: Encode) -> RecordBatches:
        with _readable():
            return await in_turn(self._engine.pulling, partial(self._read, offset, max_bytes, encode))

    def _read(self, offset: int, max_bytes: int, encode: Encode) -> RecordBatches:
        end = self._log.extent.end_cursor
        cursor = cursor_of(self._log, position(offset)[0])
        data: list[bytes] = []
        records = size = 0
        while cursor < end:
            read = self._log.read(
                cursor=cursor, end_cursor=end, max_groups=_GROUPS_AT_ONCE, max_bytes=max(max_bytes - size, 1)
            )
            for entry in read.entries:
                ordinal = ordinal_of(self._log, entry.cursor)
                if is_past(offset, ordinal=ordinal, logs=entry.logs):
                    continue
                batch = encode(unpacked(entry.group), offset_of(ordinal))
                if data and size + len(batch) > max_bytes:
                    return RecordBatches(data=tuple(data), records=records, is_full=True)
                data.append(batch)
                size += len(batch)
                records += entry.logs
            if not read.entries or size >= max_bytes:
                break
            cursor = read.next_cursor
        return RecordBatches(data=tuple(data), records=records)

    async def offset_at(self, unix_ms: int) -> TimedOffset | None:
        with _readable():
            return await asyncio.to_thread(self._offset_at, min(unix_ms, _MAX_UNIX_MS))

    def _offset_at(self, unix_ms: int) -> TimedOffset | None:
        now_us = self._engine.now_us()
        cursor = self._log.cursor_at(unix_ms * 1000, now_us=now_us)
        received_us = self._log.place(cursor, now_us=now_us).received_us
        if received_us is None:
            return None
        return TimedOffset(offset=offset_of(ordinal_of(self._log, cursor)), unix_ms=received_us // 1000)


@dataclass(frozen=True, slots=True)
class Placeholder:
    """The partition of a deleted shard: empty, at the shard's end."""

    logstore: int
    shard: int
    end: int

    @property
    def key(self) -> object:
        return self

    async def bounds(self) -> Bounds:
        return Bounds(start=self.end, end=self.end, next=offset_of(position(self.end - 1)[0] + 1))

    async def read(self, offset: int, *, max_bytes: int, encode: Encode) -> RecordBatches:  # noqa: ARG002 - empty
        return RecordBatches()

    async def offset_at(self, unix_ms: int) -> TimedOffset | None:  # noqa: ARG002 - empty
        return None
