"""The shards of a consumer and the lock around them: their flows, what was pulled, and who waits for what.

User code, the pulls and the caller of `Consumer.run` run in different threads. Each of them applies its event
to a `ShardFlow` under this lock. Nothing that blocks is done under it. That of the membership may be taken
under it, to wake who waits for a change, and never the other way round.

What a consumer keeps of one assignment of a shard.

What the consumers of one program share: the lock of their tables, the bound on what they hold, priorities.

`ShardTable` is a member. Everything but the lock is used under it.

Where one assignment of a shard continues, and whether it is paused. Any thread may use it.
"""

import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from loghub.backoff import Backoff
from loghub.client.port import LogHub
from loghub.clock import Clock
from loghub.wire.cursor import decode as decode_cursor
from loghub_consumer import shard_flow
from loghub_consumer.batch import KeptGroup, LogBatch, PulledBody, batch_again, count_logs
from loghub_consumer.batch_plan import RangeRetry
from loghub_consumer.buffer import ShardBuffer
from loghub_consumer.exchange_files import Positions, Report
from loghub_consumer.failure.policy import FailingRange, FailingShards
from loghub_consumer.log_service import ReportedError
from loghub_consumer.processor import NotAssignedError
from loghub_consumer.shard_flow import (
    ENDING,
    Again,
    FlowPhase,
    NextStep,
    Pull,
    PullResult,
    ReceiveLimits,
    ShardFlow,
    ThreadStep,
    has_backlog,
    is_full,
    next_pull,
    next_step,
    pull_due_s,
    room_to_end,
    share_bytes,
)
from loghub_consumer.unacknowledged import RedeliveryRules, Unacknowledged, Unsettled


@dataclass(frozen=True, slots=True)
class Kept:
    """A batch, the generation of its flow, and what it hands over again; None for new logs."""

    batch: LogBatch
    generation: int
    again: tuple[Unsettled, ...] | None = None


@dataclass(frozen=True, slots=True)
class Waiting:
    """Logs that are handed over again and may not be settled yet, as the report has them."""

    logs: Unsettled
    failing: FailingRange


@dataclass(slots=True)
class ShardSlot:
    """One assignment of a shard. `kept` is the batch that is being processed, or failed."""

    flow: ShardFlow
    buffer: ShardBuffer
    unacknowledged: Unacknowledged
    priority: int = 0
    has_backlog: bool = False
    kept: Kept | None = None
    end: int | None = None  # cursor after the last log group, as last observed
    pull_error: ReportedError = field(default_factory=ReportedError)
    user_error: ReportedError = field(default_factory=ReportedError)
    failure_error: ReportedError = field(default_factory=ReportedError)  # while logs cannot be settled
    waiting: Waiting | None = None  # the last that were found
    wake: Callable[[], None] = lambda: None  # there may be a step for its processor

    @property
    def errors(self) -> tuple[ReportedError, ...]:
        return self.pull_error, self.user_error, self.failure_error

    @property
    def next_cursor(self) -> int:
        """Of the next log group to hand over. Those between the position and what was pulled have expired."""
        return max(self.flow.position, self.buffer.first or 0)


def kept_again(flow: ShardFlow, taken: Sequence[Unsettled]) -> Kept:
    """What is handed over again, as a batch."""
    groups = [
        KeptGroup(one.cursor, one.raw, None if one.only is None else tuple(sorted(one.only))) for one in taken
    ]
    batch = batch_again(flow.shard, groups, delivery=taken[0].delivery)
    return Kept(batch, flow.generation, tuple(taken))


class ShardMember(Protocol):
    """The shards of one consumer."""

    is_short: bool  # something could be pulled if there were more room

    @property
    def shard_count(self) -> int: ...
    @property
    def used_bytes(self) -> int: ...
    @property
    def priorities(self) -> frozenset[int]: ...
    def note_backlogs(self) -> None:
        """Find out which shards have a backlog: so far nobody needed to know."""

    def top_backlog(self) -> int | None: ...
    def notify_pulls(self) -> None: ...
    def notify_below(self, priority: int) -> None: ...


