"""The coordinator of one consumer group: one event in, the next state and the answer out.

This module makes every decision on which consumer holds which shard (docs/shard-states.md 2). It is
deterministic: the state, the event and ``now`` are arguments, and the result is a value. `group`
defines these values, `fsm` the table of state changes, and `balance` the assignment.

The caller has these duties, in this order. Apply the events of one group one at a time, with a ``now``
that never goes back. Persist ``facts``: all facts of one step in one transaction, in the order of the
steps. Log each of the ``transitions`` on one line. Answer only once the facts of this step and of all
steps before it are durable. If persisting fails, neither use nor report any later state: return to the
state on disk with `restore`. After each step, set one timer for `next_deadline` and apply a `Tick` when
it fires. A late tick is harmless if `ServicePaused` reports how late it is: without it, consumers whose
heartbeats were not received meanwhile would lose their shards.

    created = create_group(group="g", timeout_s=30.0, order=False, shards=(LogShard(shard=0),), now=0.0)
    done = step(created.state, Heartbeat(consumer="a"), now=1.0)
    assert done.answer == (0,)
"""

from collections.abc import Collection, Iterable
from dataclasses import replace

from loghub.domain.balance import ShardAssignment, balance
from loghub.domain.fsm import ShardState, ShardTrigger
from loghub.domain.group import (
    Configure,
    ConsumerEntry,
    Event,
    Fact,
    GroupSaved,
    GroupShardForgotten,
    GroupShardSaved,
    GroupState,
    Heartbeat,
    Leave,
    LogShard,
    RefusalCode,
    SaveCheckpoint,
    SavedCheckpoint,
    ServicePaused,
    ShardEntry,
    ShardsChanged,
    Step,
    Tick,
    Transition,
)
from loghub.domain.group_builder import Draft

__all__ = [
    "Configure",
    "ConsumerEntry",
    "Event",
    "Fact",
    "GroupSaved",
    "GroupShardForgotten",
    "GroupShardSaved",
    "GroupState",
    "Heartbeat",
    "Leave",
    "LogShard",
    "RefusalCode",
    "SaveCheckpoint",
    "SavedCheckpoint",
    "ServicePaused",
    "ShardEntry",
    "ShardsChanged",
    "Step",
    "Tick",
    "Transition",
    "create_group",
    "next_deadline",
    "restore",
    "step",
]


def create_group(
    *, group: str, timeout_s: float, order: bool, shards: tuple[LogShard, ...], now: float
) -> Step:
    """A new group without consumers over the shards of its logstore; ``facts`` contain all of it."""
    empty = GroupState(group=group, timeout_s=timeout_s, order=order)
    created = step(empty, ShardsChanged(shards=shards), now=now)
    return replace(created, facts=(GroupSaved(timeout_s=timeout_s, order=order), *created.facts))


def restore(
    *, group: str, timeout_s: float, order: bool, entries: Iterable[ShardEntry], now: float
) -> GroupState:
    """The group as it was persisted, after a restart of the service.

    Every holder and next holder gets a new session of the whole timeout, starting at ``now``: how long
    they were silent while the service was down is not known. A session that is too long only delays a
    reassignment, while one that is too short lets two consumers hold one shard. Consumers without
    shards are not persisted; they return with their next heartbeat. Apply a `ShardsChanged` right
    after, since the logstore may have changed.
    """
    by_shard = {e.shard: e for e in sorted(entries, key=lambda e: e.shard)}
    named = [name for e in by_shard.values() for name in (e.holder, e.next_holder, e.last_holder)]
    consumers = {
        name: ConsumerEntry(
            name=name,
            last_heartbeat_s=now,
            # Until they report, the shards they last worked on are the safe assumption.
            held=frozenset(e.shard for e in by_shard.values() if name in (e.holder, e.last_holder)),
        )
        for name in sorted({name for name in named if name is not None})
    }
    return GroupState(group=group, timeout_s=timeout_s, order=order, consumers=consumers, shards=by_shard)


def next_deadline(state: GroupState) -> float | None:
    """When the first consumer times out without a heartbeat, in monotonic seconds; None without consumers."""
    return min((_deadline(c, state.timeout_s) for c in state.consumers.values()), default=None)


