"""A query or function over given logs (`loghub_worker.dry_run`)."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from loghub.contract.dry_run import (
    PARTITIONS_SHOWN,
    DryRunReport,
    LogSample,
    ResultColumn,
    ResultPartition,
    SampledGroup,
)
from loghub.contract.sinks import DeltaSink, JsonSink, ParquetSink, Sink
from loghub.contract.worker import CopyPipeline
from loghub_consumer.failure.policy import Cause, Failure
from loghub_worker.attempts import Attempts, batches_of, divide, report_of
from loghub_worker.query.batch_errors import failure_of, is_outage
from loghub_worker.query.transform import Transform, checked_rows_of_batch, empty_logs
from loghub_worker.settings import WorkerSettings
from loghub_worker.sink.batch_sink import TIMES
from loghub_worker.sink.dry_sink import RowsInForm
from loghub_worker.sink.files.formats import NULL_PARTITION
from loghub_worker.spark_pipeline import SparkPipeline, as_fatal, load_pipeline
from loghub_worker.start_check import user_code

BATCH = "dry-run-0"
FROM_NOTHING = (
    "the pipeline is stateful: these rows come from a state without any earlier logs, and nothing is late"
)
Write = Callable[[DataFrame], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedRows:
    """What became of the log groups, and the rows of those that passed, which are computed when they are
    used."""

    attempts: Attempts
    rows: DataFrame


def run_transform(
    spark: SparkSession, transform: Transform, groups: Sequence[SampledGroup], *, per_batch: bool = False
) -> TriedRows:
    """Check the query or function as a worker does, and run it over the log groups, in the session of the
    caller. Raises `FatalError` with the reason for which a worker would end, or would wait."""
    checked_rows_of_batch(transform, empty_logs(spark), per_batch=per_batch)
    sink = RowsInForm(lambda rows: rows)
    return _tried(spark, transform, groups, lambda rows: sink.write(rows, BATCH))


def run_on_spark(settings: WorkerSettings, sample: LogSample) -> DryRunReport:
    """Start a session for the settings of a worker. Raises the errors of `run_transform`."""
    pipeline = load_pipeline(settings, user_code(settings), offline=True)
    if isinstance(pipeline.config.pipeline, CopyPipeline):
        return report_of(sample, Attempts(passed=sample.groups))
    if pipeline.config.stateful:  # some operations exist for streams only
        as_fatal(lambda: _write(pipeline, pipeline.transform(empty_logs(pipeline.spark))))
    tried = _tried(pipeline.spark, pipeline.transform, sample.groups, lambda rows: _write(pipeline, rows))
    rows = tried.rows.persist()  # it is computed for each of the figures
    try:
        partitions = _partitions(pipeline.config.sink, rows)
        return msgspec.structs.replace(
            report_of(sample, tried.attempts),
            columns=[ResultColumn(name=name, type=kind) for name, kind in pipeline.empty.dtypes],
            rows=rows.count(),
            first_rows=_first(rows, sample.max_rows),
            partitions=partitions[:PARTITIONS_SHOWN],
            more_partitions=max(0, len(partitions) - PARTITIONS_SHOWN),
            notes=[FROM_NOTHING] if pipeline.config.stateful else [],
        )
    finally:
        rows.unpersist()


def _tried(
    spark: SparkSession, transform: Transform, groups: Sequence[SampledGroup], write: Write
) -> TriedRows:
    def rows_of(some: Sequence[SampledGroup]) -> DataFrame:
        tables = [batch.arrow for batch in batches_of(some)]
        # Spark takes no table of Arrow without a row.
        return transform(spark.createDataFrame(pa.concat_tables(tables)) if tables else empty_logs(spark))

    def attempt(some: Sequence[SampledGroup]) -> Failure | None:
        try:
            write(rows_of(some))
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the failure of these logs
            failure = failure_of(error)
            return replace(failure, cause=Cause.UNAVAILABLE) if is_outage(error) else failure
        return None

    attempts = divide(groups, attempt)
    return TriedRows(attempts=attempts, rows=rows_of(attempts.passed))


def _write(pipeline: SparkPipeline, rows: DataFrame) -> int:
    try:
        return pipeline.sink.write(rows, BATCH)
    finally:
        pipeline.sink.abort(BATCH)


def _first(rows: DataFrame, number: int) -> list[dict[str, Any]]:
    """The first rows as lines of JSON have them: texts of times, and base64 in place of bytes."""
    options = {**TIMES, "ignoreNullFields": "false"}
    lines = rows.limit(number).select(F.to_json(F.struct("*"), options)).collect()
    return [json.loads(line[0]) for line in lines]


def _partitions(sink: Sink, rows: DataFrame) -> list[ResultPartition]:
    """The folders of the sink, by name."""
    if not isinstance(sink, ParquetSink | JsonSink | DeltaSink) or not sink.partition_by:
        return []
    parts = []
    for name in sink.partition_by:
        text = F.col(f"`{name.replace('`', '``')}`").cast("string")
        parts.append(F.concat(F.lit(f"{name}="), F.coalesce(text, F.lit(NULL_PARTITION))))
    folder = F.concat_ws("/", *parts).alias("partition")
    counted = rows.groupBy(folder).count().orderBy("partition").collect()
    return [ResultPartition(partition=row[0], rows=row[1]) for row in counted]
