"""The accumulator of Spark that takes counts from the processes that read to the driver.

These processes share neither memory nor a disk with the driver. What a task has added arrives there with the
end of the task, and before the end of the action that it belongs to; what a task has added that failed, or
that was not read to its end, never does (docs/spark.md 1). An accumulator costs nothing for a row.

Spark passes the reader to its processes by way of others, so the reader has only the id of the accumulator,
and the process that reads makes its own end of it.
"""

from collections.abc import Mapping

from pyspark.accumulators import Accumulator, AccumulatorParam

from loghub_worker.batch_plan import Range
from loghub_worker.source.read_counts import ReadCount, add_counts

Counts = dict[Range, ReadCount]


class CountsByRange(AccumulatorParam[Counts]):
    """How Spark joins the counts of two tasks."""

    def zero(self, value: Counts) -> Counts:  # noqa: ARG002
        return {}

    # Spark calls it under exactly this name. The first value stays the object that it is, since the driver
    # clears and reads it meanwhile.
    def addInPlace(self, value1: Counts, value2: Counts) -> Counts:  # noqa: N802
        add_counts(value1, value2)
        return value1


def report_counts(accumulator_id: int, counts: Mapping[Range, ReadCount]) -> None:
    """Send counts to the driver, in a process that runs a task."""
    Accumulator(accumulator_id, {}, CountsByRange()).add(dict(counts))
