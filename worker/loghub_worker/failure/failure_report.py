"""What the status and the metrics show of failing shards."""

from collections.abc import Mapping
from dataclasses import dataclass, field

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

    @property
    def error(self) -> ReportedError:
        """The error of the first shard that waits; empty if none does."""
        if not self.failing:
            return ReportedError()
        first = self.failing[0]
        place = f"shard {first.shard} at cursor {encode_cursor(first.begin)}"
        state = f"{first.state} after {first.attempts} attempts"
        return ReportedError(first.failure.reason, f"{place}, {state}: {first.failure.message}")
