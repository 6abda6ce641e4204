"""The counters of a worker with a processor for the metrics."""

from collections.abc import Sequence

from loghub.worker_contract import ProcessProgress
from loghub_worker.failure.failure_counters import failure_counters
from loghub_worker.failure.failure_handler import FailureReport
from loghub_worker.metrics import Counter
from loghub_worker.processing.remote_processor import ProcessorCounts


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
        *failure_counters(failures.totals),
    )
