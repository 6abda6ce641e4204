"""What the source has counted of a batch.

The counts of a range are known once any action has read it to its end; some actions end earlier, such as
`head`, and a query need not read all of its logs. That does no harm: `loghub_worker.query.batch_ranges` says
what is done without counts.
"""

from pyspark.sql import SparkSession

from loghub_worker.batch_plan import Range
from loghub_worker.source.count_accumulator import Counts, CountsByRange
from loghub_worker.source.read_counts import ReadCount


class BatchCounts:
    """The counts of the batches of one query, one batch after the other."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._counts: Counts = {}

    def begin_query(self) -> int:
        """The id of the accumulator for a start of Spark's query. Tasks of an earlier start that still run
        have another one."""
        self._counts = {}
        return self._spark.sparkContext.accumulator(self._counts, CountsByRange()).aid

    def begin_batch(self) -> None:
        """Forget the counts of the batches before."""
        self._counts.clear()

    def of(self, ranges: tuple[Range, ...]) -> dict[int, ReadCount]:
        """What was counted of these ranges since `begin_batch`, by shard."""
        # Another thread may add to the counts meanwhile, so they are not gone through.
        counts = {one.shard: self._counts.get(one) for one in ranges}
        return {shard: count for shard, count in counts.items() if count is not None}
