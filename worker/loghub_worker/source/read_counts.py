"""What reading a range yielded, as rows behind those of its logs.

The processes that read share neither memory nor a disk with the driver, and Spark may run a task again, or
the same task on two machines. So what a task counted takes the way of its rows: the last rows of a task are
the counts of its ranges, one for each, in a column that is null in the rows of logs. The driver takes them
out (`loghub_worker.query.observed_counts`). Rows of a task that failed never arrive, and equal ones count
once.
"""

from collections.abc import Iterable, Mapping

import msgspec
import pyarrow as pa

from loghub_worker.batch_plan import Range

COUNTS = "__counts__"  # the column


class ReadFailure(msgspec.Struct, frozen=True, kw_only=True):
    """Why nothing of a range could be read."""

    rejected: bool  # because of the content of its first log group; otherwise a later attempt may succeed
    reason: str  # in CamelCase
    message: str


class ReadCount(msgspec.Struct, frozen=True, kw_only=True):
    """What reading one range yielded."""

    logs: int
    bytes: int
    replaced: int = 0  # text values with invalid UTF-8, which was replaced
    missing: int = 0  # log groups of the range that expired before they were read
    oldest: int = 0  # cursor of the oldest group that still exists, if that is past the range's end
    end: int = 0  # cursor at which the reading ended, if that is before the range's end
    failure: ReadFailure | None = None  # if nothing was read; the batch's other ranges count nevertheless


class _Counted(msgspec.Struct, frozen=True, kw_only=True):
    """The text in the column."""

    shard: int
    begin: int
    end: int
    count: ReadCount


def with_counts(schema: pa.Schema) -> pa.Schema:
    """The schema of rows with the column of counts behind the others."""
    return schema.append(pa.field(COUNTS, pa.string()))


def as_logs(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Rows of logs, with the column of counts."""
    columns = [*rows.columns, pa.nulls(rows.num_rows, pa.string())]
    return pa.RecordBatch.from_arrays(columns, schema=with_counts(rows.schema))


def as_rows(counts: Mapping[Range, ReadCount], schema: pa.Schema) -> pa.RecordBatch:
    """A row for each range; `schema` is that of the logs."""
    texts = [
        msgspec.json.encode(_Counted(shard=one.shard, begin=one.begin, end=one.end, count=count)).decode()
        for one, count in counts.items()
    ]
    columns = [*(pa.nulls(len(texts), field.type) for field in schema), pa.array(texts, pa.string())]
    return pa.RecordBatch.from_arrays(columns, schema=with_counts(schema))


def counts_in(texts: Iterable[str]) -> dict[Range, ReadCount]:
    """The counts in texts of the column. If a range was read more than once, with different results, those
    count that have lost more: nobody knows which reading the sink has."""
    counts: dict[Range, ReadCount] = {}
    for text in texts:
        counted = msgspec.json.decode(text, type=_Counted)
        read = Range(counted.shard, counted.begin, counted.end)
        counts[read] = max(counts.get(read, counted.count), counted.count, key=_losses)
    return counts


def _losses(count: ReadCount) -> tuple[bool, bool, int, int, int]:
    return count.failure is not None, count.end > 0, -count.end, count.missing, count.replaced
