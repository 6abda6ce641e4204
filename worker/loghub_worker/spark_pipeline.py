"""A query or function that is ready to run, with its sink, outside a consumer group."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec
from pyspark.sql import DataFrame, SparkSession

from loghub.contract.worker import LOCAL_MASTER, WorkerConfig, WorkerReason
from loghub_consumer.errors import FatalError
from loghub_consumer.exchange_files import ExchangeFiles
from loghub_worker.query.settings import QuerySettings
from loghub_worker.query.spark_session import invalid, start_spark
from loghub_worker.query.stateful_plan import refuse_settings
from loghub_worker.query.transform import Transform, make_transform
from loghub_worker.settings import WorkerSettings
from loghub_worker.sink.batch_sink import BatchSink, InvalidSinkError
from loghub_worker.sink.dry_sink import make_dry_sink
from loghub_worker.sink.sink_start import CredentialFiles
from loghub_worker.sink.sinks import make_sink
from loghub_worker.spark_errors import SPARK_ERRORS
from loghub_worker.worker import checked_rows

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkPipeline:
    """A pipeline that has passed the checks of a worker's start."""

    config: WorkerConfig
    spark: SparkSession
    transform: Transform
    empty: DataFrame  # the rows of no logs
    sink: BatchSink


def load_pipeline(settings: WorkerSettings, code: Path | None, *, offline: bool) -> SparkPipeline:
    """Start Spark on one core of this machine, also if the worker's Spark is a cluster: an analysis needs no
    executor. The sink is the worker's own, or if `offline` one without its target. Raises `FatalError`."""
    config = msgspec.structs.replace(settings.config, spark_master=LOCAL_MASTER, executors=None, cores=1)
    if config.stateful:
        refuse_settings(config)
    folders = {name: settings.state_dir / name for name in ("exchange", "spark", "query", "sink")}
    for folder in folders.values():
        folder.mkdir(parents=True, exist_ok=True)
    spark = start_spark(config, folders["spark"], class_archive=settings.class_archive, code=code)
    query = QuerySettings(
        config=config,
        consumer=settings.consumer,
        address=settings.address,
        exchange=ExchangeFiles(folders["exchange"]),
        scratch=folders["query"],
        journal=settings.state_dir / "attempts.json",
        dead_letters=None,
        ledger=None,
    )
    transform = make_transform(config.pipeline, code)
    rows = checked_rows(transform, spark, query)

    def checked_sink() -> BatchSink:
        if offline:
            sink = make_dry_sink(config, folders["sink"])
        else:
            sink = make_sink(
                config,
                consumer=settings.consumer,
                source=settings.address,
                sink_credentials=CredentialFiles(settings.sink_credentials_dir),
                scratch=folders["exchange"],
            )
        sink.check(rows)
        return sink

    sink = as_fatal(checked_sink)
    return SparkPipeline(config=config, spark=spark, transform=transform, empty=rows, sink=sink)


def as_fatal(step: Callable[[], T]) -> T:
    """The result of a step with the sink. Raises `FatalError` in place of the sink's errors."""
    try:
        return step()
    except InvalidSinkError as error:
        raise FatalError(WorkerReason.INVALID_SINK, str(error)) from error
    except OSError as error:
        raise FatalError(WorkerReason.SINK_UNAVAILABLE, str(error)) from error
    except (*SPARK_ERRORS, ValueError) as error:
        raise invalid(error) from error
