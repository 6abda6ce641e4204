"""The counters of the query for the metrics."""

from collections.abc import Mapping

from loghub_worker.failure.failure_counters import failure_counters
from loghub_worker.failure.failure_policy import ShardTotals
from loghub_worker.metrics import Counter
from loghub_worker.query.streaming_query import QueryTotals


def query_counters(totals: QueryTotals, failures: Mapping[int, ShardTotals]) -> tuple[Counter, ...]:
    """All of them; ``failures`` by shard."""
    return (
        Counter("loghub_worker_batches", "Number of micro-batches committed to the sink.", totals.batches),
        Counter(
            "loghub_worker_batches_discarded",
            "Number of micro-batches discarded because the worker no longer held their shards.",
            totals.discarded,
        ),
        Counter(
            "loghub_worker_batches_timed_out",
            "Number of micro-batches cancelled because they took longer than their timeout.",
            totals.timed_out,
        ),
        Counter(
            "loghub_worker_batch_duration_seconds",
            "Total duration of the committed micro-batches.",
            totals.seconds,
        ),
        Counter(
            "loghub_worker_invalid_utf8_values",
            "Number of text values in which invalid UTF-8 was replaced.",
            totals.replaced,
        ),
        Counter(
            "loghub_worker_log_groups_expired",
            "Number of log groups that expired before they were read.",
            totals.missing,
        ),
        Counter(
            "loghub_worker_logs_ahead_of_receipt",
            "Number of logs of a time after their receipt, which got another one (stateful pipelines).",
            totals.ahead,
        ),
        *failure_counters(failures),
    )
