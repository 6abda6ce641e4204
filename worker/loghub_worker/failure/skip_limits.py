"""When a log that cannot be delivered may be skipped or dead-lettered, as a pure decision.

Before anything is skipped, three things must hold: it failed alone several times, only a few were skipped
directly before it, and only some in the last hour. If more than that fails, then the pipeline is broken, not
the logs; the logs are then retried as with the policy `Retry`, and a success ends that.

Pipelines (`loghub_worker.failure.failure_policy`) and the processor API decide by the same limits.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from loghub.worker_contract import OnFailure

HOUR_S = 3600.0
# A process may be killed for reasons that have nothing to do with what it read.
LEAST_ENDED_ATTEMPTS = 3


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
    UNAVAILABLE = "unavailable"  # of the log service or of a disk; not of the logs, which are never skipped


class WaitState(StrEnum):
    """What a shard waits for."""

    RETRYING = "retrying"  # for the next attempt
    SETTLING = "settling"  # for its log group to be skipped or dead-lettered
    LIMITED = "limited"  # as retrying, because too many log groups were skipped already
    STOPPED = "stopped"  # for a restart of its worker, another worker, or another checkpoint


ERRORS = (Cause.REJECTED, Cause.UNAVAILABLE)  # known at once


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureSettings:
    """The settings of one group. `batch_timeout_s` is the time after which a batch is cancelled, and
    `restart_s` the first pause after a process ended, which costs the others what a new one costs."""

    policy: Policy
    max_attempts: int  # of one log group
    # Log groups of a shard that are skipped without a success between them. None: any number of them, from a
    # retry logstore, which has nothing but logs that failed.
    max_consecutive: int | None
    max_per_hour: int  # log groups of a shard that are skipped
    batch_timeout_s: float
    restart_s: float = 60.0


def failure_settings(given: OnFailure, *, batch_timeout_s: float) -> FailureSettings:
    """The settings of the policy."""
    return FailureSettings(
        policy=Policy(given.policy),
        max_attempts=given.max_attempts,
        max_consecutive=given.max_consecutive,
        max_per_hour=given.max_per_hour,
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
    """What another process must know of the log groups of a shard that were skipped or dead-lettered. It has
    another monotonic clock, so the skips of the last hour are given by their ages."""

    shard: int
    consecutive: int
    ages_s: tuple[float, ...]  # the oldest first
    last_cursor: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RecentSkips:
    """How many log groups of a shard were skipped or dead-lettered in the last hour, and the last of them."""

    shard: int
    log_groups: int
    last_cursor: int


class SkipLimits:
    """How much of each shard was skipped or dead-lettered. Not thread-safe."""

    def __init__(self, settings: FailureSettings) -> None:
        self.settings = settings
        self._skips: dict[int, _Skips] = {}

    def decide(
        self, shard: int, attempts: int, cause: Cause, *, not_before_s: float, now: float
    ) -> tuple[WaitState, float | None]:
        """What becomes of logs of this shard that have failed alone so often, and when they are tried next;
        None: not any more. `not_before_s` is when they would be without a policy."""
        settings = self.settings
        least = LEAST_ENDED_ATTEMPTS if cause is Cause.ENDED else 1
        if settings.policy is Policy.RETRY or cause is Cause.UNAVAILABLE:
            return WaitState.RETRYING, not_before_s
        if attempts < max(settings.max_attempts, least):
            return WaitState.RETRYING, not_before_s
        if settings.policy is Policy.STOP:
            return WaitState.STOPPED, None
        skips, most = self._skips.get(shard), settings.max_consecutive
        if skips is not None and most is not None and skips.consecutive >= most:
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
        """A log group, or logs of it, was skipped or dead-lettered."""
        skips = self._skips.setdefault(shard, _Skips(0, deque(), cursor))
        skips.consecutive += 1
        skips.times_s.append(now)
        skips.last_cursor = cursor

    def restore(self, past: Iterable[PastSkips], *, now: float) -> None:
        """What an earlier process knew."""
        for one in past:
            times_s = deque(now - age_s for age_s in one.ages_s)
            self._skips[one.shard] = _Skips(one.consecutive, times_s, one.last_cursor)

    def recent_skips(self, now: float) -> tuple[RecentSkips, ...]:
        """The shards of which a log group was skipped or dead-lettered in the last hour."""
        recent = ((shard, self._recent(shard, now)) for shard in sorted(self._skips))
        return tuple(
            RecentSkips(shard=shard, log_groups=len(times), last_cursor=self._skips[shard].last_cursor)
            for shard, times in recent
            if times
        )

    def past_skips(self, now: float) -> tuple[PastSkips, ...]:
        """What `restore` needs so that the limits continue to hold."""
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
