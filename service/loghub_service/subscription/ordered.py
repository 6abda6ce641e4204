"""Exclusive and Failover: one consumer of a shard is active, and gets the log groups in their order.

What is out is everything between the mark and the position that is read next, without the ranges of what is
acknowledged. So only the ends of the groups are kept. After any disturbance - another consumer is active, or
the active one wants logs again - everything that is not acknowledged comes again, from the mark.
"""

from collections import deque
from collections.abc import Sequence

from loghub.domain.log_position import group_begin, group_end
from loghub.domain.shards import MAX_GROUP_LOGS
from loghub.domain.subscription import SubscriptionType
from loghub_service.subscription.acked import Run
from loghub_service.subscription.events import ActiveChange, DeliveredRun, Delivery
from loghub_service.subscription.state import AttachedConsumer, Cursor, DispatchDraft, SubscriptionLimits

# Entries of ``order`` whose group is acknowledged already are dropped when they outnumber the others by this.
_SLACK = 64


class OrderedQueue:
    """``unacked`` logs are out at ``active``. ``stops`` has the groups that are out, perhaps in part, by the
    first position of the next group: the position after their last log that was read. ``order`` has them in
    their order, with some that are not out any more."""

    __slots__ = ("active", "cursor", "is_failover", "order", "stops", "unacked")

    def __init__(self, cursor: Cursor, subscription_type: SubscriptionType) -> None:
        self.cursor = cursor
        self.is_failover = subscription_type is SubscriptionType.FAILOVER
        self.active: AttachedConsumer | None = None
        self.order: deque[int] = deque()
        self.stops: dict[int, int] = {}
        self.unacked = 0

    @property
    def weight(self) -> int:
        return len(self.stops)

    # -- consumers

    def join(self, consumer: AttachedConsumer) -> list[ActiveChange]:
        changes = self._choose()
        if self.active is not consumer:
            changes.append(ActiveChange(consumer.number, self.cursor.shard, is_active=False))
        return changes

    def leave(self, consumer: AttachedConsumer) -> list[ActiveChange]:
        if consumer is self.active:
            self.rewind()
            self.active = None
        return self._choose()

    def _choose(self) -> list[ActiveChange]:
        """Of the consumers of the first priority, in the order of their names, the shards take turns."""
        members, shard = self.cursor.members.values(), self.cursor.shard
        top = min((consumer.priority for consumer in members), default=0)
        candidates = [consumer for consumer in members if consumer.priority == top]
        candidates.sort(key=lambda consumer: (consumer.name, consumer.number))
        former, chosen = self.active, candidates[shard % len(candidates)] if candidates else None
        if chosen is former:
            return []
        self.rewind()
        self.active = chosen
        both = ((former, False), (chosen, True)) if self.is_failover else ()
        return [ActiveChange(c.number, shard, is_active) for c, is_active in both if c is not None]

    # -- acknowledgments

    def ack(self, first: int, stop: int, draft: DispatchDraft) -> bool:
        cursor, is_taken, normal = self.cursor, True, group_end(first)
        stop = self._normal(stop)
        if stop > cursor.read and not cursor.may_add(first, stop, draft.limits):
            is_taken, stop = False, cursor.read
        known = min(stop, cursor.read, self.stops.get(normal, stop))
        logs = sum(b - a for a, b in cursor.acked.gaps(first, known))
        for begin, end in tuple(cursor.acked.gaps(max(first, cursor.read), stop)):
            cursor.count_unread(begin, end)
        cursor.add_acked(first, stop, draft)
        if logs:
            self._settled(logs)
            cursor.count_acked(logs)
            self._drop_acked(normal)
        return is_taken

    def ack_up_to(self, stop: int, draft: DispatchDraft) -> None:
        self.cursor.count_acked(self._drop_up_to(stop, draft))

    def _drop_up_to(self, stop: int, draft: DispatchDraft) -> int:
        """How many logs were out of those below."""
        stop = self._normal(stop)
        logs = 0
        while self.order:
            normal = self.order[0]
            if normal in self.stops:
                first, known = group_begin(normal), min(stop, self.stops[normal])
                logs += sum(b - a for a, b in self.cursor.acked.gaps(first, known))
            if normal > stop:
                break
            self.order.popleft()
            self.stops.pop(normal, None)
        self._settled(logs)
        self.cursor.add_acked(self.cursor.acked.mark, stop, draft)
        if self.order:
            self._drop_acked(self.order[0])  # the rest of it may have been acknowledged before
        return logs

    def _normal(self, stop: int) -> int:
        """The position in normal form, if it is after the last log of a group that is out."""
        normal = group_end(stop)
        return normal if normal <= self.cursor.read and self.stops.get(normal, normal) <= stop else stop

    def _settled(self, logs: int) -> None:
        self.unacked -= logs
        if self.active is not None:
            self.active.unacked -= logs

    def _drop_acked(self, normal: int) -> None:
        """Forget the group if nothing of it is out."""
        stop = self.stops.get(normal)
        if stop is not None and self.cursor.acked.covers(group_begin(normal), stop):
            del self.stops[normal]
            while self.order and self.order[0] not in self.stops:
                self.order.popleft()
            if len(self.order) > 2 * len(self.stops) + _SLACK:
                self.order = deque(end for end in self.order if end in self.stops)

    # -- what comes again

    def redeliver(
        self,
        consumer: AttachedConsumer,
        runs: Sequence[Run] | None,  # noqa: ARG002 - everything comes again, from the mark
        until_s: float,  # noqa: ARG002 - and without a count or delay: the client starts again, no log failed
        *,
        is_counted: bool,  # noqa: ARG002
    ) -> None:
        if consumer is self.active:
            self.rewind()

    def pass_on(self, consumer: AttachedConsumer, runs: Sequence[Run]) -> bool:  # noqa: ARG002 - the rest waits
        return False

    def still_out(self, consumer: AttachedConsumer, runs: Sequence[DeliveredRun]) -> list[DeliveredRun]:
        if consumer is not self.active:
            return []
        acked, read = self.cursor.acked, self.cursor.read
        return [(a, b, 0) for first, stop, _ in runs for a, b in acked.gaps(first, min(stop, read))]

    def rewind(self) -> None:
        self.cursor.rewind()
        self.forget()

    def forget(self) -> None:
        if self.active is not None:
            self.active.unacked -= self.unacked
        self.unacked = 0
        self.order.clear()
        self.stops.clear()

    def drop_below(self, mark: int, draft: DispatchDraft) -> None:
        self.cursor.count_gone(self._drop_up_to(mark, draft))

    # -- delivery

    def wants(self, limits: SubscriptionLimits) -> bool:  # noqa: ARG002 - there is one consumer
        return self.active is not None and self.active.permits_at(self.cursor.shard) > 0

    def dispatch(self, draft: DispatchDraft) -> None:
        """Whole entries, while there are permits: an entry may take more than there are."""
        active, shard, runs = self.active, self.cursor.shard, list[DeliveredRun]()
        if active is None:
            return
        permits = active.permits
        while active.permits_at(shard) > 0 and self.cursor.has_room(draft.limits):
            piece = self.cursor.piece(MAX_GROUP_LOGS, draft)
            if piece is None:
                break
            entry, stop = piece[0], piece[0].first + piece[0].logs
            gaps = list(self.cursor.acked.gaps(entry.first, stop))
            runs += ((a, b, 0) for a, b in gaps)
            logs = sum(b - a for a, b in gaps)
            self.unacked += logs
            active.unacked += logs
            active.permits -= entry.logs
            normal = group_end(entry.first)
            if not self.order or self.order[-1] != normal:
                self.order.append(normal)
            self.stops[normal] = stop
            self.cursor.pass_to(stop, draft)
        if runs:
            taken = permits - active.permits
            draft.outcome.deliveries.append(Delivery(active.number, shard, runs, taken))

    def has_unowned(self) -> bool:
        return False

    def deadline(self, unix_ahead_s: float) -> float | None:  # noqa: ARG002 - no log waits for a time
        return None
