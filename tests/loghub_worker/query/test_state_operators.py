"""The figures of Spark's stateful operators are those of the progress that Spark reports after the batch."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from loghub_worker.query.stateful_plan import Counted, counted_by_operators

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

NAME = "figures"
RETAINED = "spark.sql.streaming.numRecentProgressUpdates"  # a worker keeps one
# Rows of one day after another, and last some of the first day, which are late.
BATCHES = (
    [("2026-01-01T00:00:00", "a")],
    [("2026-01-02T00:00:00", "b")],
    [("2026-01-02T00:00:00", "c")],
    [("2026-01-01T00:00:01", "d"), ("2026-01-01T00:00:02", "e"), ("2026-01-01T00:00:02", "e")],
)
PIPELINES: dict[str, Callable[[DataFrame], DataFrame]] = {
    "sessions": lambda rows: rows.groupBy(F.session_window("t", "1 minute"), "k").count(),
    "windows": lambda rows: rows.groupBy(F.window("t", "1 minute"), "k").count(),
    "two-operators": lambda rows: (
        rows.dropDuplicatesWithinWatermark(["k"]).groupBy(F.window("t", "1 minute")).count()
    ),
}


@pytest.mark.parametrize(
    "kind", ["sessions", *(pytest.param(one, marks=pytest.mark.deep) for one in ("windows", "two-operators"))]
)
def test_the_figures_are_those_that_spark_reports_later(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    """They are read in the batch, where the operators differ in which figures they have."""
    (tmp_path / "in").mkdir()
    found: list[Counted] = []

    def count(rows: DataFrame, _: int) -> None:
        kept = rows.persist()
        kept.count()
        (query,) = (one for one in spark.streams.active if one.name == NAME)
        found.append(counted_by_operators(query))
        kept.unpersist()

    spark.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "false")
    retained = spark.conf.get(RETAINED)
    spark.conf.set(RETAINED, "100")
    rows = spark.readStream.schema("t timestamp, k string").json(str(tmp_path / "in"))
    query = (
        PIPELINES[kind](rows.withWatermark("t", "1 minute"))
        .writeStream.queryName(NAME)
        .foreachBatch(count)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        for number, batch in enumerate(BATCHES):
            lines = "\n".join(json.dumps({"t": time, "k": key}) for time, key in batch)
            (tmp_path / "in" / f"{number}.json").write_text(lines)
            query.processAllAvailable()
        reported = [one["stateOperators"] for one in query.recentProgress if one["numInputRows"]]
    finally:
        query.stop()
        spark.conf.set(RETAINED, retained)
    assert [(one.rows, one.bytes, one.late_rows) for one in found] == [
        (
            sum(one["numRowsTotal"] for one in operators),
            sum(one["memoryUsedBytes"] for one in operators),
            sum(one["numRowsDroppedByWatermark"] for one in operators),
        )
        for operators in reported
    ]
    assert found[-1].late_rows >= 2
