"""A subscription over a log in memory: loads are answered at once, and every step is checked."""

from collections.abc import Sequence

from loghub.domain.log_position import ordinal_of, position_of
from loghub.domain.subscription import SubscriptionType
from loghub_service.subscription.events import (
    Ack,
    Appended,
    ClockRead,
    DispatchOutcome,
    Event,
    Flow,
    GroupsLoaded,
    Join,
    LoadedEntry,
    ShardStart,
)
from loghub_service.subscription.state import SubscriptionLimits, SubscriptionSettings
from loghub_service.subscription.step import create, step
from tests.loghub_service.subscription.invariants import StoredLogs, check_state, check_step, known

Groups = Sequence[Sequence[int]]  # the slot of each log, by group


def plain(*sizes: int) -> Groups:
    """Log groups of so many logs, all of slot 0."""
    return tuple((0,) * size for size in sizes)


class DrivenSubscription:
    """``delivered`` has each position with its redeliveries, in the order of delivery, by consumer."""

    def __init__(
        self,
        subscription_type: SubscriptionType,
        *groups: Groups,
        in_order: bool = True,
        limits: SubscriptionLimits | None = None,
        parents: Sequence[tuple[int, ...]] = (),
        due_unix_s: float = 0.0,
    ) -> None:
        self.type = subscription_type
        self.limits = limits or SubscriptionLimits()
        self.stored = {
            shard: StoredLogs(tuple(map(tuple, shard_groups))) for shard, shard_groups in enumerate(groups)
        }
        starts = {
            shard: ShardStart(parents=parents[shard] if parents else (), end=position_of(len(shard_groups)))
            for shard, shard_groups in enumerate(groups)
        }
        self.subscription = create(SubscriptionSettings(type=subscription_type, in_order=in_order), starts)
        self.now = 0.0
        self.due_unix_s = due_unix_s  # of each group
        self.delivered: dict[int, list[tuple[int, int]]] = {}

    def apply(self, event: Event) -> DispatchOutcome:
        """The outcome of the event itself; what loads lead to is only recorded."""
        outcome = self._step(event)
        loads = list(outcome.loads)
        while loads:
            load = loads.pop(0)
            loads += self._step(self.loaded(load.shard, load.number, load.first, load.max_logs)).loads
        return outcome

    def loaded(self, shard: int, number: int, first: int, max_logs: int) -> GroupsLoaded:
        entries, ordinal, groups = list[LoadedEntry](), ordinal_of(first), self.stored[shard].groups
        end = ordinal_of(self.subscription.shards[shard].end)
        while ordinal < end and sum(entry.logs for entry in entries) < max_logs:
            slots = groups[ordinal]
            if slots:  # else it is lost
                first = position_of(ordinal)
                entries.append(LoadedEntry(first, len(slots), slots=slots, due_unix_s=self.due_unix_s))
            ordinal += 1
        return GroupsLoaded(shard=shard, load=number, entries=entries, next=position_of(ordinal))

    def _step(self, event: Event) -> DispatchOutcome:
        before = known(self.subscription)
        outcome = step(self.subscription, event, now=self.now, limits=self.limits)
        check_step(before, event, outcome, self.subscription, self.stored)
        check_state(self.subscription, self.stored, self.limits)
        for delivery in outcome.deliveries:
            self.delivered.setdefault(delivery.consumer, []).extend(
                (position, count) for first, stop, count in delivery.runs for position in range(first, stop)
            )
        return outcome

    # -- events in short

    def join(
        self,
        consumer: int,
        *,
        permits: int = 0,
        priority: int = 0,
        name: str = "",
        shards: tuple[int, ...] = (0,),
        slots: tuple[tuple[int, int], ...] | None = None,
        takes_any_size: bool = True,
    ) -> DispatchOutcome:
        outcome = self.apply(
            Join(
                consumer=consumer,
                name=name or str(consumer),
                type=self.type,
                shards=shards,
                priority=priority,
                slots=slots,
                takes_any_size=takes_any_size,
            )
        )
        if permits:
            self.apply(Flow(consumer=consumer, permits=permits))
        return outcome

    def flow(self, consumer: int, permits: int) -> DispatchOutcome:
        return self.apply(Flow(consumer=consumer, permits=permits))

    def time_passes(self, to_s: float, *, unix_s: float | None = None) -> DispatchOutcome:
        """``unix_s``: by the wall clock, if that shows another time."""
        self.now = to_s
        return self.apply(ClockRead(unix_s=to_s if unix_s is None else unix_s))

    def ack(self, *positions: int, shard: int = 0) -> DispatchOutcome:
        return self.apply(Ack(shard=shard, runs=[(p, p + 1) for p in positions]))

    def append(self, *slots: int, shard: int = 0, is_closed: bool = False) -> DispatchOutcome:
        """A log group, with the slot of each log; none only closes the shard."""
        groups = self.stored[shard].groups
        if slots:
            groups = (*groups, slots)
            self.stored[shard] = StoredLogs(groups)
        return self.apply(Appended(shard=shard, end=position_of(len(groups)), is_closed=is_closed))

    def taken(self, consumer: int) -> list[int]:
        """The positions that were delivered to the consumer since the last call."""
        return [position for position, _ in self.delivered.pop(consumer, [])]

    @property
    def mark(self) -> int:
        return self.subscription.shards[0].acked.mark

    @property
    def ranges(self) -> tuple[tuple[int, int], ...]:
        return self.subscription.shards[0].acked.ranges

    @property
    def states(self) -> list[str]:
        return [str(cursor.state) for cursor in self.subscription.shards.values()]
