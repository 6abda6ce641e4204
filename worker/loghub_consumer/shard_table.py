"""The shards of a consumer and the lock around them: their states, the logs that were pulled, and the threads
that wait.

The threads of user code, of the pulls and of `Consumer.run` apply their events to the `HeldShardState` of an
entry under the lock, so the events of a shard have one order. Nothing that blocks runs under the lock. The
lock of the membership may be acquired under it, to wake the thread of `Consumer.run`, and never the other way
round.

The consumers of one program share a lock, because they share a bound on memory and priorities
(`loghub_consumer.shared_buffers`): a change in one table may be what a shard of another table waits for.
"""

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from loghub.backoff import Backoff
from loghub.clock import Clock
from loghub_consumer import held_shard
from loghub_consumer.batch import KeptGroup, LogBatch, PulledBody, batch_again, count_logs
from loghub_consumer.batch_plan import RangeRetry
from loghub_consumer.buffer import ShardBuffer
from loghub_consumer.ended_logs import EndedLogs
from loghub_consumer.exchange_files import Positions, Report
from loghub_consumer.failure.policy import FailingRange, FailingShards
from loghub_consumer.held_shard import (
    ENDING,
    Again,
    HeldShardPhase,
    HeldShardState,
    NextStep,
    Pull,
    PullResult,
    ReceiveLimits,
    ThreadStep,
    has_backlog,
    is_full,
    next_pull,
    next_step,
    pull_due_s,
    room_to_end,
)
from loghub_consumer.log_service import ReportedError
from loghub_consumer.processor import NotAssignedError
from loghub_consumer.shared_buffers import SharedBuffers
from loghub_consumer.unacknowledged import RedeliveryRules, Unacknowledged, Unsettled, is_blamed

Event = Callable[[HeldShardState, float], HeldShardState]


@dataclass(frozen=True, slots=True)
class Kept:
    """A batch that is handed to the processor."""

    batch: LogBatch
    generation: int  # of the shard's state when the batch was taken; another one now means that it was sought
    again: tuple[Unsettled, ...] | None = None  # the logs that it redelivers; None: its logs are new


@dataclass(frozen=True, slots=True)
class Waiting:
    """Logs that failed and may not be settled yet, with their entry in the failure report."""

    logs: Unsettled
    failing: FailingRange