def step(state: GroupState, event: Event, *, now: float) -> Step:
    """Apply one event.

    ``state`` does not change, and a bad request results in a refusal, never in an exception.
    """
    draft = Draft(state)
    refusal = _apply(draft, event, now)
    if refusal is not None:
        return Step(state=state, refusal=refusal)
    if draft.unsettled:
        _free_waiting(draft)
        _balance(draft)
    new = draft.finish()
    return Step(
        state=new,
        answer=_answer(state, new, event) if isinstance(event, Heartbeat) else (),
        facts=_facts(state, new),
        transitions=tuple(draft.transitions),
    )


def _apply(draft: Draft, event: Event, now: float) -> RefusalCode | None:
    """Apply the event itself; `step` then handles the consequences for other shards."""
    match event:
        case Heartbeat():
            return _heartbeat(draft, event, now)
        case Leave():
            _remove(
                draft,
                {event.consumer},
                holder_gone=ShardTrigger.HOLDER_LEFT,
                next_gone=ShardTrigger.NEXT_LEFT,
            )
        case SaveCheckpoint():
            return _checkpoint(draft, event)
        case Tick():
            _time_out(draft, now)
        case ServicePaused(pause_s=pause_s):
            _extend_sessions(draft, pause_s, now)
        case ShardsChanged():
            _shards_changed(draft, event.shards)
        case Configure():
            _configure(draft, event)
    return None


def _heartbeat(draft: Draft, event: Heartbeat, now: float) -> RefusalCode | None:
    """Register the sender or renew its session; hand over the shards it no longer reports (edge 6).

    A consumer that the group does not know has no shards, so one that reports some must first give them
    up: they may be another consumer's by now.
    """
    # Only existing shards, so that they bound what a consumer can make the group store.
    held = event.held.intersection(draft.shards)
    if held and event.consumer not in draft.consumers:
        return RefusalCode.NOT_EXIST_CONSUMER_WITH_BODY
    draft.put_consumer(ConsumerEntry(name=event.consumer, last_heartbeat_s=now, held=held))
    for entry in list(draft.shards.values()):
        if entry.shard in held:
            continue
        if entry.state is ShardState.TRANSFER and entry.holder == event.consumer:
            _hand_over(draft, entry)
        elif entry.last_holder == event.consumer:
            draft.put_shard(replace(entry, last_holder=None))
    return None


def _hand_over(draft: Draft, entry: ShardEntry) -> None:
    """Give a shard that its holder has released to the next holder (edge 6), once the next holder does not
    report the shard either (edge 15). The next holder reports it only if one of its heartbeats was late."""
    receiver = entry.next_holder
    assert receiver is not None
    if entry.shard in draft.consumers[receiver].held:
        draft.go(entry.shard, ShardTrigger.REBOUND, holder=receiver, next_holder=receiver)
    else:
        draft.go(entry.shard, ShardTrigger.HOLDER_RELEASED, holder=receiver)


def _answer(old: GroupState, new: GroupState, heartbeat: Heartbeat) -> tuple[int, ...]:
    """What the consumer owns, and the shards that are no longer its own although it reports them for the
    first time.

    A library looks at the latest answer only, from time to time. A library that has not seen the shard's
    first answer when the next answer omits the shard never consumes it, and reports it without end
    (docs/shard-states.md 3). A shard that is ``over`` counts, too: a forced checkpoint may reopen it, and
    then its reporter blocks it.
    """
    name = heartbeat.consumer
    before = old.consumers.get(name)
    held_before = before.held if before else frozenset()
    unseen = {
        shard
        for shard in new.consumers[name].held - held_before
        if name in (old.shards[shard].holder, old.shards[shard].last_holder)
    }
    return tuple(sorted(unseen.union(new.owned_by(name))))


def _deadline(consumer: ConsumerEntry, timeout_s: float) -> float:
    return consumer.last_heartbeat_s + timeout_s


