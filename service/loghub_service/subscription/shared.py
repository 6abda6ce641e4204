"""Shared: the logs of a shard are dealt to its consumers one by one.

What must be delivered again goes first, the lowest position first, then what is new. The consumers of the
first priority that have permits take turns; others get nothing while these have permits. A position is out at
one consumer, or it waits to be delivered (again), perhaps until a time. Otherwise it was not read, or is
acknowledged.
"""

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from loghub.domain.log_position import INDEX_MASK, group_end
from loghub_service.subscription.acked import Acked, Run
from loghub_service.subscription.events import ActiveChange, DeliveredRun, Delivery, LoadedEntry
from loghub_service.subscription.state import AttachedConsumer, Cursor, DispatchDraft, SubscriptionLimits

# What is known of a position that is out or waits, in one number: whether it is the last of its group, and
# above that bit the slot of its key (0 in Shared).
LAST = 1
# Up to so many positions to be delivered next, with what is known of them.
Supply = Callable[[DispatchDraft, int], tuple[list[int], list[int]]]


@dataclass(slots=True, eq=False)
class Member:
    """A consumer at one shard, with what is out at it."""

    consumer: AttachedConsumer
    shard: int
    pending: dict[int, int] = field(default_factory=dict)

    def room(self, limits: SubscriptionLimits) -> int:
        """How many logs the consumer may get."""
        consumer = self.consumer
        return min(consumer.permits_at(self.shard), limits.max_unacked_of_consumer - consumer.unacked)

    @property
    def turn(self) -> tuple[int, int]:
        return self.consumer.priority, self.consumer.number


class TimedPositions:
    """Positions that wait until a time: ``until`` has the time of each, and what is known of it. The heap
    ``timers`` has some as well that do not wait any more."""

    __slots__ = ("timers", "until")

    def __init__(self) -> None:
        self.until: dict[int, tuple[float, int]] = {}
        self.timers: list[tuple[float, int]] = []

    def add(self, position: int, value: int, until_s: float) -> None:
        self.until[position] = (until_s, value)
        heapq.heappush(self.timers, (until_s, position))

    def deadline(self) -> float | None:
        while self.timers:
            until_s, position = self.timers[0]
            if position in self.until:
                return until_s
            heapq.heappop(self.timers)
        return None

    def due(self, now_s: float) -> Iterator[tuple[int, int]]:
        """Take out what need not wait any more."""
        while (until_s := self.deadline()) is not None and until_s <= now_s:
            _, position = heapq.heappop(self.timers)
            yield position, self.until.pop(position)[1]

    def clear(self) -> None:
        self.until.clear()
        self.timers.clear()


