"""What can happen to a subscription, and what follows from it.

Consumers are known by numbers. The caller never gives a number twice for one subscription. Positions are
`loghub.domain.log_position`. A run is half-open, lies in one log group, and may stop at the end of its group
in either form, ``(o, n)`` or ``(o+1, 0)``. The time is in monotonic seconds, unless a name ends in
``unix_s``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from loghub.domain.subscription import SubscriptionState, SubscriptionType
from loghub_service.subscription.acked import Run
from loghub_service.subscription.slots import SlotRange
from loghub_service.subscription.states import CursorTrigger


class Refusal(StrEnum):
    """Why an event is refused; nothing has changed then."""

    CONSUMER_BUSY = "ConsumerBusy"  # an Exclusive consumer, or one of another kind, is connected
    SLOTS_TAKEN = "SlotsTaken"
    BAD_SLOTS = "BadSlots"  # outside the slots, or overlapping among themselves
    TOO_MANY_CONSUMERS = "TooManyConsumers"
    UNKNOWN_CONSUMER = "UnknownConsumer"
    UNKNOWN_SHARD = "UnknownShard"
    NOT_ORDERED = "NotOrdered"  # a cumulative acknowledgment needs an order
    NO_TAKER = "NoTaker"  # no other consumer could take the logs


class LoadedEntry(NamedTuple):
    """Logs of one log group that was read. Ordered types deliver it whole.

    ``is_last``: the group ends with it. A group whose frame would be too large is cut into several entries.
    ``slots`` has the slot of each log, if the load requested slots. Before ``due_unix_s`` the logs are not
    delivered in Shared and Key_Shared.
    """

    first: int
    logs: int
    is_last: bool = True
    slots: Sequence[int] | None = None
    due_unix_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardStart:
    """A shard that exists. ``mark`` is where a subscription begins that does not know the shard yet, and
    ``end`` the first position of the next group. ``is_closed``: it takes no writes any more."""

    parents: tuple[int, ...] = ()
    mark: int = 0
    end: int = 0
    is_closed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """A consumer is attached to these shards, or with None to all shards, future ones included. It has no
    permits yet. ``slots`` are ranges that a consumer of Key_Shared has chosen. A lower priority number goes
    first. ``takes_any_size``: no log is too large for the consumer (`PassOn`)."""

    consumer: int
    name: str
    type: SubscriptionType
    shards: tuple[int, ...] | None
    priority: int = 0
    slots: tuple[SlotRange, ...] | None = None
    takes_any_size: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveSubscription:
    """The consumer closed, lost its connection, or was silent for its lease."""

    consumer: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """The consumer can take this many more logs."""

    consumer: int
    permits: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Allow:
    """The consumer can take this many logs from now on, whatever it could take before; ``only``: logs of
    these shards, and none of the others."""

    consumer: int
    permits: int
    only: frozenset[int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeSettings:
    """The subscription has another type, order or key from now on. Refused while a consumer is attached."""

    type: SubscriptionType
    in_order: bool
    key: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ack:
    """Logs are done, even logs that are not out, or are out at another consumer: the acknowledgment of a
    consumer may arrive after its connection was lost."""

    shard: int
    runs: Sequence[Run]


@dataclass(frozen=True, slots=True, kw_only=True)
class AckUpTo:
    """All logs below ``stop`` are done; for ordered types."""

    shard: int
    stop: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Redeliver:
    """The consumer wants these logs again, or all that it has if ``runs`` is None. In ordered types
    everything comes again, from the mark, whatever the runs are. ``delay_s``: the logs come no sooner than
    after this many seconds. ``is_counted``: this is a redelivery; otherwise the consumer gives back what it
    has not begun."""

    consumer: int
    shard: int
    runs: Sequence[Run] | None = None
    delay_s: float = 0.0
    is_counted: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class PassOn:
    """These logs are too large for the consumer that has them: in Shared they go to a consumer that takes any
    size, once it has permits. Refused if none is attached to the shard, and in the other types, in which one
    consumer alone may get a log."""

    consumer: int
    shard: int
    runs: Sequence[Run]


@dataclass(frozen=True, slots=True, kw_only=True)
class SeekTo:
    """The mark is set, everything else is forgotten, and the consumers of the shard are closed."""

    shard: int
    position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Expired:
    """Retention dropped all logs below ``position``."""

    shard: int
    position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Appended:
    """The shard reaches to ``end`` now; ``is_closed``: no further log will follow."""

    shard: int
    end: int
    is_closed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupsLoaded:
    """The log groups that a `LoadGroups` requested. ``next`` is the position after all of them, in normal
    form."""

    shard: int
    load: int
    entries: Sequence[LoadedEntry]
    next: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscribedShards:
    """All shards that exist now."""

    shards: Mapping[int, ShardStart]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockRead:
    """The wall clock shows this time. Apply it at `next_deadline`, before the first consumer joins, and when
    the wall clock was set: logs that wait for a time of day come by the corrected clock."""

    unix_s: float


Event = (
    Join
    | LeaveSubscription
    | Flow
    | Allow
    | ChangeSettings
    | Ack
    | AckUpTo
    | Redeliver
    | PassOn
    | SeekTo
    | Expired
    | Appended
    | GroupsLoaded
    | SubscribedShards
    | ClockRead
)
DeliveredRun = tuple[int, int, int]  # first, stop, redeliveries so far


@dataclass(slots=True)
class Delivery:
    """Logs that go to a consumer, in this order, and take ``permits`` of its permits. In ordered types the
    runs of an entry follow each other, and what is missing between them is acknowledged already."""

    consumer: int
    shard: int
    runs: list[DeliveredRun]
    permits: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadGroups:
    """Read log groups, from the group that holds ``first`` on: about ``max_logs`` logs, and at least a group.
    ``number`` returns in the `GroupsLoaded` that answers it."""

    shard: int
    number: int
    first: int
    max_logs: int
    with_slots: bool


@dataclass(frozen=True, slots=True)
class ActiveChange:
    """A consumer of a Failover subscription becomes active for a shard, or stands by."""

    consumer: int
    shard: int
    is_active: bool


@dataclass(frozen=True, slots=True)
class CursorTransition:
    """One state change, for one log line."""

    shard: int
    old: SubscriptionState | None
    new: SubscriptionState
    trigger: CursorTrigger


@dataclass(slots=True)
class DispatchOutcome:
    """The result of one event.

    ``rejected``: how many runs of an acknowledgment could not be taken, since they lie beyond the end of the
    shard, or are not out and there is no room for another range.
    ``closed``: consumers that do not exist any more because of this event.
    ``acked``: per shard, what must become durable before a receipt is sent. ``replaced``: shards of which the
    whole cursor must be saved instead. ``are_settings_changed``: they must be saved.
    """

    refusal: Refusal | None = None
    rejected: int = 0
    deliveries: list[Delivery] = field(default_factory=list)
    loads: list[LoadGroups] = field(default_factory=list)
    active: list[ActiveChange] = field(default_factory=list)
    closed: list[int] = field(default_factory=list)
    acked: dict[int, list[Run]] = field(default_factory=dict)
    replaced: list[int] = field(default_factory=list)
    are_settings_changed: bool = False
    transitions: list[CursorTransition] = field(default_factory=list)