def _time_out(draft: Draft, now: float) -> None:
    """Remove the consumers that have been silent for the timeout.

    Only a tick does this: a late heartbeat that arrives before the tick keeps its consumer in the
    group, since no shard has been reassigned yet and moving one would gain nothing.
    """
    silent = {c.name for c in draft.consumers.values() if _deadline(c, draft.timeout_s) <= now}
    _remove(draft, silent, holder_gone=ShardTrigger.HOLDER_TIMED_OUT, next_gone=ShardTrigger.NEXT_TIMED_OUT)


def _extend_sessions(draft: Draft, pause_s: float, now: float) -> None:
    """Give every consumer the time of the pause: its heartbeats may be waiting in the service's sockets,
    and Java, Go and Python consumers go on with their shards.
    """
    for consumer in list(draft.consumers.values()):
        extended = min(now, consumer.last_heartbeat_s + pause_s)
        draft.put_consumer(replace(consumer, last_heartbeat_s=max(consumer.last_heartbeat_s, extended)))


def _remove(
    draft: Draft, gone: Collection[str], *, holder_gone: ShardTrigger, next_gone: ShardTrigger
) -> None:
    """Free the shards that the removed consumers held (4, 9, 11), and bind the shards that were bound to
    them to their holder (6, 11).

    If the holder and the next holder are removed together, the removal of the holder decides: no
    consumer works on the shard any more, so it is free.
    """
    draft.remove_consumers(gone)
    for entry in list(draft.shards.values()):
        if entry.holder in gone:
            draft.go(entry.shard, holder_gone)
        elif entry.next_holder in gone:
            draft.go(entry.shard, next_gone, holder=entry.holder, next_holder=entry.holder)
        elif entry.last_holder in gone:
            draft.put_shard(replace(entry, last_holder=None))


def _checkpoint(draft: Draft, event: SaveCheckpoint) -> RefusalCode | None:
    """Save a cursor, and complete or reopen the shard if the cursor requires it (7, 8, 13, 14)."""
    refusal = _refuse_checkpoint(draft, event)
    if refusal is not None:
        return refusal
    saved = SavedCheckpoint(
        cursor=event.cursor, consumer=event.consumer, updated_unix_us=event.updated_unix_us
    )
    entry = draft.put_shard(replace(draft.shards[event.shard], checkpoint=saved))
    is_over = entry.state is ShardState.OVER
    if entry.log_shard.is_end(event.cursor) and not is_over:
        draft.go(entry.shard, ShardTrigger.END_CHECKPOINTED, last_holder=entry.holder)
    elif is_over and not entry.is_consumed:
        draft.go(entry.shard, ShardTrigger.FORCED_BACK, last_holder=entry.last_holder)
    return None


def _refuse_checkpoint(draft: Draft, event: SaveCheckpoint) -> RefusalCode | None:
    """Without force, only the holder may save, even while its shard moves to another consumer."""
    if not event.force and not event.consumer:
        return RefusalCode.PARAMETER_INVALID
    entry = draft.shards.get(event.shard)
    if entry is None:
        return RefusalCode.SHARD_NOT_EXIST
    if not event.force and entry.holder != event.consumer:
        return RefusalCode.CONSUMER_NOT_MATCH
    return None


def _shards_changed(draft: Draft, shards: tuple[LogShard, ...]) -> None:
    """Follow the logstore: remove deleted shards, complete empty ones (10), add new ones (1)."""
    existing = {s.shard: s for s in sorted(shards, key=lambda s: s.shard)}
    draft.keep_shards(existing.keys())
    for log_shard in existing.values():  # ascending: parents come before their children
        if log_shard.shard in draft.shards:
            draft.put_shard(replace(draft.shards[log_shard.shard], log_shard=log_shard))
        else:
            _appear(draft, log_shard)
        entry = draft.shards[log_shard.shard]
        if entry.is_consumed and entry.state is not ShardState.OVER:
            draft.go(entry.shard, ShardTrigger.NOTHING_LEFT, last_holder=entry.holder)


def _appear(draft: Draft, log_shard: LogShard) -> None:
    behind = draft.order and _has_unconsumed_ancestor(draft, log_shard)
    draft.add(log_shard, ShardTrigger.APPEARED_BEHIND_ANCESTOR if behind else ShardTrigger.APPEARED)