class SharedBuffers:
    """All shards of the members together hold about `max_bytes`. Shards wait while one with a higher priority
    has a backlog."""

    def __init__(self, max_bytes: int) -> None:
        self.lock = threading.Lock()
        self.max_bytes = max_bytes
        self._members: list[ShardMember] = []
        self.shard_count = 0
        self.has_priorities = False  # some shard has another priority than the others

    def join(self, member: ShardMember) -> None:
        self._members.append(member)
        self.members_changed()

    def members_changed(self) -> None:
        """The members have other shards, or these have other priorities."""
        self.shard_count = sum(member.shard_count for member in self._members)
        priorities = frozenset[int]().union(*(member.priorities for member in self._members))
        had_priorities, self.has_priorities = self.has_priorities, len(priorities) > 1
        if self.has_priorities and not had_priorities:
            for member in self._members:
                member.note_backlogs()

    def leave(self, member: ShardMember) -> None:
        """Its shards count no longer, also if they were abandoned."""
        if member in self._members:
            self._members.remove(member)
            self.members_changed()
            self.freed()
            for other in self._members:
                other.notify_below(max(other.priorities, default=0) + 1)

    @property
    def used_bytes(self) -> int:
        return sum(member.used_bytes for member in self._members)

    def share_bytes(self, flow: ShardFlow) -> int:
        """What the shard of this flow may hold now."""
        return share_bytes(
            flow, max_bytes=self.max_bytes, shards=self.shard_count, used_bytes=self.used_bytes
        )

    def freed(self) -> None:
        """There may be more room: wake those that wait for it."""
        for member in self._members:
            if member.is_short:
                member.notify_pulls()

    def must_wait(self, priority: int) -> bool:
        """Whether a shard with a higher priority has a backlog."""
        if not self.has_priorities:
            return False
        tops = (member.top_backlog() for member in self._members)
        return any(top is not None and top > priority for top in tops)

    def backlog_ended(self, priority: int) -> None:
        """A shard of this priority has none any more: wake those that may wait for it."""
        for member in self._members:
            member.notify_below(priority)


FIRST_RETRY_S, MAX_RETRY_S = 0.2, 10.0
Event = Callable[[ShardFlow, float], ShardFlow]


