"""A query or function over given logs (`loghub_worker.dry_run`)."""

import json
from collections.abc import Sequence
from dataclasses import replace

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from loghub.contract.dry_run import (
    PARTITIONS_SHOWN,
    DryRunReport,
    ResultColumn,
    ResultPartition,
    Sample,
    SampledGroup,
)
from loghub.contract.sinks import DeltaSink, JsonSink, ParquetSink, Sink
from loghub.contract.worker import CopyPipeline
from loghub_consumer.failure.policy import Cause, Failure
from loghub_consumer.reading.decoding import table
from loghub_worker.dry_run import batches_of, divide, report_of
from loghub_worker.query.batch_errors import failure_of, is_outage
from loghub_worker.settings import WorkerSettings
from loghub_worker.sink.batch_sink import TIMES
from loghub_worker.sink.files.formats import NULL_PARTITION
from loghub_worker.spark_pipeline import SparkPipeline, as_fatal, load_pipeline
from loghub_worker.start_check import user_code

BATCH = "dry-run-0"
AS_A_WHOLE = (
    "the pipeline is stateful: these rows are those of a state without any earlier logs, and nothing is late"
)


def run_on_spark(settings: WorkerSettings, sample: Sample) -> DryRunReport:
    """Raises `FatalError` with the reason for which a worker would end, or would wait."""
    pipeline = load_pipeline(settings, user_code(settings), offline=True)
    if isinstance(pipeline.config.pipeline, CopyPipeline):
        return report_of(sample, divide(sample.groups, lambda _: None))
    found = divide(sample.groups, lambda groups: _attempt(pipeline, groups))
    rows = _rows(pipeline, found.passed).persist()
    try:
        number = as_fatal(lambda: _write(pipeline, rows))
        partitions = _partitions(pipeline.config.sink, rows)
        report = msgspec.structs.replace(
            report_of(sample, found),
            columns=[ResultColumn(name=name, type=kind) for name, kind in pipeline.empty.dtypes],
            rows=number,
            first_rows=_first(rows, sample.max_rows),
            partitions=partitions[:PARTITIONS_SHOWN],
            more_partitions=max(0, len(partitions) - PARTITIONS_SHOWN),
            notes=[AS_A_WHOLE] if pipeline.config.stateful else [],
        )
    finally:
        rows.unpersist()
    return report


def _rows(pipeline: SparkPipeline, groups: Sequence[SampledGroup]) -> DataFrame:
    tables = [batch.arrow for batch in batches_of(groups)]
    logs = pa.concat_tables(tables) if tables else table([])
    return pipeline.transform(pipeline.spark.createDataFrame(logs))


def _attempt(pipeline: SparkPipeline, groups: Sequence[SampledGroup]) -> Failure | None:
    try:
        _write(pipeline, _rows(pipeline, groups))
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the failure of these logs
        failure = failure_of(error)
        return replace(failure, cause=Cause.UNAVAILABLE) if is_outage(error) else failure
    return None


def _write(pipeline: SparkPipeline, rows: DataFrame) -> int:
    try:
        return pipeline.sink.write(rows, BATCH)
    finally:
        pipeline.sink.abort(BATCH)


def _first(rows: DataFrame, number: int) -> list[dict[str, object]]:
    """As in lines of JSON: texts of times, and base64 in place of bytes."""
    options = {**TIMES, "ignoreNullFields": "false"}
    lines = rows.limit(number).select(F.to_json(F.struct("*"), options)).collect()
    return [json.loads(line[0]) for line in lines]


def _partitions(sink: Sink, rows: DataFrame) -> list[ResultPartition]:
    """The folders of the sink, by name."""
    if not isinstance(sink, ParquetSink | JsonSink | DeltaSink) or not sink.partition_by:
        return []
    texts = [
        F.coalesce(F.col(f"`{name}`").cast("string"), F.lit(NULL_PARTITION)) for name in sink.partition_by
    ]
    folders = F.concat_ws(
        "/", *(F.concat(F.lit(f"{name}="), text) for name, text in zip(sink.partition_by, texts, strict=True))
    )
    counted = rows.groupBy(folders.alias("partition")).count().orderBy("partition").collect()
    return [ResultPartition(partition=row[0], rows=row[1]) for row in counted]
