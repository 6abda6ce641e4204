"""A subscription, its consumers and the log, small enough to search all orders of events.

Consumers come, ask for logs, acknowledge, want logs again, and go. Any log may be acknowledged at any time,
also one that is not out: the acknowledgment of a lost connection may arrive late. Loads are answered at any
time, with one group each; the log grows, is closed, and expires; an operator moves the mark; the service
restarts with what is durable. What must hold, says `tests.loghub_service.subscription.invariants`. Besides,
once consumers take and acknowledge everything, all is acknowledged, and nothing is left to remember
(`SubscriptionModel.check_settles`).
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import ModuleType, SimpleNamespace
from typing import cast

from loghub.domain.log_position import group_end, ordinal_of, position_of
from loghub.domain.subscription import SubscriptionState, SubscriptionType
from loghub_service.subscription import keyed, ordered, shared, state, step
from loghub_service.subscription.acked import Acked
from loghub_service.subscription.events import (
    Ack,
    AckUpTo,
    Appended,
    ClockRead,
    DispatchOutcome,
    Event,
    Expired,
    Flow,
    GroupsLoaded,
    Join,
    LeaveSubscription,
    LoadedEntry,
    PassOn,
    Redeliver,
    SeekTo,
    ShardStart,
    SubscribedShards,
)
from loghub_service.subscription.shared import SharedQueue
from loghub_service.subscription.slots import SlotRange
from loghub_service.subscription.state import (
    Cursor,
    SavedCursor,
    Subscription,
    SubscriptionLimits,
    SubscriptionSettings,
    saved,
)
from tests.loghub_service.subscription.invariants import (
    Known,
    StoredLogs,
    check_state,
    check_step,
    known,
)
from tests.properties.numbered_states import Coverage
from tests.properties.subscription.frozen import (
    LOAD,
    FrozenCursor,
    FrozenShared,
    FrozenSubscription,
    freeze,
    later,
    thaw,
)

DELAY_S = 1.0


def all_names(modules: Iterable[ModuleType]) -> SimpleNamespace:
    """What is in any of these modules of the rules, or of their copies."""
    return SimpleNamespace(**{name: value for module in modules for name, value in vars(module).items()})


RULES = all_names((state, ordered, shared, keyed, step))


def count(coverage: Coverage, event: Event, outcome: DispatchOutcome) -> None:
    coverage.events[type(event).__name__] += 1
    for change in outcome.transitions:
        coverage.rows[change.old, change.trigger, change.new] += 1
    if outcome.refusal is not None:
        coverage.refusals[outcome.refusal] += 1


@dataclass(frozen=True, kw_only=True)
class Setup:
    """``groups`` has the slots of each log, by shard.
    ``slots`` has the ranges of each consumer, in Key_Shared only; None splits all slots. ``attached`` has the
    shards of each consumer, () for all. ``start_groups`` is how many groups each shard has at the start."""

    types: tuple[SubscriptionType, ...]
    groups: Mapping[int, tuple[tuple[int, ...], ...]]
    priorities: tuple[int, ...] = (0, 0)
    slots: tuple[tuple[SlotRange, ...] | None, ...] = (None, None, None)
    attached: tuple[tuple[int, ...], ...] = ((), (), ())
    start_groups: int = 2
    parents: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    in_order: bool = True
    delays: bool = False
    delayed_group: int = -1  # an ordinal, whose logs have a time; the wall clock is set ahead and back
    limited: frozenset[int] = frozenset()  # consumers for which logs may be too large
    admin: bool = True
    permits: tuple[int, ...] = (1, 2)
    limits: SubscriptionLimits
    bad: bool = False  # also events that are refused
    is_small: bool = False  # it has few systems
    settles_every: int = 31  # of how many systems one is let settle


class SubscriptionModel:
    """All systems that a setup can lead to, by these rules."""

    def __init__(self, setup: Setup, rules: SimpleNamespace = RULES) -> None:
        self.setup = setup
        self.coverage = Coverage()
        self._rules = rules
        self._settings: dict[SubscriptionType, SubscriptionSettings] = {
            kind: rules.SubscriptionSettings(type=kind, in_order=setup.in_order) for kind in SubscriptionType
        }
        self._checked = 0
        self._stored = {shard: StoredLogs(groups) for shard, groups in setup.groups.items()}
        self._parents = {shard: setup.parents.get(shard, ()) for shard in setup.groups}

    def starts(self) -> list[FrozenSubscription]:
        """Nobody is there, all are there, all want logs; over a split, all do and the parent is finished."""
        shards = self._shards(self.setup.groups)
        nobody = freeze(self._rules.create(self._settings[self.setup.types[0]], shards))
        joined = nobody
        for number in range(len(self.setup.priorities)):
            joined = self._next(joined, self._join(number, self.setup.types[0]))
        flowing = joined
        for number in range(len(self.setup.priorities)):
            flowing = self._next(flowing, Flow(consumer=number, permits=1))
        if not self.setup.parents:
            return [nobody, joined, flowing]
        logs = self._stored[0].slots(position_of(self.setup.start_groups))
        acked = self._next(flowing, Ack(shard=0, runs=tuple((p, p + 1) for p in logs)))
        end = position_of(self.setup.start_groups)
        return [self._next(acked, Appended(shard=0, end=end, is_closed=True)), nobody]

    def _next(self, system: FrozenSubscription, event: Event) -> FrozenSubscription:
        return self._after(system, event, known(self._thaw(system)))

    def _thaw(self, system: FrozenSubscription) -> Subscription:
        subscription = thaw(system, self._settings[system.type], self._parents, self._rules)
        if not system.type.is_ordered:
            most = self.setup.limits.max_unacked_of_consumer
            subscription.full = {n: c for n, c in subscription.consumers.items() if c.unacked >= most}
        return subscription

    def _shards(self, numbers: Iterable[int]) -> dict[int, ShardStart]:
        end = position_of(self.setup.start_groups)
        return {shard: ShardStart(parents=self._parents[shard], end=end) for shard in numbers}

    def check(self, system: FrozenSubscription) -> None:
        """Every step is checked when it is taken."""

    # -- what may happen next

    def successors(self, system: FrozenSubscription) -> Iterator[tuple[object, FrozenSubscription]]:
        before = known(self._thaw(system))
        for event in self.events(system):
            yield event, self._after(system, event, before)
        queues = [cursor.queue for cursor in system.cursors if isinstance(cursor.queue, FrozenShared)]
        if any(queue.delayed or queue.scheduled or queue.held_back for queue in queues):
            unix_s = system.unix_ahead_s
            yield "time passes", self._after(later(system, DELAY_S), ClockRead(unix_s=unix_s), before)
        if self.setup.admin:
            yield "the service restarts", freeze(self._restarted(self._thaw(system)))

    def events(self, system: FrozenSubscription) -> Iterator[Event]:
        there = {consumer[0] for consumer in system.consumers}
        for number in range(len(self.setup.priorities)):
            attached = set(self.setup.attached[number] or self.setup.groups)
            if number not in there and attached <= {cursor.shard for cursor in system.cursors}:
                for kind in self.setup.types:
                    yield self._join(number, kind)
        for number, permits, _, _, shards, _ in system.consumers:
            yield LeaveSubscription(consumer=number)
            if permits <= 0:
                yield from (Flow(consumer=number, permits=more) for more in self.setup.permits)
            for cursor in system.cursors:
                if cursor.shard in shards:
                    yield from self._redeliveries(cursor, number)
        if self.setup.bad and all(permits <= 0 for _, permits, *_ in system.consumers):
            yield from self._bad(system)
        if self.setup.delayed_group >= 0:
            yield ClockRead(unix_s=0.0 if system.unix_ahead_s else DELAY_S)
        if self.setup.parents:
            yield from self._changes({cursor.shard for cursor in system.cursors})
        for cursor in system.cursors:
            yield from self._of_log(cursor.shard, cursor.end, is_closed=cursor.is_closed)
            if cursor.is_loading:
                yield self._loaded(cursor.shard, cursor.loaded, cursor.end)
            yield from self._acks(system, cursor)

    def _join(self, number: int, kind: SubscriptionType) -> Join:
        return Join(
            consumer=number,
            name=str(number),
            type=kind,
            shards=self.setup.attached[number] or tuple(self.setup.groups),
            priority=self.setup.priorities[number],
            slots=self.setup.slots[number],
            takes_any_size=number not in self.setup.limited,
        )

    def _changes(self, shards: set[int]) -> Iterator[Event]:
        """The last shard expires, or is born (again)."""
        last = max(self.setup.groups)
        yield SubscribedShards(shards=self._shards(shards - {last} if last in shards else self.setup.groups))

    def _bad(self, system: FrozenSubscription) -> Iterator[Event]:
        """What is refused: by any state, because of the first consumer, or since there are too many. No
        permits make a difference."""
        new, kind = len(self.setup.priorities), system.type
        yield Flow(consumer=new, permits=1)
        yield LeaveSubscription(consumer=new)
        yield Redeliver(consumer=new, shard=0)
        yield PassOn(consumer=0, shard=0, runs=((0, 1),))
        yield Appended(shard=9, end=0)
        yield AckUpTo(shard=0, stop=1)
        yield Join(consumer=new, name="", type=kind, shards=(0,), slots=((1, 2), (2, 3)))
        if 0 in {consumer[0] for consumer in system.consumers}:
            yield Join(consumer=new, name="", type=kind, shards=(0,), slots=((0, 0),))
            yield Join(consumer=new, name="", type=kind, shards=(0,))
            yield Join(consumer=new, name="", type=SubscriptionType.SHARED, shards=(0,))

    def _redeliveries(self, cursor: FrozenCursor, number: int) -> Iterator[Event]:
        queue, shard = cursor.queue, cursor.shard
        if not isinstance(queue, FrozenShared):
            yield Redeliver(consumer=number, shard=shard)
            return
        pending = dict(queue.pending)[number]
        if len(pending) > 1:
            yield Redeliver(consumer=number, shard=shard)
        for position, _ in pending:
            for delay_s in (0.0, DELAY_S) if self.setup.delays else (0.0,):
                runs = ((position, position + 1),)
                yield Redeliver(consumer=number, shard=shard, runs=runs, delay_s=delay_s)
            if number in self.setup.limited:
                yield PassOn(consumer=number, shard=shard, runs=((position, position + 1),))

    def _of_log(self, shard: int, end: int, *, is_closed: bool) -> Iterator[Event]:
        if end < position_of(len(self.setup.groups[shard])):
            yield Appended(shard=shard, end=group_end(end))
        elif not is_closed:
            yield Appended(shard=shard, end=end, is_closed=True)
        if self.setup.admin and shard == 0:
            yield Expired(shard=shard, position=position_of(1))
            yield SeekTo(shard=shard, position=0)
            yield SeekTo(shard=shard, position=1)

    def _loaded(self, shard: int, first: int, end: int) -> GroupsLoaded:
        """One group, with a time if it has one."""
        ordinal = ordinal_of(first)
        slots = self.setup.groups[shard][ordinal]
        due_s = DELAY_S if ordinal == self.setup.delayed_group else 0.0
        entry = LoadedEntry(position_of(ordinal), len(slots), slots=slots, due_unix_s=due_s)
        assert position_of(ordinal) < end
        return GroupsLoaded(shard=shard, load=LOAD, entries=(entry,), next=position_of(ordinal + 1))

    def _acks(self, system: FrozenSubscription, cursor: FrozenCursor) -> Iterator[Event]:
        shard, acked = cursor.shard, Acked(cursor.mark, cursor.ranges)
        logs = [p for p in self._stored[cursor.shard].slots(cursor.end) if p not in acked]
        for position in logs:
            yield Ack(shard=shard, runs=((position, position + 1),))
            if position + 1 in logs:
                yield Ack(shard=shard, runs=((position, group_end(position)),))
            if system.type.is_ordered:
                yield AckUpTo(shard=shard, stop=position + 1)

    # -- steps

    def _after(self, system: FrozenSubscription, event: Event, before: Known) -> FrozenSubscription:
        subscription = self._thaw(system)
        outcome = self._step(subscription, event, before)
        after = freeze(subscription)
        assert outcome.refusal is None or after == system, "a refused event has changed something"
        return after

    def _step(
        self, subscription: Subscription, event: Event, before: Known, now: float = 0.0
    ) -> DispatchOutcome:
        """A step that is checked."""
        outcome: DispatchOutcome = self._rules.step(subscription, event, now=now, limits=self.setup.limits)
        check_step(before, event, outcome, subscription, self._stored)
        check_state(subscription, self._stored, self.setup.limits)
        count(self.coverage, event, outcome)
        return outcome

    def _restarted(self, subscription: Subscription) -> Subscription:
        """With what is durable, and without consumers."""
        starts = {
            shard: ShardStart(parents=cursor.parents, end=cursor.end, is_closed=cursor.is_closed)
            for shard, cursor in subscription.shards.items()
        }
        durable: dict[int, SavedCursor] = {s: saved(cursor) for s, cursor in subscription.shards.items()}
        restored: Subscription = self._rules.create(subscription.settings, starts, durable)
        check_state(restored, self._stored, self.setup.limits)
        return restored

    def _answer(self, subscription: Subscription, shard: int, now: float) -> GroupsLoaded:
        """What the newest load of a shard finds."""
        cursor = subscription.shards[shard]
        loaded = self._loaded(shard, cursor.loaded, cursor.end)
        entries = [entry._replace(due_unix_s=entry.due_unix_s and now + DELAY_S) for entry in loaded.entries]
        return replace(loaded, load=cursor.load, entries=entries)

    # -- liveness

    def check_settles(self, system: FrozenSubscription) -> None:
        self._checked += 1
        if self._checked % self.setup.settles_every == 0:
            self.settle(self._thaw(system), 0.0)

    def settle(self, subscription: Subscription, now: float) -> None:
        """Every consumer that is missing comes, takes and acknowledges everything; the log has all its groups
        and is closed; time passes. If logs wait whose slot nobody has, a consumer for all slots takes
        over."""
        todo = list(self._what_is_missing(subscription, now))
        for _ in range(20):
            now += DELAY_S
            todo += [ClockRead(unix_s=now), *(Flow(consumer=c, permits=9) for c in subscription.consumers)]
            while todo:
                outcome = self._step(subscription, todo.pop(0), known(subscription), now)
                todo += (self._answer(subscription, load.shard, now) for load in outcome.loads)
                for delivery in outcome.deliveries:
                    runs = [(first, stop) for first, stop, _ in delivery.runs]
                    todo.append(Ack(shard=delivery.shard, runs=runs))
            states = {cursor.state for cursor in subscription.shards.values()}
            if states == {SubscriptionState.FINISHED}:
                break
            if SubscriptionState.UNOWNED in states:
                todo = [LeaveSubscription(consumer=consumer) for consumer in subscription.consumers]
                shards = tuple(self.setup.groups)
                todo.append(Join(consumer=77, name="", type=subscription.settings.type, shards=shards))
        for cursor in subscription.shards.values():
            assert cursor.is_finished, f"shard {cursor.shard} is left in {cursor.state}"
            assert cursor.acked.ranges == ()

    def _what_is_missing(self, subscription: Subscription, now: float) -> Iterator[Event]:
        """Shards, consumers, acknowledgments of what is out, and the answers to loads."""
        ends = {
            shard: ShardStart(parents=self._parents[shard], end=position_of(len(groups)), is_closed=True)
            for shard, groups in self.setup.groups.items()
        }
        known_before = list(subscription.shards.values())
        yield SubscribedShards(shards=ends)
        for number in range(len(self.setup.priorities)):
            join, there = self._join(number, subscription.settings.type), subscription.consumers.get(number)
            if there is not None and there.shards != join.shards:
                yield LeaveSubscription(consumer=number)  # a shard of it expired
            if there is None or there.shards != join.shards:
                yield join
        for cursor in known_before:
            yield from (Ack(shard=cursor.shard, runs=[(p, p + 1)]) for p in self._out(subscription, cursor))
            if cursor.is_loading:
                yield self._answer(subscription, cursor.shard, now)

    def _out(self, subscription: Subscription, cursor: Cursor) -> Iterable[int]:
        if not subscription.settings.type.is_ordered:
            return list(cast(SharedQueue, cursor.queue).out)
        acked = cursor.acked
        return self._stored[cursor.shard].unacked(cursor.end, cursor.read, acked.mark, acked.ranges)[0]
