"""The state of a subscription: its settings, its consumers, and a cursor for each shard.

Everything but the settings is owned: `loghub_service.subscription.step` changes it in place, so that the cost
of a step depends on what changes, not on how many logs are out. Of a log that is out only the position is
kept.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from loghub.domain.log_position import group_end, index_of
from loghub.domain.subscription import SubscriptionState, SubscriptionType
from loghub_service.subscription.acked import Acked, Run
from loghub_service.subscription.events import (
    ActiveChange,
    DeliveredRun,
    DispatchOutcome,
    GroupsLoaded,
    LoadedEntry,
)
from loghub_service.subscription.slots import SlotRange


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionLimits:
    """What a subscription may grow to. A bound that Pulsar has too has the name of Pulsar's setting."""

    max_subscriptions: int = 1_000  # of one logstore
    max_consumers: int = 1_000  # of one shard: a client has a consumer for each shard
    max_permits: int = 1_000_000  # of one consumer; more is cut
    # Nothing beyond the last range is delivered then. managedLedgerMaxUnackedRangesToPersist; a range takes
    # about 4 bytes on disk.
    max_ranges: int = 10_000
    # Logs of a shard that are out or wait, in ordered types log groups; maxUnackedMessagesPerSubscription,
    # but for ordered types, which Pulsar does not limit. Each takes up to 144 bytes of memory.
    max_unacked: int = 200_000
    max_unacked_of_consumer: int = 50_000  # maxUnackedMessagesPerConsumer; not in ordered types, as in Pulsar
    look_ahead: int = 1_000  # logs of Key_Shared that wait for their consumer while others pass them
    max_loaded: int = 1_000  # logs that are read ahead, of which only the positions are kept


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionSettings:
    """What is stored of a subscription. ``in_order``: a child of a split or merge waits for its parents,
    unless the type is Shared, which has no order. ``key``: the fields of a log that are its key in
    Key_Shared; empty: the key that the log was written with."""

    type: SubscriptionType
    in_order: bool = True
    is_durable: bool = True
    key: tuple[str, ...] = ()

    @property
    def waits_for_parents(self) -> bool:
        return self.in_order and self.type is not SubscriptionType.SHARED

    @property
    def key_in_use(self) -> tuple[str, ...]:
        """The key of the present type: a key outlives the time in which the type is one without."""
        return self.key if self.type is SubscriptionType.KEY_SHARED else ()


@dataclass(slots=True, kw_only=True, eq=False)
class AttachedConsumer:
    """``permits`` is what the consumer can take, below 0 after an entry that was larger. ``unacked`` counts
    the logs that are out at it, in all its shards. ``is_everywhere``: it is attached to each new shard as
    well. It gets logs of ``only`` these shards. ``takes_any_size``: no log is too large for it."""

    number: int
    name: str
    priority: int
    slots: tuple[SlotRange, ...] | None
    shards: tuple[int, ...]
    permits: int = 0
    unacked: int = 0
    is_everywhere: bool = False
    only: frozenset[int] | None = None
    takes_any_size: bool = True

    def permits_at(self, shard: int) -> int:
        """How many logs of the shard the consumer can take."""
        return self.permits if self.only is None or shard in self.only else 0


class Queue(Protocol):
    """What is out of one shard, and to whom it goes: the part of a cursor that depends on the type.

    ``unacked`` counts the logs that were read and are not acknowledged; ``weight`` is what counts for
    ``max_unacked``.
    """

    @property
    def unacked(self) -> int: ...
    @property
    def weight(self) -> int: ...
    def join(self, consumer: AttachedConsumer) -> list[ActiveChange]: ...
    def leave(self, consumer: AttachedConsumer) -> list[ActiveChange]: ...
    def ack(self, first: int, stop: int, draft: "DispatchDraft") -> bool:
        """Acknowledge a run, and say whether that was possible; ``first`` lies in the shard, ``stop`` in the
        same group.
        """

    def redeliver(
        self, consumer: AttachedConsumer, runs: Sequence[Run] | None, until_s: float, *, is_counted: bool
    ) -> None:
        """Deliver again what is out at the consumer, all of it or some runs, but not before a time."""

    def pass_on(self, consumer: AttachedConsumer, runs: Sequence[Run]) -> bool:
        """Give logs that are out at the consumer, and are too large for it, to one that takes any size;
        whether there is one that may get them."""

    def still_out(self, consumer: AttachedConsumer, runs: Sequence[DeliveredRun]) -> list[DeliveredRun]:
        """What of these runs is out at the consumer."""

    def rewind(self) -> None:
        """Forget what is out: what is not acknowledged is read again."""

    def forget(self) -> None:
        """Forget everything, because the mark was set."""

    def drop_below(self, mark: int, draft: "DispatchDraft") -> None:
        """Retention has dropped these logs."""

    def dispatch(self, draft: "DispatchDraft") -> None:
        """Deliver what can be delivered."""

    def wants(self, limits: SubscriptionLimits) -> bool:
        """Whether a consumer could take another log."""

    def has_unowned(self) -> bool:
        """Whether a log waits whose slot nobody has."""

    def deadline(self, unix_ahead_s: float) -> float | None:
        """When the first log may be delivered of those that wait for a time, in monotonic seconds; unix
        seconds are ahead of these by so much."""


