"""What the driver of a subscription needs of the service behind it, and what it is for a consumer.

The service implements these protocols over its own storage. Positions are `loghub.domain.log_position`.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from loghub_service.pulsar.records.entries import GroupToSend
from loghub_service.subscription.events import Delivery, DispatchOutcome, Event, ShardStart
from loghub_service.subscription.state import Subscription

T = TypeVar("T")


class Unreadable(Exception):  # noqa: N818 - says what
    """The log is damaged at this place; the message is for people."""


class SubscribedLogs(Protocol):
    """A logstore. Its shards may change at any time."""

    @property
    def id(self) -> int:
        """Never used again, also not for a logstore of the same name."""

    @property
    def name(self) -> str: ...

    def exists(self) -> bool: ...

    def shards(self) -> dict[int, ShardStart]:
        """The shards that exist; the mark is the first position that is not expired."""

    def shard(self, number: int) -> ShardStart | None:
        """The shard with this number."""

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

    async def position_at(self, shard: int, unix_ms: int) -> int:
        """The position of the first log group that was received at or after a time; the end if there is
        none. Raises Unreadable."""


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


class Receiver(Protocol):
    """A consumer as its subscription knows it. No two consumers ever have the same ``number``."""

    number: int
    endpoint: str

    def deliver(self, delivery: Delivery) -> None:
        """Give the consumer these logs, in this order, after the logs that it was given before."""

    def active_changed(self, shard: int, *, is_active: bool) -> None:
        """In Failover: it is the active one of the shard from now on, or not any more, and then another
        consumer gets what was dealt to it."""

    def cannot_read(self, shard: int) -> None:
        """Log data of the shard is damaged: no log of it comes until that is repaired."""

    def closed(self) -> None:
        """The subscription no longer has this consumer, which has to join again."""


class Preparation(Protocol):
    """What an endpoint makes of the log groups that are read, while it has consumers of the subscription."""

    def prepare(self, group: GroupToSend) -> Any:
        """Make what the endpoint needs of a log group. Called in a thread."""

    def keep(self, shard: int, prepared: Any) -> None:
        """Keep it until it is delivered, and acknowledge what no message can carry."""

    def pieces(self, prepared: Any) -> Sequence[int]:
        """The pieces in which an ordered type delivers a group: the number of logs of each piece."""
