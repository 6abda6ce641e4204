"""The counters of failures for the metrics."""

from collections.abc import Mapping

from loghub_worker.failure.failure_policy import ShardTotals
from loghub_worker.metrics import Counter


def failure_counters(failures: Mapping[int, ShardTotals]) -> tuple[Counter, ...]:
    """All of them, by shard."""
    return (
        Counter(
            "loghub_worker_failed_attempts",
            "Number of failed attempts to deliver a range of log groups, by shard.",
            {shard: one.failed_attempts for shard, one in failures.items()},
        ),
        Counter(
            "loghub_worker_log_groups_skipped",
            "Number of log groups skipped because the pipeline or the sink rejects them, by shard.",
            {shard: one.skipped for shard, one in failures.items()},
        ),
        Counter(
            "loghub_worker_log_groups_dead_lettered",
            "Number of log groups written to the dead letter, by shard.",
            {shard: one.dead_lettered for shard, one in failures.items()},
        ),
    )
