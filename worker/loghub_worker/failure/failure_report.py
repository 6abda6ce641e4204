"""What the status and the metrics show of failing shards."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from loghub_worker.failure.failure_policy import FailingRange, ShardTotals
from loghub_worker.failure.skip_limits import RecentSkips
from loghub_worker.log_service import ReportedError, encode_cursor


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureReport:
    """The shards of one worker."""

    failing: tuple[FailingRange, ...] = ()  # the shards that wait at one log group
    skips: tuple[RecentSkips, ...] = ()
    totals: Mapping[int, ShardTotals] = field(default_factory=dict)
    dead_lettered: bool = False  # whether the skipped log groups are in a dead letter

    def with_retries(self, other: "FailureReport") -> "FailureReport":
        """The same with what became of logs that have waited in the retry logstore. Both name the shards of
        the logstore that the group consumes."""
        totals = {shard: replace(one) for shard, one in self.totals.items()}
        for shard, one in other.totals.items():
            totals[shard] = totals.get(shard, ShardTotals()).plus(one)
        skips = {one.shard: one for one in self.skips}
        for skipped in other.skips:
            before = skips.get(skipped.shard, RecentSkips(shard=skipped.shard, log_groups=0, last_cursor=0))
            skips[skipped.shard] = RecentSkips(
                shard=skipped.shard,
                log_groups=before.log_groups + skipped.log_groups,
                last_cursor=max(before.last_cursor, skipped.last_cursor),
            )
        return replace(self, skips=tuple(skips[shard] for shard in sorted(skips)), totals=totals)

    @property
    def error(self) -> ReportedError:
        """The error of the first shard that waits; empty if none does."""
        if not self.failing:
            return ReportedError()
        first = self.failing[0]
        place = f"shard {first.shard} at cursor {encode_cursor(first.begin)}"
        state = f"{first.state} after {first.attempts} attempts"
        return ReportedError(first.failure.reason, f"{place}, {state}: {first.failure.message}")
