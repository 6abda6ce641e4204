"""What a worker with a processor counts, and the counters for the metrics."""

import threading
from collections.abc import Sequence

from loghub.worker_contract import ProcessProgress
from loghub_worker.failure.failure_counters import failure_counters
from loghub_worker.failure.failure_report import FailureReport
from loghub_worker.metrics import Counter


class ProcessorCounts:
    """What was processed since the worker started, by shard, and since when each session has a batch.
    Thread-safe."""

    def __init__(self) -> None:
        self.logs: dict[int, int] = {}
        self.batches = 0
        self.seconds = 0.0
        self.timed_out = 0
        self.running_since_s: dict[int, float] = {}
        self._lock = threading.Lock()

    def add(self, shard: int, logs: int, seconds: float) -> None:
        """A batch was processed."""
        with self._lock:
            self.batches += 1
            self.seconds += seconds
            self.logs[shard] = self.logs.get(shard, 0) + logs

    def add_timed_out(self) -> None:
        """A batch took too long."""
        with self._lock:
            self.timed_out += 1


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
