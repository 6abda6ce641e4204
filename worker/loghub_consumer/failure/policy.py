"""What happens to log groups that cannot be delivered, as a pure state machine; how long a batch may take;
and when logs may be skipped or dead-lettered.

One bad log group must not stop the others. So a failed batch is divided: first each of its shards is read
alone, then a range that fails alone is divided further, down to one log group. Everything that can be
delivered is delivered on the way. The last log group, which failed alone, is retried, and then the group's
policy applies: wait and retry, put it into a dead letter and continue, skip it and continue, or stop reading
the shard. All the time, only this shard waits.

Before anything is skipped, three things must hold (`SkipLimits`): the log group failed alone several times,
only a few were skipped directly before it, and only some in the last hour. If more than that fails, the
pipeline is broken, not the logs; the logs are then retried as with the policy `Retry`, and a success ends
that. Pipelines and the processor API decide by the same limits.

A batch that exceeds its timeout is cancelled. User code in Spark's Python processes ends with them; but the
driver's own code, or a disk that does not answer, cannot be cancelled. Such a batch would keep the shards of
the worker forever, so after some more time the worker gives them up and ends.

A failing range begins at the position of its shard: nothing is delivered, skipped or dead-lettered past a log
group that waits. `now` is on the monotonic clock; time and randomness are arguments.
`loghub_consumer.failure.handler` carries out these decisions.
"""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

from loghub.backoff import Backoff, without_jitter
from loghub.contract.worker import OnFailure
from loghub_consumer.batch_plan import Range, RangeRetry

MAX_CANCEL_S = 30.0  # Spark ends a Python process two seconds after its task was cancelled


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RunningBatch:
    """A batch that has run since `began_s` on the monotonic clock. Compared by identity."""

    ranges: tuple[Range, ...]
    began_s: float


class DeadlineStep(StrEnum):
    """What to do about a running batch."""

    WAIT = "wait"
    CANCEL = "cancel"
    GIVE_UP = "give up"


def deadline_step(running: RunningBatch | None, *, timeout_s: float, now: float) -> DeadlineStep:
    """What to do about this batch now."""
    if running is None or now < running.began_s + timeout_s:
        return DeadlineStep.WAIT
    return DeadlineStep.CANCEL if now < running.began_s + hung_after_s(timeout_s) else DeadlineStep.GIVE_UP


def hung_after_s(timeout_s: float) -> float:
    """The age at which a batch counts as one that cannot be cancelled."""
    return timeout_s + min(MAX_CANCEL_S, timeout_s)


HOUR_S = 3600.0
# A process may be killed for reasons that have nothing to do with its logs.
MIN_ENDED_ATTEMPTS = 3


class Policy(StrEnum):
    """What happens to a log group that failed alone `FailureSettings.max_attempts` times."""

    RETRY = "Retry"  # retry it forever
    DEAD_LETTER = "DeadLetter"  # write it to the dead letter, and go on after it
    SKIP = "Skip"  # go on after it
    STOP = "Stop"  # read nothing more of the shard


SETTLING_POLICIES = (Policy.DEAD_LETTER, Policy.SKIP)


class Cause(StrEnum):
    """Why a batch failed, which decides what is tried next."""

    REJECTED = "rejected"  # the pipeline or the sink raised an error
    TIMED_OUT = "timed out"  # the batch took longer than its timeout and was cancelled
    ENDED = "ended"  # the worker's process ended during the batch
    UNAVAILABLE = "unavailable"  # the log service or a disk; the logs are not to blame, and are never skipped


class WaitState(StrEnum):
    """What a shard waits for."""

    RETRYING = "retrying"  # for the next attempt
    SETTLING = "settling"  # for its log group to be skipped or dead-lettered
    LIMITED = "limited"  # like RETRYING, because too many log groups were skipped already
    STOPPED = "stopped"  # for a restart of its worker, another worker, or another checkpoint


