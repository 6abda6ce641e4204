"""The membership of one consumer as a pure state machine: what to send, and which shards may be processed.

Every decision about heartbeats, assignment, release and fencing is made in this module, with ``now`` as an
argument. `loghub_worker.membership.shared_state` is the lock around it, and
`loghub_worker.membership.heartbeat` sends the requests.

The states of a shard in a worker: an answer lists it -> opening (its position to resume from is being
determined) -> open (its position is passed to the source) -> an answer no longer lists it -> draining (no new
batch reads it, but heartbeats still report it) -> released (the next heartbeat, sent immediately, omits it).
Only a shard that is no longer reported may be assigned to another consumer (docs/sls-protocol.md 4.3).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from loghub_worker.batch_plan import Range, smoothed

RETRY_S = 1.0  # a failed heartbeat is retried after this, or after the interval if that is shorter


class Phase(StrEnum):
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


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldShard:
    """One shard between its assignment and its release. ``epoch`` distinguishes one assignment of it from the
    next."""

    shard: int
    epoch: int
    phase: Phase = Phase.OPENING
    position: int | None = None  # cursor at which the next batch begins; everything before is in the sink
    saved: int | None = None  # checkpoint that the service accepted
    drop_version: int = 0  # version of the positions that first omitted it
    logs: int = 0
    group_bytes: float | None = None  # mean size of its log groups


@dataclass(frozen=True, slots=True)
class Beat:
    """Send a heartbeat that reports these shards."""

    number: int
    held: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Leave:
    """Tell the service that this consumer leaves the group."""

    number: int


class Membership:
    """The membership of one consumer. It is not thread-safe:
    `loghub_worker.membership.shared_state.SharedState` is its lock."""

    def __init__(self, terms: MembershipTimings) -> None:
        self.terms = terms
        self.standing = MemberState.JOINING
        self.goal = ShutdownMode.SERVE
        self.version = 0  # increases with each change of `positions`
        self.last_good_s: float | None = None  # when the last successful heartbeat was sent
        self._shards: dict[int, HeldShard] = {}
        self._takes = 0
        self._next_send_s: float | None = None  # None: immediately
        self._is_news = False  # something changed that the request in flight does not report
        self._sent: tuple[int, float] | None = None  # number and time of the request in flight
        self._numbers = 0
        self._seen_version = -1
        self._source_runs = False

    # -- what other modules may read

    @property
    def shards(self) -> tuple[HeldShard, ...]:
        return tuple(self._shards[shard] for shard in sorted(self._shards))

    @property
    def positions(self) -> dict[int, int]:
        """What the source may read: the open shards and the cursor from which each continues."""
        return {s.shard: s.position for s in self.shards if s.phase is Phase.OPEN and s.position is not None}

    @property
    def group_bytes(self) -> dict[int, float]:
        """The mean size of the log groups of the held shards, where it was measured."""
        return {s.shard: s.group_bytes for s in self.shards if s.group_bytes is not None}

    @property
    def mark(self) -> tuple[object, ...]:
        """Differs from an earlier value if something happened that another thread may wait for."""
        return (self.version, self.standing, self.goal, self._next_send_s, self.shards)

    @property
    def drained(self) -> bool:
        """No shard is opening, open or draining."""
        return all(s.phase is Phase.DRAINED for s in self._shards.values())

    def lease_s(self, now: float) -> float:
        """Seconds until this consumer must stop; negative once its session is over, and before the first
        heartbeat."""
        if self.last_good_s is None:
            return -1.0
        return self.last_good_s + self.terms.timeout_s - self.terms.margin_s - now

    # -- requests to the service and their answers

    def poll(self, now: float) -> Beat | Leave | None:
        """The request to send now, if any; it is in flight until `answered`, `left` or `failed`."""
        self._fence_if_due(now)
        if self._sent is not None or self.standing is MemberState.LEFT:
            return None
        if self._next_send_s is not None and now < self._next_send_s:
            return None
        self._numbers += 1
        self._sent = (self._numbers, now)
        self._is_news = False
        if self.goal is ShutdownMode.LEAVE and not self._shards:
            return Leave(self._numbers)
        return Beat(self._numbers, tuple(sorted(self._shards)))

    def wake_in_s(self, now: float) -> float:
        """Seconds until `poll` has something new to do, if nothing happens before."""
        due = [self.terms.interval_s]
        if self._sent is None and self.standing is not MemberState.LEFT:
            due.append(0.0 if self._next_send_s is None else self._next_send_s - now)
        if self.standing is MemberState.MEMBER:
            due.append(self.lease_s(now))
        return max(0.0, min(due))

    def answered(self, number: int, named: tuple[int, ...], *, now: float) -> None:
        """Handle the answer to a heartbeat, which lists these shards. An answer to any other request than the
        one in flight changes nothing."""
        sent_s = self._close_request(number)
        if sent_s is None:
            return
        if now >= sent_s + self.terms.timeout_s - self.terms.margin_s:
            # The service may have timed this consumer out after it answered: send another heartbeat.
            self._next_send_s = None
            return
        self.last_good_s = sent_s
        self._next_send_s = None if self._is_news else sent_s + self.terms.interval_s
        if self.standing is not MemberState.LEFT:
            self.standing = MemberState.MEMBER
        self._take_and_drop(named)

    def failed(self, number: int, *, now: float) -> None:
        """Handle the failure of a request. Held shards stay held while the session lasts."""
        if self._close_request(number) is not None:
            self._next_send_s = now + min(self.terms.interval_s, RETRY_S)

    def left(self, number: int) -> None:
        """Handle the answer to `Leave`: this consumer is no longer a member."""
        if self._close_request(number) is not None:
            self.standing = MemberState.LEFT

    def _close_request(self, number: int) -> float | None:
        if self._sent is None or self._sent[0] != number:
            return None
        sent_s = self._sent[1]
        self._sent = None
        return sent_s

    def _take_and_drop(self, named: tuple[int, ...]) -> None:
        for shard in self.shards:
            if shard.shard not in named and shard.phase in (Phase.OPENING, Phase.OPEN):
                self._drop(shard)
            elif shard.shard not in named and shard.phase is Phase.DRAINED:
                self._give_up(shard)
        if self.goal is ShutdownMode.SERVE:
            for number in named:
                if number not in self._shards:
                    self._takes += 1
                    self._shards[number] = HeldShard(shard=number, epoch=self._takes)

    def _drop(self, shard: HeldShard) -> None:
        if shard.phase is Phase.OPENING:
            self._give_up(shard)  # the source does not know of it yet
            return
        self.version += 1
        self._put(replace(shard, phase=Phase.DRAINING, drop_version=self.version))
        self._finish_drains()

    def _give_up(self, shard: HeldShard) -> None:
        del self._shards[shard.shard]
        self._send_at_once()

    def _send_at_once(self) -> None:
        self._next_send_s = None
        self._is_news = True  # for a heartbeat in flight, whose answer sets the next time

    def _put(self, shard: HeldShard) -> None:
        self._shards[shard.shard] = shard

    def _fence_if_due(self, now: float) -> None:
        if self.standing is not MemberState.MEMBER or self.lease_s(now) > 0:
            return
        self.standing = MemberState.FENCED
        self._shards.clear()
        self.version += 1
        self._next_send_s = None

    # -- requests of the worker itself

    def set_goal(self, goal: ShutdownMode) -> None:
        """Stop or leave. `STOP` may still change to `LEAVE`; no mode changes back to `SERVE`."""
        if goal is self.goal or self.goal is ShutdownMode.LEAVE:
            return
        self.goal = goal
        for shard in self.shards:
            if shard.phase in (Phase.OPENING, Phase.OPEN):
                self._drop(shard)
            elif shard.phase is Phase.DRAINED:
                self._give_up(shard)
        self._send_at_once()

    # -- changes of the held shards

    def opened(self, shard: int, *, epoch: int, position: int, saved: int | None) -> None:
        """The position to resume from is known for an opening shard, so the source may read it."""
        held = self._find(shard, epoch)
        if held is not None and held.phase is Phase.OPENING:
            self._put(replace(held, phase=Phase.OPEN, position=position, saved=saved))
            self.version += 1

    def refused(self, shard: int, *, epoch: int) -> None:
        """The service reports that the shard is not assigned to this consumer, so no further checkpoint of it
        can be saved."""
        held = self._find(shard, epoch)
        if held is None:
            return
        if held.phase in (Phase.OPENING, Phase.OPEN):
            self._drop(held)
        held = self._find(shard, epoch)
        if held is not None:
            self._put(replace(held, saved=held.position))
            self._finish_drains()

    def reopen(self, shard: int) -> None:
        """The records of the sink differ from the shard's position: determine the position again."""
        held = self._shards.get(shard)
        if held is not None and held.phase is Phase.OPEN:
            self._takes += 1
            self.version += 1
            self._put(replace(held, epoch=self._takes, phase=Phase.OPENING, position=None))

    def may_commit(self, ranges: tuple[Range, ...], *, now: float) -> bool:
        """Whether a batch of these ranges may reach the sink now: the session is valid, and the position of
        each shard is exactly the begin of its range, so no other consumer delivered the range in the
        meantime."""
        self._fence_if_due(now)
        return self.standing is MemberState.MEMBER and all(self._is_at(r) for r in ranges)

    def _is_at(self, piece: Range) -> bool:
        held = self._shards.get(piece.shard)
        working = held is not None and held.phase in (Phase.OPEN, Phase.DRAINING)
        return working and held is not None and held.position == piece.begin

    def committed(
        self, ranges: tuple[Range, ...], *, logs: Mapping[int, int], read_bytes: Mapping[int, int]
    ) -> None:
        """The sink has the batch; logs and bytes are by shard."""
        self.version += 1
        for piece in ranges:
            if self._is_at(piece):
                held = self._shards[piece.shard]
                count = held.logs + logs.get(piece.shard, 0)
                size = smoothed(
                    held.group_bytes, read_bytes=read_bytes.get(piece.shard, 0), groups=piece.groups
                )
                self._put(replace(held, position=piece.end, logs=count, group_bytes=size))

    def unsaved(self) -> tuple[HeldShard, ...]:
        """The shards whose position the service does not have yet."""
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

    def _finish_drains(self) -> None:
        for shard in self.shards:
            gone = not self._source_runs or self._seen_version >= shard.drop_version
            if shard.phase is Phase.DRAINING and gone and shard.saved == shard.position:
                if self.goal is ShutdownMode.STOP:
                    self._put(replace(shard, phase=Phase.DRAINED))
                else:
                    self._give_up(shard)

    def _find(self, shard: int, epoch: int) -> HeldShard | None:
        held = self._shards.get(shard)
        return held if held is not None and held.epoch == epoch else None
