"""Rows of a query to another logstore.

What for: the sink that copies. Each row becomes a log: ``__time__`` its time, every other column a
content with the column's name, nulls left out. What it must not know: the ledger, the membership.
Read next: `loghub_worker.sink`.

It runs where the rows are: Spark's Python processes encode and put them, in groups of bounded
size, and only counts come back.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own habit
from pyspark.sql.types import ArrayType, DateType, MapType, NumericType, StructType, TimestampType

from loghub.clock import SystemClock
from loghub.wire.loggroup import Log, LogGroup, encode
from loghub_worker.hub import Address, shared

TIME = "__time__"
GROUP_BYTES = 1_000_000  # of texts in one log group; the service refuses above 5 MB
GROUP_LOGS = 4_096


class LogstoreWriter:
    """Puts a DataFrame's rows into a logstore."""

    def __init__(self, address: Address, logstore: str) -> None:
        self._address = address
        self._logstore = logstore

    def put(self, result: DataFrame) -> int:
        """Put all rows; how many. Each of them at least once, in no order across partitions."""
        put = _putter(self._address, self._logstore)
        counts = self.texts(result).mapInArrow(put, "rows bigint").toArrow()
        return sum(counts.column("rows").to_pylist())

    def texts(self, result: DataFrame) -> DataFrame:
        """All columns as text, but ``__time__`` as unix seconds."""
        return result.select([_as_text(field.name, field.dataType) for field in result.schema.fields])


def _as_text(name: str, kind: Any) -> Any:
    column = F.col(f"`{name.replace('`', '``')}`")
    if name == TIME:
        if not isinstance(kind, TimestampType | DateType | NumericType):
            raise ValueError(f"column {TIME} must be a time or unix seconds, not {kind.simpleString()}")
        seconds = F.unix_timestamp(column) if not isinstance(kind, NumericType) else column
        return seconds.cast("bigint").alias(name)
    if isinstance(kind, MapType | StructType | ArrayType):
        return F.to_json(column).alias(name)
    return column.cast("string").alias(name)


def _putter(
    address: Address, logstore: str
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What Spark runs over each part of the rows."""

    def put(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        hub = shared(address)
        now_s = int(SystemClock().unix_s())
        rows = 0
        for batch in batches:
            for group in groups_of(batch, now_s=now_s):
                hub.put_logs(logstore, encode(LogGroup(logs=tuple(group))))
            rows += batch.num_rows
        yield pa.RecordBatch.from_pydict({"rows": pa.array([rows], pa.int64())})

    return put


def groups_of(batch: pa.RecordBatch, *, now_s: int) -> Iterator[list[Log]]:
    """Logs of a batch of text columns, in groups of bounded size; `now_s` where a row has no time."""
    group: list[Log] = []
    size = 0
    for row in batch.to_pylist():
        time_s = row.pop(TIME, None)
        contents = tuple((name, text) for name, text in row.items() if text is not None)
        group.append(Log(time=now_s if time_s is None else time_s, contents=contents))
        size += sum(len(name) + len(text) for name, text in contents)
        if size >= GROUP_BYTES or len(group) >= GROUP_LOGS:
            yield group
            group, size = [], 0
    if group:
        yield group
