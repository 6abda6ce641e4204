"""Writes rows to a logstore, at least once: rows that a task has written before it failed are written again.

A batch and a stream write in the same way. Each task forms log groups of its rows and sends them; it returns
its counts, and the driver adds them up.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from loghub.clock import SystemClock
from loghub_consumer.log_groups import (
    HASH_KEY,
    LogGroupBuilder,
    Route,
    Row,
    route_anywhere,
    route_by_hash_key,
)
from loghub_consumer.writing import put_rows
from loghub_spark.connection import client_of, explained
from loghub_spark.options import LogstoreConnection, OptionError
from loghub_spark.wire_rows import check, to_wire

log = logging.getLogger("loghub_spark")


@dataclass
class WrittenMessage(WriterCommitMessage):
    """What one task has written."""

    rows: int
    log_groups: int
    bytes: int


class _Target:
    """The logstore that is written. Raises `OptionError` for columns that it cannot have."""

    def __init__(self, connection: LogstoreConnection, schema: StructType, *, overwrite: bool) -> None:
        if overwrite:
            raise OptionError(
                'a logstore can only be appended to: use mode("append"), and outputMode("append") or'
                ' outputMode("update") for a stream'
            )
        check(to_arrow_schema(schema, timezone="UTC"))
        self._connection = connection

    def write(self, batches: Iterator[pa.RecordBatch]) -> WrittenMessage:
        where = self._connection
        with explained(where):
            done = put_rows(client_of(where), where.logstore, map(to_wire, batches), self._builder)
        return WrittenMessage(done.rows, done.log_groups, done.bytes)

    def _builder(self, columns: list[str]) -> LogGroupBuilder:
        where = self._connection
        route: Callable[[Row], Route] = route_anywhere
        if HASH_KEY in columns:
            route = route_by_hash_key(client_of(where).list_shards(where.logstore))
        return LogGroupBuilder(now_s=int(SystemClock().unix_s()), route=route)

    def report(self, messages: Sequence[WriterCommitMessage | None], what: str) -> None:
        done = [message for message in messages if isinstance(message, WrittenMessage)]
        log.info(
            "%s: %d logs in %d log groups of %d bytes, by %d tasks, are in %s",
            what,
            sum(one.rows for one in done),
            sum(one.log_groups for one in done),
            sum(one.bytes for one in done),
            len(done),
            self._connection.name,
        )

    def report_failure(self, messages: Sequence[WriterCommitMessage | None], what: str) -> None:
        rows = sum(message.rows for message in messages if isinstance(message, WrittenMessage))
        log.warning(
            "%s failed: %d logs of the tasks that succeeded are in %s, perhaps more of the others, and an"
            " attempt that follows writes them again",
            what,
            rows,
            self._connection.name,
        )


class LogHubWriter(DataSourceArrowWriter):
    """Writes a DataFrame."""

    def __init__(self, connection: LogstoreConnection, schema: StructType, *, overwrite: bool) -> None:
        self._target = _Target(connection, schema, overwrite=overwrite)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WrittenMessage:
        return self._target.write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._target.report(messages, "write")

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._target.report_failure(messages, "write")


class LogHubStreamWriter(DataSourceStreamArrowWriter):
    """Writes the micro-batches of a stream."""

    def __init__(self, connection: LogstoreConnection, schema: StructType, *, overwrite: bool) -> None:
        self._target = _Target(connection, schema, overwrite=overwrite)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WrittenMessage:
        return self._target.write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        self._target.report(messages, f"batch {batchId}")

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        self._target.report_failure(messages, f"batch {batchId}")
