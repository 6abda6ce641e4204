"""A subscription as a hashable value, and back.

Two subscriptions that go on alike have the same value: what a heap or a set still has of positions that are
acknowledged is left out, and so are numbers of loads and the statistics of the backlog, which no decision
reads. The order in which consumers joined does not matter either.

The subscription may be one of the rules, or of a copy of them (`tests.properties.guards`).
"""

from collections import deque
from collections.abc import Sequence
from types import SimpleNamespace
from typing import NamedTuple, TypeVar, cast

from loghub.domain.subscription import SubscriptionState, SubscriptionType
from loghub_service.subscription.acked import Run
from loghub_service.subscription.events import LoadedEntry
from loghub_service.subscription.keyed import KeyedQueue
from loghub_service.subscription.ordered import OrderedQueue
from loghub_service.subscription.shared import SharedQueue, TimedPositions
from loghub_service.subscription.slots import SlotRange
from loghub_service.subscription.state import Cursor, Subscription, SubscriptionSettings

MAX_COUNT = 2  # of redeliveries: more make no difference
LOAD = 1  # the number of a load that is under way

# Number, permits, priority, slots, shards, whether it takes any size.
FrozenConsumer = tuple[int, int, int, tuple[SlotRange, ...] | None, tuple[int, ...], bool]
FrozenOrdered = tuple[int, tuple[tuple[int, int], ...], int]  # active, stops, unacked
Pairs = tuple[tuple[int, int], ...]
Timed = tuple[tuple[int, float, int], ...]
Value = TypeVar("Value")


class FrozenShared(NamedTuple):
    """``pieces`` are those of the slots' owners, () in Shared."""

    served: tuple[int, int]
    pending: tuple[tuple[int, Pairs], ...]
    waiting: Pairs
    large: tuple[int, ...]
    delayed: Timed
    scheduled: Timed
    counts: Pairs
    held_back: tuple[tuple[int, float], ...]
    pieces: tuple[tuple[int, int | None], ...] = ()


class FrozenCursor(NamedTuple):
    shard: int
    mark: int
    ranges: tuple[Run, ...]
    end: int
    is_closed: bool
    state: SubscriptionState
    members: tuple[int, ...]
    read: int
    window: tuple[LoadedEntry, ...]
    loaded: int
    is_loading: bool
    queue: FrozenOrdered | FrozenShared


class FrozenSubscription(NamedTuple):
    type: SubscriptionType
    consumers: tuple[FrozenConsumer, ...]
    cursors: tuple[FrozenCursor, ...]
    unix_ahead_s: float


def freeze(subscription: Subscription) -> FrozenSubscription:
    return FrozenSubscription(
        subscription.settings.type,
        tuple(
            [
                (number, c.permits, c.priority, c.slots, c.shards, c.takes_any_size)
                for number, c in sorted(subscription.consumers.items())
            ]
        ),
        tuple(
            [
                _freeze_cursor(cursor, subscription.settings.type)
                for _, cursor in sorted(subscription.shards.items())
            ]
        ),
        subscription.unix_ahead_s,
    )


def _freeze_cursor(cursor: Cursor, kind: SubscriptionType) -> FrozenCursor:
    assert cursor.state is not None
    frozen: FrozenOrdered | FrozenShared
    if kind.is_ordered:
        ordered = cast(OrderedQueue, cursor.queue)
        active = -1 if ordered.active is None else ordered.active.number
        frozen = active, tuple(ordered.stops.items()), ordered.unacked
    else:
        frozen = _freeze_shared(cast(SharedQueue, cursor.queue), kind)
    return FrozenCursor(
        cursor.shard,
        cursor.acked.mark,
        cursor.acked.ranges,
        cursor.end,
        cursor.is_closed,
        cursor.state,
        tuple(sorted(cursor.members)),
        cursor.read,
        tuple(cursor.window),
        cursor.loaded,
        cursor.is_loading,
        frozen,
    )


def _freeze_shared(queue: SharedQueue, kind: SubscriptionType) -> FrozenShared:
    acked = queue.cursor.acked
    return FrozenShared(
        queue.served,
        tuple([(number, _pairs(member.pending)) for number, member in queue.members.items()]),
        _pairs(queue.waiting),
        tuple(sorted(p for p in queue.large if p in queue.waiting)) if queue.large else (),
        _timed(queue.delayed),
        _timed(queue.scheduled),
        tuple([(p, min(count, MAX_COUNT)) for p, count in _sorted(queue.counts) if p not in acked]),
        tuple([(p, until_s) for p, until_s in _sorted(queue.held_back) if p not in acked]),
        cast(KeyedQueue, queue).owners.pieces() if kind is SubscriptionType.KEY_SHARED else (),
    )


def _timed(timed: TimedPositions) -> Timed:
    return tuple([(p, until_s, value) for p, (until_s, value) in _sorted(timed.until)])


def _pairs(values: dict[int, int]) -> Pairs:
    return tuple(_sorted(values))