@dataclass(slots=True, eq=False)
class HeldShardEntry:
    """One assignment of a shard to this consumer. Any thread may use it; fields are written under the lock.

    A shard that is lost and assigned again has another entry, so events of the earlier assignment that come
    late change nothing of the later one.
    """

    table: "ShardTable"
    state: HeldShardState
    buffer: ShardBuffer  # the log groups [first, state.read_to) that were pulled and not handed over
    unacknowledged: Unacknowledged
    priority: int = 0
    has_backlog: bool = False  # kept up to date only while `SharedBuffers.has_priorities`
    kept: Kept | None = None  # the batch in process, or the failed one while `state.keeps_batch`
    end: int | None = None  # cursor after the last log group, as last observed
    pull_error: ReportedError = field(default_factory=ReportedError)
    user_error: ReportedError = field(default_factory=ReportedError)
    failure_error: ReportedError = field(default_factory=ReportedError)  # while logs cannot be settled
    waiting: Waiting | None = None  # the logs that the failure policy made wait last
    wake: Callable[[], None] = lambda: None  # makes the thread of the shard ask for its next step

    @property
    def lock(self) -> threading.Lock:
        return self.table.lock

    @property
    def now_s(self) -> float:
        """Seconds of the monotonic clock."""
        return self.table.clock.monotonic_s()

    @property
    def errors(self) -> tuple[ReportedError, ...]:
        return self.pull_error, self.user_error, self.failure_error

    @property
    def next_cursor(self) -> int:
        """The cursor of the next log group to hand over. The log groups between the position and the first
        one in the buffer have expired."""
        return max(self.state.position, self.buffer.first or 0)

    @property
    def is_given_up(self) -> bool:
        """Whether the shard gets no further batch."""
        return self.state.phase in ENDING

    @property
    def is_over(self) -> bool:
        """Whether the shard does not belong to this consumer any more."""
        return self.state.phase in (HeldShardPhase.LOST, HeldShardPhase.ENDED)

    def require_assigned(self) -> None:
        """Raises `NotAssignedError` for a shard that is over."""
        if self.is_over:
            raise NotAssignedError(f"shard {self.state.shard} is not assigned to this consumer")

    def apply(self, event: Event) -> HeldShardState:
        """Apply an event at the present time, and wake the threads that it concerns."""
        with self.lock:
            return self.apply_locked(event)

    def apply_locked(self, event: Event) -> HeldShardState:
        """Apply an event under the lock, which the caller holds."""
        before = self.state
        self.state = event(before, self.now_s)
        if self.state.generation != before.generation:
            self.buffer.clear()
            self.unacknowledged.discard(self.state.position)  # the logs from there on are pulled again
            self.state = held_shard.retained(self.state, size=self.unacknowledged.bytes)
        if self.state != before:
            self.wake()
            self.table.note_change(self, before)
        return self.state

    def end_batch(self, event: Event) -> HeldShardState:
        """Apply the event that ends a batch."""
        with self.lock:
            state = self.apply_locked(event)
            if not state.keeps_batch:
                self.kept = None
            return state

    def seek(self, to: int) -> None:
        """Continue at a cursor."""
        self.apply(lambda state, now: held_shard.sought(state, to=to, now=now))

    def roll_back(self, to: int) -> None:
        """Continue at an earlier cursor; does nothing for a later one, or if the shard is given up."""
        self.apply(
            lambda state, now: held_shard.sought(state, to=to, now=now) if to < state.position else state
        )

    def pause(self) -> None:
        """Raises `NotAssignedError` for a shard that is over."""
        self.require_assigned()
        self.apply(lambda state, _: held_shard.paused(state))

    def resume(self) -> None:
        """Raises `NotAssignedError` for a shard that is over."""
        self.require_assigned()
        self.apply(lambda state, now: held_shard.resumed(state, now=now))


def kept_again(state: HeldShardState, taken: Sequence[Unsettled]) -> Kept:
    """The batch that redelivers these logs."""
    groups = [
        KeptGroup(logs.cursor, logs.raw, None if logs.only is None else tuple(sorted(logs.only)))
        for logs in taken
    ]
    batch = batch_again(state.shard, groups, delivery=taken[0].delivery)
    return Kept(batch, state.generation, tuple(taken))


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveredLogs:
    """What a subscription has delivered to a consumer: the logs that wait for their first batch, and all that
    are not settled. ``ready`` are the shards that may process more, and ``is_held``: others are paused."""

    unbegun: int
    open: int
    free_bytes: int
    ready: tuple[int, ...]
    is_held: bool


# After a pull or a call of the processor that failed. The first retry comes soon, since most failures are
# over by then; the last pause bounds how long a shard stands still once the failure has ended.
FIRST_RETRY_S, MAX_RETRY_S = 0.2, 10.0


