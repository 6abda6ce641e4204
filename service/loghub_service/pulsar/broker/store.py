"""What the broker needs of the log service: logstores as topics, shards as partitions, access keys as logins,
and the subscriptions that are kept.

The service implements these protocols over its own storage, so nothing here knows how a log is kept, and a
test can pass its own. Positions are defined in `loghub.domain.log_position`.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

from loghub_service.connections.service_ports import Access, Watch
from loghub_service.kafka.records.record_forms import RecordForm
from loghub_service.pulsar.origin import PulsarOrigin
from loghub_service.pulsar.records.entries import GroupToSend
from loghub_service.subscription.events import DispatchOutcome, Event, ShardStart
from loghub_service.subscription.state import Subscription, SubscriptionSettings

T = TypeVar("T")


class Unreadable(Exception):  # noqa: N818 - says what
    """The log is damaged there; the message is for people."""


class PulsarTopic(Protocol):
    """A logstore. Its shards may change at any time."""

    @property
    def id(self) -> int:
        """Never used again, also not for a logstore of the same name."""

    @property
    def name(self) -> str: ...

    @property
    def partitions(self) -> int:
        """Their ids are from 0 up to, not including, this number. It never falls."""

    @property
    def form(self) -> RecordForm:
        """What its records look like."""

    def in_form(self, form: RecordForm) -> "PulsarTopic":
        """The same topic with another one."""

    def exists(self) -> bool: ...

    def shards(self) -> dict[int, ShardStart]:
        """The shards that exist; the mark is the first position that is not expired."""

    def shard(self, number: int) -> ShardStart | None:
        """One of them."""

    def version(self) -> object:
        """Another object after each change of the shards."""

    def changes(self) -> object:
        """Another value after each change of the shards that no `Watch` notices: they were split, merged or
        deleted, or logs have expired."""

    def key(self, shard: int) -> object | None:
        """What a `Watch` knows a shard by; None if it does not exist."""

    async def read(
        self, shard: int, first: int, *, max_logs: int, max_bytes: int, make: Callable[[GroupToSend], T]
    ) -> tuple[list[T], int]:
        """What ``make`` makes of the log groups from the one that holds ``first`` on, or from the next one
        that is there: about so many logs or bytes, but at least one group if there is one; and the position
        after the last of them. ``make`` is called in a thread. Raises Unreadable."""

    async def last(self, shard: int, make: Callable[[GroupToSend], T | None]) -> T | None:
        """The same of the newest log group of which ``make`` makes something, among the last thousand; None
        if there is none. Raises Unreadable."""

    async def append(
        self, shard: int, group: bytes, *, logs: int, origin: PulsarOrigin
    ) -> "asyncio.Future[int]":
        """Append a log group to the addressed shard, or to a live one in its place. Returns once the order is
        settled; the future is done when the group is durable, with its ordinal. Raises RefusedCommand, as the
        future does."""

    def schema(self, version: int | None) -> tuple[int, bytes] | None:
        """A schema and its version, the newest one without a version; None if there is none."""

    async def declare_schema(self, schema: bytes) -> int:
        """The version of a schema, which is durable on return. Raises RefusedCommand."""

    def producer_epoch(self, partition: int) -> int | None:
        """The topic epoch of the last producer that was the only one; None if there was none."""

    def save_producer_epoch(self, partition: int, epoch: int) -> "asyncio.Future[object]":
        """Keep it; done when that is durable."""

    async def position_at(self, shard: int, unix_ms: int) -> int:
        """Of the first log group that was received at or after a time; the end if there is none. Raises
        Unreadable."""


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
        """Ascending by name."""

    def topic(self, name: str) -> PulsarTopic | None: ...

    async def create_topic(self, name: str) -> None:
        """A logstore of the form ``raw``. Raises RefusedCommand."""


class SavedSubscription(Protocol):
    """A subscription of one logstore as it is now. `apply` is effective in memory at once, and what must
    survive is on its way to the disk then."""

    @property
    def name(self) -> str: ...

    @property
    def state(self) -> Subscription:
        """To be read only."""

    def apply(self, event: Event, *, now: float) -> DispatchOutcome: ...

    async def durable(self) -> None:
        """Return once everything that was applied is on the disk."""


class Subscriptions(Protocol):
    """All that are kept, by logstore and name."""

    def of(self, topic: int) -> Mapping[str, SavedSubscription]: ...

    def create(
        self, topic: int, name: str, settings: SubscriptionSettings, shards: Mapping[int, ShardStart]
    ) -> SavedSubscription:
        """One that begins at the marks of these shards. Raises RefusedCommand if there are too many."""

    def delete(self, topic: int, name: str) -> None:
        """`durable` of the subscription includes it."""


class PulsarLogService(Protocol):
    """The service behind the broker."""

    @property
    def subscriptions(self) -> Subscriptions: ...

    def login(self, project: str, password: str) -> PulsarLogin | None:
        """``password`` is ``accessKeyId#accessKeySecret``. None if there is no such key, or if it has no
        right in the project."""

    def watch(self) -> Watch:
        """Close it."""

    def new_producer_name(self) -> str:
        """One that was not given before."""

    def now_ms(self) -> int:
        """The time by which logs are received, in unix milliseconds."""
