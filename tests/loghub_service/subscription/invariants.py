"""What holds for every subscription, and for every step of its dispatcher."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

from loghub.domain.log_position import group_end, position_of
from loghub.domain.subscription import SubscriptionState, SubscriptionType
from loghub_service.subscription.acked import Acked
from loghub_service.subscription.events import (
    Ack,
    AckUpTo,
    Delivery,
    DispatchOutcome,
    Event,
    Expired,
    Redeliver,
    SeekTo,
)
from loghub_service.subscription.keyed import KeyedQueue
from loghub_service.subscription.ordered import OrderedQueue
from loghub_service.subscription.shared import LAST, SharedQueue
from loghub_service.subscription.state import Cursor, Subscription, SubscriptionLimits
from loghub_service.subscription.states import transition

DELIVERING = (SubscriptionState.FLOWING, SubscriptionState.WAITS_FOR_ROOM, SubscriptionState.UNOWNED)


@dataclass(frozen=True)
class StoredLogs:
    """The logs of a shard: the slot of each, by group."""

    groups: tuple[tuple[int, ...], ...]

    @cache  # noqa: B019 - there are few of them
    def slots(self, end: int) -> dict[int, int]:
        """Each log below the end with its slot."""
        return {
            position_of(ordinal, index): slot
            for ordinal, group in enumerate(self.groups)
            for index, slot in enumerate(group)
            if position_of(ordinal) < end
        }


Stored = Mapping[int, StoredLogs]
Known = dict[int, tuple[frozenset[int], Acked]]  # by shard: acknowledged logs, and what they are made of


def known(subscription: Subscription, stored: Stored) -> Known:
    """What is acknowledged, for a comparison after the next step."""
    return {
        shard: (
            frozenset(p for p in stored[shard].slots(cursor.end) if p in cursor.acked),
            Acked(cursor.acked.mark, cursor.acked.ranges),
        )
        for shard, cursor in subscription.shards.items()
    }


# -- a subscription


def check_state(subscription: Subscription, stored: Stored, limits: SubscriptionLimits) -> None:
    unacked = Counter[int]()
    for cursor in subscription.shards.values():
        _check_acked(cursor, limits)
        logs = stored[cursor.shard].slots(cursor.end)
        below = {p: slot for p, slot in logs.items() if p < cursor.read and p not in cursor.acked}
        assert cursor.queue.unacked == len(below), "a log that was read is lost, or known after its end"
        if isinstance(cursor.queue, OrderedQueue):
            _check_ordered(subscription, cursor, cursor.queue, below)
            if cursor.queue.active is not None:
                unacked[cursor.queue.active.number] += len(below)
        else:
            assert isinstance(cursor.queue, SharedQueue)
            _check_shared(cursor, cursor.queue, below, logs)
            for number, member in cursor.queue.members.items():
                unacked[number] += len(member.pending)
            if isinstance(cursor.queue, KeyedQueue):
                _check_keyed(cursor, cursor.queue)
        _check_its_state(subscription, cursor, limits)
        _check_progress(cursor, logs, limits)
    for consumer in subscription.consumers.values():
        assert consumer.unacked == unacked[consumer.number]
        assert consumer.permits <= limits.max_permits
        assert subscription.settings.type.is_ordered or consumer.permits >= 0


def _check_acked(cursor: Cursor, limits: SubscriptionLimits) -> None:
    bounds = [cursor.acked.mark, *(bound for run in cursor.acked.ranges for bound in run)]
    assert all(a < b for a, b in pairwise(bounds)), f"ranges overlap or touch: {bounds}"
    assert bounds[-1] <= max(cursor.end, bounds[0]), "acknowledged beyond the end"
    assert len(cursor.acked.starts) <= limits.max_ranges + limits.max_unacked + 1
    assert cursor.loaded >= cursor.read


def _check_ordered(
    subscription: Subscription, cursor: Cursor, queue: OrderedQueue, below: Mapping[int, int]
) -> None:
    members = sorted(cursor.members.values(), key=lambda m: (m.priority, m.name, m.number))
    top = [member for member in members if member.priority == members[0].priority]
    assert queue.active is (top[cursor.shard % len(top)] if top else None), "another consumer is active"
    is_exclusive = subscription.settings.type is SubscriptionType.EXCLUSIVE
    assert not is_exclusive or len(members) <= 1
    assert {group_end(position) for position in below} == set(queue.stops), "groups without logs are kept"
    assert [end for end in queue.order if end in queue.stops] == sorted(queue.stops)


def _check_shared(
    cursor: Cursor, queue: SharedQueue, below: Mapping[int, int], logs: Mapping[int, int]
) -> None:
    pending = [(p, member, v) for member in queue.members.values() for p, v in member.pending.items()]
    waiting = [*queue.waiting.items(), *((p, value) for p, (_, value) in queue.delayed.items())]
    positions = [p for p, _, _ in pending] + [p for p, _ in waiting]
    assert len(positions) == len(set(positions)), "a position is out or waits twice"
    assert set(positions) == set(below)
    assert {p: member for p, member, _ in pending} == queue.out
    assert queue.members.keys() == cursor.members.keys()
    for position, value in [*((p, v) for p, _, v in pending), *waiting]:
        assert bool(value & LAST) is (position + 1 not in logs)
        assert not isinstance(queue, KeyedQueue) or value >> 1 == logs[position]
    assert {position for _, position in queue.timers} >= queue.delayed.keys()


def _check_keyed(cursor: Cursor, queue: KeyedQueue) -> None:
    held = Counter[int]()
    for member in queue.members.values():
        for value in member.pending.values():
            held[value >> 1] += 1
            assert queue.held[value >> 1][0] is member, "a slot is out at two consumers"
    assert held == {slot: logs for slot, (_, logs) in queue.held.items()}
    heads: dict[int, int] = {}
    for position, value in queue.waiting.items():
        heads[value >> 1] = min(position, heads.get(value >> 1, position))
        assert position in queue.queues[value >> 1]
    for slot, head in heads.items():
        owner = queue.owners.owner(slot)
        if owner is not None and (slot not in queue.held or queue.held[slot][0].consumer.number == owner):
            assert (head, slot) in queue.ready[owner], "nothing would deliver this log"
    assert queue.has_unowned() is any(queue.owners.owner(slot) is None for slot in heads)
    owners = {owner for _, owner in queue.owners.pieces()} - {None}
    assert owners == cursor.members.keys(), "a consumer has no slot, or one that left has"


def _keeps_order(subscription: Subscription) -> bool:
    settings = subscription.settings
    return settings.in_order and settings.type in (
        SubscriptionType.EXCLUSIVE,
        SubscriptionType.FAILOVER,
        SubscriptionType.KEY_SHARED,
    )


def _check_its_state(subscription: Subscription, cursor: Cursor, limits: SubscriptionLimits) -> None:
    parents = [subscription.shards[parent] for parent in cursor.parents if parent in subscription.shards]
    waits = _keeps_order(subscription) and any(
        not parent.is_closed or parent.acked.mark < parent.end for parent in parents
    )
    if cursor.is_closed and cursor.acked.mark == cursor.end:
        assert cursor.state is SubscriptionState.FINISHED
    elif not cursor.members:
        assert cursor.state is SubscriptionState.NO_CONSUMER
    elif waits:
        assert cursor.state is SubscriptionState.WAITS_FOR_PARENT
    elif cursor.state is SubscriptionState.UNOWNED:
        assert cursor.queue.has_unowned()
    elif cursor.state is SubscriptionState.WAITS_FOR_ROOM:
        assert not cursor.has_room(limits)
    else:
        assert cursor.state is SubscriptionState.FLOWING
        assert cursor.has_room(limits)
        assert not cursor.queue.has_unowned()


def _check_progress(cursor: Cursor, logs: Mapping[int, int], limits: SubscriptionLimits) -> None:
    """Nothing that could be delivered is left, and what could be read is being read."""
    if cursor.state not in DELIVERING or not cursor.queue.wants(limits):
        return
    queue = cursor.queue
    if isinstance(queue, SharedQueue) and not isinstance(queue, KeyedQueue):
        assert not any(not cursor.acked.is_beyond(p, limits.max_ranges) for p in queue.waiting)
    if isinstance(queue, KeyedQueue):
        if len(queue.waiting) >= limits.look_ahead:
            return
        if not any(member.room(limits) > 0 for member in queue.members.values()):
            return
    unread = [p for p in logs if p >= cursor.read and p not in cursor.acked]
    if unread and queue.weight < limits.max_unacked:
        assert cursor.acked.is_beyond(unread[0], limits.max_ranges) or cursor.is_loading, (
            "a log could be delivered"
        )


# -- a step


def check_step(
    before: Known,
    event: Event,
    outcome: DispatchOutcome,
    after: Subscription,
    stored: Stored,
) -> None:
    if outcome.refusal is not None:
        assert outcome == DispatchOutcome(refusal=outcome.refusal)
    for shard, cursor in after.shards.items():
        _check_facts(before.get(shard), outcome, cursor)
        if shard in before:
            _check_acked_logs(before[shard][0], event, outcome, cursor, stored[shard])
        state = None
        for change in (c for c in outcome.transitions if c.shard == shard):
            assert state is None or change.old is state
            state = transition(change.old, change.trigger)
            assert change.new is state
        assert state is None or state is cursor.state
    for delivery in outcome.deliveries:
        _check_delivery(delivery, after, stored)


def _check_facts(
    before: tuple[frozenset[int], Acked] | None, outcome: DispatchOutcome, cursor: Cursor
) -> None:
    if cursor.shard in outcome.replaced:
        return
    assert before is not None, "a new shard is not saved"
    for first, stop in outcome.acked.get(cursor.shard, ()):
        before[1].add(first, stop)
    saved = (before[1].mark, before[1].ranges)
    assert saved == (cursor.acked.mark, cursor.acked.ranges), "an acknowledgment is missing from the facts"


def _check_acked_logs(
    before: frozenset[int], event: Event, outcome: DispatchOutcome, cursor: Cursor, stored: StoredLogs
) -> None:
    logs = stored.slots(cursor.end)
    after = {p for p in logs if p in cursor.acked}
    named = set[int]()
    if getattr(event, "shard", None) == cursor.shard and outcome.refusal is None:
        match event:
            case Ack(runs=runs):
                named = {p for first, stop in runs for p in logs if first <= p < stop}
                if outcome.rejected:
                    assert before <= after <= before | named
                    return
            case AckUpTo(stop=stop) if not outcome.rejected:
                named = {p for p in logs if p < stop}
            case Expired(position=position):
                named = {p for p in logs if p < position}
            case SeekTo(position=position):
                assert after == {p for p in logs if p < position}
                return
    assert after == before | named, "other logs are acknowledged than were named"


def _check_delivery(delivery: Delivery, after: Subscription, stored: Stored) -> None:
    cursor, consumer = after.shards[delivery.shard], after.consumers[delivery.consumer]
    if _keeps_order(after):
        parents = (after.shards[parent] for parent in cursor.parents if parent in after.shards)
        assert all(parent.is_finished for parent in parents), "a child is delivered before its parent"
    logs, queue = stored[delivery.shard].slots(cursor.end), cursor.queue
    for position, redeliveries in _delivered(delivery):
        assert position in logs
        assert position not in cursor.acked, "an acknowledged log is delivered"
        if isinstance(queue, OrderedQueue):
            assert (queue.active, redeliveries) == (consumer, 0)
            continue
        assert isinstance(queue, SharedQueue)
        assert queue.out[position].consumer is consumer
        assert redeliveries == queue.counts.get(position, 0)
        if isinstance(queue, KeyedQueue):
            earlier = (p for p, slot in logs.items() if p < position and slot == logs[position])
            for p in earlier:
                is_with_it = p in queue.out and queue.out[p].consumer is consumer
                assert p in cursor.acked or is_with_it or p in queue.delayed, "a log passed one of its key"


def _delivered(delivery: Delivery) -> Iterator[tuple[int, int]]:
    for first, stop, redeliveries in delivery.runs:
        for position in range(first, stop):
            yield position, redeliveries


def check_counts(before: Mapping[int, int], event: Event, after: SharedQueue) -> None:
    """Only what its consumer wants again is counted."""
    for position, count in after.counts.items():
        if count > before.get(position, 0):
            assert isinstance(event, Redeliver)
            assert count == before.get(position, 0) + 1