class ShardTable:
    """`failures` is the policy for logs that are refused too often, if there is one. `failure` is an error of
    user code that must end the consumer."""

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
        """`priority` is that of a new shard."""
        self.clock = clock
        self.retries = Backoff(first_s=FIRST_RETRY_S, max_s=MAX_RETRY_S, random=random)
        self._limits = limits
        self._redelivery = redelivery
        self.defers = redelivery.defers
        self.failures: FailingShards | None = None
        self._shared = shared
        self._priority = priority
        self._pauses_all = False
        self.end_time_s: int | None = None  # from then on nothing is handed over of which the end is unknown
        self.lock = shared.lock
        self.is_short = False
        self._slots: dict[int, ShardSlot] = {}
        self._used_bytes = 0  # by all flows; summing them up at each event would cost more than the events
        self._on_pull: Callable[[], None] = lambda: None
        self._on_parked: Callable[[], None] | None = None  # None: no shard is parked
        self._stopped = False
        self._on_change: Callable[[], None] = lambda: None
        self.failure: BaseException | None = None
        with self.lock:
            shared.join(self)

    def call_on_change(self, on_change: Callable[[], None]) -> None:
        """Call this after a change that the caller of `Consumer.run` may act on."""
        self._on_change = on_change

    # -- the port `loghub_consumer.membership.shared_membership.Exchange`

    def write_positions(self, positions: Positions) -> None:
        """Nobody reads them: the shards continue from their flows."""

    def report(self) -> Report:
        """The ends that the pulls observed."""
        with self.lock:
            ends = {number: slot.end for number, slot in self._slots.items() if slot.end is not None}
        return Report(version=-1, ends=ends)

    # -- shards

    def add(self, shard: int, *, epoch: int, position: int) -> ShardSlot:
        with self.lock:
            flow = ShardFlow(shard=shard, epoch=epoch, position=position, read_to=position, began_at=position)
            slot = ShardSlot(
                flow=shard_flow.paused(flow) if self._pauses_all else flow,
                buffer=ShardBuffer(shard, self._limits),
                unacknowledged=Unacknowledged(count_logs),
                priority=self._priority,
            )
            self._slots[shard] = slot
            self._shared.members_changed()
            return slot

    def remove(self, shard: int) -> None:
        with self.lock:
            slot = self._slots.pop(shard)
            self._used_bytes -= slot.flow.used_bytes
            self._shared.members_changed()
            self._on_pull()  # the others have larger shares
            self._shared.freed()
            self._shared.backlog_ended(slot.priority)

    def flows(self) -> dict[int, ShardFlow]:
        with self.lock:
            return {number: slot.flow for number, slot in self._slots.items()}

    def slot(self, shard: int) -> ShardSlot:
        """Raises `NotAssignedError`, also for a shard that is lost."""
        with self.lock:
            slot = self._slots.get(shard)
        if slot is None or slot.flow.phase in (FlowPhase.LOST, FlowPhase.ENDED):
            raise NotAssignedError(f"shard {shard} is not assigned to this consumer")
        return slot

    def working(self) -> dict[int, ShardSlot]:
        """The shards that are neither lost nor ended."""
        with self.lock:
            over = (FlowPhase.LOST, FlowPhase.ENDED)
            return {number: slot for number, slot in self._slots.items() if slot.flow.phase not in over}

    def apply(self, slot: ShardSlot, event: Event) -> ShardFlow:
        """Apply an event at the present time, and wake the threads that it concerns."""
        with self.lock:
            return self.apply_locked(slot, event)

    def apply_locked(self, slot: ShardSlot, event: Event) -> ShardFlow:
        """As `apply`, for a caller that has the lock."""
        before = slot.flow
        slot.flow = event(before, self.clock.monotonic_s())
        if slot.flow.generation != before.generation:
            slot.buffer.clear()
            slot.unacknowledged.discard(slot.flow.position)  # it is read again
            slot.flow = shard_flow.retained(slot.flow, size=slot.unacknowledged.bytes)
        if slot.flow != before:
            slot.wake()
            if not slot.flow.is_pulling:
                self._on_pull()
            self._count_used(slot, before)
            if slot.flow.used_bytes < before.used_bytes:
                self._shared.freed()
            if self._shared.has_priorities:
                had_backlog = slot.has_backlog
                slot.has_backlog = self._has_backlog(slot)
                if had_backlog and not slot.has_backlog:
                    self._shared.backlog_ended(slot.priority)
            if slot.flow.phase in ENDING:
                self._on_change()
        return slot.flow

    def _count_used(self, slot: ShardSlot, before: ShardFlow) -> None:
        if self._slots.get(slot.flow.shard) is slot:
            self._used_bytes += slot.flow.used_bytes - before.used_bytes

    # -- the port `Member`

    @property
    def shard_count(self) -> int:
        return len(self._slots)

    @property
    def used_bytes(self) -> int:
        return self._used_bytes

    @property
    def priorities(self) -> frozenset[int]:
        return frozenset(slot.priority for slot in self._slots.values())

    def note_backlogs(self) -> None:
        for slot in self._slots.values():
            slot.has_backlog = self._has_backlog(slot)

    def top_backlog(self) -> int | None:
        return max((slot.priority for slot in self._slots.values() if slot.has_backlog), default=None)

    def notify_pulls(self) -> None:
        self._on_pull()

    def notify_below(self, priority: int) -> None:
        for slot in self._slots.values():
            if slot.priority < priority:
                slot.wake()

    # -- pauses and priorities

    def pause_all(self, *, is_paused: bool) -> None:
        """Pause or resume all shards, those included that are assigned later."""
        with self.lock:
            self._pauses_all = is_paused
            for slot in self._slots.values():
                if is_paused:
                    self.apply_locked(slot, lambda flow, _: shard_flow.paused(flow))
                else:
                    self.apply_locked(slot, lambda flow, now: shard_flow.resumed(flow, now=now))

    def prioritize(self, slots: Sequence[ShardSlot], priority: int) -> None:
        with self.lock:
            for slot in slots:
                before, slot.priority = slot.priority, priority
                self._shared.members_changed()
                slot.wake()
                self._shared.backlog_ended(before)

    def _has_backlog(self, slot: ShardSlot) -> bool:
        now = self.clock.monotonic_s()
        is_held = self._room(slot) == 0 or self._awaits_retry(slot, now)
        return has_backlog(slot.flow, self._ready_step(slot, now).step, is_held=is_held)

    # -- the end of the consumer

    def fail(self, failure: BaseException) -> None:
        """User code has ended in a way that must end the consumer."""
        with self.lock:
            self.failure = self.failure or failure
        self._on_change()

    # -- the turns of a shard

    def next_step(self, slot: ShardSlot) -> tuple[ThreadStep, float]:
        """What is due in a shard, and how long nothing is. A batch to process is then in `slot.kept`."""
        with self.lock:
            now = self.clock.monotonic_s()
            self.apply_locked(slot, lambda flow, now: shard_flow.roll_back_ended(flow, now=now))
            step = self._next_step(slot, now)
            if step.step is not ThreadStep.WAIT:
                self._begin(slot, step.step)
                return step.step, 0.0
            return ThreadStep.WAIT, math.inf if step.at_s is None else max(0.0, step.at_s - now)

    def _next_step(self, slot: ShardSlot, now: float) -> NextStep:
        step = self._ready_step(slot, now)
        may_wait = step.step in (ThreadStep.PROCESS, ThreadStep.REDELIVER)
        if may_wait and self._shared.must_wait(slot.priority):
            return NextStep(ThreadStep.WAIT)  # `SharedBuffers.backlog_ended` wakes the shard
        return step

    def _ready_step(self, slot: ShardSlot, now: float) -> NextStep:
        """What the shard by itself could do."""
        share = self._shared.share_bytes(slot.flow)
        again = Again(due_s=slot.unacknowledged.due_s, is_full=self._room(slot) == 0)
        full = is_full(slot.flow, share_bytes=share)
        step = next_step(slot.flow, slot.buffer.summary, self._limits, is_full=full, now=now, again=again)
        retry = (
            self._retry(slot) if step.step is ThreadStep.PROCESS and self._awaits_retry(slot, now) else None
        )
        return step if retry is None else NextStep(ThreadStep.WAIT, retry.not_before_s)

    def _awaits_retry(self, slot: ShardSlot, now: float) -> bool:
        """Whether the next batch of the shard begins with logs that failed and must wait. That is what an
        earlier process of a worker knew: a batch that failed in this one is kept."""
        retry, flow = self._retry(slot), slot.flow
        if retry is None or flow.keeps_batch or retry.begin != flow.position:
            return False
        return (retry.not_before_s or now) > now

    def _room(self, slot: ShardSlot) -> int | None:
        floor, flow = slot.unacknowledged.floor, slot.flow
        has_passed = self.end_time_s is not None and self.clock.unix_s() >= self.end_time_s
        to_end = room_to_end(flow, first=slot.next_cursor, has_passed=has_passed)
        rooms = (self._redelivery.room(floor=floor, position=flow.position), to_end)
        return min((room for room in rooms if room is not None), default=None)

    def _most(self, slot: ShardSlot) -> int | None:
        """The most log groups of the next batch; None: any number."""
        room, retry = self._room(slot), self._retry(slot)
        if retry is None:
            return room
        maximum = retry.begin - slot.flow.position or retry.log_groups  # what fails begins a batch
        return maximum if room is None else min(room, maximum)

    def _retry(self, slot: ShardSlot) -> RangeRetry | None:
        """What fails at the position of a shard, or behind it."""
        retry = None if self.failures is None else self.failures.retries.get(slot.flow.shard)
        return None if retry is None or retry.begin < slot.flow.position else retry

    def _take_again(self, slot: ShardSlot) -> Kept:
        now = self.clock.monotonic_s()
        taken = slot.unacknowledged.take_due(
            max_bytes=self._limits.max_bytes, now=now, again=self._redelivery.again(now)
        )
        return kept_again(slot.flow, taken)

    def _begin(self, slot: ShardSlot, step: ThreadStep) -> None:
        if step is ThreadStep.REDELIVER:
            slot.kept = self._take_again(slot)
            self.apply_locked(slot, lambda flow, _: shard_flow.batch_began(flow))
        elif step is ThreadStep.PROCESS:
            if slot.kept is None or not slot.flow.keeps_batch:
                batch = slot.buffer.take(max_groups=self._most(slot), end=slot.flow.end)
                slot.kept = Kept(batch, slot.flow.generation)
            self.apply_locked(slot, lambda flow, _: shard_flow.batch_began(flow))
        elif step in (ThreadStep.INITIALIZE, ThreadStep.SHUT_DOWN):
            self.apply_locked(slot, lambda flow, _: shard_flow.user_code_began(flow))

    def end_batch(self, slot: ShardSlot, event: Event) -> ShardFlow:
        """Apply the event that ends a batch."""
        with self.lock:
            flow = self.apply_locked(slot, event)
            if not flow.keeps_batch:
                slot.kept = None
            return flow

    # -- pulls

    def call_on_pull(self, on_pull: Callable[[], None]) -> None:
        """Call this when `begin_pull` may have something earlier. It must not wait."""
        self._on_pull = on_pull

    def begin_pull(self) -> tuple[ShardSlot, Pull] | float | None:
        """A pull that is due, or how long none is; None once the table is stopped."""
        with self.lock:
            while not self._stopped:
                due = self._next_due()
                now = self.clock.monotonic_s()
                if due is None or due[0] > now:
                    return math.inf if due is None else due[0] - now
                slot = self._slots[due[1]]
                if self._on_parked is not None and slot.flow.is_at_end:
                    slot.flow = shard_flow.parked(slot.flow)
                    self._on_parked()
                    continue
                share = self._shared.share_bytes(slot.flow)
                pull = next_pull(slot.flow, share_bytes=share, batch_bytes=self._limits.max_bytes)
                before, slot.flow = slot.flow, shard_flow.pull_began(slot.flow, pull)
                self._count_used(slot, before)
                return slot, pull
            return None

    def _next_due(self) -> tuple[float, int] | None:
        self.is_short = False
        found: list[tuple[float, int]] = []
        for number, slot in self._slots.items():
            share = self._shared.share_bytes(slot.flow)
            at_s = pull_due_s(slot.flow, share_bytes=share)
            if at_s is not None:
                found.append((at_s, number))
            self.is_short |= is_full(slot.flow, share_bytes=share)
        return min(found, default=None)

    def parked(self, on_parked: Callable[[], None] | None) -> dict[int, int | None]:
        """The shards that are parked, and their ends. From now on those at their ends are, which
        `on_parked` reports; None: from now on none is."""
        with self.lock:
            self._on_parked = on_parked
            if on_parked is None:
                for slot in self._slots.values():
                    self._arrived(slot)
            return {shard: slot.flow.read_to for shard, slot in self._slots.items() if slot.flow.is_parked}

    def arrived(self, shard: int) -> None:
        """A shard that may be parked has new log groups."""
        with self.lock:
            if shard in self._slots:
                self._arrived(self._slots[shard])

    def _arrived(self, slot: ShardSlot) -> None:
        self.apply_locked(slot, lambda flow, now: shard_flow.arrived(flow, now=now))

    def stop_pulls(self) -> None:
        with self.lock:
            self._stopped = True
            self._shared.leave(self)
            self._on_pull()

    def receive(
        self, slot: ShardSlot, pull: Pull, result: PullResult, body: PulledBody, *, interval_s: float
    ) -> None:
        """Apply the answer to a pull. The log groups of an earlier generation are discarded."""
        with self.lock:
            now = self.clock.monotonic_s()
            if pull.generation == slot.flow.generation and result.groups:
                slot.buffer.add(body, now=now)
            slot.end = result.after if result.is_end else None
            slot.pull_error = ReportedError()
            self.apply_locked(
                slot,
                lambda flow, now: shard_flow.pulled(flow, pull, result, interval_s=interval_s, now=now),
            )