def _sorted(values: dict[int, Value]) -> Sequence[tuple[int, Value]]:
    """Most are empty, and a search does this often."""
    return sorted(values.items()) if values else ()


def thaw(
    frozen: FrozenSubscription,
    settings: SubscriptionSettings,
    parents: dict[int, tuple[int, ...]],
    rules: SimpleNamespace,
) -> Subscription:
    """``settings`` are for its type. ``rules`` has the names of the modules of the rules, or of their
    copies."""
    subscription: Subscription = rules.Subscription(settings=settings, unix_ahead_s=frozen.unix_ahead_s)
    for number, permits, priority, slots, shards, takes_any_size in frozen.consumers:
        subscription.consumers[number] = rules.AttachedConsumer(
            number=number,
            name=str(number),
            priority=priority,
            slots=slots,
            shards=shards,
            permits=permits,
            takes_any_size=takes_any_size,
        )
    for cursor in frozen.cursors:
        subscription.shards[cursor.shard] = _thaw_cursor(cursor, subscription, parents[cursor.shard], rules)
    return subscription


def _thaw_cursor(
    frozen: FrozenCursor, subscription: Subscription, parents: tuple[int, ...], rules: SimpleNamespace
) -> Cursor:
    cursor: Cursor = rules.Cursor(
        shard=frozen.shard,
        parents=parents,
        acked=rules.Acked(frozen.mark, frozen.ranges),
        end=frozen.end,
        is_closed=frozen.is_closed,
        members={number: subscription.consumers[number] for number in frozen.members},
        state=frozen.state,
        read=frozen.read,
        window=deque(frozen.window),
        window_logs=sum([entry.logs for entry in frozen.window]),
        loaded=frozen.loaded,
        load=LOAD,
        is_loading=frozen.is_loading,
    )
    kind = subscription.settings.type
    if isinstance(frozen.queue, FrozenShared):
        is_keyed = kind is SubscriptionType.KEY_SHARED
        cursor.queue = rules.KeyedQueue(cursor) if is_keyed else rules.SharedQueue(cursor)
        _thaw_shared(frozen.queue, cast(SharedQueue, cursor.queue), rules)
        if is_keyed:
            _thaw_keyed(frozen.queue, cast(KeyedQueue, cursor.queue))
    else:
        cursor.queue = _thaw_ordered(frozen.queue, rules.OrderedQueue(cursor, kind))
    return cursor


def _thaw_ordered(frozen: FrozenOrdered, queue: OrderedQueue) -> OrderedQueue:
    active, stops, queue.unacked = frozen
    queue.stops = dict(stops)
    queue.order.extend(queue.stops)
    queue.active = queue.cursor.members.get(active)
    if queue.active is not None:
        queue.active.unacked += queue.unacked
    return queue


def _thaw_shared(frozen: FrozenShared, queue: SharedQueue, rules: SimpleNamespace) -> None:
    queue.served = frozen.served
    for number, pending in frozen.pending:  # in the order of the turns
        member = queue.members[number] = rules.Member(queue.cursor.members[number], queue.cursor.shard)
        if pending:
            member.pending.update(pending)
            queue.out.update(dict.fromkeys(member.pending, member))
            member.consumer.unacked += len(pending)
    if frozen.waiting:
        queue.waiting.update(frozen.waiting)
        queue.large.extend(frozen.large)
        queue.lowest.extend(p for p in queue.waiting if p not in frozen.large)
    for timed, positions in ((queue.delayed, frozen.delayed), (queue.scheduled, frozen.scheduled)):
        for position, until_s, value in positions:
            timed.add(position, value, until_s)
    queue.counts.update(frozen.counts)
    queue.held_back.update(frozen.held_back)


def _thaw_keyed(frozen: FrozenShared, queue: KeyedQueue) -> None:
    queue.lowest.clear()
    queue.owners.restore(frozen.pieces)
    for position, value in frozen.waiting:  # sorted, so each list is a heap
        queue.queues.setdefault(value >> 1, []).append(position)
    for member in queue.members.values():
        for value in member.pending.values():
            queue.hold(value >> 1, member)
    queue.offer_all()


def later(frozen: FrozenSubscription, by_s: float) -> FrozenSubscription:
    """When so much time has passed: times are relative to a clock that shows 0."""
    return frozen._replace(cursors=tuple(_later(cursor, by_s) for cursor in frozen.cursors))


def _later(cursor: FrozenCursor, by_s: float) -> FrozenCursor:
    window = tuple(entry._replace(due_unix_s=max(0.0, entry.due_unix_s - by_s)) for entry in cursor.window)
    queue = cursor.queue
    if isinstance(queue, FrozenShared):
        queue = queue._replace(
            delayed=_timed_later(queue.delayed, by_s),
            scheduled=_timed_later(queue.scheduled, by_s),
            held_back=tuple((p, until_s - by_s) for p, until_s in queue.held_back if until_s > by_s),
        )
    return cursor._replace(window=window, queue=queue)


def _timed_later(timed: Timed, by_s: float) -> Timed:
    return tuple((p, max(0.0, until_s - by_s), value) for p, until_s, value in timed)
