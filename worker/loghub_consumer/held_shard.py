"""One held shard as a state machine: what to pull, when to process, how to give it up.

Everything is a value: an event is a function from one `HeldShardState` and the time to the next. `next_step`
says what the thread of the shard does next, and `loghub_consumer.shard_runner` does it; `next_pull` says what
to pull, and `loghub_consumer.puller` does; `rebalance` says which shards a consumer begins and gives up. A
batch is processed while the next logs are pulled.

The phases, with the function that leads from one to the next:

==============  ===========================================  ==============================================
phase           what happens                                 leaves it
==============  ===========================================  ==============================================
OPENING         `initialize`, repeated until it succeeds     `initialized` -> PULLING, PAUSING
PULLING         logs are awaited for a batch                 `batch_began` -> PROCESSING; `paused` -> PAUSING
PROCESSING      `process` has a batch                        `batch_done` -> PULLING, PAUSING;
                                                             `batch_failed`, `rolled_back` ->
                                                             ROLLING_BACK, PAUSING
ROLLING_BACK    waits; then the same logs, or the logs from  `batch_began` -> PROCESSING (the same logs);
                the cursor that `process` returned           `roll_back_ended` -> PULLING; `paused` -> PAUSING
PAUSING         nothing is pulled nor processed              `resumed` -> PULLING, ROLLING_BACK
DRAINING        given up: a running batch ends, then         `shut_down` -> ENDED
                `on_revoked`, `shutdown`
LOST            another consumer may have it: a running      `shut_down` -> ENDED
                batch ends, then `shutdown`; saves nothing
ENDED           nothing
==============  ===========================================  ==============================================

From every phase but LOST and ENDED, `revoked` leads to DRAINING and `lost` to LOST. `sought` changes only the
phase ROLLING_BACK, to PULLING. Cursors are integers; times are seconds of the monotonic clock.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum

import msgspec
from msgspec.structs import replace

from loghub.backoff import Backoff
from loghub_consumer.batch_plan import BatchLimits, GroupSize, smoothed
from loghub_consumer.membership.membership import MemberShard, ShardPhase

# A pull requests less than a batch, since an answer that is larger than a batch must be divided. It does not
# begin with less room than this part of the shard's share, since each request has a fixed cost.
PULL_FRACTION, MIN_ROOM = 0.9, 0.25
PULL_LOG_GROUPS = 1000  # the maximum of one PullLogs request (docs/sls-protocol.md 5)


class HeldShardPhase(StrEnum):
    """The phase of a shard in a consumer; the module has the table."""

    OPENING = "opening"
    PULLING = "pulling"
    PROCESSING = "processing"
    ROLLING_BACK = "rolling back"
    PAUSING = "pausing"
    DRAINING = "draining"
    LOST = "lost"
    ENDED = "ended"


ENDING = (HeldShardPhase.DRAINING, HeldShardPhase.LOST, HeldShardPhase.ENDED)


class HeldShardState(msgspec.Struct, frozen=True, kw_only=True):
    """One assignment of a shard. A msgspec.Struct, because each pull replaces it about ten times, and that is
    50 times faster than with a dataclass. Invariant: ``began_at <= position <= read_to``.
    """

    shard: int
    # The epoch of `loghub_consumer.membership.membership.MemberShard`; another assignment has another one.
    epoch: int
    position: int  # everything before it was processed
    read_to: int  # cursor of the next pull
    began_at: int = 0  # the cursor at the assignment, or at the last seek
    phase: HeldShardPhase = HeldShardPhase.OPENING
    generation: int = 0
    is_initialized: bool = False
    is_paused: bool = False
    is_busy: bool = False  # user code of the shard runs
    is_announced: bool = False  # the listener knows that the shard is given up
    keeps_batch: bool = False  # the failed batch is processed again, unless the shard is given up
    is_at_end: bool = False  # the last pull saw the end of the shard
    is_pulling: bool = False  # a request is in flight
    # At its end, and a poll reports when there is more; invariant: never with `is_pulling`.
    is_parked: bool = False
    end: int | None = None  # nothing from this cursor on is handed over; None: no bound
    pull_due_s: float = 0.0
    pull_failures: int = 0  # consecutive
    due_s: float = 0.0  # the next attempt, in OPENING and ROLLING_BACK
    failures: int = 0  # of the processor, consecutive
    held_bytes: int = 0  # pulled and not yet processed
    unacknowledged_bytes: int = 0  # processed, but kept for a redelivery
    asked_bytes: int = 0  # the expected size of the answer to the request in flight; 0 unless `is_pulling`
    # The mean size; without the number of logs, since they are decoded later.
    group_size: GroupSize | None = None

    @property
    def memory_bytes(self) -> int:
        return self.held_bytes + self.unacknowledged_bytes

    @property
    def used_bytes(self) -> int:
        """The bytes that count against the bound on all shards together."""
        return self.held_bytes + self.unacknowledged_bytes + self.asked_bytes


# -- what to pull


@dataclass(frozen=True, slots=True, kw_only=True)
class Pull:
    """Request about `count` log groups, of about `bytes` bytes together, from a cursor on."""

    shard: int
    generation: int
    cursor: int
    count: int
    bytes: int


def share_bytes(state: HeldShardState, *, max_bytes: int, shards: int, used_bytes: int) -> int:
    """How many bytes the shard may hold: an equal part of `max_bytes`, so that a processor that never returns
    does not keep the other shards from pulling, and at most the free bytes, since earlier shards may hold
    more. `used_bytes` is the sum of the bytes that all shards hold and have requested."""
    return min(max_bytes // max(1, shards), state.memory_bytes + max(0, max_bytes - used_bytes))


def is_full(state: HeldShardState, *, share_bytes: int) -> bool:
    """Whether the shard holds about as much as it may. One log group is always read."""
    return state.memory_bytes > 0 and share_bytes - state.memory_bytes < share_bytes * MIN_ROOM


def is_read(state: HeldShardState) -> bool:
    """Whether everything up to `end` was pulled."""
    return state.end is not None and state.read_to >= state.end


def room_to_end(state: HeldShardState, *, first: int, has_passed: bool) -> int | None:
    """How many log groups from `first` on may be handed over before the end of the settings; None: any
    number. `has_passed`: the end time has passed, so nothing may be handed over before its cursor is
    known."""
    if state.end is None:
        return 0 if has_passed else None
    return max(0, state.end - first)


def pull_due_s(state: HeldShardState, *, share_bytes: int) -> float | None:
    """When to pull; None: not in this state. `share_bytes` is what the shard may hold."""
    cannot_pull = state.is_pulling or state.is_parked or state.is_paused or not state.is_initialized
    if cannot_pull or state.phase in ENDING or is_read(state):
        return None
    if is_full(state, share_bytes=share_bytes):
        return None
    return state.pull_due_s


def next_pull(state: HeldShardState, *, share_bytes: int, batch_bytes: int) -> Pull:
    """The pull that is due: as much as fits into the share and into a batch, and at least one log group."""
    room = max(1, min(share_bytes - state.memory_bytes, int(batch_bytes * PULL_FRACTION)))
    limits = BatchLimits(log_groups=PULL_LOG_GROUPS, bytes=room, logs=PULL_LOG_GROUPS)
    count = limits.groups_of(state.group_size)
    size = room if state.group_size is None else min(room, round(count * state.group_size.bytes))
    return Pull(shard=state.shard, generation=state.generation, cursor=state.read_to, count=count, bytes=size)


# -- events of the processor


def user_code_began(state: HeldShardState) -> HeldShardState:
    """`initialize` or `shutdown` runs."""
    return replace(state, is_busy=True)


def initialized(state: HeldShardState, *, now: float) -> HeldShardState:
    """`initialize` has returned."""
    state = replace(state, is_busy=False, is_initialized=True, failures=0, pull_due_s=now)
    return state if state.phase in ENDING else replace(state, phase=_idle(state))


def initialize_failed(state: HeldShardState, *, retries: Backoff, now: float) -> HeldShardState:
    """`initialize` has raised: it is called again later."""
    return replace(_failed(state, retries=retries, now=now), is_busy=False)


def batch_began(state: HeldShardState) -> HeldShardState:
    """`process` runs."""
    return replace(state, phase=HeldShardPhase.PROCESSING, is_busy=True)


def batch_done(state: HeldShardState, *, end: int, size: int, generation: int) -> HeldShardState:
    """`process` has returned. `generation` is the batch's: another position may have been sought meanwhile.
    Once nothing is held, everything that was read is processed; a query may have left out the last log
    groups."""
    state = _after_batch(state, size=size, generation=generation)
    state = replace(state, failures=0)
    if generation != state.generation:
        return state
    return replace(state, position=end if state.held_bytes else max(end, state.read_to))


def batch_failed(
    state: HeldShardState, *, size: int, generation: int, retries: Backoff, now: float
) -> HeldShardState:
    """`process` has raised: it gets the same logs again, unless the position was sought or the shard is given
    up."""
    if generation != state.generation or state.phase in ENDING:
        return _after_batch(state, size=size, generation=generation)
    state = _failed(replace(state, is_busy=False), retries=retries, now=now)
    return replace(state, phase=_waiting(state), keeps_batch=True)


def postponed(state: HeldShardState, *, due_s: float | None) -> HeldShardState:
    """The failed batch comes again at this time; None: not before the shard is resumed."""
    return paused(state) if due_s is None else replace(state, due_s=due_s)


def rolled_back(
    state: HeldShardState, *, to: int, size: int, generation: int, retries: Backoff, now: float
) -> HeldShardState:
    """`process` has returned a cursor: the shard continues there. The first time it does so at once; without
    a successful batch in between, it waits longer each time."""
    state = _after_batch(state, size=size, generation=generation)
    if generation != state.generation or state.phase in ENDING:
        return state
    failed = _failed(state, retries=retries, now=now)
    due_s = failed.due_s if state.failures else now
    return replace(_moved(failed, to=to, now=due_s), phase=_waiting(state), due_s=due_s)


def retained(state: HeldShardState, *, size: int) -> HeldShardState:
    """`size` bytes of logs are not acknowledged."""
    return replace(state, unacknowledged_bytes=size)


def roll_back_ended(state: HeldShardState, *, now: float) -> HeldShardState:
    """The logs from the returned cursor on may be processed, once it is time."""
    is_due = state.phase is HeldShardPhase.ROLLING_BACK and not state.keeps_batch and now >= state.due_s
    return replace(state, phase=_idle(state)) if is_due else state


def shut_down(state: HeldShardState) -> HeldShardState:
    """`shutdown` has returned, or there is no processor."""
    return replace(state, phase=HeldShardPhase.ENDED, is_busy=False, held_bytes=0, unacknowledged_bytes=0)


def _after_batch(state: HeldShardState, *, size: int, generation: int) -> HeldShardState:
    held = state.held_bytes - size if generation == state.generation else state.held_bytes
    state = replace(state, is_busy=False, held_bytes=max(0, held), keeps_batch=False)
    return state if state.phase in ENDING else replace(state, phase=_idle(state))


def _failed(state: HeldShardState, *, retries: Backoff, now: float) -> HeldShardState:
    failures = state.failures + 1
    return replace(state, failures=failures, due_s=now + retries.pause_s(failures))


def _idle(state: HeldShardState) -> HeldShardPhase:
    return HeldShardPhase.PAUSING if state.is_paused else HeldShardPhase.PULLING


def _waiting(state: HeldShardState) -> HeldShardPhase:
    return HeldShardPhase.PAUSING if state.is_paused else HeldShardPhase.ROLLING_BACK


# -- events of the pulls


def pull_began(state: HeldShardState, pull: Pull) -> HeldShardState:
    """The request is in flight."""
    return replace(state, is_pulling=True, asked_bytes=pull.bytes)


def _pull_ended(state: HeldShardState) -> HeldShardState:
    return replace(state, is_pulling=False, asked_bytes=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class PullResult:
    """An answer: log groups and bytes, the cursor after it, and whether nothing follows now."""

    groups: int
    bytes: int
    after: int
    is_end: bool


def pulled(
    state: HeldShardState, pull: Pull, result: PullResult, *, interval_s: float, now: float
) -> HeldShardState:
    """The answer to `pull`. At the end of the shard the next pull follows after the fetch interval, and
    otherwise at once. An answer of an earlier generation is ignored."""
    state = replace(_pull_ended(state), pull_failures=0)
    if pull.generation != state.generation:
        return state
    is_idle = not state.held_bytes and not result.groups  # everything before the answer's end was processed
    return replace(
        state,
        read_to=result.after,
        is_at_end=result.is_end,
        position=result.after if is_idle else state.position,
        pull_due_s=now + interval_s if result.is_end else now,
        held_bytes=state.held_bytes + result.bytes,
        group_size=smoothed(state.group_size, read_bytes=result.bytes, logs=0, groups=result.groups),
    )


def pull_failed(state: HeldShardState, *, retries: Backoff, now: float) -> HeldShardState:
    """The request has failed: it is sent again later."""
    failures = state.pull_failures + 1
    pause_s = retries.pause_s(failures)
    return replace(_pull_ended(state), pull_failures=failures, pull_due_s=now + pause_s)


def parked(state: HeldShardState) -> HeldShardState:
    """A pull is due although the last one has reached the end: nothing is pulled before there are more log
    groups."""
    return replace(state, is_parked=True)


def arrived(state: HeldShardState, *, now: float) -> HeldShardState:
    """There are more log groups, or it is unknown whether there are: the next pull is due."""
    return replace(state, is_parked=False, is_at_end=False, pull_due_s=now) if state.is_parked else state


def expired(state: HeldShardState, pull: Pull, *, oldest: int, now: float) -> HeldShardState:
    """The log groups up to `oldest` no longer exist: the shard continues there."""
    state = _pull_ended(state)
    if pull.generation != state.generation or oldest <= state.read_to:
        return state
    position = oldest if not state.held_bytes else state.position
    return replace(state, read_to=oldest, position=position, pull_due_s=now)


# -- events of the user and of the group


def sought(state: HeldShardState, *, to: int, now: float) -> HeldShardState:
    """The shard continues at another cursor; the pulled log groups are discarded. A batch that is being
    processed ends, but its end is not the position."""
    if state.phase in ENDING:
        return state
    state = _moved(state, to=to, now=now)
    return replace(state, phase=_idle(state)) if state.phase is HeldShardPhase.ROLLING_BACK else state


def _moved(state: HeldShardState, *, to: int, now: float) -> HeldShardState:
    return replace(
        state,
        position=to,
        read_to=to,
        began_at=to,
        generation=state.generation + 1,
        is_at_end=False,
        is_parked=False,
        keeps_batch=False,
        held_bytes=0,
        pull_due_s=now,
        pull_failures=0,
    )


def bounded(state: HeldShardState, *, end: int | None) -> HeldShardState:
    """The end time has passed, and `end` is its cursor; None: the time lies ahead after all."""
    return replace(state, end=end)


def paused(state: HeldShardState) -> HeldShardState:
    """No further batch is handed over; the pulled log groups stay. A failed batch is processed again
    afterwards."""
    state = replace(state, is_paused=True)
    idle = (HeldShardPhase.PULLING, HeldShardPhase.ROLLING_BACK)
    return replace(state, phase=HeldShardPhase.PAUSING) if state.phase in idle else state


def resumed(state: HeldShardState, *, now: float) -> HeldShardState:
    """The shard is processed again."""
    if not state.is_paused:
        return state
    state = replace(state, is_paused=False, pull_due_s=now)
    if state.phase is not HeldShardPhase.PAUSING:
        return state
    return replace(state, phase=HeldShardPhase.ROLLING_BACK if state.keeps_batch else HeldShardPhase.PULLING)


def revoked(state: HeldShardState) -> HeldShardState:
    """The group gives the shard to another consumer, or this one stops."""
    return state if state.phase in ENDING else replace(state, phase=HeldShardPhase.DRAINING)


def lost(state: HeldShardState) -> HeldShardState:
    """Another consumer may have the shard already."""
    has_ended = state.phase in (HeldShardPhase.LOST, HeldShardPhase.ENDED)
    return state if has_ended else replace(state, phase=HeldShardPhase.LOST)


def announced(state: HeldShardState) -> HeldShardState:
    """The listener knows that the shard was revoked or lost."""
    return replace(state, is_announced=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebalance:
    """The shards by what happens to them. The `revoked` shards end their batch, the shards to `announce` have
    no batch any more and wait for the listener, the `ended` ones are released, and so are the `unbegun` ones,
    which were revoked before they began."""

    assigned: tuple[MemberShard, ...] = ()
    revoked: tuple[int, ...] = ()
    lost: tuple[int, ...] = ()
    announce: tuple[int, ...] = ()
    ended: tuple[int, ...] = ()
    unbegun: tuple[MemberShard, ...] = ()


def rebalance(states: Mapping[int, HeldShardState], held: tuple[MemberShard, ...]) -> Rebalance:
    """What to do now. A shard that is assigned again waits until the processor of its earlier assignment has
    ended, so that the order of its logs is kept."""
    by_shard = {shard.shard: shard for shard in held}
    revoked, lost, announce, ended = [], [], [], []
    for number, state in sorted(states.items()):
        shard = by_shard.get(number)
        is_ours = shard is not None and shard.epoch == state.epoch and not shard.refused
        if state.phase is HeldShardPhase.ENDED:
            ended.append(number)
        elif state.phase is HeldShardPhase.LOST:
            continue
        elif not is_ours:
            lost.append(number)
        elif state.phase is HeldShardPhase.DRAINING:
            if not state.is_busy and not state.is_announced:
                announce.append(number)
        elif shard is not None and shard.phase is not ShardPhase.OPEN:
            revoked.append(number)
    opened = (s for s in held if s.phase is ShardPhase.OPEN and s.position is not None)
    return Rebalance(
        assigned=tuple(s for s in opened if s.shard not in states),
        revoked=tuple(revoked),
        lost=tuple(lost),
        announce=tuple(announce),
        ended=tuple(ended),
        unbegun=tuple(s for s in held if s.phase is ShardPhase.DRAINING and s.shard not in states),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiveLimits:
    """When a batch is complete: it has this many logs or bytes, or its first log group has waited this
    long."""

    max_logs: int | None
    max_bytes: int
    max_wait_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Buffered:
    """The pulled log groups that were not handed over. `logs` counts no further than a limit needs, and is 0
    without a limit; `since_s` is when the first log group arrived."""

    groups: int = 0
    logs: int = 0
    bytes: int = 0
    since_s: float = 0.0


NOTHING = Buffered()


@dataclass(frozen=True, slots=True, kw_only=True)
class Again:
    """When logs are redelivered, None for never; and whether so many logs are not acknowledged that no new
    logs may be handed over."""

    due_s: float | None = None
    is_full: bool = False


NOT_AGAIN = Again()


class ThreadStep(Enum):
    """What the thread of a shard does next."""

    INITIALIZE = "initialize"
    PROCESS = "process"  # the failed batch, if there is one, or the next one
    REDELIVER = "redeliver"  # process logs that were handed over before
    SHUT_DOWN = "shutdown"
    WAIT = "wait"
    END = "end"


@dataclass(frozen=True, slots=True)
class NextStep:
    """The next step; for WAIT also when to ask again if nothing happens, or None: not without an event."""

    step: ThreadStep
    at_s: float | None = None


_WAIT = NextStep(ThreadStep.WAIT)


def next_step(
    state: HeldShardState,
    buffered: Buffered,
    limits: ReceiveLimits,
    *,
    is_full: bool,
    now: float,
    again: Again = NOT_AGAIN,
) -> NextStep:
    """The next step of the thread of the shard, which is idle. `is_full`: no more may be pulled."""
    match state.phase:
        case HeldShardPhase.ENDED:
            return NextStep(ThreadStep.END)
        case HeldShardPhase.DRAINING | HeldShardPhase.LOST:
            if not state.is_announced:
                return _WAIT
            return NextStep(ThreadStep.SHUT_DOWN)
        case HeldShardPhase.OPENING:
            return _at(state.due_s, ThreadStep.INITIALIZE, now)
        case HeldShardPhase.ROLLING_BACK:
            return _at(state.due_s, ThreadStep.PROCESS if state.keeps_batch else ThreadStep.WAIT, now)
        case HeldShardPhase.PULLING:
            ready_s = None if again.is_full else _ready_s(buffered, limits, is_full=is_full)
            if again.due_s is not None and (ready_s is None or again.due_s <= max(now, ready_s)):
                return _at(again.due_s, ThreadStep.REDELIVER, now)
            return _at(ready_s, ThreadStep.PROCESS, now)
        case _:
            return _WAIT


def has_backlog(state: HeldShardState, step: ThreadStep, *, is_held: bool) -> bool:
    """Whether the shard has logs to process at present, for shards with a lower priority; `step` is its own
    next step. A shard that waits, for example after a failure or until a batch is complete, has no backlog,
    and neither has one that `is_held`: its logs may not be handed over yet, even if they were pulled."""
    if state.phase is HeldShardPhase.PROCESSING:
        return True
    is_unread = not (state.is_at_end or state.pull_failures or is_read(state) or is_held)
    return state.phase is HeldShardPhase.PULLING and (
        is_unread or step in (ThreadStep.PROCESS, ThreadStep.REDELIVER)
    )


def _at(due_s: float | None, step: ThreadStep, now: float) -> NextStep:
    if due_s is None:
        return _WAIT
    return NextStep(step) if now >= due_s else NextStep(ThreadStep.WAIT, due_s)


def _ready_s(buffered: Buffered, limits: ReceiveLimits, *, is_full: bool) -> float | None:
    """When the buffered log groups are a batch; None: not before more log groups arrive."""
    if not buffered.groups:
        return None
    has_logs = limits.max_logs is not None and buffered.logs >= limits.max_logs
    if is_full or has_logs or buffered.bytes >= limits.max_bytes:
        return buffered.since_s
    return buffered.since_s + limits.max_wait_s
