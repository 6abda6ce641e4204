"""What the broker needs of the log service: logstores as topics, shards as partitions, access keys as logins.

The service implements these protocols over its own storage, so the broker does not know how a log is kept,
and a test can pass its own storage.

The offset of a record follows from the place of its log group in the shard (docs/kafka.md 2). The ordinal of
a log group counts the groups of its shard from 0. An offset is the ordinal times 2^17 plus the index of the
record in the group, so that a cursor becomes an offset and back without a table. Between the last record of a
group and the first one of the next, offsets are unused. The end of a partition is one after its last record,
never the begin of the next group: consumers wait at the end, and compute their lag with it.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from loghub.domain.log_position import index_of, ordinal_of, position_of
from loghub_service.connections.service_ports import Access, Watch
from loghub_service.kafka.producers import BatchOrigin
from loghub_service.kafka.records.record_forms import RecordForm
from loghub_service.kafka.wire.errors import ErrorCode


def offset_of(ordinal: int, index: int = 0) -> int:
    """The offset of a record. An index of 2^17 is after the last record of a full group."""
    return position_of(ordinal, index)


def position(offset: int) -> tuple[int, int]:
    """The ordinal and the index of an offset."""
    return ordinal_of(offset), index_of(offset)


def is_past(offset: int, *, ordinal: int, logs: int) -> bool:
    """Whether a group with this many logs lies completely before an offset."""
    return offset_of(ordinal, logs) <= offset


class StoreError(Exception):
    """The log service refuses; ``code`` is the answer to the client, and the message is for the log."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The offsets of a partition: of the first record, after the last one, and of the next one to come."""

    start: int
    end: int
    next: int


# Makes a record batch from a log group and the offset of its first record.
Encode = Callable[[bytes, int], bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordBatches:
    """Whole record batches of one partition, in order, and the number of their records. ``is_full``: there is
    a further batch, for which there is no room."""

    data: tuple[bytes, ...] = ()
    records: int = 0
    is_full: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedOffset:
    """An offset, and when its log group was received, in unix milliseconds."""

    offset: int
    unix_ms: int


class Partition(Protocol):
    """One id of a topic: a shard, or a placeholder for a shard that is gone."""

    @property
    def key(self) -> object:
        """A key that is equal for the same shard, also in another snapshot."""

    async def bounds(self) -> Bounds: ...

    async def read(self, offset: int, *, max_bytes: int, encode: Encode) -> RecordBatches:
        """The log groups from an offset on; for an offset inside a gap, from the next group on.

        Reading stops before the batch that exceeds ``max_bytes``, but the first batch is always returned.
        ``encode`` is called in a thread.
        """

    async def offset_at(self, unix_ms: int) -> TimedOffset | None:
        """The first log group that was received at or after a time; None if there is none. Raises StoreError,
        as `read` does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSettings:
    """The settings of a topic that DescribeConfigs reports."""

    retention_ms: int  # -1 for unlimited
    form: RecordForm


class Topic(Protocol):
    """A logstore at one moment."""

    @property
    def id(self) -> int:
        """The id, which is never reused, not even for a logstore of the same name."""

    @property
    def name(self) -> str: ...

    @property
    def partitions(self) -> int:
        """The number of ids, which begin with 0."""

    @property
    def settings(self) -> TopicSettings: ...

    def partition(self, number: int) -> Partition | None:
        """The partition with an id; None if the topic has no such id."""

    async def append(
        self, number: int, group: bytes, *, logs: int, origin: BatchOrigin | None = None
    ) -> "asyncio.Future[int]":
        """Append a log group to the addressed shard, or to a live one in its place; with its origin, if
        its producer is idempotent.

        Returns once the order is settled; the future is done when the group is durable, with the offset of
        its first record. Raises StoreError, as the future does.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """A CreateTopics request; None means that the broker chooses."""

    name: str
    partitions: int | None
    retention_ms: int | None
    form: RecordForm | None


class BrokerLogin(Protocol):
    """An authenticated access key in one project, with the topics of that project."""

    @property
    def project(self) -> str: ...

    @property
    def key_id(self) -> str: ...

    def is_valid(self) -> bool:
        """Whether the key still exists, with the same secret, and has not expired."""

    def may(self, access: Access) -> bool: ...

    def topics(self) -> tuple[Topic, ...]:
        """All topics, ascending by name."""

    def topic(self, name: str) -> Topic | None: ...

    async def create_topic(self, new: NewTopic, *, check_only: bool) -> None:
        """Raises StoreError."""

    async def delete_topic(self, name: str) -> None:
        """Raises StoreError."""

    async def add_partitions(self, name: str, total: int, *, check_only: bool) -> None:
        """Split shards until this many ids exist. Raises StoreError."""


class LogService(Protocol):
    """The service behind the broker."""

    def login(self, project: str, password: str) -> BrokerLogin | None:
        """``password`` is ``accessKeyId#accessKeySecret``. None if there is no such key, or if it has no
        right in the project."""

    def watch(self) -> Watch:
        """A watch without partitions. The caller closes it."""

    def now_ms(self) -> int:
        """The time by which offsets expire, in unix milliseconds. A wrong wall clock changes it only after a
        while."""

    def new_producer_id(self) -> int:
        """A non-negative id that was never given before, not even by an earlier process."""
