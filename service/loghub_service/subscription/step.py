"""The core of subscriptions: every decision about a subscription, as a function of its state, an event and
the time.

`step` changes the subscription that it is given and returns what follows: deliveries, loads, what must become
durable, and state changes. The result depends on the arguments alone. A caller that wants to try several
events on one state copies it first.

How to use it: apply events one at a time. Persist ``acked`` and ``replaced`` before a receipt is sent; a
delivery needs nothing to be durable. Answer each `LoadGroups` by a `GroupsLoaded`. After each step, set one
timer for `next_deadline` and apply `ClockRead` when it fires.

    shards = {0: ShardStart(end=position_of(1))}
    subscription = create(SubscriptionSettings(type=SubscriptionType.SHARED), shards)
    step(subscription, Join(consumer=1, name="a", type=SubscriptionType.SHARED, shards=(0,)), now=0.0)
    done = step(subscription, Flow(consumer=1, permits=10), now=0.0)
    done.loads  # [LoadGroups(shard=0, number=1, first=0, max_logs=1000, with_slots=False)]
    loaded = GroupsLoaded(shard=0, load=1, entries=(LoadedEntry(0, 3),), next=position_of(1))
    step(subscription, loaded, now=0.0).deliveries  # [Delivery(consumer=1, shard=0, runs=[(0, 3, 0)])]
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from loghub.domain.log_position import group_end
from loghub.domain.subscription import SubscriptionState, SubscriptionType
from loghub_service.subscription.acked import Acked
from loghub_service.subscription.events import (
    Ack,
    AckUpTo,
    Allow,
    Appended,
    ChangeSettings,
    ClockRead,
    CursorTransition,
    DispatchOutcome,
    Event,
    Expired,
    Flow,
    GroupsLoaded,
    Join,
    LeaveSubscription,
    LoadGroups,
    PassOn,
    Redeliver,
    Refusal,
    SeekTo,
    ShardStart,
    SubscribedShards,
)
from loghub_service.subscription.keyed import KeyedQueue
from loghub_service.subscription.ordered import OrderedQueue
from loghub_service.subscription.shared import SharedQueue
from loghub_service.subscription.slots import is_legal, overlap
from loghub_service.subscription.state import (
    AttachedConsumer,
    Cursor,
    DispatchDraft,
    Queue,
    SavedCursor,
    Subscription,
    SubscriptionLimits,
    SubscriptionSettings,
    fill,
)
from loghub_service.subscription.states import CursorTrigger, transition

DEFAULT_LIMITS = SubscriptionLimits()


def create(
    settings: SubscriptionSettings,
    shards: Mapping[int, ShardStart],
    saved: Mapping[int, SavedCursor] | None = None,
) -> Subscription:
    """A subscription without consumers: a new one, or with ``saved`` one that has survived a restart."""
    subscription = Subscription(settings=settings)
    for shard, start in shards.items():
        _add_shard(subscription, shard, start, (saved or {}).get(shard, SavedCursor(mark=start.mark)))
    draft = DispatchDraft(subscription=subscription, now=0.0, limits=DEFAULT_LIMITS)
    draft.touched.update(subscription.shards)
    _settle(draft)
    return subscription


def step(
    subscription: Subscription, event: Event, *, now: float, limits: SubscriptionLimits = DEFAULT_LIMITS
) -> DispatchOutcome:
    """Apply one event. A bad request results in a refusal or in rejected runs, never in an exception."""
    draft = DispatchDraft(subscription=subscription, now=now, limits=limits)
    match event:
        case ClockRead():
            subscription.unix_ahead_s = event.unix_s - now
            draft.touched.update(subscription.shards)
        case SubscribedShards():
            _change_shards(draft, event)
        case Join():
            _join(draft, event)
        case ChangeSettings():
            _change_settings(draft, event)
        case LeaveSubscription() | Flow() | Allow():
            _of_consumer(draft, event)
        case _:
            _of_shard(draft, event)
    _settle(draft)
    return draft.outcome


def next_deadline(subscription: Subscription) -> float | None:
    """When to apply a `ClockRead`, in monotonic seconds; None if no log waits for a time."""
    return min(subscription.deadlines.values(), default=None)


# -- consumers


def _join(draft: DispatchDraft, event: Join) -> None:
    subscription = draft.subscription
    draft.outcome.refusal = _refuse_join(draft, event)
    if draft.outcome.refusal is not None:
        return
    if event.type is not subscription.settings.type:
        _change_type(draft, event.type)
    shards = tuple(subscription.shards) if event.shards is None else event.shards
    consumer = AttachedConsumer(
        number=event.consumer,
        name=event.name,
        priority=event.priority,
        slots=event.slots if event.type is SubscriptionType.KEY_SHARED else None,
        shards=shards,
        is_everywhere=event.shards is None,
        takes_any_size=event.takes_any_size,
    )
    subscription.consumers[consumer.number] = consumer
    for shard in shards:
        _attach(draft, consumer, subscription.shards[shard])


def _attach(draft: DispatchDraft, consumer: AttachedConsumer, cursor: Cursor) -> None:
    cursor.members[consumer.number] = consumer
    draft.outcome.active += cursor.queue.join(consumer)
    draft.touch(cursor)


def _refuse_join(draft: DispatchDraft, event: Join) -> Refusal | None:
    subscription, is_keyed = draft.subscription, event.type is SubscriptionType.KEY_SHARED
    shards = tuple(subscription.shards) if event.shards is None else event.shards
    if not subscription.shards.keys() >= set(shards):
        return Refusal.UNKNOWN_SHARD
    if subscription.consumers and event.type is not subscription.settings.type:
        return Refusal.CONSUMER_BUSY
    most = draft.limits.max_consumers
    if any(len(subscription.shards[shard].members) >= most for shard in shards):
        return Refusal.TOO_MANY_CONSUMERS
    if is_keyed and event.slots is not None and not is_legal(event.slots):
        return Refusal.BAD_SLOTS
    if event.shards is None:
        members = [consumer for consumer in subscription.consumers.values() if consumer.shards]
    else:
        members = [m for shard in shards for m in subscription.shards[shard].members.values()]
    if event.type is SubscriptionType.EXCLUSIVE and members:
        return Refusal.CONSUMER_BUSY
    if is_keyed:
        if {member.slots is None for member in members} - {event.slots is None}:
            return Refusal.CONSUMER_BUSY
        if event.slots and any(overlap(event.slots, member.slots or ()) for member in members):
            return Refusal.SLOTS_TAKEN
    return None


def _change_type(draft: DispatchDraft, new: SubscriptionType) -> None:
    """Change the type while no consumer is connected, so that nothing is out: the last consumer that left has
    rewound each of its shards."""
    subscription = draft.subscription
    settings = subscription.settings
    subscription.settings = replace(settings, type=new)
    draft.outcome.are_settings_changed = True
    for cursor in subscription.shards.values():
        cursor.queue = _queue(cursor, new)


def _change_settings(draft: DispatchDraft, event: ChangeSettings) -> None:
    subscription = draft.subscription
    settings = replace(subscription.settings, in_order=event.in_order, key=event.key)
    if subscription.consumers:
        draft.outcome.refusal = Refusal.CONSUMER_BUSY
        return
    draft.outcome.are_settings_changed = settings != subscription.settings
    subscription.settings = settings
    if event.type is not settings.type:
        _change_type(draft, event.type)


def _of_consumer(draft: DispatchDraft, event: LeaveSubscription | Flow | Allow) -> None:
    consumer = draft.subscription.consumers.get(event.consumer)
    if consumer is None:
        draft.outcome.refusal = Refusal.UNKNOWN_CONSUMER
        return
    if isinstance(event, Flow):
        consumer.permits = min(consumer.permits + max(event.permits, 0), draft.limits.max_permits)
    elif isinstance(event, Allow):
        consumer.permits = min(event.permits, draft.limits.max_permits)
        consumer.only = event.only
        if consumer.permits > 0:
            # The shards take the permits in turns, so that no shard waits until another one is empty.
            consumer.shards = (*consumer.shards[1:], *consumer.shards[:1])
    else:
        _remove(draft, consumer)
        return
    draft.asking.append(consumer)


def _remove(draft: DispatchDraft, consumer: AttachedConsumer) -> None:
    del draft.subscription.consumers[consumer.number]
    draft.subscription.full.pop(consumer.number, None)
    for shard in consumer.shards:
        cursor = draft.subscription.shards[shard]
        del cursor.members[consumer.number]
        draft.outcome.active += cursor.queue.leave(consumer)
        draft.touch(cursor)


# -- shards


def _queue(cursor: Cursor, subscription_type: SubscriptionType) -> Queue:
    if subscription_type.is_ordered:
        return OrderedQueue(cursor, subscription_type)
    is_keyed = subscription_type is SubscriptionType.KEY_SHARED
    return KeyedQueue(cursor) if is_keyed else SharedQueue(cursor)


def _add_shard(subscription: Subscription, shard: int, start: ShardStart, saved: SavedCursor) -> Cursor:
    cursor = Cursor(
        shard=shard,
        parents=start.parents,
        acked=Acked(saved.mark, saved.ranges),
        end=max(start.end, saved.mark),
        is_closed=start.is_closed,
        state=transition(None, CursorTrigger.CREATED),
        read=saved.mark,
        loaded=saved.mark,
        high=max(saved.high, saved.mark),
        unacked_below=saved.unacked_below,
    )
    cursor.queue = _queue(cursor, subscription.settings.type)
    subscription.shards[shard] = cursor
    return cursor


def _change_shards(draft: DispatchDraft, event: SubscribedShards) -> None:
    """A shard that is gone has neither logs nor acknowledgments left, and holds no child back."""
    subscription = draft.subscription
    for shard in subscription.shards.keys() - event.shards.keys():
        cursor = subscription.shards[shard]
        cursor.queue.forget()
        del subscription.shards[shard]
        subscription.deadlines.pop(shard, None)
        for consumer in cursor.members.values():
            consumer.shards = tuple(other for other in consumer.shards if other != shard)
    for shard, start in event.shards.items():
        known = subscription.shards.get(shard)
        if known is None:
            cursor = _add_shard(subscription, shard, start, SavedCursor(mark=start.mark))
            draft.outcome.replaced.append(shard)
            assert cursor.state is not None
            draft.outcome.transitions.append(
                CursorTransition(shard, None, cursor.state, CursorTrigger.CREATED)
            )
            for consumer in subscription.consumers.values():
                if consumer.is_everywhere:
                    consumer.shards = (*consumer.shards, shard)
                    _attach(draft, consumer, cursor)
        else:
            known.parents = start.parents
            _reaches(known, start.end, is_closed=start.is_closed)
    draft.touched.update(subscription.shards)


def _reaches(cursor: Cursor, end: int, *, is_closed: bool) -> None:
    cursor.end = max(cursor.end, end)
    cursor.is_closed |= is_closed


_OfShard = Ack | AckUpTo | Redeliver | PassOn | SeekTo | Expired | Appended | GroupsLoaded


def _of_shard(draft: DispatchDraft, event: _OfShard) -> None:
    cursor = draft.subscription.shards.get(event.shard)
    if cursor is None:
        draft.outcome.refusal = Refusal.UNKNOWN_SHARD
        return
    draft.touch(cursor)
    match event:
        case Ack():
            _ack(draft, cursor, event)
        case AckUpTo():
            _ack_up_to(draft, cursor, event)
        case Redeliver() | PassOn():
            draft.outcome.refusal = _take_back(draft, cursor, event)
        case SeekTo():
            _seek(draft, cursor, event.position)
        case Expired():
            _expire(draft, cursor, event.position)
        case Appended():
            _reaches(cursor, event.end, is_closed=event.is_closed)
        case GroupsLoaded():
            if cursor.is_loading and event.load == cursor.load:
                cursor.is_loading = False
                fill(cursor, event, draft)


def _take_back(draft: DispatchDraft, cursor: Cursor, event: Redeliver | PassOn) -> Refusal | None:
    consumer = cursor.members.get(event.consumer)
    if consumer is None:
        return Refusal.UNKNOWN_CONSUMER
    if isinstance(event, PassOn):
        return None if cursor.queue.pass_on(consumer, event.runs) else Refusal.NO_TAKER
    until_s = draft.now + max(event.delay_s, 0.0)
    cursor.queue.redeliver(consumer, event.runs, until_s, is_counted=event.is_counted)
    return None


def _ack(draft: DispatchDraft, cursor: Cursor, event: Ack) -> None:
    end, ack = cursor.end, cursor.queue.ack
    for first, stop in event.runs:
        is_legal_run = 0 <= first < stop <= group_end(first) and first < end
        if not (is_legal_run and ack(first, stop, draft)):
            draft.outcome.rejected += 1


def _ack_up_to(draft: DispatchDraft, cursor: Cursor, event: AckUpTo) -> None:
    queue = cursor.queue
    if not isinstance(queue, OrderedQueue):
        draft.outcome.refusal = Refusal.NOT_ORDERED
    elif event.stop > cursor.end:
        draft.outcome.rejected += 1
    elif event.stop > cursor.acked.mark:
        queue.ack_up_to(event.stop, draft)


def _seek(draft: DispatchDraft, cursor: Cursor, position: int) -> None:
    for consumer in list(cursor.members.values()):
        _remove(draft, consumer)
        draft.outcome.closed.append(consumer.number)
    cursor.queue.forget()
    cursor.acked = Acked(min(max(position, 0), cursor.end))
    cursor.high, cursor.unacked_below = cursor.acked.mark, 0
    cursor.move_to(cursor.acked.mark)
    draft.outcome.replaced.append(cursor.shard)


def _expire(draft: DispatchDraft, cursor: Cursor, position: int) -> None:
    mark = min(position, cursor.end)
    if mark > cursor.acked.mark:
        cursor.queue.drop_below(mark, draft)
        if cursor.read < cursor.acked.mark:
            cursor.move_to(cursor.acked.mark)


# -- what follows


def _settle(draft: DispatchDraft) -> None:
    """Deliver, load and change states, where the event may have made a difference. A shard that is finished
    lets its children go on, and one that is not finished any more stops them."""
    waiting = list(draft.touched.values())
    more = _shards_that_serve(draft)
    while (cursor := waiting.pop(0) if waiting else next(more, None)) is not None:
        was_finished = cursor.state is SubscriptionState.FINISHED
        _change_state(draft, cursor)
        if _may_deliver(cursor):
            is_wanted = cursor.queue.wants(draft.limits)
            cursor.queue.dispatch(draft)
            if is_wanted:
                _load(draft, cursor)
            _change_state(draft, cursor)
        _keep_deadline(draft.subscription, cursor)
        if was_finished is not (cursor.state is SubscriptionState.FINISHED):
            waiting += (c for c in draft.subscription.shards.values() if cursor.shard in c.parents)


def _keep_deadline(subscription: Subscription, cursor: Cursor) -> None:
    """So that `next_deadline` looks at no other shard: it is asked after each step."""
    ahead_s = subscription.unix_ahead_s
    deadline_s = cursor.queue.deadline(ahead_s) if _may_deliver(cursor) else None
    if deadline_s is None:
        subscription.deadlines.pop(cursor.shard, None)
    else:
        subscription.deadlines[cursor.shard] = deadline_s


def _shards_that_serve(draft: DispatchDraft) -> Iterator[Cursor]:
    """The shards of a consumer that asks for logs, or had as many as one may have and has fewer now, one
    after the other until it can take no more: of 256 shards, the first may have enough."""
    subscription, most = draft.subscription, draft.limits.max_unacked_of_consumer
    relieved = [consumer for consumer in subscription.full.values() if consumer.unacked < most]
    for consumer in relieved:
        del subscription.full[consumer.number]
    for consumer in (*draft.asking, *relieved):
        for shard in consumer.shards:
            if consumer.permits <= 0 or consumer.number in subscription.full:
                break
            yield subscription.shards[shard]


def _may_deliver(cursor: Cursor) -> bool:
    return cursor.state in (
        SubscriptionState.FLOWING,
        SubscriptionState.WAITS_FOR_ROOM,
        SubscriptionState.UNOWNED,
    )


def _load(draft: DispatchDraft, cursor: Cursor) -> None:
    """Read ahead when a consumer could take a log, also if it has got all that it may have by now: then there
    are logs when it wants the next ones."""
    missing = draft.limits.max_loaded - cursor.window_logs
    if cursor.is_loading or 2 * missing < draft.limits.max_loaded:
        return
    if not cursor.window and cursor.loaded < cursor.acked.mark:
        cursor.move_to(cursor.acked.mark)  # late acknowledgments were ahead
    if cursor.loaded < cursor.end and cursor.has_room(draft.limits):
        cursor.is_loading = True
        cursor.load += 1
        draft.outcome.loads.append(
            LoadGroups(
                shard=cursor.shard,
                number=cursor.load,
                first=cursor.loaded,
                max_logs=missing,
                with_slots=isinstance(cursor.queue, KeyedQueue),
            )
        )


def _change_state(draft: DispatchDraft, cursor: Cursor) -> None:
    """Each change has one reason, so a shard may go through several states."""
    while (trigger := _trigger(draft, cursor)) is not None:
        old, cursor.state = cursor.state, transition(cursor.state, trigger)
        draft.outcome.transitions.append(CursorTransition(cursor.shard, old, cursor.state, trigger))


def _trigger(draft: DispatchDraft, cursor: Cursor) -> CursorTrigger | None:
    state = cursor.state
    if cursor.is_finished:
        return None if state is SubscriptionState.FINISHED else CursorTrigger.CONSUMED
    if state is SubscriptionState.FINISHED:
        return CursorTrigger.SOUGHT_BACK
    waits = _waits_for_parent(draft.subscription, cursor)
    if state is SubscriptionState.NO_CONSUMER:
        if not cursor.members:
            return None
        return CursorTrigger.JOINED_BEHIND_PARENT if waits else CursorTrigger.CONSUMER_JOINED
    if not cursor.members:
        return CursorTrigger.LAST_CONSUMER_LEFT
    if state is SubscriptionState.WAITS_FOR_PARENT:
        return None if waits else CursorTrigger.PARENTS_FINISHED
    if waits:
        return CursorTrigger.PARENT_SOUGHT_BACK
    if state is SubscriptionState.WAITS_FOR_ROOM:
        return CursorTrigger.ROOM_FREED if cursor.has_room(draft.limits) else None
    if state is SubscriptionState.UNOWNED:
        return None if cursor.queue.has_unowned() else CursorTrigger.SLOTS_OWNED
    if not cursor.has_room(draft.limits):
        return CursorTrigger.ROOM_EXHAUSTED
    return CursorTrigger.SLOTS_UNOWNED if cursor.queue.has_unowned() else None


def _waits_for_parent(subscription: Subscription, cursor: Cursor) -> bool:
    if not subscription.settings.waits_for_parents:
        return False
    parents = (subscription.shards.get(parent) for parent in cursor.parents)
    return any(parent is not None and not parent.is_finished for parent in parents)
