"""What a worker with a processor counts, for the metrics."""

from collections.abc import Sequence

from loghub.worker_contract import ProcessProgress
from loghub_worker.consumer.processes.processor_counts import ProcessorCounts
from loghub_worker.failure.failure_counters import failure_counters
from loghub_worker.failure.failure_report import FailureReport
from loghub_worker.metrics import Counter


def processor_counters(
    counts: ProcessorCounts, failures: FailureReport, processes: Sequence[ProcessProgress]
) -> tuple[Counter, ...]:
    """All of them, as of now."""
    return (
        Counter("loghub_worker_batches", "Number of batches processed.", counts.batches),
        Counter(
            "loghub_worker_batches_timed_out",
            "Number of batches that took longer than their timeout.",
            counts.timed_out,
        ),
        Counter(
            "loghub_worker_batch_duration_seconds",
            "Total duration of the processed batches.",
            counts.seconds,
        ),
        Counter(
            "loghub_worker_process_starts",
            "Number of starts of processes that run processors.",
            sum(one.starts for one in processes),
        ),
        Counter(
            "loghub_worker_log_groups_postponed",
            "Number of log groups written to the retry logstore, by shard.",
            {shard: one.postponed for shard, one in failures.totals.items()},
        ),
        *failure_counters(failures.totals),
    )