def _configure(draft: Draft, event: Configure) -> None:
    """Apply new settings. Switching order on affects only later shards (docs/shard-states.md 3)."""
    draft.configure(timeout_s=event.timeout_s, order=event.order)
    if not draft.order:
        for entry in list(draft.shards.values()):
            if entry.state is ShardState.WAIT:
                draft.go(entry.shard, ShardTrigger.ORDER_DROPPED)


def _has_unconsumed_ancestor(draft: Draft, log_shard: LogShard) -> bool:
    """Whether an ancestor that still exists is not over. A deleted ancestor does not count.

    All ancestors count, not only the parents: an empty parent is over at once, while the grandparent still
    has logs that come before the child's logs.
    """
    seen: set[int] = set()
    todo = list(log_shard.parents)
    while todo:
        shard = todo.pop()
        entry = draft.shards.get(shard)
        if entry is None or shard in seen:
            continue
        if entry.state is not ShardState.OVER:
            return True
        seen.add(shard)
        todo.extend(entry.log_shard.parents)
    return False


def _free_waiting(draft: Draft) -> None:
    """Apply edge 2 to every waiting shard whose ancestors are now consumed."""
    for entry in list(draft.shards.values()):
        if entry.state is ShardState.WAIT and not _has_unconsumed_ancestor(draft, entry.log_shard):
            draft.go(entry.shard, ShardTrigger.ANCESTORS_CONSUMED)


def _balance(draft: Draft) -> None:
    """Assign every shard that takes part to the consumer that balance names, or start its transfer."""
    assignments = [_assignment(draft, e) for e in draft.shards.values() if e.state in _TAKES_PART]
    targets = balance(assignments, draft.consumers)
    for assignment in assignments:
        if assignment.shard in targets:
            _move_towards(draft, assignment, targets[assignment.shard])


_TAKES_PART = (ShardState.NOT_ALLOC, ShardState.ALREADY_ALLOC, ShardState.TRANSFER)


def _assignment(draft: Draft, entry: ShardEntry) -> ShardAssignment:
    counted_for = entry.counted_for or entry.last_holder or draft.reporter_of(entry.shard)
    under_way_from = entry.holder if entry.state is ShardState.TRANSFER else None
    return ShardAssignment(shard=entry.shard, counted_for=counted_for, under_way_from=under_way_from)


def _move_towards(draft: Draft, assignment: ShardAssignment, target: str) -> None:
    """Apply the edge of 3, 5 and 15 that leads from the shard's state towards the target.

    No consumer is given a shard that its last heartbeat reports: an answer may have omitted the shard
    meanwhile, and the vendor's Java library never reads a shard again that returns while it shuts it down
    (docs/shard-states.md 3).
    """
    shard = assignment.shard
    entry = draft.shards[shard]
    if entry.state is ShardState.NOT_ALLOC:
        # A live consumer that still works on a free shard (a forced checkpoint reopened it) gives it
        # up first; otherwise two would work on it.
        works_on_it = assignment.counted_for
        if works_on_it is None:
            draft.go(shard, ShardTrigger.ASSIGNED, holder=target)
        else:
            draft.go(shard, ShardTrigger.ASSIGNED, holder=works_on_it)
            draft.go(shard, ShardTrigger.MOVED_TO_BALANCE, holder=works_on_it, next_holder=target)
    elif entry.state is ShardState.TRANSFER and entry.next_holder != target:
        draft.go(shard, ShardTrigger.REBOUND, holder=entry.holder, next_holder=target)
    elif entry.state is ShardState.ALREADY_ALLOC and entry.holder != target:
        draft.go(shard, ShardTrigger.MOVED_TO_BALANCE, holder=entry.holder, next_holder=target)


def _facts(old: GroupState, new: GroupState) -> tuple[Fact, ...]:
    """The difference that must be durable; heartbeats and sessions are not part of it."""
    facts: list[Fact] = []
    if (old.timeout_s, old.order) != (new.timeout_s, new.order):
        facts.append(GroupSaved(timeout_s=new.timeout_s, order=new.order))
    facts += [GroupShardForgotten(shard=s) for s in old.shards if s not in new.shards]
    facts += [GroupShardSaved(entry=e) for s, e in new.shards.items() if old.shards.get(s) != e]
    return tuple(facts)
