"""Checks the query or function before the worker joins its group."""

import hashlib

import msgspec
from pyspark.sql import DataFrame, SparkSession

from loghub.worker_contract import WorkerConfig
from loghub_worker.query.per_batch import refuse_per_batch, refuse_stateful
from loghub_worker.query.query_settings import QuerySettings
from loghub_worker.query.stateful_plan import refuse_unbounded
from loghub_worker.query.stateful_query import stream_of_logs
from loghub_worker.query.transform import Transform, empty_logs
from loghub_worker.state.ledger import StateIdentity


def checked_rows(transform: Transform, spark: SparkSession, settings: QuerySettings) -> DataFrame:
    """The rows of no logs, for a check of the sink. Raises `FatalError` ``InvalidPipeline``."""
    config = settings.config
    if config.stateful:
        rows = transform.check(stream_of_logs(spark, settings))
        refuse_unbounded(rows)
        return spark.createDataFrame([], rows.schema)
    rows = transform.check(empty_logs(spark))
    refuse_stateful(rows)
    if not config.per_batch:
        refuse_per_batch(rows)
    return rows


def state_identity(config: WorkerConfig) -> StateIdentity:
    """What the state of these settings belongs to. The text of a query or function counts, and not what it
    reads from a volume or an image. Nor does the endpoint: a log service may get another name, a port or TLS,
    and its shards are known by when they were created.
    """
    parts = (config.project, config.logstore, config.consumer_group, config.pipeline)
    return StateIdentity(
        pipeline=_digest(parts), former=_digest((config.endpoint, *parts)), reset=config.reset
    )


def _digest(parts: tuple[object, ...]) -> str:
    return hashlib.sha256(msgspec.json.encode(parts, order="sorted")).hexdigest()