class SlotControl:
    """`seek`, `pause` and `resume` raise `NotAssignedError` once the shard is lost."""

    def __init__(self, table: ShardTable, slot: ShardSlot, client: LogHub, *, logstore: str) -> None:
        self._table = table
        self._slot = slot
        self._client = client
        self._logstore = logstore

    def seek(self, to: str | int) -> None:
        self._require()
        cursor = to
        if isinstance(to, int) or to in ("begin", "end"):
            cursor = self._client.get_cursor(self._logstore, self._slot.flow.shard, to)  # type: ignore[arg-type]
        position = decode_cursor(str(cursor))
        self._table.apply(self._slot, lambda flow, now: shard_flow.sought(flow, to=position, now=now))

    def pause(self) -> None:
        self._require()
        self._table.apply(self._slot, lambda flow, _: shard_flow.paused(flow))

    def resume(self) -> None:
        self._require()
        self._table.apply(self._slot, lambda flow, now: shard_flow.resumed(flow, now=now))

    @property
    def flow(self) -> ShardFlow:
        return self._slot.flow

    def roll_back(self, to: int) -> None:
        """Continue at an earlier cursor; never at a later one, and nothing happens to a lost shard."""
        self._table.apply(
            self._slot,
            lambda flow, now: shard_flow.sought(flow, to=to, now=now) if to < flow.position else flow,
        )

    @property
    def is_given_up(self) -> bool:
        """Whether nothing of the shard is processed any more."""
        return self._slot.flow.phase in ENDING

    def _require(self) -> None:
        if self._slot.flow.phase in (FlowPhase.LOST, FlowPhase.ENDED):
            raise NotAssignedError(f"shard {self._slot.flow.shard} is not assigned to this consumer")
