"""What the query runner needs of a sink.

`loghub_worker.query.streaming_query` calls `write` and `publish` in this order. Each sink has a module of its
own in this folder; `loghub_worker.sink.sinks` makes the one that the settings name.
"""

from collections.abc import Callable
from typing import Protocol

from pyspark.sql import DataFrame

from loghub_worker.batch_plan import Range
from loghub_worker.sink.range_claims import ShardIncarnation


class InvalidSinkError(Exception):
    """The sink's settings or the query's columns cannot work; retries do not help."""


class BatchSink(Protocol):
    """What a sink guarantees to the query runner. Cursors are integers."""

    def check(self, empty: DataFrame) -> None:
        """Reject columns that this sink does not support, by means of an empty result of the query."""

    def open_shard(self, shard: ShardIncarnation) -> None:
        """This worker was assigned the shard. Called before its checkpoint is requested."""

    def resume(
        self, shard: ShardIncarnation, checkpoint: int, *, confirm: Callable[[], None], moved: bool = False
    ) -> int:
        """Where the shard continues, given the service's checkpoint and whether that was `moved` on purpose.
        `confirm` is called before anything is changed; it raises if the shard was lost since it was
        opened."""

    def write(self, result: DataFrame, batch: str) -> int:
        """Write the rows and return their number. They count once `publish` has returned."""

    def publish(self, batch: str, ranges: tuple[Range, ...], may_commit: Callable[[], bool]) -> None:
        """Make the batch part of the sink. Raises `commit_log.RangeTakenError` or
        `commit_log.SessionLostError` if it is not."""

    def abort(self, batch: str) -> None:
        """The batch failed before `publish`."""

    def acknowledge(self, shard: int, checkpoint: int) -> None:
        """The service has the checkpoint."""


class AtLeastOnceSink:
    """The base of sinks that keep no record: a batch that failed midway is delivered again."""

    def open_shard(self, shard: ShardIncarnation) -> None:
        """Do nothing: nobody else's delivery can be noticed."""

    def resume(
        self,
        shard: ShardIncarnation,  # noqa: ARG002
        checkpoint: int,
        *,
        confirm: Callable[[], None],
        moved: bool = False,  # noqa: ARG002
    ) -> int:
        """The checkpoint is the only record."""
        confirm()
        return checkpoint

    def publish(self, batch: str, ranges: tuple[Range, ...], may_commit: Callable[[], bool]) -> None:
        """Do nothing: the rows are visible already."""

    def abort(self, batch: str) -> None:
        """Do nothing: rows that are already written stay, and are delivered again."""

    def acknowledge(self, shard: int, checkpoint: int) -> None:
        """Do nothing: there is no record to remove."""
