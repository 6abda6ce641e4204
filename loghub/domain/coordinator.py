"""The coordinator of one consumer group: one event in, the next state and the answer out.

What for: every decision about who holds which shard (docs/shard-states.md 2).
What it must not know: HTTP, storage, real time, logging. Read next: `group` (the values),
`fsm` (the table), `balance`.

The caller's duties, in this order: hand the events of one group in one at a time, with a
``now`` that never goes back; persist ``facts``, those of one step in one transaction and in the
order of the steps; log ``transitions``, one line each; answer only when the facts of this step and
of all before it are durable. Where persisting fails, no later state may be used or told: go back to
what is on disk with `restore`. After each step arm one timer for `next_deadline` and hand in a `Tick`
then; a late tick is harmless.

    made = create_group(group="g", timeout_s=30.0, order=False, shards=(LogShard(shard=0),), now=0.0)
    beat = step(made.state, Heartbeat(consumer="a"), now=1.0)
    assert beat.answer == (0,)
"""

from collections.abc import Collection, Iterable
from dataclasses import replace

from loghub.domain.balance import Standing, balance
from loghub.domain.fsm import ShardState, Trigger
from loghub.domain.group import (
    Checkpoint,
    Configure,
    ConsumerEntry,
    Event,
    Fact,
    GroupSaved,
    GroupState,
    Heartbeat,
    Leave,
    LogShard,
    Refusal,
    SavedCheckpoint,
    ShardEntry,
    ShardForgotten,
    ShardSaved,
    ShardsChanged,
    Step,
    Tick,
    Transition,
)
from loghub.domain.group_builder import Draft

__all__ = [
    "Checkpoint",
    "Configure",
    "ConsumerEntry",
    "Event",
    "Fact",
    "GroupSaved",
    "GroupState",
    "Heartbeat",
    "Leave",
    "LogShard",
    "Refusal",
    "SavedCheckpoint",
    "ShardEntry",
    "ShardForgotten",
    "ShardSaved",
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
    """A new group without consumers over the shards of its logstore; ``facts`` hold all of it."""
    empty = GroupState(group=group, timeout_s=timeout_s, order=order)
    made = step(empty, ShardsChanged(shards=shards), now=now)
    return replace(made, facts=(GroupSaved(timeout_s=timeout_s, order=order), *made.facts))


def restore(
    *, group: str, timeout_s: float, order: bool, entries: Iterable[ShardEntry], now: float
) -> GroupState:
    """The group as it was persisted, after a restart of the service.

    Holders and next holders get a fresh lease of the whole timeout from ``now`` on: nobody
    can tell how long they have been silent while nobody listened, and a lease too long only
    delays, while one too short lets two consumers hold one shard. Consumers without shards
    are not persisted; they come back with their next heartbeat. Hand in a `ShardsChanged`
    right after, since the logstore may have changed.
    """
    by_shard = {e.shard: e for e in sorted(entries, key=lambda e: e.shard)}
    named = [name for e in by_shard.values() for name in (e.holder, e.next_holder, e.last_holder)]
    consumers = {
        name: ConsumerEntry(
            name=name,
            last_heartbeat_s=now,
            # What they worked on when we last listened is the safe guess until they say.
            held=frozenset(e.shard for e in by_shard.values() if name in (e.holder, e.last_holder)),
        )
        for name in sorted({name for name in named if name is not None})
    }
    return GroupState(group=group, timeout_s=timeout_s, order=order, consumers=consumers, shards=by_shard)


def next_deadline(state: GroupState) -> float | None:
    """When the next consumer times out if nobody beats, monotonic seconds; None without consumers."""
    return min((_deadline(c, state.timeout_s) for c in state.consumers.values()), default=None)


def step(state: GroupState, event: Event, *, now: float) -> Step:
    """Apply one event; ``state`` is not changed. Bad requests are refusals, never exceptions."""
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
        answer=new.owned_by(event.consumer) if isinstance(event, Heartbeat) else (),
        facts=_facts(state, new),
        transitions=tuple(draft.transitions),
    )


