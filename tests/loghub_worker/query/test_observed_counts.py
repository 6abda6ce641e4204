"""What the source has counted reaches the driver, whatever is done with the rows."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from loghub_worker.batch_plan import Range
from loghub_worker.query.observed_counts import ObservedCounts
from loghub_worker.source.arrow_decoder import SCHEMA
from loghub_worker.source.read_counts import COUNTS, ReadCount, as_rows

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]

FIRST, SECOND, UNREAD = Range(0, 10, 20), Range(1, 5, 6), Range(2, 1, 2)
COUNTED = {FIRST: ReadCount(logs=7, bytes=9), SECOND: ReadCount(logs=7, bytes=5, missing=1)}
EXPECTED = {one.shard: count for one, count in COUNTED.items()}
ROW = StructType([StructField("__shard__", IntegerType()), StructField(COUNTS, StringType())])


def batch(spark: SparkSession) -> DataFrame:
    """Seven logs of each range, and the counts at the end of each task."""
    counts = {one: as_rows({one: count}, SCHEMA).column(COUNTS)[0].as_py() for one, count in COUNTED.items()}
    rows = [row for one, text in counts.items() for row in [(one.shard, None)] * 7 + [(None, text)]]
    return spark.createDataFrame(spark.sparkContext.parallelize(rows, len(counts)), ROW)


def persisted(rows: DataFrame) -> None:
    kept = rows.persist()
    try:
        assert (kept.count(), kept.count()) == (14, 14)
    finally:
        kept.unpersist()


def with_a_look_before(rows: DataFrame) -> None:
    assert len(rows.head(1)) == 1, "which ends before the counts"
    rows.toArrow()


def joined_with_itself(rows: DataFrame) -> None:
    assert rows.alias("a").join(rows.alias("b"), "__shard__").union(rows).count() == 2 * 7 * 7 + 14


@pytest.mark.parametrize(
    "action",
    [
        lambda rows: rows.toArrow(),
        lambda rows: rows.groupBy("__shard__").count().collect(),
        persisted,
        with_a_look_before,
        joined_with_itself,
    ],
)
def test_counts_arrive_once_whatever_action_computes_the_rows(
    spark: SparkSession, action: Callable[[DataFrame], object]
) -> None:
    observed = ObservedCounts(spark)
    action(observed.logs_of(batch(spark)))
    assert observed.counts((FIRST, SECOND, UNREAD)) == EXPECTED
    assert observed.counts((FIRST, SECOND)) == {}


def test_logs_have_neither_the_counts_nor_their_column(spark: SparkSession) -> None:
    logs = ObservedCounts(spark).logs_of(batch(spark))
    assert logs.columns == ["__shard__"]
    assert sorted(row[0] for row in logs.collect()) == [0] * 7 + [1] * 7


def test_a_query_that_reads_nothing_or_not_all_has_no_counts(spark: SparkSession) -> None:
    observed = ObservedCounts(spark)
    rows = observed.logs_of(batch(spark))
    rows.where("false").collect()
    assert len(rows.head(3)) == 3
    assert observed.counts((FIRST, SECOND)) == {}


def test_counts_are_those_of_the_last_batch_and_of_no_other_query(
    spark: SparkSession, tmp_path: Path
) -> None:
    observed, other = ObservedCounts(spark), ObservedCounts(spark)
    observed.logs_of(batch(spark)).write.format("noop").mode("append").save()
    observed.logs_of(
        batch(spark).where("__shard__ IS NULL AND instr(__counts__, '\"shard\":1') > 0")
    ).collect()
    other.logs_of(batch(spark)).write.parquet((tmp_path / "rows").as_uri())
    assert observed.counts((FIRST, SECOND)) == {1: COUNTED[SECOND]}
    assert other.counts((FIRST,)) == {0: COUNTED[FIRST]}
