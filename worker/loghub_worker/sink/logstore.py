"""Writes the rows of a query to another logstore.

Each row becomes a log: ``__time__`` becomes its time and every other column a content with the column's name;
nulls are omitted.

The writer runs where the rows are: Spark's Python processes encode and write them, in log groups of bounded
size, and only return counts. It is the writer of a data source because that is Spark's only way to pass Arrow
to Python that does not need pandas. `loghub_worker.source.datasource` registers it.
"""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import ArrayType, DateType, MapType, NumericType, StructType, TimestampType

from loghub.atomic_file import replace_file
from loghub.clock import SystemClock
from loghub.wire.loggroup import Log, LogGroup, encode
from loghub_worker.log_service import Address, shared_client

FORMAT = "loghub"
TIME = "__time__"
# The most text in a log group with more than one log; the service rejects a log group above 5 MB.
GROUP_CHARS = 1_000_000
GROUP_LOGS = 4_096


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """Where to write; ``count_file`` receives the number of rows once all of them are written."""

    address: Address
    logstore: str
    count_file: str

    def to_option(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_option(value: str) -> "WriteOptions":
        fields = json.loads(value)
        return WriteOptions(**(fields | {"address": Address(**fields["address"])}))


@dataclass
class Put(WriterCommitMessage):
    """What one task has written."""

    rows: int


class LogstoreArrowWriter(DataSourceArrowWriter):
    """Writes the rows of each task. What a failed task has already written is written again."""

    def __init__(self, options: WriteOptions) -> None:
        self.options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Put:
        client = shared_client(self.options.address)
        now_s = int(SystemClock().unix_s())
        rows = 0
        for batch in iterator:
            for group in groups_of(batch, now_s=now_s):
                client.put_logs(self.options.logstore, encode(LogGroup(logs=tuple(group))))
            rows += batch.num_rows
        return Put(rows)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        rows = sum(message.rows for message in messages if isinstance(message, Put))
        replace_file(Path(self.options.count_file), b"%d" % rows)


class LogstoreWriter:
    """Writes the rows of a DataFrame to a logstore."""

    def __init__(self, address: Address, logstore: str, *, scratch: Path) -> None:
        self._address = address
        self._logstore = logstore
        self._count_file = scratch / "put-count"

    def put(self, result: DataFrame) -> int:
        """Write all rows and return their number. Each is written at least once, in no order across
        partitions."""
        options = WriteOptions(
            address=self._address, logstore=self._logstore, count_file=str(self._count_file)
        )
        columns = [_as_text(field.name, field.dataType) for field in result.schema.fields]
        writer = result.select(columns).write.format(FORMAT).mode("append")
        writer.option("settings", options.to_option()).save()
        return int(self._count_file.read_bytes())


def _as_text(name: str, kind: Any) -> Column:
    column = F.col(f"`{name.replace('`', '``')}`")
    if name == TIME:
        if not isinstance(kind, TimestampType | DateType | NumericType):
            raise ValueError(
                f"the column {TIME} must be a timestamp, a date or unix seconds, not {kind.simpleString()}"
            )
        seconds = F.unix_timestamp(column) if not isinstance(kind, NumericType) else column
        return seconds.cast("bigint").alias(name)
    if isinstance(kind, MapType | StructType | ArrayType):
        return F.to_json(column).alias(name)
    return column.cast("string").alias(name)


def groups_of(batch: pa.RecordBatch, *, now_s: int) -> Iterator[list[Log]]:
    """The logs of a batch of text columns, in groups of bounded size. A row without a time gets `now_s`."""
    group: list[Log] = []
    size = 0
    for row in batch.to_pylist():
        time_s = row.pop(TIME, None)
        contents = tuple((name, text) for name, text in row.items() if text is not None)
        chars = sum(len(name) + len(text) for name, text in contents)
        if group and (size + chars > GROUP_CHARS or len(group) >= GROUP_LOGS):
            yield group
            group, size = [], 0
        group.append(Log(time=now_s if time_s is None else time_s, contents=contents))
        size += chars
    if group:
        yield group
