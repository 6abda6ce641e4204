"""What Spark's stateful operators have counted in the batch that runs.

Spark puts the same figures into the progress of a query, but only after the batch has ended, and then the
worker may have ended too. They are read from the operators once all rows of the batch are computed, so that
the record of the batch has them."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from loghub_worker.query.per_batch import items

# Spark's names of the counters of an operator that keeps state.
ROWS, BYTES, LATE_ROWS = "numTotalStateRows", "stateMemory", "numRowsDroppedByWatermark"


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """What the operators of a query have counted. An aggregation counts late rows after it has added up the
    logs of each partition, so these are at most as many as the logs."""

    rows: int  # of the state after the batch
    bytes: int
    late_rows: int  # dropped in this batch


def counted_by_operators(query: Any) -> Counted:
    """What was counted in the batch of a streaming query that runs, or ran last."""
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
