"""What the calls of subscriptions carry. They are an extension of the embedded service
(docs/subscriptions-protocol.md).

The port and the wire have the same values: JSON has their fields by name, and an exchange is MessagePack,
since its answer has the bytes of log groups. Positions are `loghub.domain.log_position`; a cursor is the
wire's text, as in every other call (docs/sls-protocol.md 2.1).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from loghub.domain.subscription import SubscriptionState, SubscriptionType
from loghub.wire.compression import Packed
from loghub.wire.cursor import Position

EXCHANGE_MEDIA_TYPE = "application/vnd.msgpack"
Run = tuple[int, int]  # positions first <= p < stop, of one log group or of whole groups

MAX_IDS = 10_000  # runs of one exchange: as many as an ACK of Pulsar may have here
MAX_EXCHANGE_BYTES = 256 << 10  # of the body of an exchange: 10,000 runs of two numbers of 9 bytes
MAX_LOGS = 10_000  # of one answer
MAX_ANSWER_BYTES = 16 << 20  # of log groups in one answer, but at least one log group
MIN_LEASE_S, MAX_LEASE_S = 1.0, 3600.0
MAX_DELAY_S = 7 * 86_400.0  # of a negative acknowledgment: longer than any backoff
MAX_PRIORITY = 1_000  # Pulsar's clients have an int; people use a few levels
MAX_KEY_FIELDS = 8  # each is searched in each log
MAX_KEY_FIELD_CHARS = 128  # the maximum of a key's name in SLS
MAX_SLOT_RANGES = 1_000  # of one consumer


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionSpec:
    """The settings of a subscription, and where a new one begins.

    ``start`` counts for shards without a mark, and ``marks`` has the cursors at which shards begin; both
    count only when the subscription is created. ``in_order``: the children of a split or merge come after
    their parents; Shared has no order. ``key``, for KeyShared: the names of the fields of a log that are its
    key; empty: the key that the log has in the raw form. ``must_be_new``: one that exists is refused, and
    not given these settings.
    """

    type: SubscriptionType
    start: Position = "begin"
    marks: Mapping[int, str] = field(default_factory=dict)
    in_order: bool = True
    key: tuple[str, ...] = ()
    must_be_new: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionSummary:
    """One subscription in a list."""

    name: str
    type: SubscriptionType
    in_order: bool
    key: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionConsumer:
    """One consumer: a session over HTTP, or a consumer of Pulsar, of which a client has one for each shard.

    ``shards``: in ordered types, where it is active. ``last_exchange_age_s`` is None for a consumer of
    Pulsar.
    """

    name: str
    priority: int
    permits: int
    unacked_logs: int
    shards: tuple[int, ...]
    endpoint: Literal["http", "pulsar"]
    last_exchange_age_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscribedShardStatus:
    """One shard. ``mark`` is the cursor of the first log group that is not wholly acknowledged, and
    ``mark_index`` the first log of it that is not. ``backlog_logs`` are without an acknowledgment, of which
    ``unacked_logs`` are delivered; ``acked_logs`` from that log group on have one. None is not known.
    ``oldest_unacked_s`` is the age of the mark's log group. ``consumers``: in ordered types, the active
    one."""

    shard: int
    state: SubscriptionState
    mark: str
    mark_index: int
    acked_ranges: int
    acked_logs: int | None
    backlog_logs: int | None
    unacked_logs: int
    oldest_unacked_s: float | None
    consumers: tuple[str, ...]
    end_cursor: str
    read_only: bool
    parents: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionStatus:
    """A whole subscription at one moment.

    Both counts begin with the start of the service: ``acknowledged_logs``, as far as their number is known,
    and ``redelivered_logs``, which are deliveries of logs that their consumer had wanted again.
    ``held_slots``, of KeyShared: the slots that have a delivered log without an acknowledgment, which is how
    many consumers could have work at most.
    """

    name: str
    type: SubscriptionType
    in_order: bool
    key: tuple[str, ...]
    state: SubscriptionState
    consumers: tuple[SubscriptionConsumer, ...]
    shards: tuple[SubscribedShardStatus, ...]
    backlog_logs: int | None
    unacked_logs: int
    acknowledged_logs: int
    redelivered_logs: int
    oldest_unacked_s: float | None
    held_slots: int


class LeaseGrain(StrEnum):
    """What is dealt: single logs, or whole log groups, which are then never divided."""

    LOG = "log"
    RANGE = "range"


@dataclass(frozen=True, slots=True, kw_only=True)
class Nack:
    """These logs are delivered again, and not before so many seconds."""

    shard: int
    runs: tuple[Run, ...]
    delay_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """What a consumer settles, and what it wants.

    Without a ``session`` it joins, and gets one. ``nonce``: a join that is repeated with the same nonce gets
    the same session. ``priority``, ``slots``, ``lease_s``, ``grain`` and ``bodies`` count only then;
    ``slots`` are the ranges of KeyShared that the consumer has chosen. Of a consumer that is silent for
    ``lease_s`` everything is delivered to others.

    ``acks``, ``nacks`` and ``release`` are by shard. What is released is given back at once and not counted.
    ``settlement`` numbers the calls of a session that have ``nacks`` or ``release``, each higher than the
    one before: in a call that is repeated with its number these have no effect again.
    ``is_durable``: the answer comes when the acknowledgments are on the disk.

    ``number`` is None to settle only, which may be done at any time; else the number of the receive, from 1
    on. The same number again gets the last answer again, as far as its logs are still out. The answer comes
    when there is a log or ``active`` changes, or after ``wait_s``; a newer receive ends it. ``shards``: logs
    of these only. ``leave`` ends the session after settling.
    """

    consumer: str
    type: SubscriptionType
    session: str = ""
    nonce: str = ""
    priority: int = 0
    slots: tuple[tuple[int, int], ...] | None = None
    lease_s: float = 30.0
    grain: LeaseGrain = LeaseGrain.LOG
    bodies: bool = True
    acks: Mapping[int, tuple[Run, ...]] = field(default_factory=dict)
    nacks: tuple[Nack, ...] = ()
    release: Mapping[int, tuple[Run, ...]] = field(default_factory=dict)
    settlement: int | None = None
    is_durable: bool = True
    number: int | None = None
    max_logs: int = 0
    max_bytes: int = 0
    wait_s: float = 0.0
    shards: tuple[int, ...] | None = None
    leave: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveredGroup:
    """Logs of one log group. ``body`` is a LogGroupList of this group, as PullLogs sends it; None if the
    consumer wants positions only. ``indexes`` are the logs that are meant, None for all of the group, and
    ``redeliveries`` belongs to each of them; empty if it is 0 for all. ``received_us`` is in unix
    microseconds."""

    shard: int
    cursor: str
    ordinal: int
    body: Packed | None
    indexes: tuple[int, ...] | None
    redeliveries: tuple[int, ...]
    received_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchanged:
    """The answer. ``groups`` are in the order of delivery.

    ``active`` are the shards of which the consumer gets logs: in ordered types where it is the active one,
    else all. ``backlog`` has the logs without an acknowledgment by shard, None if not known. ``rejected``
    counts the acknowledgments that were not taken: they lie beyond the end, or there is no room for another
    range. ``fenced`` are shards of an ordered type where nothing was settled, since another consumer is
    active. ``unreadable`` says of shards of which nothing more comes why their log data cannot be read.
    """

    session: str
    lease_s: float
    groups: tuple[DeliveredGroup, ...] = ()
    shards: Mapping[int, SubscriptionState] = field(default_factory=dict)
    active: tuple[int, ...] = ()
    end_cursors: Mapping[int, str] = field(default_factory=dict)
    backlog: Mapping[int, int | None] = field(default_factory=dict)
    rejected: int = 0
    fenced: tuple[int, ...] = ()
    unreadable: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionSeek:
    """Where a subscription continues: all of its shards at a position, or those in ``marks`` at a cursor."""

    position: Position | None = None
    marks: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionSkip:
    """Acknowledge the oldest open logs of a shard, so many or all."""

    shard: int
    logs: int | None = None


@dataclass(frozen=True, slots=True)
class SkippedLogs:
    """How many logs were acknowledged."""

    skipped: int