ERRORS = (Cause.REJECTED, Cause.UNAVAILABLE)  # known at once


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureSettings:
    """The settings of one group. `batch_timeout_s` is the time after which a batch is cancelled, and
    `restart_s` the first pause after a process ended, during which the shards of the process wait."""

    policy: Policy
    max_attempts: int  # of one log group
    # Log groups of a shard that may be skipped without a success between them. None: any number, for a retry
    # logstore, which has only logs that failed.
    max_consecutive: int | None
    max_per_hour: int  # log groups of a shard that are skipped
    batch_timeout_s: float
    restart_s: float = 60.0


def failure_settings(on_failure: OnFailure, *, batch_timeout_s: float) -> FailureSettings:
    """The settings of the policy."""
    return FailureSettings(
        policy=Policy(on_failure.policy),
        max_attempts=on_failure.max_attempts,
        max_consecutive=on_failure.max_consecutive,
        max_per_hour=on_failure.max_per_hour,
        batch_timeout_s=batch_timeout_s,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why a range failed: the cause, a CamelCase reason and a sentence."""

    cause: Cause
    reason: str
    message: str = ""


@dataclass(slots=True)
class _Skips:
    """The log groups of a shard that were skipped or dead-lettered."""

    consecutive: int
    times_s: deque[float]  # of the last hour
    last_cursor: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PastSkips:
    """The facts about skipped and dead-lettered log groups of a shard that another process needs. Its
    monotonic clock differs, so the skips of the last hour are given by their ages."""

    shard: int
    consecutive: int
    ages_s: tuple[float, ...]  # the oldest first
    last_cursor: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RecentSkips:
    """How many log groups of a shard were skipped or dead-lettered in the last hour, and the last one."""

    shard: int
    log_groups: int
    last_cursor: int


class SkipLimits:
    """The log groups of each shard that were skipped or dead-lettered, and whether more may be. Not
    thread-safe."""

    def __init__(self, settings: FailureSettings) -> None:
        self.settings = settings
        self._skips: dict[int, _Skips] = {}

    def decide(
        self, shard: int, attempts: int, cause: Cause, *, not_before_s: float, now: float
    ) -> tuple[WaitState, float | None]:
        """The state of logs of this shard after this many attempts alone, and when they are tried next; None:
        not any more. `not_before_s` is the time of the next attempt without a policy."""
        settings = self.settings
        minimum = MIN_ENDED_ATTEMPTS if cause is Cause.ENDED else 1
        if settings.policy is Policy.RETRY or cause is Cause.UNAVAILABLE:
            return WaitState.RETRYING, not_before_s
        if attempts < max(settings.max_attempts, minimum):
            return WaitState.RETRYING, not_before_s
        if settings.policy is Policy.STOP:
            return WaitState.STOPPED, None
        skips, maximum = self._skips.get(shard), settings.max_consecutive
        if skips is not None and maximum is not None and skips.consecutive >= maximum:
            return WaitState.LIMITED, not_before_s
        recent = self._recent(shard, now)
        if len(recent) >= settings.max_per_hour:
            next_s = recent[len(recent) - settings.max_per_hour] + HOUR_S
            return WaitState.LIMITED, max(not_before_s, next_s)
        return WaitState.SETTLING, now

    def succeeded(self, shard: int) -> None:
        """Logs of the shard were delivered."""
        if shard in self._skips:
            self._skips[shard].consecutive = 0

    def skipped(self, shard: int, cursor: int, *, now: float) -> None:
        """Note that a log group, or some logs of it, was skipped or dead-lettered."""
        skips = self._skips.setdefault(shard, _Skips(0, deque(), cursor))
        skips.consecutive += 1
        skips.times_s.append(now)
        skips.last_cursor = cursor

    def restore(self, past: Iterable[PastSkips], *, now: float) -> None:
        """Take over the skips of an earlier process."""
        for skips in past:
            times_s = deque(now - age_s for age_s in skips.ages_s)
            self._skips[skips.shard] = _Skips(skips.consecutive, times_s, skips.last_cursor)

    def recent_skips(self, now: float) -> tuple[RecentSkips, ...]:
        """The shards with a log group that was skipped or dead-lettered in the last hour."""
        recent = ((shard, self._recent(shard, now)) for shard in sorted(self._skips))
        return tuple(
            RecentSkips(shard=shard, log_groups=len(times), last_cursor=self._skips[shard].last_cursor)
            for shard, times in recent
            if times
        )

    def past_skips(self, now: float) -> tuple[PastSkips, ...]:
        """The value for `restore` in another process, so that the limits continue to hold."""
        recent = ((shard, self._recent(shard, now)) for shard in sorted(self._skips))
        return tuple(
            PastSkips(
                shard=shard,
                consecutive=self._skips[shard].consecutive,
                ages_s=tuple(now - at_s for at_s in times),
                last_cursor=self._skips[shard].last_cursor,
            )
            for shard, times in recent
            if times or self._skips[shard].consecutive
        )

    def _recent(self, shard: int, now: float) -> list[float]:
        if shard not in self._skips:
            return []
        times_s = self._skips[shard].times_s
        while times_s and times_s[0] <= now - HOUR_S:
            times_s.popleft()
        return list(times_s)


# One more attempt costs a batch after an error, and the whole timeout or a start of the worker otherwise.
PARTS_AFTER_AN_ERROR, PARTS_AFTER_A_HANG = 2, 16


@dataclass(frozen=True, slots=True, kw_only=True)
class FailingRange:
    """A shard with a failed range."""

    shard: int
    begin: int  # cursor at which the shard waits
    until: int  # from this cursor on the shard is read together with the others again
    failed_end: int  # the range from `begin` to here failed; `begin` if the shard was not read alone yet
    log_groups: int  # the next attempt reads this many
    attempts: int = 0  # attempts with the log group at `begin` alone
    state: WaitState = WaitState.RETRYING
    not_before_s: float | None  # None: no further attempt
    failure: Failure
    dead_lettered: bool = False  # the log group at `begin` is in the dead letter, but not settled yet

    @property
    def isolated(self) -> bool:
        """Whether one log group failed alone."""
        return self.attempts > 0


@dataclass(slots=True)
class ShardTotals:
    """What happened to a shard since the process started."""

    failed_attempts: int = 0
    skipped: int = 0
    dead_lettered: int = 0
    postponed: int = 0  # written to the retry logstore

    def plus(self, other: "ShardTotals") -> "ShardTotals":
        return ShardTotals(
            self.failed_attempts + other.failed_attempts,
            self.skipped + other.skipped,
            self.dead_lettered + other.dead_lettered,
            self.postponed + other.postponed,
        )


class FailingShards:
    """The failing shards of one worker. Not thread-safe."""

    def __init__(self, settings: FailureSettings, *, random: Callable[[], float] = without_jitter) -> None:
        """`random` is the randomness of each `Backoff`."""
        self.settings = settings
        # A batch that hangs keeps the other shards of the worker waiting for its whole timeout, so they get
        # at least as much time before the next one.
        hang_s = 2 * settings.batch_timeout_s
        self._backoffs = {
            Cause.REJECTED: Backoff(first_s=1.0, max_s=300.0, random=random),
            Cause.UNAVAILABLE: Backoff(first_s=1.0, max_s=30.0, random=random),
            Cause.TIMED_OUT: Backoff(first_s=hang_s, max_s=10 * hang_s, random=random),
            Cause.ENDED: Backoff(first_s=settings.restart_s, max_s=HOUR_S, random=random),
        }
        self.totals: dict[int, ShardTotals] = {}
        self.skips = SkipLimits(settings)
        self._failing: dict[int, FailingRange] = {}

    # -- what other modules may read

    @property
    def failing(self) -> tuple[FailingRange, ...]:
        return tuple(self._failing[shard] for shard in sorted(self._failing))

    @property
    def retries(self) -> dict[int, RangeRetry]:
        """The retries by which the source plans the next batch."""
        return {
            shard: RangeRetry(begin=f.begin, log_groups=f.log_groups, not_before_s=f.not_before_s)
            for shard, f in self._failing.items()
        }

    def to_settle(self, ranges: tuple[Range, ...]) -> FailingRange | None:
        """The log group that this batch must skip or dead-letter instead of reading it; None if there is
        none. A batch that was planned before that was decided has other log groups as well, and is read."""
        failing = self._of(ranges[0]) if [part.groups for part in ranges] == [1] else None
        is_due = failing is not None and failing.state is WaitState.SETTLING
        return failing if is_due else None

    # -- outcomes of batches

    def succeeded(self, ranges: Iterable[Range], *, now: float) -> None:
        """The sink has these ranges."""
        for part in ranges:
            self.skips.succeeded(part.shard)
        self.passed(ranges, now=now)

    def passed(self, ranges: Iterable[Range], *, now: float) -> None:
        """The shards continue after these ranges."""
        for part in ranges:
            failing = self._of(part)
            if failing is not None:
                self._advance(failing, part.end, now=now)

    def failed(self, ranges: tuple[Range, ...], failure: Failure, *, now: float) -> None:
        """The batch of these ranges failed, and nothing of it is in the sink."""
        for part in ranges:
            self._totals(part.shard).failed_attempts += 1
            before = self._of(part)
            failing = _failing(part, before, failure, now=now)
            if len(ranges) == 1:
                failing = self._failed_alone(failing, before, now=now)
            elif failure.cause not in ERRORS:
                # Reading each shard alone first would cost another hang of whole ranges.
                failing = _divided(failing)
            self._failing[part.shard] = failing

    def suspected(self, part: Range, failure: Failure, *, now: float) -> None:
        """A process ended while this range ran, and other ranges with it. That counts as no attempt: the
        range is read again at once, alone and in smaller parts."""
        self._totals(part.shard).failed_attempts += 1
        before = self._of(part)
        if before is not None and before.isolated:
            settles = before.state is WaitState.SETTLING
            self._failing[part.shard] = before if settles else replace(before, failure=failure)
            return
        self._failing[part.shard] = _divided(_failing(part, before, failure, now=now))

    def is_suspect(self, shard: int, begin: int) -> bool:
        """Whether logs that begin at this cursor may have ended a process."""
        failing = self._failing.get(shard)
        return failing is not None and failing.begin == begin and failing.failure.cause is Cause.ENDED

    def restore(
        self, failing: Iterable[FailingRange], skips: Iterable[PastSkips] = (), *, now: float
    ) -> None:
        """Take over the failing shards of an earlier process of this worker. A stopped shard gets one more
        attempt, since the pipeline may have changed."""
        self.skips.restore(skips, now=now)
        for old in failing:
            settles = old.state is WaitState.SETTLING and self.settings.policy in SETTLING_POLICIES
            state = WaitState.SETTLING if settles else WaitState.RETRYING
            pause_s = self._backoffs[old.failure.cause].pause_s(old.attempts) if old.isolated else 0.0
            self._failing[old.shard] = replace(old, state=state, not_before_s=now + pause_s)

    # -- outcomes of settling a log group

    def dead_lettered(self, shard: int) -> None:
        """The log group at which the shard waits is in the dead letter."""
        self._failing[shard] = replace(self._failing[shard], dead_lettered=True)

    def expired(self, shard: int, *, now: float) -> None:
        """The log group at which the shard waits no longer exists. Nothing was skipped because of it."""
        self._advance(self._failing[shard], self._failing[shard].begin + 1, now=now)

    def settled(self, shard: int, *, waits: bool = False, now: float) -> None:
        """The log group at which the shard waits was skipped, or is in the dead letter; with `waits`, it is
        in the retry logstore."""
        failing = self._failing[shard]
        self.settled_apart(shard, failing.begin, waits=waits, now=now)
        self._advance(failing, failing.begin + 1, now=now)

    def settled_apart(self, shard: int, cursor: int, *, waits: bool, now: float) -> None:
        """A log group at which the shard does not wait, or some logs of it, was skipped or dead-lettered;
        with `waits`, it is in the retry logstore."""
        totals = self._totals(shard)
        if waits:
            totals.postponed += 1
        elif self.settings.policy is Policy.DEAD_LETTER:
            totals.dead_lettered += 1
        else:
            totals.skipped += 1
        self.skips.skipped(shard, cursor, now=now)

    def refused(self, shard: int) -> None:
        """Redelivered logs were refused, or not acknowledged in time."""
        self._totals(shard).failed_attempts += 1

    def settling_failed(self, shard: int, failure: Failure, *, now: float) -> None:
        """The dead letter did not accept the log group at which the shard waits. It is tried again later."""
        failing = self._failing[shard]
        attempts = failing.attempts + 1
        pause_s = self._backoffs[Cause.REJECTED].pause_s(attempts)
        self._failing[shard] = replace(
            failing, attempts=attempts, failure=failure, not_before_s=now + pause_s
        )

    def pipeline_failed(self, shard: int, failure: Failure, *, now: float) -> None:
        """The pipeline or the sink fails without any logs, so the log group at which the shard waits may be
        good: its earlier attempts do not count."""
        pause_s = self._backoffs[Cause.REJECTED].pause_s(self._failing[shard].attempts)
        self._failing[shard] = replace(
            self._failing[shard],
            attempts=1,
            state=WaitState.RETRYING,
            failure=failure,
            not_before_s=now + pause_s,
        )

    # -- decisions

    def _failed_alone(
        self, failing: FailingRange, before: FailingRange | None, *, now: float
    ) -> FailingRange:
        cause = failing.failure.cause
        if failing.log_groups > 1:
            pause_s = 0.0 if cause is Cause.REJECTED else self._backoffs[cause].pause_s(1)
            return replace(_divided(failing), not_before_s=now + pause_s)
        attempts = _counted(before, cause) + 1
        not_before_s = now + self._backoffs[cause].pause_s(attempts)
        failing = replace(failing, failed_end=failing.begin + 1, attempts=attempts, not_before_s=not_before_s)
        if before is not None and before.state is WaitState.SETTLING:
            return replace(failing, state=before.state)  # the dead letter hangs, or the process ended
        state, next_s = self.skips.decide(
            failing.shard, failing.attempts, cause, not_before_s=not_before_s, now=now
        )
        return replace(failing, state=state, not_before_s=next_s)

    def _advance(self, failing: FailingRange, position: int, *, now: float) -> None:
        """The shard continues at `position`, because everything before it is settled."""
        if position >= failing.until:
            del self._failing[failing.shard]
            return
        # A range that failed as a whole, and whose first part succeeded, fails in the rest.
        rest = failing.failed_end - position
        log_groups = _next_part(failing, rest) if rest > 0 else failing.until - position
        self._failing[failing.shard] = replace(
            failing,
            begin=position,
            failed_end=max(failing.failed_end, position),
            log_groups=log_groups,
            attempts=0,
            state=WaitState.RETRYING,
            not_before_s=now,
            dead_lettered=False,
        )

    def _of(self, part: Range) -> FailingRange | None:
        failing = self._failing.get(part.shard)
        return failing if failing is not None and failing.begin == part.begin else None

    def _totals(self, shard: int) -> ShardTotals:
        return self.totals.setdefault(shard, ShardTotals())


def _failing(part: Range, before: FailingRange | None, failure: Failure, *, now: float) -> FailingRange:
    """The failed range, given the earlier state of a range that begins there."""
    return FailingRange(
        shard=part.shard,
        begin=part.begin,
        until=part.end if before is None else max(part.end, before.until),
        failed_end=part.begin,
        log_groups=part.groups,
        not_before_s=now,
        failure=failure,
        dead_lettered=before is not None and before.dead_lettered,
    )


def _divided(failing: FailingRange) -> FailingRange:
    """The next attempt reads only a part of the range that failed."""
    parts = PARTS_AFTER_AN_ERROR if failing.failure.cause in ERRORS else PARTS_AFTER_A_HANG
    return replace(
        failing,
        failed_end=failing.begin + failing.log_groups,
        log_groups=max(1, failing.log_groups // parts),
    )


def _counted(before: FailingRange | None, cause: Cause) -> int:
    """The earlier attempts of a log group. Attempts with an unavailable service do not count as attempts with
    rejected logs."""
    if before is None or (before.failure.cause is Cause.UNAVAILABLE) != (cause is Cause.UNAVAILABLE):
        return 0
    return before.attempts


def _next_part(failing: FailingRange, rest: int) -> int:
    """How many log groups of a failing range to read next, after its first part was delivered."""
    if failing.failure.cause in ERRORS:
        return max(1, rest // PARTS_AFTER_AN_ERROR)
    return failing.log_groups if failing.log_groups < rest else max(1, rest // PARTS_AFTER_A_HANG)