class SharedQueue:
    """``members`` are in the order of their turns, and ``served`` is the turn of the last delivery.

    ``out`` has each position that is out, with the member whose ``pending`` has it. ``waiting`` has those
    that wait, each in the heap ``lowest``, or in ``large`` if it is for a consumer that takes any size; what
    the heaps have and ``waiting`` does not is acknowledged.
    ``delayed`` has those whose consumer wanted them later, by the monotonic clock, and ``scheduled`` those
    whose producer did, by the wall clock. ``counts`` has the positions that were redelivered, and
    ``held_back`` has the times of positions whose delay was not over at a rewind: a time that the producer
    has chosen is read again.
    """

    __slots__ = (
        "counts",
        "cursor",
        "delayed",
        "held_back",
        "large",
        "lowest",
        "members",
        "out",
        "scheduled",
        "served",
        "waiting",
    )

    def __init__(self, cursor: Cursor) -> None:
        self.cursor = cursor
        self.members: dict[int, Member] = {}
        self.served = (0, 0)
        self.out: dict[int, Member] = {}
        self.waiting: dict[int, int] = {}
        self.lowest: list[int] = []
        self.large: list[int] = []
        self.delayed, self.scheduled = TimedPositions(), TimedPositions()
        self.counts: dict[int, int] = {}
        self.held_back: dict[int, float] = {}

    @property
    def unacked(self) -> int:
        timed = len(self.delayed.until) + len(self.scheduled.until)
        return len(self.out) + len(self.waiting) + timed

    weight = unacked

    # -- consumers

    def join(self, consumer: AttachedConsumer) -> list[ActiveChange]:
        last = next(reversed(self.members.values()), None)
        member = self.members[consumer.number] = Member(consumer, self.cursor.shard)
        if last is not None and member.turn < last.turn:
            in_turn = sorted(self.members.values(), key=lambda member: member.turn)
            self.members = {member.consumer.number: member for member in in_turn}
        return []

    def leave(self, consumer: AttachedConsumer) -> list[ActiveChange]:
        """What was out at the consumer waits for another. No log failed, so counts stay."""
        member = self.members.pop(consumer.number)
        for position, value in member.pending.items():
            self._take_back(position, value)
            self._wait(position, value)
        if self.large and not self._has_taker():
            for position in self.large:
                heapq.heappush(self.lowest, position)
            self.large.clear()
        if not self.members:
            self.rewind()
        return []

    def _has_taker(self) -> bool:
        """Whether a member takes logs of any size."""
        return any(member.consumer.takes_any_size for member in self.members.values())

    def _take_back(self, position: int, value: int) -> None:  # noqa: ARG002 - see KeyedQueue
        """Note that the position is not out any more; the caller updates the member's ``pending``."""
        del self.out[position]

    def _wait(self, position: int, value: int) -> None:
        self.waiting[position] = value
        heapq.heappush(self.lowest, position)

    # -- acknowledgments

    def ack(self, first: int, stop: int, draft: DispatchDraft) -> bool:
        known, logs = self._forget_known(first, stop)
        if logs:
            self.cursor.acked.add(first, known)
            draft.newly_acked(self.cursor).append((first, known))
            self.cursor.count_acked(logs)
        is_taken = True
        if known < stop:
            for gap_first, gap_stop in tuple(self.cursor.acked.gaps(known, stop)):
                is_taken &= self._ack_gap(gap_first, gap_stop, draft)
        return is_taken

    def _ack_gap(self, first: int, stop: int, draft: DispatchDraft) -> bool:
        """A run without any acknowledged position."""
        known, logs = self._forget_known(first, stop)
        if logs:
            self.cursor.add_acked(first, known, draft)
            self.cursor.count_acked(logs)
        if known >= stop:
            return True
        if known < self.cursor.read:
            return True  # there is no such log: the group ends before
        is_taken = self.cursor.may_add(known, stop, draft.limits)
        if is_taken:
            self.cursor.count_unread(known, stop)
            self.cursor.add_acked(known, stop, draft)
        return is_taken

    def _forget_known(self, first: int, stop: int) -> tuple[int, int]:
        """Forget the positions of a run from its first one on, as far as they are out or wait.

        Returns the position after the last one that was forgotten, in normal form, and how many there were.
        """
        position = first
        while position < stop:
            value = self._forget_one(position)
            if value is None:
                break
            position += 1
            if value & LAST:
                return group_end(position - 1), position - first
        return position, position - first

    def _forget_one(self, position: int) -> int | None:
        member = self.out.get(position)
        value: int | None
        if member is not None:
            value = member.pending.pop(position)
            member.consumer.unacked -= 1
            self._take_back(position, value)
        elif position in self.waiting:
            value = self.waiting.pop(position)
        elif position in self.delayed.until:
            _, value = self.delayed.until.pop(position)
        elif position in self.scheduled.until:
            _, value = self.scheduled.until.pop(position)
        else:
            return None
        if self.counts:
            self.counts.pop(position, None)
        return value

    # -- what comes again

    def redeliver(
        self, consumer: AttachedConsumer, runs: Sequence[Run] | None, until_s: float, *, is_counted: bool
    ) -> None:
        """Only logs that are out at this consumer come again: a late request may name logs that another
        consumer has now.
        """
        for position, value in self._taken_back(consumer, runs):
            if not is_counted:
                self._wait(position, value)
                continue
            self.counts[position] = self.counts.get(position, 0) + 1
            self.delayed.add(position, value, until_s)

    def pass_on(self, consumer: AttachedConsumer, runs: Sequence[Run]) -> bool:
        if not self._has_taker():
            return False
        for position, value in self._taken_back(consumer, runs):
            self.waiting[position] = value
            heapq.heappush(self.large, position)
        return True

    def _taken_back(
        self, consumer: AttachedConsumer, runs: Sequence[Run] | None
    ) -> Iterator[tuple[int, int]]:
        """Take what is out at the consumer, all of it or some runs, with what is known of it."""
        pending = self.members[consumer.number].pending
        for position in list(pending) if runs is None else _named(runs, pending):
            value = pending.pop(position)
            consumer.unacked -= 1
            self._take_back(position, value)
            yield position, value

    def still_out(self, consumer: AttachedConsumer, runs: Sequence[DeliveredRun]) -> list[DeliveredRun]:
        pending = self.members[consumer.number].pending
        positions = sorted({p for first, stop, _ in runs for p in range(first, stop) if p in pending})
        return runs_of(positions, self.counts) if positions else []

    def rewind(self) -> None:
        """Forget what is out; the counts stay, and so do the delays that are not over."""
        self.held_back.update((position, until_s) for position, (until_s, _) in self.delayed.until.items())
        self._forget_acked()
        self.cursor.rewind()
        self._clear()

    def _forget_acked(self) -> None:
        """Forget the counts and delays that late acknowledgments or the expiry of logs have left."""
        acked = self.cursor.acked
        self.counts = {p: count for p, count in self.counts.items() if p not in acked}
        self.held_back = {p: until_s for p, until_s in self.held_back.items() if p not in acked}

    def _clear(self) -> None:
        """Nothing is out: the last member has left, and ``large`` is empty since, or the shard is gone with
        what was out at its members."""
        for member in self.members.values():
            member.consumer.unacked -= len(member.pending)
        self.waiting.clear()
        self.lowest.clear()
        self.delayed.clear()
        self.scheduled.clear()

    def forget(self) -> None:
        self._clear()
        self.counts.clear()
        self.held_back.clear()

    def drop_below(self, mark: int, draft: DispatchDraft) -> None:
        known = (self.out, self.waiting, self.delayed.until, self.scheduled.until)
        dropped = [p for positions in known for p in positions if p < mark]
        for position in dropped:
            self._forget_one(position)
        self.cursor.count_gone(len(dropped))
        self.cursor.add_acked(self.cursor.acked.mark, mark, draft)
        self._forget_acked()

    # -- delivery

    def wants(self, limits: SubscriptionLimits) -> bool:
        return next(self.hungry(limits), None) is not None

    def hungry(self, limits: SubscriptionLimits) -> Iterator[Member]:
        """The members that may get a log, in the order of their turns. There may be a thousand, so each that
        has no permits is passed without a call."""
        for member in self.members.values():
            if member.consumer.permits > 0 and member.room(limits) > 0:
                yield member

    def deadline(self, unix_ahead_s: float) -> float | None:
        delayed_s, due_unix_s = self.delayed.deadline(), self.scheduled.deadline()
        if due_unix_s is None:
            return delayed_s
        due_s = due_unix_s - unix_ahead_s
        return due_s if delayed_s is None else min(delayed_s, due_s)

    def has_unowned(self) -> bool:
        return False

    @property
    def has_supply(self) -> bool:
        """Whether a log may be there to be dealt: without one, the consumers need not be looked at."""
        return bool(self.waiting or self.cursor.window)

    def wake(self, draft: DispatchDraft) -> None:
        """Let go what has waited for its time."""
        for timed, now_s in ((self.delayed, draft.now), (self.scheduled, draft.unix_s)):
            for position, value in timed.due(now_s):
                self._wait(position, value)

    def dispatch(self, draft: DispatchDraft) -> None:
        self.wake(draft)
        ready = list(self.hungry(draft.limits)) if self.has_supply else []
        if self.large:
            takers = [member for member in ready if member.consumer.takes_any_size]
            self._deal_in_turns(takers, partial(self._next_waiting, self.large), draft)
            ready = [member for member in ready if member.room(draft.limits) > 0]
        self._deal_in_turns(ready, self._next, draft)

    def _deal_in_turns(self, ready: list[Member], supply: Supply, draft: DispatchDraft) -> None:
        """Deal to these members in turns, while they have room and there is a log."""
        limits = draft.limits
        while ready:
            turn = [m for m in ready if m.consumer.priority == ready[0].consumer.priority]
            later = next((i for i, member in enumerate(turn) if member.turn > self.served), 0)
            turn = turn[later:] + turn[:later]
            rounds = min(member.room(limits) for member in turn)
            positions, values = supply(draft, rounds * len(turn))
            if not positions:
                return
            # This deals the logs as one at a time would: no consumer's room ends within these rounds.
            for i, member in enumerate(turn):
                self._deliver(member, positions[i :: len(turn)], values[i :: len(turn)], draft)
            self.served = turn[(len(positions) - 1) % len(turn)].turn
            ready = [member for member in ready if member.room(limits) > 0]

    def _next_waiting(
        self, lowest: list[int], draft: DispatchDraft, max_logs: int
    ) -> tuple[list[int], list[int]]:
        """The next positions of a heap, with what is known of them."""
        positions, values, waiting = list[int](), list[int](), self.waiting
        while lowest and len(positions) < max_logs:
            value = waiting.get(lowest[0])
            if value is not None:
                if self.cursor.acked.is_beyond(lowest[0], draft.limits.max_ranges):
                    break
                del waiting[lowest[0]]
                positions.append(lowest[0])
                values.append(value)
            heapq.heappop(lowest)
        return positions, values

    def _next(self, draft: DispatchDraft, max_logs: int) -> tuple[list[int], list[int]]:
        """The next positions for any member, with what is known of them."""
        positions, values = self._next_waiting(self.lowest, draft, max_logs)
        limits = draft.limits
        room = limits.max_unacked - self.unacked - len(positions)
        while room > 0 and len(positions) < max_logs:
            piece = self.cursor.piece(min(room, max_logs - len(positions)), draft)
            if piece is None or self.cursor.acked.is_beyond(piece[1], limits.max_ranges):
                break
            entry, first, stop = piece
            room -= stop - first
            self.cursor.pass_to(stop, draft)
            if entry.due_unix_s > draft.unix_s or self.held_back:
                due = [p for p in range(first, stop) if not self.is_held_back(entry, p, draft)]
                positions += due
                values += (value_of(entry, position) for position in due)
            else:
                positions += range(first, stop)
                values += [0] * (stop - first)
                values[-1] = is_last(entry, stop)
        return positions, values

    def is_held_back(self, entry: LoadedEntry, position: int, draft: DispatchDraft) -> bool:
        """Let a new position wait if its time has not come."""
        until_s = self.held_back.pop(position, 0.0)
        if until_s > draft.now:
            self.delayed.add(position, value_of(entry, position), until_s)
        elif entry.due_unix_s > draft.unix_s:
            self.scheduled.add(position, value_of(entry, position), entry.due_unix_s)
        else:
            return False
        return True

    def _deliver(self, member: Member, positions: list[int], values: list[int], draft: DispatchDraft) -> None:
        if positions:
            member.pending.update(zip(positions, values, strict=True))
            self.out.update(dict.fromkeys(positions, member))
            consumer = member.consumer
            consumer.permits -= len(positions)
            consumer.unacked += len(positions)
            if consumer.unacked >= draft.limits.max_unacked_of_consumer:
                draft.subscription.full[consumer.number] = consumer
            runs = runs_of(positions, self.counts)
            delivery = Delivery(consumer.number, self.cursor.shard, runs, len(positions))
            draft.outcome.deliveries.append(delivery)


