"""Tests of a pipeline of a LogHubConsumerGroup on Spark (docs/pipelines.md 9).

`run_sql` and `run_python` run it over logs that the test writes down, with the checks and the code of a
worker, and without a log service or a sink. It takes the extra ``testing``.
"""

import atexit
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from loghub.contract.dry_run import SampledGroup
from loghub.contract.sinks import ConsoleSink
from loghub.contract.worker import CONTRACT_VERSION, SqlPipeline, WorkerConfig
from loghub.extras import needs
from loghub.wire.cursor import decode as decode_cursor
from loghub_consumer.given_logs import GivenLog, GivenLogs, RejectedLog, contents_of, log_groups

with needs("loghub-spark[testing]", "loghub_spark.testing"):
    from loghub_worker.query.spark_session import start_spark
    from loghub_worker.query.transform import PythonTransform, SqlTransform, Transform
    from loghub_worker.spark_dry_run import run_transform

__all__ = ["GivenLog", "GivenLogs", "PipelineRun", "RejectedLog", "run_python", "run_sql"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineRun:
    """What a pipeline made of the logs.

    `rows` are in the order of their logs as far as the pipeline keeps it; a value is Python's, such as a
    `datetime.datetime` in UTC, a dictionary for a struct or a map, None for null. `columns` has the type of
    each, as Spark writes it. `rejected` are the logs that fail by themselves. Of many, only the first ten log
    groups are looked for, and `untried` has the numbers of those that were left out then.
    """

    rows: list[dict[str, Any]]
    columns: dict[str, str]
    rejected: tuple[RejectedLog, ...]
    untried: tuple[int, ...]


def run_sql(
    sql: str, logs: GivenLogs, *, spark: SparkSession | None = None, per_batch: bool = False
) -> PipelineRun:
    """Run a query, `pipeline.sql`, over the logs, as the logs of one micro-batch.

    A log is a dictionary of its fields or a text (the field ``line``), and may have ``__time__``,
    ``__topic__``, ``__source__`` and ``__tag__:NAME``, as `loghub pull` prints it. A list of logs is one log
    group. `spark` is by default the active session, or one that is started with the settings of a worker, for
    all tests of the process. `per_batch` is `pipeline.perBatch`; with it a query with windows, such as of
    ``pipeline.stateful``, has the rows of all windows of these logs.

    Raises `FatalError` with the message for which a worker would not start, or would wait, and `TypeError`
    and `ValueError` for what is no log.
    """
    return _run(SqlTransform(sql), logs, spark or _session(), per_batch=per_batch)


def run_python(
    function: Callable[[DataFrame], object],
    logs: GivenLogs,
    *,
    spark: SparkSession | None = None,
    per_batch: bool = False,
) -> PipelineRun:
    """Run a function, `pipeline.python`, as `run_sql` runs a query. It gets a DataFrame of the logs and
    returns the rows."""
    name = getattr(function, "__name__", type(function).__name__)
    session = spark or _session()
    return _run(PythonTransform(name, function, None), logs, session, per_batch=per_batch)


def _run(transform: Transform, logs: GivenLogs, spark: SparkSession, *, per_batch: bool) -> PipelineRun:
    groups = [SampledGroup(0, number, raw) for number, raw in enumerate(log_groups(logs))]
    tried = run_transform(spark, transform, groups, per_batch=per_batch)
    return PipelineRun(
        rows=tried.rows.toArrow().to_pylist(**MAPS),
        columns=dict(tried.rows.dtypes),
        rejected=tuple(
            RejectedLog(log=log, number=number, reason=one.reason, message=one.message, attempts=1)
            for one in tried.attempts.rejected
            for number in (decode_cursor(one.cursor),)
            for log in contents_of(groups[number].log_group)
        ),
        untried=tuple(group.cursor for group in tried.attempts.untried),
    )


MAPS = {"maps_as_pydicts": "lossy"}  # the last value of a key counts, as in a map of Spark


def _session() -> SparkSession:
    """The active session, or one with the settings of a worker, which ends with the process."""
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    folder = tempfile.TemporaryDirectory(prefix="loghub-spark-")
    session = start_spark(_worker_settings(), Path(folder.name))
    atexit.register(folder.cleanup)
    atexit.register(session.stop)  # before the folder is removed
    return session


def _worker_settings() -> WorkerConfig:
    """The settings of a worker on this machine, whose intervals and limits have no effect here."""
    return WorkerConfig(
        contract_version=CONTRACT_VERSION,
        endpoint="http://127.0.0.1:1",
        project="test",
        logstore="test",
        consumer_group="test",
        heartbeat_interval_s=1.0,
        timeout_s=1,
        start_position="begin",
        fetch_interval_s=1.0,
        max_log_groups=1,
        max_bytes=1,
        checkpoint_interval_s=1.0,
        trigger_interval_s=1.0,
        pipeline=SqlPipeline(text="SELECT * FROM logs"),
        sink=ConsoleSink(rows=1),
        cores=1,
        spark_memory=None,
        spark_conf={},
        drain_timeout_s=1.0,
    )
