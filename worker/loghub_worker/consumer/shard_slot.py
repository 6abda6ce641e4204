"""What a consumer keeps of one assignment of a shard. `loghub_worker.consumer.shard_table` has the lock."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from loghub_worker.consumer.batch import KeptGroup, LogBatch, batch_again
from loghub_worker.consumer.buffer import ShardBuffer
from loghub_worker.consumer.shard_flow import ShardFlow
from loghub_worker.consumer.unacknowledged import Unacknowledged, Unsettled
from loghub_worker.failure.failure_policy import FailingRange
from loghub_worker.log_service import ReportedError


@dataclass(frozen=True, slots=True)
class Kept:
    """A batch, the generation of its flow, and what it hands over again; None for new logs."""

    batch: LogBatch
    generation: int
    again: tuple[Unsettled, ...] | None = None


@dataclass(frozen=True, slots=True)
class Waiting:
    """Logs that are handed over again and may not be settled yet, as the report has them."""

    logs: Unsettled
    failing: FailingRange


@dataclass(slots=True)
class ShardSlot:
    """One assignment of a shard. `kept` is the batch that is being processed, or failed."""

    flow: ShardFlow
    buffer: ShardBuffer
    unacknowledged: Unacknowledged
    priority: int = 0
    has_backlog: bool = False
    kept: Kept | None = None
    end: int | None = None  # cursor after the last log group, as last observed
    pull_error: ReportedError = field(default_factory=ReportedError)
    user_error: ReportedError = field(default_factory=ReportedError)
    failure_error: ReportedError = field(default_factory=ReportedError)  # while logs cannot be settled
    waiting: Waiting | None = None  # the last that were found
    wake: Callable[[], None] = lambda: None  # there may be a step for its processor

    @property
    def errors(self) -> tuple[ReportedError, ...]:
        return self.pull_error, self.user_error, self.failure_error

    @property
    def next_cursor(self) -> int:
        """Of the next log group to hand over. Those between the position and what was pulled have expired."""
        return max(self.flow.position, self.buffer.first or 0)


def kept_again(flow: ShardFlow, taken: Sequence[Unsettled]) -> Kept:
    """What is handed over again, as a batch."""
    groups = [
        KeptGroup(one.cursor, one.raw, None if one.only is None else tuple(sorted(one.only))) for one in taken
    ]
    batch = batch_again(flow.shard, groups, delivery=taken[0].delivery)
    return Kept(batch, flow.generation, tuple(taken))
