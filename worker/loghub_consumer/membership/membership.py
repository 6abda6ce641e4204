"""The membership of one consumer as a pure state machine: what to send, and which shards may be processed.

Every decision about heartbeats, assignment, release and fencing is made in this module, with ``now`` as an
argument. `loghub_consumer.membership.shared_membership` is the lock around it, and
`loghub_consumer.membership.heartbeat` sends the requests; the number of a request identifies its answer.

The states of a shard in a worker: an answer lists it -> opening (its position to resume from is being
determined) -> open (its position is passed to the source) -> an answer no longer lists it -> draining (no new
batch reads it, but heartbeats still report it) -> released (the next heartbeat, sent immediately, omits it).
Only a shard that is no longer reported may be assigned to another consumer (docs/sls-protocol.md 4.3).

Heartbeats are more frequent while the assignment changes: after a change another one is likely, because other
consumers give up their shards one by one, at their next heartbeats, and only an answer says that one of these
shards is ours.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from loghub.backoff import Backoff, without_jitter
from loghub_consumer.batch_plan import GroupSize, Range, smoothed

CHANGING_INTERVALS = 2  # a shard moves within two heartbeats: one consumer gives it up, the other takes it
CHANGING_FRACTION, MIN_CHANGING_S = 0.2, 0.2
FIRST_RETRY_S = 1.0  # after a failed heartbeat; further pauses are longer, up to an interval


class HeartbeatPace:
    """The pauses between heartbeats, in seconds of a monotonic clock."""

    def __init__(self, interval_s: float, *, random: Callable[[], float]) -> None:
        self._interval_s = interval_s
        self._random = random
        self._failures = 0  # consecutive
        self._assigned: tuple[int, ...] | None = None  # by the last answer
        self._changing_until_s = 0.0

    def has_changed(self, assigned: tuple[int, ...]) -> bool:
        """Whether heartbeats are answered, and the last answer had other shards."""
        return not self._failures and assigned != self._assigned

    def retimed(self, interval_s: float) -> None:
        """Set another interval between heartbeats."""
        self._interval_s = interval_s

    def failed(self, *, now: float) -> float:
        """The time of the next heartbeat, after one that failed now."""
        self._failures += 1
        retries = Backoff(first_s=FIRST_RETRY_S, max_s=self._interval_s, random=self._random)
        return now + retries.pause_s(self._failures)

    def answered(self, assigned: tuple[int, ...], *, sent_s: float) -> float:
        """The time of the next heartbeat, after one that was answered with these shards."""
        self._failures = 0
        if assigned != self._assigned:
            self._assigned = assigned
            self._changing_until_s = sent_s + CHANGING_INTERVALS * self._interval_s
        if sent_s >= self._changing_until_s:
            return sent_s + self._interval_s
        return sent_s + min(self._interval_s, max(MIN_CHANGING_S, self._interval_s * CHANGING_FRACTION))


@dataclass(frozen=True, slots=True)
class SendHeartbeat:
    """Send a heartbeat that reports these shards."""

    number: int
    held: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LeaveRequest:
    """Tell the service that this consumer leaves the group."""

    number: int


# The worker's session ends earlier than the service's by this part of the timeout, and at most by this many
# seconds: time for a commit that has begun to finish while the shard is still ours.
MARGIN_FRACTION, MAX_MARGIN_S = 0.2, 5.0

RELEASED = -1  # `MemberShard.revoked_version` once the source no longer reads the shard


class ShardPhase(StrEnum):
    """The state of one shard in this worker."""

    OPENING = "opening"  # listed in an answer; the position to resume from is not known yet
    OPEN = "open"  # the source may read it
    DRAINING = "draining"  # the source may no longer read it, but its running batch may contain it
    DRAINED = "drained"  # all is saved, but the shard is not released: heartbeats still report it


class MemberState(StrEnum):
    """The state of the consumer in its group."""

    JOINING = "joining"  # no heartbeat has succeeded yet
    MEMBER = "member"  # the session is valid
    FENCED = "fenced"  # no heartbeat has succeeded for too long: nothing is held, nothing may be committed
    LEFT = "left"  # is no longer a member of the group


class ShutdownMode(StrEnum):
    """What the worker does with its shards."""

    SERVE = "serve"
    STOP = "stop"  # drain, but stay a member: a restart within the timeout moves no shard
    LEAVE = "leave"  # drain, release every shard, leave the group


@dataclass(frozen=True, slots=True, kw_only=True)
class MembershipTimings:
    """The timings of a membership, in seconds."""

    interval_s: float
    timeout_s: float
    margin_s: float  # the worker's session ends this much earlier than the service's

    @classmethod
    def of(cls, *, interval_s: float, timeout_s: float) -> "MembershipTimings":
        """Timings with the usual margin, in which a commit can finish."""
        margin_s = min(MAX_MARGIN_S, timeout_s * MARGIN_FRACTION)
        return cls(interval_s=interval_s, timeout_s=timeout_s, margin_s=margin_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberShard:
    """One shard between its assignment and its release. ``epoch`` distinguishes one assignment of it from the
    next."""

    shard: int
    epoch: int
    phase: ShardPhase = ShardPhase.OPENING
    position: int | None = None  # cursor at which the next batch begins; everything before is in the sink
    saved: int | None = None  # checkpoint that the service accepted
    revoked_version: int = 0  # version of the positions that first omitted it
    refused: bool = False  # the service reports that it is not assigned to this consumer
    logs: int = 0
    group_size: GroupSize | None = None  # mean of its log groups


class Membership:
    """The membership of one consumer. It is not thread-safe:
    `loghub_consumer.membership.shared_membership.SharedState` is its lock."""

    def __init__(self, timings: MembershipTimings, *, random: Callable[[], float] = without_jitter) -> None:
        self.timings = timings
        self.state = MemberState.JOINING
        self.shutdown_mode = ShutdownMode.SERVE
        self.version = 0  # increases with each change of `positions`
        self.last_good_s: float | None = None  # when the last successful heartbeat was sent
        self._shards: dict[int, MemberShard] = {}
        self._last_epoch = 0
        self._next_send_s: float | None = None  # None: immediately
        self._pace = HeartbeatPace(timings.interval_s, random=random)
        self._has_unreported_change = False  # something changed that the request in flight does not report
        self._sent: tuple[int, float] | None = None  # number and time of the request in flight
        self._last_number = 0
        self._seen_version = -1
        self._source_runs = False

    # -- what other modules may read

    @property
    def shards(self) -> tuple[MemberShard, ...]:
        return tuple(self._shards[shard] for shard in sorted(self._shards))

    @property
    def positions(self) -> dict[int, int]:
        """What the source may read: the open shards and the cursor from which each continues."""
        return {
            s.shard: s.position for s in self.shards if s.phase is ShardPhase.OPEN and s.position is not None
        }

    @property
    def group_sizes(self) -> dict[int, GroupSize]:
        """The mean size of the log groups of the held shards, where it was measured."""
        return {s.shard: s.group_size for s in self.shards if s.group_size is not None}

    @property
    def snapshot(self) -> tuple[object, ...]:
        """A value that differs from an earlier value if something happened for which another thread may
        wait."""
        shards = tuple(self._shards.values())
        return (self.version, self.state, self.shutdown_mode, self._next_send_s, shards)

    @property
    def drained(self) -> bool:
        """Whether no shard is opening, open or draining."""
        return all(s.phase is ShardPhase.DRAINED for s in self._shards.values())

    def session_left_s(self, now: float) -> float:
        """Seconds until this consumer must stop; negative once its session is over, and before the first
        heartbeat."""
        if self.last_good_s is None:
            return -1.0
        return self.last_good_s + self.timings.timeout_s - self.timings.margin_s - now

    # -- requests to the service and their answers

    def poll(self, now: float) -> SendHeartbeat | LeaveRequest | None:
        """The request to send now, if any; it is in flight until `answered`, `left` or `failed`."""
        self._fence_if_due(now)
        is_early = self._next_send_s is not None and now < self._next_send_s
        if is_early or self._sent is not None or self.state is MemberState.LEFT:
            return None
        self._last_number += 1
        self._sent = (self._last_number, now)
        self._has_unreported_change = False
        if self.shutdown_mode is ShutdownMode.LEAVE and not self._shards:
            return LeaveRequest(self._last_number)
        return SendHeartbeat(self._last_number, tuple(sorted(self._shards)))

    def wake_in_s(self, now: float) -> float:
        """Seconds until `poll` has something new to do, if nothing happens before."""
        due = [self.timings.interval_s]
        if self._sent is None and self.state is not MemberState.LEFT:
            due.append(0.0 if self._next_send_s is None else self._next_send_s - now)
        if self.state is MemberState.MEMBER:
            due.append(self.session_left_s(now))
        return max(0.0, min(due))

    def answered(self, number: int, assigned: tuple[int, ...], *, now: float) -> None:
        """Handle the answer to a heartbeat, which lists these shards. An answer to any other request than the
        one in flight changes nothing."""
        sent_s = self._close_request(number)
        if sent_s is None:
            return
        if now >= sent_s + self.timings.timeout_s - self.timings.margin_s:
            # The service may have timed this consumer out after it answered: send another heartbeat.
            self._next_send_s = None
            return
        self.last_good_s = sent_s
        next_s = self._pace.answered(assigned, sent_s=sent_s)
        self._next_send_s = None if self._has_unreported_change else next_s
        if self.state is not MemberState.LEFT:
            self.state = MemberState.MEMBER
        self._apply_assignment(assigned)

    def failed(self, number: int, *, now: float) -> None:
        """Handle the failure of a request. Held shards stay held while the session lasts."""
        if self._close_request(number) is not None:
            self._next_send_s = self._pace.failed(now=now)

    def forgotten(self, number: int) -> None:
        """Handle the answer that the group does not know this consumer: it was silent for too long, or the
        group is a new one. Its shards may belong to others, so it gives them up and joins again."""
        if self._close_request(number) is not None:
            self._fence()

    def assignment_seen(self, assigned: tuple[int, ...], *, now: float) -> None:
        """These shards are assigned to this consumer now, as the log service reports. If they differ, a
        heartbeat is sent early; the report is no answer, and changes neither the shards nor the session."""
        if self.state is MemberState.MEMBER and self._pace.has_changed(assigned):
            # Another heartbeat is due even if one is in flight, whose answer may be older.
            self._has_unreported_change = True
            if self._next_send_s is not None and self.last_good_s is not None:
                self._next_send_s = min(self._next_send_s, max(now, self.last_good_s + MIN_CHANGING_S))

    def left(self, number: int) -> None:
        """Handle the answer to `LeaveRequest`: this consumer is no longer a member."""
        if self._close_request(number) is not None:
            self.state = MemberState.LEFT

    def _close_request(self, number: int) -> float | None:
        if self._sent is None or self._sent[0] != number:
            return None
        sent_s = self._sent[1]
        self._sent = None
        return sent_s

    def _apply_assignment(self, assigned: tuple[int, ...]) -> None:
        for shard in self.shards:
            if shard.shard not in assigned and shard.phase in (ShardPhase.OPENING, ShardPhase.OPEN):
                self._revoke(shard)
            elif shard.shard not in assigned and shard.phase is ShardPhase.DRAINED:
                self._release(shard)
        if self.shutdown_mode is ShutdownMode.SERVE:
            for number in assigned:
                if number not in self._shards:
                    self._last_epoch += 1
                    self._shards[number] = MemberShard(shard=number, epoch=self._last_epoch)

    def _revoke(self, shard: MemberShard) -> None:
        if shard.phase is ShardPhase.OPENING:
            self._release(shard)  # the source does not know of it yet
            return
        self.version += 1
        self._put(replace(shard, phase=ShardPhase.DRAINING, revoked_version=self.version))
        self._finish_drains()

    def _release(self, shard: MemberShard) -> None:
        del self._shards[shard.shard]
        self._send_immediately()

    def _send_immediately(self) -> None:
        self._next_send_s = None
        # A heartbeat in flight does not have it, and its answer would set the next time.
        self._has_unreported_change = True

    def _put(self, shard: MemberShard) -> None:
        self._shards[shard.shard] = shard

    def _fence_if_due(self, now: float) -> None:
        if self.state is MemberState.MEMBER and self.session_left_s(now) <= 0:
            self._fence()

    def _fence(self) -> None:
        self.state = MemberState.FENCED
        self._shards.clear()
        self.version += 1
        self._next_send_s = None

    # -- requests of the worker itself

    def set_shutdown_mode(self, mode: ShutdownMode) -> None:
        """Stop or leave. `STOP` may still change to `LEAVE`; no mode changes back to `SERVE`."""
        if mode is self.shutdown_mode or self.shutdown_mode is ShutdownMode.LEAVE:
            return
        self.shutdown_mode = mode
        for shard in self.shards:
            if shard.phase in (ShardPhase.OPENING, ShardPhase.OPEN):
                self._revoke(shard)
            elif shard.phase is ShardPhase.DRAINED:
                self._release(shard)
        self._send_immediately()

    def abandon(self) -> None:
        """Give up every shard although a batch of them runs, and leave the group. Nothing of that batch may
        be committed or saved any more, even if the batch continues."""
        self.shutdown_mode = ShutdownMode.LEAVE
        self._shards.clear()
        self.version += 1
        self._send_immediately()

    def retimed(self, timings: MembershipTimings) -> None:
        """The group has another timeout. It counts from now on, and a heartbeat is sent at once."""
        if timings != self.timings:
            self.timings = timings
            self._pace.retimed(timings.interval_s)
            self._send_immediately()

    # -- changes of the held shards

    def opened(self, shard: int, *, epoch: int, position: int, saved: int | None) -> None:
        """The position to resume from is known for an opening shard, so the source may read it."""
        held = self._find(shard, epoch)
        if held is not None and held.phase is ShardPhase.OPENING:
            self._put(replace(held, phase=ShardPhase.OPEN, position=position, saved=saved))
            self.version += 1

    def refused(self, shard: int, *, epoch: int) -> None:
        """The service reports that the shard is not assigned to this consumer, so no further checkpoint of it
        can be saved."""
        held = self._find(shard, epoch)
        if held is not None and held.phase in (ShardPhase.OPENING, ShardPhase.OPEN):
            self._revoke(held)
            held = self._find(shard, epoch)
        if held is not None:
            self._put(replace(held, saved=held.position, refused=True))
            self._finish_drains()

    def reopen(self, shard: int) -> None:
        """The records of the sink differ from the shard's position: determine the position again."""
        held = self._shards.get(shard)
        if held is not None and held.phase is ShardPhase.OPEN:
            self._last_epoch += 1
            self.version += 1
            self._put(replace(held, epoch=self._last_epoch, phase=ShardPhase.OPENING, position=None))

    def may_commit(self, ranges: tuple[Range, ...], *, now: float) -> bool:
        """Whether a batch of these ranges may reach the sink now: the session is valid, and the position of
        each shard is exactly the begin of its range, so no other consumer delivered the range in the
        meantime."""
        self._fence_if_due(now)
        return self.state is MemberState.MEMBER and all(self._is_at(r) for r in ranges)

    def _is_at(self, shard_range: Range) -> bool:
        held = self._shards.get(shard_range.shard)
        working = held is not None and held.phase in (ShardPhase.OPEN, ShardPhase.DRAINING)
        return working and held is not None and held.position == shard_range.begin

    def committed(
        self, ranges: tuple[Range, ...], *, logs: Mapping[int, int], read_bytes: Mapping[int, int]
    ) -> None:
        """The sink has the batch; `logs` and `bytes` are by shard."""
        self.version += 1
        for shard_range in ranges:
            if self._is_at(shard_range):
                held = self._shards[shard_range.shard]
                count = logs.get(shard_range.shard, 0)
                size = smoothed(
                    held.group_size,
                    read_bytes=read_bytes.get(shard_range.shard, 0),
                    logs=count,
                    groups=shard_range.groups,
                )
                self._put(replace(held, position=shard_range.end, logs=held.logs + count, group_size=size))

    def moved(self, shard: int, *, epoch: int, position: int, now: float) -> bool:
        """Continue this assignment of the shard at `position`, which may lie before the present one. False if
        the assignment or the session has ended: then another consumer may have the shard."""
        self._fence_if_due(now)
        held = self._find(shard, epoch)
        may_move = held is not None and held.phase in (ShardPhase.OPEN, ShardPhase.DRAINING)
        if held is None or not may_move or held.refused or self.state is not MemberState.MEMBER:
            return False
        if held.position != position:
            self.version += 1
            self._put(replace(held, position=position))
        return True

    def unsaved(self) -> tuple[MemberShard, ...]:
        """The shards whose position is not saved in the service yet."""
        return tuple(s for s in self.shards if s.position is not None and s.saved != s.position)

    def saved(self, shard: int, *, epoch: int, cursor: int) -> None:
        """The service accepted this checkpoint."""
        held = self._find(shard, epoch)
        if held is not None:
            self._put(replace(held, saved=cursor))
            self._finish_drains()

    def source_started(self) -> None:
        """From now on the source may hold any shard of the positions that it can read."""
        self._source_runs = True
        self._seen_version = -1

    def source_stopped(self) -> None:
        """No batch runs, and none will start."""
        self._source_runs = False
        self._finish_drains()

    def source_saw(self, version: int) -> None:
        """The source plans by this version; every batch planned before it has ended."""
        self._seen_version = max(self._seen_version, min(version, self.version))
        self._finish_drains()

    def source_released(self, shard: int, *, epoch: int) -> None:
        """The source no longer reads this draining shard."""
        held = self._find(shard, epoch)
        if held is not None and held.phase is ShardPhase.DRAINING:
            self._put(replace(held, revoked_version=RELEASED))
            self._finish_drains()

    def _finish_drains(self) -> None:
        for shard in self.shards:
            no_batch_reads_it = not self._source_runs or self._seen_version >= shard.revoked_version
            if shard.phase is ShardPhase.DRAINING and no_batch_reads_it and shard.saved == shard.position:
                if self.shutdown_mode is ShutdownMode.STOP:
                    self._put(replace(shard, phase=ShardPhase.DRAINED))
                else:
                    self._release(shard)

    def _find(self, shard: int, epoch: int) -> MemberShard | None:
        held = self._shards.get(shard)
        return held if held is not None and held.epoch == epoch else None
