"""What a consumer has to know whose processors run in other processes."""

from dataclasses import dataclass, replace
from pathlib import Path

from loghub_worker.consumer.processor import ProcessorFactory
from loghub_worker.consumer.running_batches import RunningBatches


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """Given by `loghub_worker.processing`, or made for `ConsumerSettings.processes`. With them every batch
    for which `process` raises is divided, also with the policy ``Retry``. A worker remembers attempts from
    one of its processes to the next; a program has neither timeouts nor `state_dir`."""

    timeout_s: int | None  # of the group, if it is known
    retry_timeout_s: int | None  # of the group in the retry logstore
    state_dir: Path | None  # keeps what the next process must know of logs that fail
    batch_timeout_s: float  # after which a call of `process` is ended, with its process
    restart_s: float  # the first pause after a process has ended
    retry_factory: ProcessorFactory  # for the shards of the retry logstore
    running: RunningBatches  # those of the retry logstore included

    def of_retries(self) -> "WorkerOptions":
        """Those of the consumer of the retry logstore."""
        folder = None if self.state_dir is None else self.state_dir / "retries"
        return replace(self, state_dir=folder, timeout_s=self.retry_timeout_s)
