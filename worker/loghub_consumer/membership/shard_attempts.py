"""Which requests about the held shards are due, as pure functions: openings, and checkpoints to save.

Every shard has its own pace: after a failure it waits longer each time, and delays no other shard.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from loghub.backoff import Backoff
from loghub_consumer.membership.membership import MemberShard, ShardPhase


@dataclass(frozen=True, slots=True)
class ShardAttempts:
    """The requests about one shard so far. Times are seconds of the monotonic clock; None: not yet."""

    failures: int = 0  # consecutive
    not_before_s: float | None = None  # the time of the next attempt
    saved_s: float | None = None  # when its checkpoint was saved last

    def failed(self, retries: Backoff, *, now: float) -> "ShardAttempts":
        """An opening or a checkpoint has failed."""
        failures = self.failures + 1
        return replace(self, failures=failures, not_before_s=now + retries.pause_s(failures))

    def succeeded(self) -> "ShardAttempts":
        """The shard was opened, or its checkpoint saved."""
        return replace(self, failures=0, not_before_s=None)

    def saved(self, *, now: float) -> "ShardAttempts":
        """The service has accepted a checkpoint."""
        return replace(self, saved_s=now)

    def may_try(self, *, now: float) -> bool:
        """Whether the pause after a failure is over."""
        return self.not_before_s is None or now >= self.not_before_s


NONE_YET = ShardAttempts()


def openings_due(
    shards: Iterable[MemberShard], attempts: Mapping[int, ShardAttempts], *, now: float
) -> tuple[MemberShard, ...]:
    """The shards to open now."""
    return tuple(
        shard
        for shard in shards
        if shard.phase is ShardPhase.OPENING and attempts.get(shard.shard, NONE_YET).may_try(now=now)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SavePace:
    """While a shard is consumed, its checkpoint is saved at most once in `interval_s`. The `ended` shards are
    read-only and consumed to their ends, and their checkpoints make the service mark them as over."""

    interval_s: float
    ended: frozenset[int]
    is_stopping: bool  # the worker gives up all shards


def saves_due(
    unsaved: Iterable[MemberShard], attempts: Mapping[int, ShardAttempts], pace: SavePace, *, now: float
) -> tuple[MemberShard, ...]:
    """The shards whose checkpoints to save now. Another consumer waits for a shard that is being released,
    and for the end of a read-only shard, so these are saved immediately."""
    return tuple(
        shard
        for shard in unsaved
        if attempts.get(shard.shard, NONE_YET).may_try(now=now)
        and (
            pace.is_stopping
            or shard.phase is not ShardPhase.OPEN
            or shard.shard in pace.ended
            or _is_interval_over(attempts.get(shard.shard, NONE_YET), pace.interval_s, now)
        )
    )


def _is_interval_over(attempts: ShardAttempts, interval_s: float, now: float) -> bool:
    return attempts.saved_s is None or now >= attempts.saved_s + interval_s
