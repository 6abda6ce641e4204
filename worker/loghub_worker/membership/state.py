"""The membership of one consumer, as a value machine: what to send, and which shards may be worked on.

What for: every decision about heartbeats, taking, giving up and fencing is made here, with ``now``
handed in; threads and requests are elsewhere. What it must not know: HTTP, Spark, files, clocks.
Read next: `loghub_worker.membership.shared_state` (the lock around it), `loghub_worker.membership.heartbeat`
(carries out).

A shard's way through a worker: an answer names it -> opening (where to resume is being found out)
-> open (positions are handed to the source) -> an answer drops it -> draining (no new batch gets
it; it is still reported) -> given up (the next beat, sent at once, leaves it out). Only a shard
that left the reported list may be given to another (docs/sls-protocol.md 4.3).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from loghub_worker.batch_plan import Range, smoothed

RETRY_S = 1.0  # a failed beat is tried again after this, if the interval is not shorter


class Phase(StrEnum):
    """Where one shard stands in this worker."""

    OPENING = "opening"  # named by an answer; its resume position is not known yet
    OPEN = "open"  # in the hands of the source
    DRAINING = "draining"  # out of the source's hands, perhaps in its running batch
    DRAINED = "drained"  # all is saved, but the shard is not released: heartbeats still report it


class MemberState(StrEnum):
    """Where the consumer stands in its group."""

    JOINING = "joining"  # no good beat yet
    MEMBER = "member"  # the lease runs
    FENCED = "fenced"  # no good beat for too long: nothing is held, nothing may be committed
    LEFT = "left"  # is no longer a member of the group


class ShutdownMode(StrEnum):
    """What the worker is to do with its shards."""

    SERVE = "serve"
    STOP = "stop"  # drain, but stay a member: a restart within the timeout moves no shard
    LEAVE = "leave"  # drain, give every shard up, leave the group


@dataclass(frozen=True, slots=True, kw_only=True)
class MembershipTimings:
    """The times of a membership, in seconds."""

    interval_s: float
    timeout_s: float
    margin_s: float  # the lease ends so long before the service would end it


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldShard:
    """One shard between take and give-up. ``epoch`` tells one taking of it from the next."""

    shard: int
    epoch: int
    phase: Phase = Phase.OPENING
    position: int | None = None  # cursor at which the next batch begins; all before it is in the sink
    saved: int | None = None  # checkpoint as the service took it
    drop_version: int = 0  # version of the positions that first left it out
    logs: int = 0
    group_bytes: float | None = None  # mean size of its log groups


@dataclass(frozen=True, slots=True)
class Beat:
    """Send a heartbeat that reports these shards."""

    number: int
    held: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Leave:
    """Tell the service that this consumer goes."""

    number: int


class Membership:
    """One consumer. Not safe for threads: `loghub_worker.membership.shared_state.SharedState` is its lock."""

    def __init__(self, terms: MembershipTimings) -> None:
        self.terms = terms
        self.standing = MemberState.JOINING
        self.goal = ShutdownMode.SERVE
        self.version = 0  # grows with each change of `positions`
        self.last_good_s: float | None = None  # when the last good beat was sent
        self._shards: dict[int, HeldShard] = {}
        self._takes = 0
        self._next_send_s: float | None = None  # None: at once
        self._is_news = False  # something since the request under way was made that it does not tell
        self._sent: tuple[int, float] | None = None  # number and time of the request under way
        self._numbers = 0
        self._seen_version = -1
        self._source_runs = False

    # -- what others may see

    @property
    def shards(self) -> tuple[HeldShard, ...]:
        return tuple(self._shards[shard] for shard in sorted(self._shards))

    @property
    def positions(self) -> dict[int, int]:
        """What the source may read: open shards and the cursor each goes on from."""
        return {s.shard: s.position for s in self.shards if s.phase is Phase.OPEN and s.position is not None}

    @property
    def group_bytes(self) -> dict[int, float]:
        """How large the log groups of the held shards are, where that was measured."""
        return {s.shard: s.group_bytes for s in self.shards if s.group_bytes is not None}

    @property
    def mark(self) -> tuple[object, ...]:
        """Differs from an earlier one if something happened that another thread may wait for."""
        return (self.version, self.standing, self.goal, self._next_send_s, self.shards)

    @property
    def drained(self) -> bool:
        """Nothing is open, opening or draining."""
        return all(s.phase is Phase.DRAINED for s in self._shards.values())

    def lease_s(self, now: float) -> float:
        """Seconds until this consumer must stop; negative when over, and before the first beat."""
        if self.last_good_s is None:
            return -1.0
        return self.last_good_s + self.terms.timeout_s - self.terms.margin_s - now

    # -- the conversation with the service

    def poll(self, now: float) -> Beat | Leave | None:
        """The request to send now, if any; it is under way until `answered`, `left` or `failed`."""
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
        """Seconds until `poll` has something new to say, if nothing happens before."""
        due = [self.terms.interval_s]
        if self._sent is None and self.standing is not MemberState.LEFT:
            due.append(0.0 if self._next_send_s is None else self._next_send_s - now)
        if self.standing is MemberState.MEMBER:
            due.append(self.lease_s(now))
        return max(0.0, min(due))

    def answered(self, number: int, named: tuple[int, ...], *, now: float) -> None:
        """A beat was answered with these shards. A late or unknown answer changes nothing."""
        sent_s = self._close_request(number)
        if sent_s is None:
            return
        if now >= sent_s + self.terms.timeout_s - self.terms.margin_s:
            # The service may have timed this consumer out after it answered: ask again.
            self._next_send_s = None
            return
        self.last_good_s = sent_s
        self._next_send_s = None if self._is_news else sent_s + self.terms.interval_s
        if self.standing is not MemberState.LEFT:
            self.standing = MemberState.MEMBER
        self._take_and_drop(named)

    def failed(self, number: int, *, now: float) -> None:
        """A request failed; what is held stays held while the lease lasts."""
        if self._close_request(number) is not None:
            self._next_send_s = now + min(self.terms.interval_s, RETRY_S)

    def left(self, number: int) -> None:
        """The service knows that this consumer is gone."""
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
            self._give_up(shard)  # the source never heard of it
            return
        self.version += 1
        self._put(replace(shard, phase=Phase.DRAINING, drop_version=self.version))
        self._finish_drains()

    def _give_up(self, shard: HeldShard) -> None:
        del self._shards[shard.shard]
        self._send_at_once()

    def _send_at_once(self) -> None:
        self._next_send_s = None
        self._is_news = True  # for a beat under way, whose answer sets the next time

    def _put(self, shard: HeldShard) -> None:
        self._shards[shard.shard] = shard

    def _fence_if_due(self, now: float) -> None:
        if self.standing is not MemberState.MEMBER or self.lease_s(now) > 0:
            return
        self.standing = MemberState.FENCED
        self._shards.clear()
        self.version += 1
        self._next_send_s = None

    # -- the worker's own wishes

    def set_goal(self, goal: ShutdownMode) -> None:
        """Stop or leave. From stop one may still go to leave; there is no way back to serve."""
        if goal is self.goal or self.goal is ShutdownMode.LEAVE:
            return
        self.goal = goal
        for shard in self.shards:
            if shard.phase in (Phase.OPENING, Phase.OPEN):
                self._drop(shard)
            elif shard.phase is Phase.DRAINED:
                self._give_up(shard)
        self._send_at_once()

    # -- the shards' own story

    def opened(self, shard: int, *, epoch: int, position: int, saved: int | None) -> None:
        """The resume position of an opening shard is known: the source may have it."""
        held = self._find(shard, epoch)
        if held is not None and held.phase is Phase.OPENING:
            self._put(replace(held, phase=Phase.OPEN, position=position, saved=saved))
            self.version += 1

    def refused(self, shard: int, *, epoch: int) -> None:
        """The service says that the shard is not this consumer's: nothing more can be saved for it."""
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
        """The sink knows better where the shard stands: find its position anew."""
        held = self._shards.get(shard)
        if held is not None and held.phase is Phase.OPEN:
            self._takes += 1
            self.version += 1
            self._put(replace(held, epoch=self._takes, phase=Phase.OPENING, position=None))

    def may_commit(self, ranges: tuple[Range, ...], *, now: float) -> bool:
        """Whether a batch of these ranges may reach the sink now: the lease runs, and each shard
        stands exactly where its range begins, so nobody delivered it meanwhile."""
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
        """Shards whose position the service does not have yet."""
        return tuple(s for s in self.shards if s.position is not None and s.saved != s.position)

    def saved(self, shard: int, *, epoch: int, cursor: int) -> None:
        """The service took this checkpoint."""
        held = self._find(shard, epoch)
        if held is not None:
            self._put(replace(held, saved=cursor))
            self._finish_drains()

    def source_started(self) -> None:
        """From now on the source may hold shards of the positions handed out."""
        self._source_runs = True
        self._seen_version = -1

    def source_stopped(self) -> None:
        """No batch runs and none will begin."""
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
