"""What a stateful pipeline may be: which settings go with it, which of Spark's operations, and whether the
times that move a watermark are bounded; and what Spark's stateful operators have counted in the running
batch.

The query or function is applied to the stream of logs, so Spark's own rules for streams hold, in append mode:
a row is written once and never changed. In addition, every kept state must be given up some day, and a result
without state must not depend on which logs share a micro-batch.

`__time__` of a stateful pipeline is never after the receipt of a log
(`loghub_consumer.reading.shard_reader`). A time from the contents can be any, and a single time in the year
2096 would make every later log late. So a column with a watermark must be `__time__`, or be computed so that
it is not after `__time__`, or not after the present, whatever the log says.

Spark puts the counts of its operators into the progress of a query, but only after the batch has ended, and
then the worker may have ended, too. They are read from the operators once all rows of the batch are computed,
so that the record of the batch has them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame

from loghub.contract.worker import CopyPipeline, WorkerConfig
from loghub_consumer.errors import FatalError, first_lines
from loghub_consumer.failure.policy import SETTLING_POLICIES
from loghub_worker.query.plan import items
from loghub_worker.query.spark_session import is_remote
from loghub_worker.query.transform import AGGREGATION, DEDUPLICATION, PlanWalk
from loghub_worker.spark_errors import SPARK_ERRORS

# Spark's names of the counters of an operator that keeps state.
ROWS, BYTES, LATE_ROWS = "numTotalStateRows", "stateMemory", "numRowsDroppedByWatermark"


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """The counts of the operators of a query. An aggregation counts late rows after it has added up the logs
    of each partition, so these are at most as many as the logs."""

    rows: int  # in the state after the batch
    bytes: int
    late_rows: int  # dropped in this batch


def counted_by_operators(query: Any) -> Counted:
    """The counts of the running batch of a streaming query, or of its last batch."""
    plan = query._jsq.streamingQuery().lastExecution().executedPlan()
    counters = [node.metrics() for node in _nodes(plan)]
    # Not every operator has all of them: of session windows one drops late rows and another has the state.
    rows, bytes_, late_rows = (
        sum(one.apply(name).value() for one in counters if one.contains(name))
        for name in (ROWS, BYTES, LATE_ROWS)
    )
    return Counted(rows=rows, bytes=bytes_, late_rows=late_rows)


def _nodes(plan: Any) -> Iterator[Any]:
    yield plan
    for child in items(plan.children()):
        yield from _nodes(child)


TIME = "__time__"
# Spark's names of expressions: of the present, and of expressions that are bounded if their operands are.
PRESENT = frozenset({"CurrentTimestamp", "Now", "LocalTimestamp", "CurrentBatchTimestamp"})
OF_ALL = frozenset(
    {"Alias", "Cast", "Coalesce", "Greatest", "TruncTimestamp", "TimeAdd", "TimestampAddInterval"}
)
OF_ANY = frozenset({"Least"})


def unbounded_watermarks(plan: Any) -> list[str]:
    """The names of the columns with a watermark that is not bounded, in an analyzed plan."""
    nodes = list(_nodes(plan))
    defined: dict[int, Any] = {}
    times: set[int] = set()
    for node in nodes:
        if node.nodeName() == "Project":
            named = [one for one in items(node.projectList()) if _kind(one) == "Alias"]
            defined |= {one.exprId().id(): one for one in named}
        elif node.children().isEmpty() and node.isStreaming():
            times |= {one.exprId().id() for one in items(node.output()) if one.name() == TIME}
    moving = [node.eventTime() for node in nodes if node.nodeName() == "EventTimeWatermark"]
    return [column.name() for column in moving if not _is_bounded(column, defined, times)]


def _is_bounded(expression: Any, defined: dict[int, Any], times: set[int]) -> bool:
    kind = _kind(expression)
    if kind == "AttributeReference":
        id_ = expression.exprId().id()
        return id_ in times or (id_ in defined and _is_bounded(defined[id_], defined, times))
    if kind not in OF_ALL | OF_ANY:
        return kind in PRESENT
    operands = [one for one in items(expression.children()) if not one.foldable() or _kind(one) in PRESENT]
    bounded = [_is_bounded(one, defined, times) for one in operands]
    return any(bounded) if kind in OF_ANY else bool(bounded) and all(bounded)


def _kind(expression: Any) -> str:
    return str(expression.getClass().getSimpleName())


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
