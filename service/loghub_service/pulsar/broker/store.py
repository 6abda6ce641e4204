"""What the broker needs of the log service: logstores as topics, shards as partitions, access keys as logins,
and the subscriptions that are kept.

The service implements these protocols over its own storage, so nothing here knows how a log is kept, and a
test can pass its own. Positions are defined in `loghub.domain.log_position`.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

from loghub_service.append_series import AppendSeries
from loghub_service.connections.service_ports import Access
from loghub_service.dispatch.ports import SavedSubscription, SubscribedLogs
from loghub_service.kafka.records.record_forms import RecordForm
from loghub_service.pulsar.origin import PulsarOrigin
from loghub_service.pulsar.records.entries import GroupToSend
from loghub_service.subscription.events import ShardStart
from loghub_service.subscription.state import SubscriptionSettings

T = TypeVar("T")


class OpenPartition(Protocol):
    """A partition that is written to, until the next await."""

    def append(
        self, group: bytes, *, logs: int, origin: PulsarOrigin, series: AppendSeries
    ) -> "asyncio.Future[int | None]":
        """Append a log group. The future is done when it is durable, with its ordinal. It raises
        RefusedCommand if there is no room, or was none for an earlier log group of the series."""


class PulsarTopic(SubscribedLogs, Protocol):
    """A logstore."""

    @property
    def partitions(self) -> int:
        """The number of partitions, which never falls; their ids begin at 0."""

    @property
    def form(self) -> RecordForm:
        """What the records of the logstore look like."""

    def in_form(self, form: RecordForm) -> "PulsarTopic":
        """The same topic with another form."""

    async def last(self, shard: int, make: Callable[[GroupToSend], T | None]) -> T | None:
        """What ``make`` makes in a thread of the newest log group of which it makes something, among the last
        thousand; None if there is none. Raises Unreadable."""

    async def open_partition(self, shard: int, *, is_named: bool) -> OpenPartition:
        """The addressed shard, or the live one in its place. ``is_named``: what a producer with a name of its
        own appends is known after a restart. Raises RefusedCommand."""

    def schema(self, version: int | None) -> tuple[int, bytes] | None:
        """A schema and its version, the newest one without a version; None if there is none."""

    async def declare_schema(self, schema: bytes) -> int:
        """The version of a schema, which is durable on return. Raises RefusedCommand."""

    def producer_epoch(self, partition: int) -> int | None:
        """The topic epoch of the last producer that was the only one; None if there was none."""

    def save_producer_epoch(self, partition: int, epoch: int) -> "asyncio.Future[object]":
        """Store the topic epoch; the result is done when it is durable."""


class PulsarLogin(Protocol):
    """An authenticated access key in one project. The topics are the logstores of that project."""

    @property
    def project(self) -> str: ...

    @property
    def key_id(self) -> str: ...

    def is_valid(self) -> bool:
        """Whether the key still exists, with the same secret, and has not expired."""

    def may(self, access: Access) -> bool: ...

    def topics(self) -> tuple[PulsarTopic, ...]:
        """The topics of the project, ascending by name."""

    def topic(self, name: str) -> PulsarTopic | None: ...

    async def create_topic(self, name: str) -> None:
        """Create a logstore of the form ``raw``. Raises RefusedCommand."""


class Subscriptions(Protocol):
    """All subscriptions that are stored, by logstore and name."""

    def of(self, topic: int) -> Mapping[str, SavedSubscription]: ...

    def create(
        self, topic: int, name: str, settings: SubscriptionSettings, shards: Mapping[int, ShardStart]
    ) -> SavedSubscription:
        """One that begins at the marks of these shards. Raises RefusedCommand if there are too many."""

    def delete(self, topic: int, name: str) -> None:
        """Delete a subscription; its `durable` waits until that is on the disk, too."""


class PulsarLogService(Protocol):
    """The service behind the broker."""

    @property
    def subscriptions(self) -> Subscriptions: ...

    def login(self, project: str, password: str) -> PulsarLogin | None:
        """``password`` is ``accessKeyId#accessKeySecret``. None if there is no such key, or if it has no
        right in the project."""

    def new_producer_name(self) -> str:
        """A producer name that was never given before."""

    def now_ms(self) -> int:
        """The time by which logs are received, in unix milliseconds."""
