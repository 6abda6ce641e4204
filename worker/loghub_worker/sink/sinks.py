"""Makes the sink that the settings name.

Parquet files and JSON lines in a folder or a bucket are written exactly once, through
`loghub_worker.sink.files.commit_log`, a Delta table through its own log, and rows in a table of PostgreSQL
through `loghub_worker.sink.postgresql.database`; another logstore, Kafka, the formats that Spark writes and
the worker's own output are written at least once.

The sink that prints rows to the worker's own output, for trying out a pipeline.
"""

import sys
from pathlib import Path
from typing import TextIO

import structlog
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from loghub.contract.sinks import (
    ConsoleSink,
    DeltaSink,
    KafkaSink,
    LogstoreSink,
    NoSink,
    PostgresqlSink,
    SparkSink,
)
from loghub.contract.worker import LOCAL_MASTER, CopyPipeline, WorkerConfig
from loghub_consumer.log_service import LogServiceAddress
from loghub_worker.sink.batch_sink import TIMES, AtLeastOnceSink, BatchSink, SinkOwner
from loghub_worker.sink.files.sink import make_files_sink
from loghub_worker.sink.kafka import KafkaTopic
from loghub_worker.sink.logstore import LogstoreWriter, TargetLogstore
from loghub_worker.sink.postgresql.sink import make_table_sink
from loghub_worker.sink.sink_start import NO_CREDENTIALS, CredentialFiles
from loghub_worker.sink.spark_format import SparkFormat

log = structlog.get_logger()


class Console(AtLeastOnceSink):
    """The first rows of each batch as JSON lines, at least once, for trying out a pipeline."""

    def __init__(self, max_rows: int, out: TextIO) -> None:
        self._max_rows = max_rows
        self._out = out

    def check(self, empty: DataFrame) -> None:
        _as_json(empty).collect()

    def write(self, result: DataFrame, batch: str) -> int:  # noqa: ARG002 - nothing is staged
        lines = _as_json(result).persist()  # otherwise `count` and `take` would each read the logs
        try:
            rows = lines.count()
            shown = [row[0] for row in lines.take(self._max_rows)]
        finally:
            lines.unpersist()
        self._out.writelines(f"{line}\n" for line in shown)
        self._out.flush()
        if rows > len(shown):
            log.info("only the first rows of the batch are shown", shown=len(shown), rows=rows)
        return rows


def _as_json(rows: DataFrame) -> DataFrame:
    return rows.select(F.to_json(F.struct("*"), TIMES))


COPIED_LOGS = "logs"  # the column with the number of logs in the log groups that a range was copied as


class LogstoreRows(AtLeastOnceSink):
    """The rows in another logstore, at least once."""

    def __init__(self, writer: LogstoreWriter) -> None:
        self._writer = writer

    def check(self, empty: DataFrame) -> None:
        self._writer.put(empty)

    def write(self, result: DataFrame, batch: str) -> int:  # noqa: ARG002 - nothing is staged
        return self._writer.put(result)


class LogGroupCopies(AtLeastOnceSink):
    """The log groups themselves in another logstore, at least once. The source writes them where it reads
    them (`loghub_worker.sink.logstore`), and yields the numbers of their logs."""

    def check(self, empty: DataFrame) -> None:
        """There is nothing to check: every log group is accepted as it is."""

    def write(self, result: DataFrame, batch: str) -> int:  # noqa: ARG002 - nothing is staged
        return sum(row[COPIED_LOGS] for row in result.collect())


def make_sink(
    config: WorkerConfig,
    *,
    consumer: str,
    credentials_dir: str,
    scratch: Path,
    sink_credentials: CredentialFiles = NO_CREDENTIALS,
) -> BatchSink:
    """The sink of a worker's settings. Raises `InvalidSinkError`, or `OSError` if its folder cannot be
    used."""
    sink = config.sink
    if isinstance(sink, LogstoreSink):
        if isinstance(config.pipeline, CopyPipeline):
            return LogGroupCopies()
        return _rows_to_logstore(sink, config, credentials_dir=credentials_dir, scratch=scratch)
    if isinstance(sink, ConsoleSink):
        return Console(sink.rows, sys.stdout)
    if isinstance(sink, KafkaSink):
        return KafkaTopic(
            sink,
            sink_credentials,
            client_id=f"loghub-{config.consumer_group}",
            batch_timeout_s=config.batch_timeout_s,
        )
    if isinstance(sink, SparkSink):
        return SparkFormat(sink, sink_credentials)
    group_path = (config.project, config.logstore, config.consumer_group)
    if isinstance(sink, PostgresqlSink):
        return make_table_sink(
            sink,
            sink_credentials,
            group_path=group_path,
            owner=consumer,
            batch_timeout_s=config.batch_timeout_s,
        )
    owner = SinkOwner(
        group_path=group_path,
        consumer=consumer,
        scratch=scratch,
        has_executors=config.spark_master != LOCAL_MASTER,
    )
    if isinstance(sink, DeltaSink):
        # Only here: it loads a large library.
        from loghub_worker.sink.delta.sink import make_delta_sink

        return make_delta_sink(sink, sink_credentials, owner)
    assert not isinstance(sink, NoSink)  # of a processor, which runs without Spark
    return make_files_sink(sink, sink_credentials, owner)


def _rows_to_logstore(
    sink: LogstoreSink, config: WorkerConfig, *, credentials_dir: str, scratch: Path
) -> LogstoreRows:
    target, source = (
        TargetLogstore(
            address=LogServiceAddress(
                endpoint=config.endpoint, project=project, credentials_dir=credentials_dir
            ),
            name=name,
        )
        for project, name in ((sink.project, sink.logstore), (config.project, config.logstore))
    )
    return LogstoreRows(LogstoreWriter(target, source, keep_order=sink.keep_order, scratch=scratch))
