"""What holds for every subscription, and for every step of it.

A queue is recognized by the type of its subscription, not by its class, so that a copy of the rules can be
checked.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple, cast

from loghub.domain.log_position import group_end, index_of, position_of
from loghub.domain.subscription import SubscriptionState, SubscriptionType
from loghub_service.subscription.acked import Acked, Run
from loghub_service.subscription.events import (
    Ack,
    AckUpTo,
    CursorTransition,
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
from loghub_service.subscription.states import CursorTrigger, transition

DELIVERING = (SubscriptionState.FLOWING, SubscriptionState.WAITS_FOR_ROOM, SubscriptionState.UNOWNED)
ACKNOWLEDGES = (Ack, AckUpTo, Expired, SeekTo)  # events that name logs of a shard, or un-acknowledge them
REMEMBERED = 4096  # of the sets of logs that a mark and ranges stand for: a search asks for few of them often


@dataclass(frozen=True, eq=False)
class StoredLogs:
    """The logs of a shard: the slot of each, by group."""

    groups: tuple[tuple[int, ...], ...]

    @lru_cache(maxsize=REMEMBERED)  # noqa: B019 - there are few of them
    def slots(self, end: int) -> dict[int, int]:
        """Each log below the end with its slot."""
        return {
            position_of(ordinal, index): slot
            for ordinal, group in enumerate(self.groups)
            for index, slot in enumerate(group)
            if position_of(ordinal) < end
        }

    @lru_cache(maxsize=REMEMBERED)  # noqa: B019
    def acked(self, end: int, mark: int, ranges: tuple[Run, ...]) -> frozenset[int]:
        """The logs below the end that are acknowledged."""
        acked = Acked(mark, ranges)
        return frozenset(p for p in self.slots(end) if p in acked)

    @lru_cache(maxsize=REMEMBERED)  # noqa: B019
    def unacked(self, end: int, read: int, mark: int, ranges: tuple[Run, ...]) -> tuple[frozenset[int], int]:
        """The logs without acknowledgment below ``read``, and the first one after them, or else the end."""
        logs = self.slots(end).keys() - self.acked(end, mark, ranges)
        return frozenset(p for p in logs if p < read), min((p for p in logs if p >= read), default=end)


class KnownCursor(NamedTuple):
    """What is acknowledged of a shard, how often its logs were wanted again, and what is counted."""

    end: int
    mark: int
    ranges: tuple[Run, ...]
    counts: Mapping[int, int]
    read: int
    acknowledged: int
    backlog: tuple[int, int]
    is_read_again: bool  # logs that were read before


Stored = Mapping[int, StoredLogs]
Known = Mapping[int, KnownCursor]  # by shard


def known(subscription: Subscription) -> Known:
    """For a comparison after the next step."""
    return {
        shard: KnownCursor(
            cursor.end,
            cursor.acked.mark,
            cursor.acked.ranges,
            _counts(subscription, cursor),
            cursor.read,
            cursor.acknowledged,
            cursor.backlog,
            _is_read_again(cursor),
        )
        for shard, cursor in subscription.shards.items()
    }


def _is_read_again(cursor: Cursor) -> bool:
    return max(cursor.read, cursor.acked.mark) < cursor.high


def _counts(subscription: Subscription, cursor: Cursor) -> Mapping[int, int]:
    is_ordered = subscription.settings.type.is_ordered
    return {} if is_ordered else dict(cast(SharedQueue, cursor.queue).counts)


# -- a subscription


def check_state(subscription: Subscription, stored: Stored, limits: SubscriptionLimits) -> None:
    kind = subscription.settings.type
    out = dict.fromkeys(subscription.consumers, 0)
    for cursor in subscription.shards.values():
        ranges = cursor.acked.ranges
        _check_acked(cursor, ranges, limits)
        of_shard = stored[cursor.shard]
        below, unread = of_shard.unacked(cursor.end, cursor.read, cursor.acked.mark, ranges)
        assert cursor.queue.unacked == len(below), "a log that was read is lost, or known after its end"
        if kind.is_ordered:
            _check_ordered(kind, cursor, below, out)
        else:
            _check_shared(kind, cursor, below, of_shard.slots(cursor.end), out)
        _check_its_state(subscription, cursor, limits)
        if cursor.state in DELIVERING and cursor.queue.wants(limits):
            _check_progress(kind, cursor, unread, limits)
    for number, consumer in subscription.consumers.items():
        assert consumer.unacked == out[number]
        assert consumer.permits <= limits.max_permits
        assert kind.is_ordered or consumer.permits >= 0


def _check_acked(cursor: Cursor, ranges: tuple[Run, ...], limits: SubscriptionLimits) -> None:
    if ranges:
        bounds = [cursor.acked.mark, *(bound for run in ranges for bound in run)]
        assert all(a < b for a, b in pairwise(bounds)), f"ranges overlap or touch: {bounds}"
        assert bounds[-1] <= max(cursor.end, bounds[0]), "acknowledged beyond the end"
        assert len(ranges) <= limits.max_ranges + limits.max_unacked + 1
    assert cursor.loaded >= cursor.read
    assert cursor.window_logs == sum([entry.logs for entry in cursor.window])


def _check_ordered(
    kind: SubscriptionType, cursor: Cursor, below: frozenset[int], out: dict[int, int]
) -> None:
    queue = cast(OrderedQueue, cursor.queue)
    members = sorted(cursor.members.values(), key=lambda m: (m.priority, m.name, m.number))
    top = [member for member in members if member.priority == members[0].priority]
    assert queue.active is (top[cursor.shard % len(top)] if top else None), "another consumer is active"
    assert kind is not SubscriptionType.EXCLUSIVE or len(members) <= 1
    assert {group_end(position) for position in below} == queue.stops.keys(), "groups without logs are kept"
    assert [end for end in queue.order if end in queue.stops] == sorted(queue.stops)
    if queue.active is not None:
        out[queue.active.number] += len(below)


def _check_shared(
    kind: SubscriptionType,
    cursor: Cursor,
    below: frozenset[int],
    logs: Mapping[int, int],
    out: dict[int, int],
) -> None:
    """Each log of ``below`` is out at one member or waits. There are as many positions as logs, so none is
    known twice, or to nobody."""
    queue, is_keyed = cast(SharedQueue, cursor.queue), kind is SubscriptionType.KEY_SHARED
    assert queue.members.keys() == cursor.members.keys()
    values = dict(queue.waiting)
    for number, member in queue.members.items():
        if member.pending:
            values |= member.pending
            out[number] += len(member.pending)
            assert all(queue.out[position] is member for position in member.pending)
    for timed in (queue.delayed, queue.scheduled):
        values |= {position: value for position, (_, value) in timed.until.items()}
        assert not timed.until or {position for _, position in timed.timers} >= timed.until.keys()
    assert values.keys() == below
    turns = [member.turn for member in queue.members.values()]
    assert turns == sorted(turns)
    for position, value in values.items():
        assert bool(value & LAST) is (position + 1 not in logs)
        assert not is_keyed or value >> 1 == logs[position]
    if queue.large:
        large = set(queue.large) & queue.waiting.keys()
        assert not large & set(queue.lowest)
        assert not large or _has_taker(queue), "nobody could take these logs"
    if is_keyed:
        _check_keyed(cursor, cast(KeyedQueue, queue))


def _has_taker(queue: SharedQueue, limits: SubscriptionLimits | None = None) -> bool:
    """Whether there is a consumer for logs of any size, and with ``limits``, whether it has room."""
    takers = [member for member in queue.members.values() if member.consumer.takes_any_size]
    return any(limits is None or member.room(limits) > 0 for member in takers)


def _check_keyed(cursor: Cursor, queue: KeyedQueue) -> None:
    held = dict.fromkeys(queue.held, 0)
    for member in queue.members.values():
        for value in member.pending.values():
            held[value >> 1] += 1
            assert queue.held[value >> 1][0] is member, "a slot is out at two consumers"
    assert held == {slot: logs for slot, (_, logs) in queue.held.items()}
    assert all(queue.queues.values()), "a slot is kept of which no log waits"
    heads: dict[int, int] = {}
    for position, value in queue.waiting.items():
        heads[value >> 1] = min(position, heads.get(value >> 1, position))
        assert position in queue.queues[value >> 1]
    for slot, head in heads.items():
        owner = queue.owners.owner(slot)
        if owner is not None and (slot not in queue.held or queue.held[slot][0].consumer.number == owner):
            assert (head, slot) in queue.ready.get(owner, ()), "nothing would deliver this log"
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


def _waits(subscription: Subscription, cursor: Cursor) -> bool:
    """Whether the order over a split holds the shard back."""
    if not cursor.parents:
        return False
    parents = [subscription.shards[parent] for parent in cursor.parents if parent in subscription.shards]
    return any(not parent.is_closed or parent.acked.mark < parent.end for parent in parents) and _keeps_order(
        subscription
    )


def _check_its_state(subscription: Subscription, cursor: Cursor, limits: SubscriptionLimits) -> None:
    if cursor.is_closed and cursor.acked.mark == cursor.end:
        assert cursor.state is SubscriptionState.FINISHED
    elif not cursor.members:
        assert cursor.state is SubscriptionState.NO_CONSUMER
    elif _waits(subscription, cursor):
        assert cursor.state is SubscriptionState.WAITS_FOR_PARENT
    elif cursor.state is SubscriptionState.UNOWNED:
        assert cursor.queue.has_unowned()
    elif cursor.state is SubscriptionState.WAITS_FOR_ROOM:
        assert not cursor.has_room(limits)
    else:
        assert cursor.state is SubscriptionState.FLOWING
        assert cursor.has_room(limits)
        assert not cursor.queue.has_unowned()


def _check_progress(kind: SubscriptionType, cursor: Cursor, unread: int, limits: SubscriptionLimits) -> None:
    """Nothing that could be delivered is left, and what could be read is being read."""
    queue = cursor.queue
    if kind is SubscriptionType.SHARED:
        shared = cast(SharedQueue, queue)
        waits = shared.large and not _has_taker(shared, limits)
        waiting = shared.waiting.keys() - set(shared.large) if waits else shared.waiting
        assert all(cursor.acked.is_beyond(p, limits.max_ranges) for p in waiting)
    if kind is SubscriptionType.KEY_SHARED:
        keyed = cast(KeyedQueue, queue)
        if len(keyed.waiting) >= limits.look_ahead:
            return
        if not any(member.room(limits) > 0 for member in keyed.members.values()):
            return
    if unread < cursor.end and queue.weight < limits.max_unacked:
        assert cursor.acked.is_beyond(unread, limits.max_ranges) or cursor.is_loading, (
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
        former = before.get(shard)
        acked = cursor.acked.mark, cursor.acked.ranges
        _check_facts(former, outcome, shard, acked)
        is_named = isinstance(event, ACKNOWLEDGES) and event.shard == shard and outcome.refusal is None
        # Most steps concern no acknowledgment.
        if former is not None and (is_named or former[:3] != (cursor.end, *acked)):
            _check_acked_logs(former, event if is_named else None, outcome, cursor, stored[shard])
        if former is not None:
            _check_counted_logs(former, event if is_named else None, outcome, cursor, stored[shard])
        if not after.settings.type.is_ordered:
            _check_counts({} if former is None else former.counts, event, cast(SharedQueue, cursor.queue))
            if former is not None and not outcome.are_settings_changed and shard not in outcome.replaced:
                counts = cast(SharedQueue, cursor.queue).counts
                lost = {p for p in former.counts if p not in counts and p not in cursor.acked}
                assert not lost, "a log that is not acknowledged has lost its count"
    if outcome.transitions:
        _check_transitions(outcome, after)
    for delivery in outcome.deliveries:
        _check_delivery(delivery, after, stored)


def _check_transitions(outcome: DispatchOutcome, after: Subscription) -> None:
    states: dict[int, SubscriptionState] = {}
    finished = {c.shard for c in outcome.transitions if c.new is SubscriptionState.FINISHED}
    for change in outcome.transitions:
        assert change.shard not in states or change.old is states[change.shard]
        states[change.shard] = transition(change.old, change.trigger)
        assert change.new is states[change.shard]
        _check_trigger(change, finished, after)
    for shard, state in states.items():
        assert after.shards[shard].state is state


def _check_trigger(change: CursorTransition, finished: set[int], after: Subscription) -> None:
    """The reason holds, except for a parent that another change of the step has ``finished``."""
    cursor = after.shards[change.shard]
    is_finished, waits = cursor.is_closed and cursor.acked.mark == cursor.end, _waits(after, cursor)
    match change.trigger:
        case CursorTrigger.CONSUMED:
            assert is_finished
        case CursorTrigger.SOUGHT_BACK:
            assert not is_finished
        case CursorTrigger.LAST_CONSUMER_LEFT:
            assert not cursor.members
        case CursorTrigger.CONSUMER_JOINED | CursorTrigger.PARENTS_FINISHED:
            assert not waits
        case CursorTrigger.JOINED_BEHIND_PARENT:
            assert waits or finished & set(cursor.parents)
        case CursorTrigger.PARENT_SOUGHT_BACK:
            assert waits


def _check_facts(
    before: KnownCursor | None, outcome: DispatchOutcome, shard: int, after: tuple[int, tuple[Run, ...]]
) -> None:
    if shard in outcome.replaced:
        return
    assert before is not None, "a new shard is not saved"
    saved = before.mark, before.ranges
    runs = outcome.acked.get(shard)
    if runs:
        acked = Acked(*saved)
        for first, stop in runs:
            acked.add(first, stop)
        saved = acked.mark, acked.ranges
    assert saved == after, "an acknowledgment is missing from the facts"


def _check_acked_logs(
    former: KnownCursor, event: Event | None, outcome: DispatchOutcome, cursor: Cursor, stored: StoredLogs
) -> None:
    """``event``: the one that names logs of the shard."""
    before = stored.acked(former.end, former.mark, former.ranges)
    after = stored.acked(cursor.end, cursor.acked.mark, cursor.acked.ranges)
    named, logs = set[int](), stored.slots(cursor.end)
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


def _check_counted_logs(
    former: KnownCursor, event: Event | None, outcome: DispatchOutcome, cursor: Cursor, stored: StoredLogs
) -> None:
    """The counts of the status change by as many logs as the sets of logs do. Of a run over logs that were
    not read since the last rewind, the number is known, and counted, unless it stops at the end of its group.
    """
    counted, was_read_again = cursor.acknowledged - former.acknowledged, former.is_read_again
    is_read_again, (high, left) = _is_read_again(cursor), cursor.backlog
    is_acked = isinstance(event, Ack | AckUpTo)
    if outcome.rejected or not (is_acked or counted or is_read_again):
        return
    newly = stored.acked(cursor.end, cursor.acked.mark, cursor.acked.ranges) - stored.acked(
        former.end, former.mark, former.ranges
    )
    named = _numbered(former, event) if isinstance(event, Ack) else set[int]()
    least = {p for p in newly if p < former.read or p in named}
    most = newly | named
    if is_acked:
        assert len(least) <= counted <= len(most), "acknowledged logs are counted wrongly"
    else:
        assert counted == 0, "logs are counted as acknowledged by another event"
    if not is_read_again or isinstance(event, SeekTo):
        return
    if was_read_again and former.backlog[0] == high:
        counted = former.backlog[1] - left
        assert counted <= sum(p < high for p in most)
        assert left == 0 or counted >= sum(p < high for p in least), "too much is left of the backlog"
    else:
        unacked, _ = stored.unacked(cursor.end, high, cursor.acked.mark, cursor.acked.ranges)
        assert left == len(unacked), "the backlog is not what is left of the logs that were read"


def _numbered(former: KnownCursor, event: Ack) -> set[int]:
    """The positions, of logs or not, that the runs acknowledge up to one which was acknowledged, or up to the
    end of a run within a group."""
    acked, numbered = Acked(former.mark, former.ranges), set[int]()
    for run in event.runs:
        for first, stop in acked.gaps(*run):
            if index_of(stop):
                numbered.update(range(first, stop))
        acked.add(*run)
    return numbered


def _check_delivery(delivery: Delivery, after: Subscription, stored: Stored) -> None:
    cursor, consumer = after.shards[delivery.shard], after.consumers[delivery.consumer]
    assert not _waits(after, cursor), "a child is delivered before its parent"
    kind, logs = after.settings.type, stored[delivery.shard].slots(cursor.end)
    for position, redeliveries in _delivered(delivery):
        assert position in logs
        assert position not in cursor.acked, "an acknowledged log is delivered"
        if kind.is_ordered:
            assert (cast(OrderedQueue, cursor.queue).active, redeliveries) == (consumer, 0)
            continue
        queue = cast(SharedQueue, cursor.queue)
        assert queue.out[position].consumer is consumer
        assert redeliveries == queue.counts.get(position, 0)
        if kind is SubscriptionType.KEY_SHARED:
            earlier = (p for p, slot in logs.items() if p < position and slot == logs[position])
            for p in earlier:
                is_with_it = p in queue.out and queue.out[p].consumer is consumer
                is_later = p in queue.delayed.until or p in queue.scheduled.until
                assert p in cursor.acked or is_with_it or is_later, "a log passed one of its key"


def _delivered(delivery: Delivery) -> Iterator[tuple[int, int]]:
    for first, stop, redeliveries in delivery.runs:
        for position in range(first, stop):
            yield position, redeliveries


def _check_counts(before: Mapping[int, int], event: Event, after: SharedQueue) -> None:
    """Only what its consumer wants again is counted."""
    for position, count in after.counts.items():
        if count > before.get(position, 0):
            assert isinstance(event, Redeliver)
            assert event.is_counted
            assert count == before.get(position, 0) + 1