@dataclass(slots=True, kw_only=True, eq=False)
class Cursor:
    """One shard.

    ``read`` is the next position that was not delivered since the last rewind. Each position below it that is
    not acknowledged is out or waits, which ``queue`` knows. ``window`` has what was loaded from ``read`` on,
    up to ``loaded``; the first entry may be delivered in part. ``load`` numbers the loads: the answer to any
    but the newest is ignored. Invariant: mark <= read <= loaded <= end, but for a mark beyond ``read`` after
    late acknowledgments.

    ``high`` is the highest that ``read`` ever was, and ``unacked_below`` counts the logs without
    acknowledgment below it; both mean something only while ``read`` is lower, after a rewind or a restart.
    ``acknowledged`` counts the logs that were since the service has started, as far as their number is
    known.
    """

    shard: int
    parents: tuple[int, ...]
    acked: Acked
    end: int
    is_closed: bool
    queue: Queue = field(init=False)
    members: dict[int, AttachedConsumer] = field(default_factory=dict)
    state: SubscriptionState | None = None
    read: int = 0
    window: deque[LoadedEntry] = field(default_factory=deque)
    window_logs: int = 0
    loaded: int = 0
    load: int = 0
    is_loading: bool = False
    high: int = 0
    unacked_below: int = 0
    acknowledged: int = 0

    @property
    def is_finished(self) -> bool:
        return self.is_closed and self.acked.mark >= self.end

    @property
    def backlog(self) -> tuple[int, int]:
        """A position and the number of logs without acknowledgment below it. With the logs from the position
        to the end, they are the backlog."""
        if self.read >= self.high:
            return max(self.read, self.acked.mark), self.queue.unacked
        if self.acked.mark >= self.high:
            return self.acked.mark, 0
        return self.high, self.unacked_below

    def has_room(self, limits: SubscriptionLimits) -> bool:
        """Whether another log may be read."""
        return self.queue.weight < limits.max_unacked and not self.acked.is_beyond(
            self.read, limits.max_ranges
        )

    def may_add(self, first: int, stop: int, limits: SubscriptionLimits) -> bool:
        """Whether something that is not out may be acknowledged: it adds no range beyond the limit."""
        return len(self.acked.starts) < limits.max_ranges or self.acked.touches(first, stop)

    def add_acked(self, first: int, stop: int, draft: "DispatchDraft") -> None:
        """Acknowledge a run, in normal form as far as it is known."""
        if first < stop and not self.acked.covers(first, stop):
            self.acked.add(first, stop)
            draft.newly_acked(self).append((first, stop))

    def count_acked(self, logs: int) -> None:
        """Note that this many logs below ``read`` are acknowledged now."""
        self.acknowledged += logs
        self.count_gone(logs)

    def count_gone(self, logs: int) -> None:
        """Note that this many logs below ``high`` wait for no acknowledgment any more."""
        self.unacked_below = max(0, self.unacked_below - logs)

    def count_unread(self, first: int, stop: int) -> None:
        """Note that a run is acknowledged which was not read since the last rewind. Its number of logs is
        known unless it stops at the end of its group, in normal form; then both counts stay."""
        if index_of(stop):
            self.acknowledged += stop - first
            self.count_gone(max(0, min(stop, self.high) - first))

    def rewind(self) -> None:
        """Everything from the mark on that is not acknowledged will be read again."""
        self.high, self.unacked_below = self.backlog
        self.move_to(self.acked.mark)

    def move_to(self, position: int) -> None:
        """Read on from here; the answer to a load that is under way is ignored."""
        self.read = self.loaded = position
        self.window.clear()
        self.window_logs = 0
        self.is_loading = False

    def piece(self, max_logs: int, draft: "DispatchDraft") -> tuple[LoadedEntry, int, int] | None:
        """The next entry in the window with the next run of it that is not acknowledged, if there is one.

        What is acknowledged before it is passed.
        """
        while self.window:
            entry = self.window[0]
            stop = entry.first + entry.logs
            for first, gap_end in self.acked.gaps(max(self.read, entry.first), stop):
                return entry, first, min(gap_end, first + max_logs)
            self.pass_to(stop, draft)
        return None

    def pass_to(self, stop: int, draft: "DispatchDraft") -> None:
        """Pass the first entry up to here. The end of a group whose last log is acknowledged joins it."""
        entry = self.window[0]
        if stop == entry.first + entry.logs:
            self.window.popleft()
            self.window_logs -= entry.logs
            if stop - 1 in self.acked:
                self.add_acked(stop, after(entry), draft)  # nothing, if the group goes on
            stop = after(entry)
        self.read = stop