class ShardTable:
    """The entries of all shards of a consumer, by shard."""

    def __init__(
        self,
        limits: ReceiveLimits,
        redelivery: RedeliveryRules,
        clock: Clock,
        shared: SharedBuffers,
        *,
        priority: int = 0,
        random: Callable[[], float],
    ) -> None:
        """`priority` is the priority of a new shard; `random` is in [0, 1), for jitter."""
        self.clock = clock
        self.retries = Backoff(first_s=FIRST_RETRY_S, max_s=MAX_RETRY_S, random=random)
        self._limits = limits
        self._redelivery = redelivery
        self.defers = redelivery.defers
        self.failures: FailingShards | None = None  # the failure policy; None with the policy ``Retry``
        self.ended: EndedLogs | None = None  # of a worker
        self._shared = shared
        self._priority = priority
        self._pauses_all = False
        self.end_time_s: int | None = None  # once it has passed, a shard whose end is unknown gets no batch
        self.lock = shared.lock
        self.is_short = False
        self._entries: dict[int, HeldShardEntry] = {}
        self._used_bytes = (
            0  # sum over all states; adding them up at each event would cost more than the event
        )
        self._on_pull: Callable[[], None] = lambda: None
        self._on_parked: Callable[[], None] | None = None  # None: no shard is parked
        self._stopped = False
        self._on_change: Callable[[], None] = lambda: None
        self.failure: BaseException | None = None  # of user code, which ends the consumer
        with self.lock:
            shared.join(self)

    def call_on_change(self, on_change: Callable[[], None]) -> None:
        """Call this after a change that the caller of `Consumer.run` may act on."""
        self._on_change = on_change

    # -- the port `loghub_consumer.membership.shared_membership.MembershipExchange`

    def write_positions(self, positions: Positions) -> None:
        """Does nothing: the port is shaped by Spark's files, and a consumer continues from its states."""

    def report(self) -> Report:
        """The ends that the pulls observed."""
        with self.lock:
            ends = {number: entry.end for number, entry in self._entries.items() if entry.end is not None}
        return Report(version=-1, ends=ends)

    # -- shards

    def add(self, shard: int, *, epoch: int, position: int) -> HeldShardEntry:
        with self.lock:
            state = HeldShardState(
                shard=shard, epoch=epoch, position=position, read_to=position, began_at=position
            )
            entry = HeldShardEntry(
                self,
                state=held_shard.paused(state) if self._pauses_all else state,
                buffer=ShardBuffer(shard, self._limits),
                unacknowledged=Unacknowledged(count_logs),
                priority=self._priority,
            )
            self._entries[shard] = entry
            self._shared.members_changed()
            return entry

    def remove(self, shard: int) -> None:
        with self.lock:
            entry = self._entries.pop(shard)
            self._used_bytes -= entry.state.used_bytes
            self._shared.members_changed()
            self._on_pull()  # the shares of the other shards are larger now
            self._shared.freed()
            self._shared.backlog_ended(entry.priority)

    def states(self) -> dict[int, HeldShardState]:
        with self.lock:
            return {number: entry.state for number, entry in self._entries.items()}

    def entry(self, shard: int) -> HeldShardEntry:
        """Raises `NotAssignedError`, also for a shard that is lost."""
        with self.lock:
            entry = self._entries.get(shard)
        if entry is None:
            raise NotAssignedError(f"shard {shard} is not assigned to this consumer")
        entry.require_assigned()
        return entry

    def working(self) -> dict[int, HeldShardEntry]:
        """The shards that are neither lost nor ended."""
        with self.lock:
            return {number: entry for number, entry in self._entries.items() if not entry.is_over}

    def note_change(self, entry: HeldShardEntry, before: HeldShardState) -> None:
        """The state of an entry has changed: wake the pulls, the shards and the thread of `Consumer.run` that
        may wait for this. The caller holds the lock."""
        if not entry.state.is_pulling:
            self._on_pull()
        self._count_used(entry, before)
        if entry.state.used_bytes < before.used_bytes:
            self._shared.freed()
        if self._shared.has_priorities:
            had_backlog = entry.has_backlog
            entry.has_backlog = self._has_backlog(entry)
            if had_backlog and not entry.has_backlog:
                self._shared.backlog_ended(entry.priority)
        if entry.is_given_up:
            self._on_change()

    def _count_used(self, entry: HeldShardEntry, before: HeldShardState) -> None:
        if self._entries.get(entry.state.shard) is entry:
            self._used_bytes += entry.state.used_bytes - before.used_bytes

    # -- the port `ShardMember`

    @property
    def shard_count(self) -> int:
        return len(self._entries)

    @property
    def used_bytes(self) -> int:
        return self._used_bytes

    @property
    def priorities(self) -> frozenset[int]:
        return frozenset(entry.priority for entry in self._entries.values())

    def note_backlogs(self) -> None:
        for entry in self._entries.values():
            entry.has_backlog = self._has_backlog(entry)

    def top_backlog(self) -> int | None:
        return max((entry.priority for entry in self._entries.values() if entry.has_backlog), default=None)

    def notify_pulls(self) -> None:
        self._on_pull()

    def notify_below(self, priority: int) -> None:
        for entry in self._entries.values():
            if entry.priority < priority:
                entry.wake()

    # -- pauses and priorities

    def pause_all(self, *, is_paused: bool) -> None:
        """Pause or resume all shards, including shards that are assigned later."""
        with self.lock:
            self._pauses_all = is_paused
            for entry in self._entries.values():
                if is_paused:
                    entry.apply_locked(lambda state, _: held_shard.paused(state))
                else:
                    entry.apply_locked(lambda state, now: held_shard.resumed(state, now=now))

    def prioritize(self, entries: Sequence[HeldShardEntry], priority: int) -> None:
        with self.lock:
            for entry in entries:
                before, entry.priority = entry.priority, priority
                self._shared.members_changed()
                entry.wake()
                self._shared.backlog_ended(before)

    def _has_backlog(self, entry: HeldShardEntry) -> bool:
        now = self.clock.monotonic_s()
        is_held = self._room(entry) == 0 or self._awaits_retry(entry, now)
        return has_backlog(entry.state, self._ready_step(entry, now).step, is_held=is_held)

    # -- the end of the consumer

    def fail(self, failure: BaseException) -> None:
        """User code has ended in a way that must end the consumer."""
        with self.lock:
            self.failure = self.failure or failure
        self._on_change()

    # -- the turns of a shard

    def next_step(self, entry: HeldShardEntry) -> tuple[ThreadStep, float]:
        """The step that is due in a shard, which has begun then, and for WAIT after how many seconds to ask
        again. For PROCESS and REDELIVER the batch is in `entry.kept`."""
        with self.lock:
            now = self.clock.monotonic_s()
            entry.apply_locked(lambda state, now: held_shard.roll_back_ended(state, now=now))
            self._time_out(entry)
            step = self._next_step(entry, now)
            if step.step is not ThreadStep.WAIT:
                self._begin(entry, step.step)
                return step.step, 0.0
            return ThreadStep.WAIT, math.inf if step.at_s is None else max(0.0, step.at_s - now)

    def _next_step(self, entry: HeldShardEntry, now: float) -> NextStep:
        step = self._ready_step(entry, now)
        may_wait = step.step in (ThreadStep.PROCESS, ThreadStep.REDELIVER)
        if may_wait and self._shared.must_wait(entry.priority):
            return NextStep(ThreadStep.WAIT)  # `SharedBuffers.backlog_ended` wakes the shard
        return step

    def _ready_step(self, entry: HeldShardEntry, now: float) -> NextStep:
        """The next step without regard to the priorities of other shards."""
        share = self._shared.share_bytes(entry.state)
        again = Again(due_s=entry.unacknowledged.due_s, is_full=self._room(entry) == 0)
        full = is_full(entry.state, share_bytes=share)
        step = next_step(entry.state, entry.buffer.summary, self._limits, is_full=full, now=now, again=again)
        retry = (
            self._retry(entry) if step.step is ThreadStep.PROCESS and self._awaits_retry(entry, now) else None
        )
        return step if retry is None else NextStep(ThreadStep.WAIT, retry.not_before_s)

    def _awaits_retry(self, entry: HeldShardEntry, now: float) -> bool:
        """Whether the next batch of the shard begins with logs that failed in an earlier process of the
        worker and must wait. A batch that failed in this process is kept instead."""
        retry, state = self._retry(entry), entry.state
        if retry is None or state.keeps_batch or retry.begin != state.position:
            return False
        return (retry.not_before_s or now) > now

    def _room(self, entry: HeldShardEntry) -> int | None:
        """How many log groups may be handed over; None: any number."""
        floor, state = entry.unacknowledged.floor, entry.state
        has_passed = self.end_time_s is not None and self.clock.unix_s() >= self.end_time_s
        to_end = room_to_end(state, first=entry.next_cursor, has_passed=has_passed)
        rooms = (self._redelivery.room(floor=floor, position=state.position), to_end)
        return min((room for room in rooms if room is not None), default=None)

    def _max_log_groups(self, entry: HeldShardEntry) -> int | None:
        """The maximum of log groups of the next batch; None: any number."""
        room, retry = self._room(entry), self._retry(entry)
        if retry is None:
            return room
        # The logs that fail begin a batch of their own, so that they are divided and others are not.
        maximum = retry.begin - entry.state.position or retry.log_groups
        return maximum if room is None else min(room, maximum)

    def _retry(self, entry: HeldShardEntry) -> RangeRetry | None:
        """The logs that fail at the position of a shard, or behind it."""
        retry = None if self.failures is None else self.failures.retries.get(entry.state.shard)
        return None if retry is None or retry.begin < entry.state.position else retry

    def _take_again(self, entry: HeldShardEntry) -> Kept:
        now = self.clock.monotonic_s()
        taken = entry.unacknowledged.take_due(
            max_bytes=self._limits.max_bytes,
            max_logs=self._limits.max_logs if entry.unacknowledged.deliveries is not None else None,
            now=now,
            again=self._redelivery.again(now),
        )
        return kept_again(entry.state, taken)

    def _begin(self, entry: HeldShardEntry, step: ThreadStep) -> None:
        if step is ThreadStep.REDELIVER:
            entry.kept = self._take_again(entry)
            entry.apply_locked(lambda state, _: held_shard.batch_began(state))
        elif step is ThreadStep.PROCESS:
            if entry.kept is None or not entry.state.keeps_batch:
                batch = entry.buffer.take(max_groups=self._max_log_groups(entry), end=entry.state.end)
                entry.kept = Kept(batch, entry.state.generation)
            entry.apply_locked(lambda state, _: held_shard.batch_began(state))
        elif step in (ThreadStep.INITIALIZE, ThreadStep.SHUT_DOWN):
            entry.apply_locked(lambda state, _: held_shard.user_code_began(state))

    # -- deliveries of a subscription

    def find(self, shard: int, epoch: int) -> HeldShardEntry | None:
        """The entry of this assignment of a shard."""
        with self.lock:
            entry = self._entries.get(shard)
        return entry if entry is not None and entry.state.epoch == epoch else None

    def note_ends(self, ends: Mapping[int, int]) -> None:
        """The cursors after the last log groups of shards."""
        with self.lock:
            for shard, end in ends.items():
                if shard in self._entries:
                    self._entries[shard].end = end

    def deliver(self, entry: HeldShardEntry, parts: Sequence[Unsettled]) -> None:
        """The log service has delivered logs, in this order. They are a batch once they are enough, or have
        waited for long enough."""
        limits = self._limits
        with self.lock:
            now = self.clock.monotonic_s()
            for part in parts:
                for one in [part] if self.ended is None else self.ended.marked(entry.state.shard, part):
                    self._deliver(entry, one, now=now)
            logs, size = entry.unacknowledged.unbegun
            if size >= limits.max_bytes or (limits.max_logs is not None and logs >= limits.max_logs):
                entry.unacknowledged.hasten(now)
            self._retain(entry)
            entry.wake()

    def _deliver(self, entry: HeldShardEntry, part: Unsettled, *, now: float) -> None:
        part.due_s = now + self._limits.max_wait_s
        if not is_blamed(part.failure):
            entry.unacknowledged.deliver(part)
            return
        assert self.ended is not None  # only what has ended a process is blamed when it comes
        rules = self._redelivery
        part.due_s = now + rules.backoff.pause_s(part.attempts + 1)  # what is only suspected goes first
        if entry.unacknowledged.deliver(part):
            entry.unacknowledged.send_back((part,), rules, now=now)
            if part.is_gone:
                self.ended.sent_back(entry.state.shard, part)

    def delivered(self) -> DeliveredLogs:
        """What is delivered and not settled, and how many bytes more there may be."""
        with self.lock:
            entries = [entry for entry in self._entries.values() if not entry.is_given_up]
            running = [entry for entry in entries if not entry.state.is_paused]
            deliveries = [entry.unacknowledged.deliveries for entry in entries]
            return DeliveredLogs(
                unbegun=sum(entry.unacknowledged.unbegun[0] for entry in running),
                open=sum(one.open_logs for one in deliveries if one is not None),
                free_bytes=self._shared.max_bytes - self._shared.used_bytes,
                ready=tuple(entry.state.shard for entry in running if entry.state.is_initialized),
                is_held=len(running) < len(entries),
            )

    def hasten(self) -> None:
        """No more logs are received at present: what waits is handed over."""
        with self.lock:
            for entry in self._entries.values():
                entry.unacknowledged.hasten(self.clock.monotonic_s())
                entry.wake()

    def release_unbegun(self) -> None:
        """The logs that wait for their first batch go to other consumers."""
        with self.lock:
            for entry in self._entries.values():
                entry.unacknowledged.release_unbegun()
                self._retain(entry)

    def time_out(self) -> None:
        """Refuse the logs that were neither acknowledged nor refused in time."""
        with self.lock:
            for entry in self._entries.values():
                if self._time_out(entry):
                    entry.wake()

    def _time_out(self, entry: HeldShardEntry) -> bool:
        unacknowledged, rules = entry.unacknowledged, self._redelivery
        if unacknowledged.deliveries is None or rules.ack_timeouts is None:
            return False
        has_late = unacknowledged.time_out(rules, now=entry.now_s)
        self._retain(entry)
        return has_late

    def _retain(self, entry: HeldShardEntry) -> None:
        size = entry.unacknowledged.bytes
        entry.apply_locked(lambda state, _: held_shard.retained(state, size=size))

    # -- pulls

    def call_on_pull(self, on_pull: Callable[[], None]) -> None:
        """Call this when a pull may be due earlier than `begin_pull` returned. It must not block."""
        self._on_pull = on_pull

    def begin_pull(self) -> tuple[HeldShardEntry, Pull] | float | None:
        """A pull that is due and has begun, or in how many seconds one is due; None once the table is
        stopped."""
        with self.lock:
            while not self._stopped:
                due = self._next_due()
                now = self.clock.monotonic_s()
                if due is None or due[0] > now:
                    return math.inf if due is None else due[0] - now
                entry = self._entries[due[1]]
                if self._on_parked is not None and entry.state.is_at_end:
                    entry.state = held_shard.parked(entry.state)
                    self._on_parked()
                    continue
                share = self._shared.share_bytes(entry.state)
                pull = next_pull(entry.state, share_bytes=share, batch_bytes=self._limits.max_bytes)
                before, entry.state = entry.state, held_shard.pull_began(entry.state, pull)
                self._count_used(entry, before)
                return entry, pull
            return None

    def _next_due(self) -> tuple[float, int] | None:
        self.is_short = False
        due: list[tuple[float, int]] = []
        for number, entry in self._entries.items():
            share = self._shared.share_bytes(entry.state)
            at_s = pull_due_s(entry.state, share_bytes=share)
            if at_s is not None:
                due.append((at_s, number))
            self.is_short |= is_full(entry.state, share_bytes=share)
        return min(due, default=None)

    def parked(self, on_parked: Callable[[], None] | None) -> dict[int, int | None]:
        """The parked shards, each with its end. From now on shards at their end are parked, and `on_parked`
        is called for each; with None no shard is parked any more."""
        with self.lock:
            self._on_parked = on_parked
            if on_parked is None:
                for entry in self._entries.values():
                    entry.apply_locked(lambda state, now: held_shard.arrived(state, now=now))
            return {
                shard: entry.state.read_to for shard, entry in self._entries.items() if entry.state.is_parked
            }

    def arrived(self, shard: int) -> None:
        """A shard that may be parked has new log groups."""
        with self.lock:
            if shard in self._entries:
                self._entries[shard].apply_locked(lambda state, now: held_shard.arrived(state, now=now))

    def stop_pulls(self) -> None:
        with self.lock:
            self._stopped = True
            self._shared.leave(self)
            self._on_pull()

    def receive(
        self, entry: HeldShardEntry, pull: Pull, result: PullResult, body: PulledBody, *, interval_s: float
    ) -> None:
        """Apply the answer to a pull. Log groups that were requested in an earlier generation are discarded,
        because the shard continues elsewhere."""
        with self.lock:
            now = self.clock.monotonic_s()
            if pull.generation == entry.state.generation and result.groups:
                entry.buffer.add(body, now=now)
            entry.end = result.after if result.is_end else None
            entry.pull_error = ReportedError()
            entry.apply_locked(
                lambda state, now: held_shard.pulled(state, pull, result, interval_s=interval_s, now=now),
            )
