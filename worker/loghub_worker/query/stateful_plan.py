"""What a stateful pipeline may be: which settings go with it, and which of Spark's operations.

The query or function is applied to the stream of logs, so Spark's own rules for streams hold, in append mode:
a row is written once and never changed. On top of these, whatever is kept must be given up some day, and what
is no state of Spark's must not depend on which logs share a micro-batch."""

from typing import Any

from pyspark.sql import DataFrame

from loghub.worker_contract import CopyPipeline, WorkerConfig
from loghub_worker.error_text import first_lines
from loghub_worker.failure.skip_limits import SETTLING_POLICIES
from loghub_worker.fatal_error import FatalError
from loghub_worker.query.per_batch import AGGREGATION, DEDUPLICATION, PlanWalk, items
from loghub_worker.query.spark_master import is_remote
from loghub_worker.query.watermark_bound import unbounded_watermarks
from loghub_worker.spark_errors import SPARK_ERRORS

# How Spark marks a column that has a watermark.
WATERMARK = "spark.watermarkDelayMs"
# Spark keeps state for these, and refuses an aggregation without a watermark itself.
KEPT = frozenset({AGGREGATION, DEDUPLICATION})
TRANSFORM_WITH_STATE = "transformWithState"


def refuse_settings(config: WorkerConfig) -> None:
    """Raise `FatalError` ``InvalidPipeline`` for settings that do not go with state. The API server refuses
    them too; settings may come from elsewhere."""
    policy = config.on_failure.policy
    reasons = {
        f"onFailure.policy {policy} leaves out logs, and a micro-batch with state cannot be divided to find"
        " them: use Retry or Stop": policy in SETTLING_POLICIES,
        "spark.master must be local[*]: the state is on the volume of the worker, which executors elsewhere"
        " do not see": is_remote(config),
        "perBatch asks for results of single micro-batches: leave it out": config.per_batch,
        "a sink that copies log groups keeps no state": isinstance(config.pipeline, CopyPipeline),
    }
    for reason, applies in reasons.items():
        if applies:
            raise FatalError("InvalidPipeline", f"pipeline.stateful is true: {reason}")


def refuse_unbounded(rows: DataFrame) -> None:
    """Raise `FatalError` ``InvalidPipeline`` unless these rows of a stream of logs are computed with state
    that Spark can give up again."""
    _refuse_what_spark_does(rows)
    walk = PlanWalk.of(rows)
    if TRANSFORM_WITH_STATE in walk.stateful:
        raise _invalid(f"{TRANSFORM_WITH_STATE} needs a newer protobuf than the worker has")
    other = sorted(walk.found - KEPT)
    if other:
        raise _invalid(
            f"{' and '.join(other)} sees the logs of one micro-batch only, and keeps no state: leave it out"
        )
    if not walk.found and not walk.stateful:
        raise _invalid("the pipeline keeps no state: leave out pipeline.stateful")
    if columns := unbounded_watermarks(rows._jdf.queryExecution().analyzed()):
        raise _invalid(
            f"the watermark follows {columns[0]}, and one log in which that lies in the future would make all"
            f" later ones late, for good: bound it, as least({columns[0]}, __time__), since __time__ is never"
            " after the receipt of a log"
        )
    if not all(map(_has_watermark, walk.deduplications)):
        raise _invalid(
            "DISTINCT, or dropDuplicates without a column that has a watermark, keeps every row forever:"
            " use withWatermark and dropDuplicatesWithinWatermark, or dropDuplicates with that column"
        )


def _refuse_what_spark_does(rows: DataFrame) -> None:
    jvm = rows.sparkSession._jvm
    assert jvm is not None
    mode = jvm.org.apache.spark.sql.streaming.OutputMode.Append()
    checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    try:
        checker.checkForStreaming(rows._jdf.queryExecution().analyzed(), mode)
    except SPARK_ERRORS as error:
        raise _invalid(f"{first_lines(error)} Rows are appended to the sink and never changed") from error


def _has_watermark(deduplication: Any) -> bool:
    is_distinct = deduplication.nodeName() == "Distinct"
    return not is_distinct and any(key.metadata().contains(WATERMARK) for key in items(deduplication.keys()))


def _invalid(message: str) -> FatalError:
    return FatalError("InvalidPipeline", message)