def after(entry: LoadedEntry) -> int:
    """The first position that a log after the entry may have."""
    return group_end(entry.first) if entry.is_last else entry.first + entry.logs


@dataclass(slots=True, kw_only=True)
class Subscription:
    """All consumers and shards. ``consumers`` are in the order in which they joined. ``full`` has those that
    got as many logs as one may have: once they have fewer, each of their shards can deliver again.
    ``deadlines`` has the shards of which a log waits for a time, with the first such time, in monotonic
    seconds; by the wall clock, unix seconds are ahead of these by ``unix_ahead_s``."""

    settings: SubscriptionSettings
    shards: dict[int, Cursor] = field(default_factory=dict)
    consumers: dict[int, AttachedConsumer] = field(default_factory=dict)
    full: dict[int, AttachedConsumer] = field(default_factory=dict)
    deadlines: dict[int, float] = field(default_factory=dict)
    unix_ahead_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedCursor:
    """What survives a restart; see `Cursor.backlog` for the last two."""

    mark: int
    ranges: tuple[Run, ...] = ()
    high: int = 0
    unacked_below: int = 0


@dataclass(slots=True, kw_only=True)
class DispatchDraft:
    """An event that is being applied. ``touched`` has the cursors that may deliver, load or change state, and
    ``asking`` the consumer that can take more logs, of any of its shards."""

    subscription: Subscription
    now: float
    limits: SubscriptionLimits
    outcome: DispatchOutcome = field(default_factory=DispatchOutcome)
    touched: dict[int, Cursor] = field(default_factory=dict)
    asking: list[AttachedConsumer] = field(default_factory=list)

    @property
    def unix_s(self) -> float:
        return self.now + self.subscription.unix_ahead_s

    def touch(self, cursor: Cursor) -> None:
        self.touched[cursor.shard] = cursor

    def newly_acked(self, cursor: Cursor) -> list[Run]:
        """Where to put what is acknowledged, so that it becomes durable."""
        return self.outcome.acked.setdefault(cursor.shard, [])


def fill(cursor: Cursor, event: GroupsLoaded, draft: DispatchDraft) -> None:
    """Put what was loaded into the window. What lies between is left after an accepted loss, and as good as
    acknowledged."""
    for entry in event.entries:
        if entry.first > cursor.loaded:
            cursor.add_acked(cursor.loaded, entry.first, draft)
        cursor.window.append(entry)
        cursor.window_logs += entry.logs
        cursor.loaded = after(entry)
    if event.next > cursor.loaded:
        cursor.add_acked(cursor.loaded, event.next, draft)
        cursor.loaded = event.next
        if not cursor.window:
            cursor.read = event.next


def saved(cursor: Cursor) -> SavedCursor:
    """What must be durable of a cursor."""
    high, unacked = cursor.backlog
    return SavedCursor(mark=cursor.acked.mark, ranges=cursor.acked.ranges, high=high, unacked_below=unacked)
