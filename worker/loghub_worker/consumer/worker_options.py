"""What a consumer has to know in a worker, whose processors run in other processes."""

from dataclasses import dataclass
from pathlib import Path

from loghub_worker.consumer.processor import ProcessorFactory
from loghub_worker.consumer.running_batches import RunningBatches


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """Given by `loghub_worker.processing`. With them every batch for which `process` raises is divided, also
    with the policy ``Retry``, and attempts are remembered from one process of the worker to the next."""

    timeout_s: int  # of the group
    retry_timeout_s: int | None  # of the group in the retry logstore, if there is one
    state_dir: Path  # keeps what the next process must know of logs that fail
    batch_timeout_s: float  # after which a call of `process` is ended, with its process
    restart_s: float  # the first pause after a process has ended
    retry_factory: ProcessorFactory  # for the shards of the retry logstore
    running: RunningBatches  # those of the retry logstore included