def _apply(draft: Draft, event: Event, now: float) -> Refusal | None:
    """What the event itself says; consequences for the others come after, in `step`."""
    match event:
        case Heartbeat():
            _heartbeat(draft, event, now)
        case Leave():
            _remove(draft, {event.consumer}, holder_gone=Trigger.HOLDER_LEFT, next_gone=Trigger.NEXT_LEFT)
        case Checkpoint():
            return _checkpoint(draft, event)
        case Tick():
            _time_out(draft, now)
        case ShardsChanged():
            _shards_changed(draft, event.shards)
        case Configure():
            _configure(draft, event)
    return None


def _heartbeat(draft: Draft, event: Heartbeat, now: float) -> None:
    """Register or renew the sender, and hand over what it no longer names (edge 6)."""
    # Only shards that exist: what a consumer may make us remember is bounded by them.
    held = event.held.intersection(draft.shards)
    draft.put_consumer(ConsumerEntry(name=event.consumer, last_heartbeat_s=now, held=held))
    for entry in list(draft.shards.values()):
        if entry.shard in held:
            continue
        if entry.state is ShardState.TRANSFER and entry.holder == event.consumer:
            draft.go(entry.shard, Trigger.HOLDER_GAVE_UP, holder=entry.next_holder)
        elif entry.last_holder == event.consumer:
            draft.put_shard(replace(entry, last_holder=None))


def _deadline(consumer: ConsumerEntry, timeout_s: float) -> float:
    return consumer.last_heartbeat_s + timeout_s


def _time_out(draft: Draft, now: float) -> None:
    """Remove who has been silent for the timeout.

    Only a tick does this: a late heartbeat that comes before the tick keeps its consumer in the group,
    since no shard has been reassigned yet and moving one would gain nothing.
    """
    silent = {c.name for c in draft.consumers.values() if _deadline(c, draft.timeout_s) <= now}
    _remove(draft, silent, holder_gone=Trigger.HOLDER_TIMED_OUT, next_gone=Trigger.NEXT_TIMED_OUT)


def _remove(draft: Draft, gone: Collection[str], *, holder_gone: Trigger, next_gone: Trigger) -> None:
    """Free what the gone ones held (4, 9, 11), and give back what was bound to them (6, 11).

    Where holder and next holder go together, the holder's going decides: nobody works on the
    shard any more, so it is free.
    """
    draft.drop_consumers(gone)
    for entry in list(draft.shards.values()):
        if entry.holder in gone:
            draft.go(entry.shard, holder_gone)
        elif entry.next_holder in gone:
            draft.go(entry.shard, next_gone, holder=entry.holder)
        elif entry.last_holder in gone:
            draft.put_shard(replace(entry, last_holder=None))


def _checkpoint(draft: Draft, event: Checkpoint) -> Refusal | None:
    """Save a cursor, and close or reopen the shard if it says so (7, 8, 13, 14)."""
    refusal = _refuse_checkpoint(draft, event)
    if refusal is not None:
        return refusal
    saved = SavedCheckpoint(
        cursor=event.cursor, consumer=event.consumer, updated_unix_us=event.updated_unix_us
    )
    entry = draft.put_shard(replace(draft.shards[event.shard], checkpoint=saved))
    is_over = entry.state is ShardState.OVER
    if entry.log_shard.is_end(event.cursor) and not is_over:
        draft.go(entry.shard, Trigger.END_CHECKPOINTED, last_holder=entry.holder)
    elif is_over and not entry.is_consumed:
        draft.go(entry.shard, Trigger.FORCED_BACK, last_holder=entry.last_holder)
    return None


def _refuse_checkpoint(draft: Draft, event: Checkpoint) -> Refusal | None:
    """Without force only the holder may save, also while its shard is under way to another."""
    if not event.force and not event.consumer:
        return Refusal.PARAMETER_INVALID
    entry = draft.shards.get(event.shard)
    if entry is None:
        return Refusal.SHARD_NOT_EXIST
    if not event.force and entry.holder != event.consumer:
        return Refusal.CONSUMER_NOT_MATCH
    return None


