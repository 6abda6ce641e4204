"""The sinks, each under the type of its settings, and the function that makes the sink of a worker.

Parquet files and JSON lines in a folder or a bucket are written exactly once, through
`loghub_worker.sink.files.commit_log`, a Delta table through its own log, and rows in a table of PostgreSQL
through `loghub_worker.sink.postgresql.delivered_ranges`; another logstore, Kafka, the formats that Spark
writes and the worker's own output are written at least once.

A factory imports its sink itself, so that a worker loads the libraries of its own sink and no other.
"""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from loghub.contract.sinks import (
    ConsoleSink,
    DeltaSink,
    JsonSink,
    KafkaSink,
    LogstoreSink,
    ParquetSink,
    PostgresqlSink,
    SparkSink,
)
from loghub.contract.worker import LOCAL_MASTER, CopyPipeline, WorkerConfig
from loghub_consumer.log_service import LogServiceAddress
from loghub_worker.sink.batch_sink import BatchSink, SinkOwner
from loghub_worker.sink.sink_start import NO_CREDENTIALS, CredentialFiles


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkParts:
    """What a factory gets besides the settings of its sink."""

    config: WorkerConfig
    source: LogServiceAddress  # the log service that is read
    owner: SinkOwner
    credentials: CredentialFiles


def _files(sink: ParquetSink | JsonSink, parts: SinkParts) -> BatchSink:
    from loghub_worker.sink.files.sink import make_files_sink

    return make_files_sink(sink, parts.credentials, parts.owner)


def _delta(sink: DeltaSink, parts: SinkParts) -> BatchSink:
    from loghub_worker.sink.delta.sink import make_delta_sink

    return make_delta_sink(sink, parts.credentials, parts.owner)


def _postgresql(sink: PostgresqlSink, parts: SinkParts) -> BatchSink:
    from loghub_worker.sink.postgresql.sink import make_table_sink

    return make_table_sink(
        sink,
        parts.credentials,
        group_path=parts.owner.group_path,
        owner=parts.owner.consumer,
        batch_timeout_s=parts.config.batch_timeout_s,
    )


def _logstore(sink: LogstoreSink, parts: SinkParts) -> BatchSink:
    from loghub_worker.sink.logstore.sink import LogGroupCopies, LogstoreRows, LogstoreWriter, TargetLogstore

    if isinstance(parts.config.pipeline, CopyPipeline):
        return LogGroupCopies()
    target = TargetLogstore(address=replace(parts.source, project=sink.project), name=sink.logstore)
    source = TargetLogstore(address=parts.source, name=parts.config.logstore)
    return LogstoreRows(
        LogstoreWriter(target, source, keep_order=sink.keep_order, scratch=parts.owner.scratch)
    )


def _kafka(sink: KafkaSink, parts: SinkParts) -> BatchSink:
    from loghub_worker.sink.kafka import KafkaTopic

    return KafkaTopic(
        sink,
        parts.credentials,
        client_id=f"loghub-{parts.config.consumer_group}",
        batch_timeout_s=parts.config.batch_timeout_s,
    )


def _spark(sink: SparkSink, parts: SinkParts) -> BatchSink:
    from loghub_worker.sink.spark_format import SparkFormat

    return SparkFormat(sink, parts.credentials)


def _console(sink: ConsoleSink, parts: SinkParts) -> BatchSink:  # noqa: ARG001 - as all factories
    from loghub_worker.sink.console import Console

    return Console(sink.rows, sys.stdout)


# `NoSink` has no factory: it belongs to a processor, which runs without Spark.
FACTORIES: Mapping[type[msgspec.Struct], Callable[[Any, SinkParts], BatchSink]] = {
    ParquetSink: _files,
    JsonSink: _files,
    DeltaSink: _delta,
    PostgresqlSink: _postgresql,
    LogstoreSink: _logstore,
    KafkaSink: _kafka,
    SparkSink: _spark,
    ConsoleSink: _console,
}


def make_sink(
    config: WorkerConfig,
    *,
    consumer: str,
    source: LogServiceAddress,
    scratch: Path,
    sink_credentials: CredentialFiles = NO_CREDENTIALS,
) -> BatchSink:
    """The sink of a worker's settings. Raises `InvalidSinkError`, or `OSError` if its folder cannot be
    used."""
    owner = SinkOwner(
        group_path=(config.project, config.logstore, config.consumer_group),
        consumer=consumer,
        scratch=scratch,
        has_executors=config.spark_master != LOCAL_MASTER,
    )
    parts = SinkParts(config=config, source=source, owner=owner, credentials=sink_credentials)
    return FACTORIES[type(config.sink)](config.sink, parts)
