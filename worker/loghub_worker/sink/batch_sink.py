"""The interface of a sink to the query runner, and the form of times in the JSON that Spark writes.

`loghub_worker.query.streaming_query` calls `write` and `publish` in this order. Each sink has a module or a
folder of its own next to this one; `loghub_worker.sink.sinks` makes the one that the settings name.

Spark by itself cuts times to three digits. Six digits always, as Spark has them, so that texts of one length
sort as the times do; `Z` is the session's time zone.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from loghub_consumer.batch_plan import Range
from loghub_consumer.resumption import NoRecord, ShardRecord

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


# Options of Spark's JSON, of files as well as of `to_json`.
TIMES: Mapping[str, str] = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}


class InvalidSinkError(Exception):
    """The sink's settings or the query's columns cannot work; retries do not help."""


class SinkUnreachableError(OSError):
    """The sink's server does not answer, or refuses every write for now."""


class RowsRejectedError(Exception):
    """The sink refuses rows because of their content."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOwner:
    """The worker that a sink of files or a Delta table is made for."""

    group_path: tuple[str, str, str]  # project, logstore, group: where the sink's own records are
    consumer: str  # part of the name of each batch; leftovers of an earlier process of that name are removed
    scratch: Path  # a folder of this worker alone
    has_executors: bool = False  # elsewhere, without its disk


def require_rows(computed: int, written: int) -> None:
    """Raise `OSError` if the sink has not found all rows that executors elsewhere have computed for it."""
    if written < computed:
        raise OSError(
            f"Spark's executors have written {computed} rows, and the worker finds {written} of them: with"
            " spec.spark.master the volume of the sink must be mounted in all executors, under the same path"
        )


class BatchSink(ShardRecord, Protocol):
    """The guarantees of a sink to the query runner. Cursors are integers."""

    def check(self, empty: "DataFrame") -> None:
        """Reject columns that this sink does not support, by means of an empty result of the query."""

    def write(self, result: "DataFrame", batch: str) -> int:
        """Write the rows and return their number. They count once `publish` has returned."""

    def publish(self, batch: str, ranges: tuple[Range, ...], may_commit: Callable[[], bool]) -> None:
        """Make the batch part of the sink. Raises `commit_log.RangeTakenError` or
        `commit_log.SessionLostError` if it is not."""

    def abort(self, batch: str) -> None:
        """The batch failed before `publish`."""


@runtime_checkable
class WritesFiles(Protocol):
    """A sink whose files have a target size."""

    file_bytes: int  # of the last batch


class AtLeastOnceSink(NoRecord):
    """The base of sinks that keep no record: a batch that failed midway is delivered again."""

    def publish(self, batch: str, ranges: tuple[Range, ...], may_commit: Callable[[], bool]) -> None:
        """Do nothing: the rows are visible already."""

    def abort(self, batch: str) -> None:
        """Do nothing: rows that are already written stay, and are delivered again."""