def _shards_changed(draft: Draft, shards: tuple[LogShard, ...]) -> None:
    """Follow the logstore: forget what is gone, close what is empty (10), take what is new (1)."""
    now_there = {s.shard: s for s in sorted(shards, key=lambda s: s.shard)}
    draft.keep_shards(now_there.keys())
    for log_shard in now_there.values():  # ascending: parents come before their children
        if log_shard.shard in draft.shards:
            draft.put_shard(replace(draft.shards[log_shard.shard], log_shard=log_shard))
        else:
            _appear(draft, log_shard)
        entry = draft.shards[log_shard.shard]
        if entry.is_consumed and entry.state is not ShardState.OVER:
            draft.go(entry.shard, Trigger.NOTHING_LEFT, last_holder=entry.holder)


def _appear(draft: Draft, log_shard: LogShard) -> None:
    behind = draft.order and _has_unconsumed_ancestor(draft, log_shard)
    draft.add(log_shard, Trigger.APPEARED_BEHIND_ANCESTOR if behind else Trigger.APPEARED)


def _configure(draft: Draft, event: Configure) -> None:
    """Take new settings. Order switched on touches only shards yet to come (docs/shard-states.md 3)."""
    draft.configure(timeout_s=event.timeout_s, order=event.order)
    if not draft.order:
        for entry in list(draft.shards.values()):
            if entry.state is ShardState.WAIT:
                draft.go(entry.shard, Trigger.ORDER_DROPPED)


def _has_unconsumed_ancestor(draft: Draft, log_shard: LogShard) -> bool:
    """Whether an ancestor that still exists is not over; one that is gone cannot be waited for.

    All ancestors count, not just parents: an empty parent is over at once while the
    grandparent still has logs that come before the child's.
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
    """Edge 2, for every shard whose ancestors are consumed by now."""
    for entry in list(draft.shards.values()):
        if entry.state is ShardState.WAIT and not _has_unconsumed_ancestor(draft, entry.log_shard):
            draft.go(entry.shard, Trigger.ANCESTORS_CONSUMED)


def _balance(draft: Draft) -> None:
    """Bring every shard that takes part to, or on its way to, the consumer balance names."""
    standings = [_standing(draft, e) for e in draft.shards.values() if e.state in _TAKES_PART]
    targets = balance(standings, draft.consumers)
    for standing in standings:
        if standing.shard in targets:
            _send(draft, standing, targets[standing.shard])


_TAKES_PART = (ShardState.NOT_ALLOC, ShardState.ALREADY_ALLOC, ShardState.TRANSFER)


def _standing(draft: Draft, entry: ShardEntry) -> Standing:
    counted_for = entry.counted_for or entry.last_holder or draft.reporter_of(entry.shard)
    under_way_from = entry.holder if entry.state is ShardState.TRANSFER else None
    return Standing(shard=entry.shard, counted_for=counted_for, under_way_from=under_way_from)


def _send(draft: Draft, standing: Standing, target: str) -> None:
    """Edges 3, 5 and 15, whichever lead from where the shard is towards the target."""
    shard = standing.shard
    entry = draft.shards[shard]
    if entry.state is ShardState.NOT_ALLOC:
        # A live consumer that still works on a free shard (it was late and came back, or the
        # shard was forced back from its end) gets it first; else two would work on it.
        entry = draft.go(shard, Trigger.ASSIGNED, holder=standing.counted_for or target)
    elif entry.state is ShardState.TRANSFER and entry.next_holder != target:
        entry = draft.go(shard, Trigger.RECALLED, holder=entry.holder)
    if entry.state is ShardState.ALREADY_ALLOC and entry.holder != target:
        draft.go(shard, Trigger.MOVED_TO_BALANCE, holder=entry.holder, next_holder=target)


def _facts(old: GroupState, new: GroupState) -> tuple[Fact, ...]:
    """The difference that must be durable; heartbeats and leases are not part of it."""
    facts: list[Fact] = []
    if (old.timeout_s, old.order) != (new.timeout_s, new.order):
        facts.append(GroupSaved(timeout_s=new.timeout_s, order=new.order))
    facts += [ShardForgotten(shard=s) for s in old.shards if s not in new.shards]
    facts += [ShardSaved(entry=e) for s, e in new.shards.items() if old.shards.get(s) != e]
    return tuple(facts)