def value_of(entry: LoadedEntry, position: int) -> int:
    slot = 0 if entry.slots is None else entry.slots[position - entry.first]
    return slot << 1 | is_last(entry, position + 1)


def is_last(entry: LoadedEntry, stop: int) -> int:
    return LAST if entry.is_last and stop == entry.first + entry.logs else 0


def _named(runs: Sequence[Run], pending: Mapping[int, int]) -> list[int]:
    """The positions in these runs that are pending. Runs may overlap, and have far more positions than
    are."""
    joined = Acked(-1)
    for first, stop in runs:
        joined.add(first, stop)
    if sum(stop - first for first, stop in joined.ranges) <= len(pending):
        return [p for first, stop in joined.ranges for p in range(first, stop) if p in pending]
    return [position for position in sorted(pending) if position in joined]


def runs_of(positions: list[int], counts: dict[int, int]) -> list[DeliveredRun]:
    """Positions as runs within their groups, each with its number of redeliveries."""
    first, size = positions[0], len(positions)
    if not counts and positions[-1] - first == size - 1 and (first & INDEX_MASK) + size <= INDEX_MASK:
        return [(first, first + size, 0)]
    runs = list[DeliveredRun]()
    stop, count = first, counts.get(first, 0)
    for position in positions:
        redelivered = counts.get(position, 0)
        if position != stop or redelivered != count or not position & INDEX_MASK:
            if stop > first:
                runs.append((first, stop, count))
            first, count = position, redelivered
        stop = position + 1
    runs.append((first, stop, count))
    return runs
