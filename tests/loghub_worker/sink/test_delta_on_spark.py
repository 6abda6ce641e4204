"""The Delta sink on a real Spark: types, partitions, statistics, and tables that do not fit."""

import json
import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import DataFrame, SparkSession

from loghub.contract.sinks import DeltaSink
from loghub_consumer.batch_plan import Range
from loghub_consumer.resumption import ShardIncarnation
from loghub_worker.sink.batch_sink import InvalidSinkError, RowsRejectedError
from loghub_worker.sink.files.commit_log import RangeTakenError
from loghub_worker.sink.sinks import make_sink
from tests.loghub_worker.sink.delta_tables import active_files, by_duckdb, by_protocol
from tests.loghub_worker.support import SOURCE, worker_config

pytestmark = pytest.mark.spark
SHARD = ShardIncarnation(shard=0, created=1)
COLUMNS = [
    "CAST(id AS INT) AS id", "id AS n", "CAST(id % 3 AS STRING) AS text", "id % 2 = 0 AS even",
    "TIMESTAMP'2024-01-02 03:04:05.678901' AS moment", "DATE'2024-01-02' AS day",
    "CAST(id AS DECIMAL(20, 3)) AS d",
    "CAST(id AS DOUBLE) / 3 AS f", "map('k', 'ü\n') AS m", "named_struct('x', array(id)) AS s",
    "IF(id = 7, NULL, repeat('é', CAST(id AS INT))) AS long",
]  # fmt: skip


def sink_of(folder: Path, **settings: Any) -> Any:
    config = worker_config("http://x", DeltaSink(path=str(folder / "table"), **settings))
    sink: Any = make_sink(config, consumer="w-0", source=SOURCE, scratch=folder)
    return sink


def publish(sink: Any, rows: DataFrame, *, begin: int = 10) -> int:
    sink.open_shard(SHARD)
    assert sink.resume(SHARD, begin, confirm=lambda: None) == begin
    batch = f"w-0-{begin:016}"
    written: int = sink.write(rows, batch)
    sink.publish(batch, (Range(0, begin, begin + 10),), lambda: True)
    return written


@pytest.mark.parametrize("partition_by", [(), ("text", "day", "even")])
def test_two_readers_find_the_rows_of_the_query(
    spark: SparkSession, tmp_path: Path, partition_by: Sequence[str]
) -> None:
    rows = spark.range(90).selectExpr(*COLUMNS).repartition(3)
    sink = sink_of(tmp_path, partition_by=tuple(partition_by))
    sink.check(rows.limit(0))
    assert by_duckdb(tmp_path / "table") == []
    sink.open_shard(SHARD)
    assert sink.resume(SHARD, 10, confirm=lambda: None) == 10
    assert sink.write(rows, "w-0-1") == 90
    assert by_duckdb(tmp_path / "table") == [], "what is staged is invisible"
    sink.publish("w-0-1", (Range(0, 10, 20),), lambda: True)
    with pytest.raises(RangeTakenError):
        sink.publish("w-0-2", (Range(0, 10, 20),), lambda: True)
    plain = "id, n, text, even, epoch_us(moment), CAST(day AS STRING), CAST(d AS STRING), f"
    expected = rows.selectExpr(
        "id", "n", "text", "even", "unix_micros(moment)", "CAST(day AS STRING)", "CAST(d AS STRING)", "f"
    )
    assert sorted(by_duckdb(tmp_path / "table", plain)) == sorted(map(tuple, expected.collect()))
    nested = by_duckdb(tmp_path / "table", "id, m, s, long")
    assert sorted(nested)[8] == (8, {"k": "ü\n"}, {"x": [8]}, "é" * 8)
    assert Counter(row["id"] for row in by_protocol(tmp_path / "table")) == Counter(range(90))
    values = {json.dumps(add["partitionValues"], sort_keys=True) for add in active_files(tmp_path / "table")}
    assert len(values) == (6 if partition_by else 1)


def test_partition_values_with_special_characters_and_nulls(spark: SparkSession, tmp_path: Path) -> None:
    texts = ["a/b=c %3A d", "ü", None, "__x", "2024:01"]
    rows = spark.createDataFrame(list(enumerate(texts)), "id INT, p STRING")
    sink = sink_of(tmp_path, partition_by=("p",))
    sink.check(rows.limit(0))
    assert publish(sink, rows) == len(texts)
    assert sorted(by_duckdb(tmp_path / "table", "id, p")) == list(enumerate(texts))
    assert sorted((row["id"], row["p"]) for row in by_protocol(tmp_path / "table")) == list(enumerate(texts))


def test_statistics_bound_what_is_in_a_file(spark: SparkSession, tmp_path: Path) -> None:
    """A reader that skips files by them finds every row."""
    rows = spark.range(40).selectExpr(*COLUMNS).coalesce(1)
    sink = sink_of(tmp_path)
    sink.check(rows.limit(0))
    publish(sink, rows)
    (add,) = active_files(tmp_path / "table")
    stats = json.loads(add["stats"])
    assert stats["numRecords"] == 40
    assert stats["nullCount"]["long"] == 1
    assert (stats["minValues"]["n"], stats["maxValues"]["n"]) == (0, 39)
    assert stats["minValues"]["moment"] == "2024-01-02T03:04:05.678Z"
    assert stats["maxValues"]["moment"] == "2024-01-02T03:04:05.679Z"
    assert stats["maxValues"]["long"] == "é" * 32 + "\U0010ffff"
    assert stats["minValues"]["day"] == "2024-01-02"
    for where, count in (
        ("long > repeat('é', 38)", 1),
        ("moment > TIMESTAMPTZ '2024-01-02 03:04:05.6789+00'", 40),
        ("d = 39", 1),
    ):
        found = by_duckdb(tmp_path / "table", "count(*)", where=where)
        assert found == [(count,)], where


def test_dates_and_times_that_python_has_not_are_in_the_table_without_statistics(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = spark.range(1).selectExpr(
        "id", "date_add(DATE'9999-12-31', 1) AS late", "date_add(DATE'0001-01-01', -400) AS early",
        "timestamp_seconds(1767225600000) AS milliseconds", "timestamp_seconds(-62198755200) AS before",
    )  # fmt: skip
    sink = sink_of(tmp_path)
    sink.check(rows.limit(0))
    assert publish(sink, rows) == 1
    files = [str(tmp_path / "table" / one["path"]) for one in active_files(tmp_path / "table")]
    texts = [f"CAST({name} AS STRING)" for name in rows.columns]
    assert spark.read.parquet(*files).selectExpr(*texts).collect() == rows.selectExpr(*texts).collect()
    (added,) = active_files(tmp_path / "table")
    assert json.loads(added["stats"])["minValues"] == {"id": 0}


def test_a_text_that_is_not_utf8_is_a_failure_of_its_logs(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.range(1).selectExpr("CAST(X'61ff62' AS STRING) AS id")
    sink = sink_of(tmp_path)
    sink.check(rows.limit(0))
    with pytest.raises(RowsRejectedError, match=r"make_valid_utf8\(column\)"):
        sink.write(rows, "w-0-b")
    assert publish(sink, rows.selectExpr("make_valid_utf8(id) AS id")) == 1


def test_a_table_of_another_writer_takes_the_rows(spark: SparkSession, tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "table"), pa.table({"id": pa.array([1], pa.int32()), "more": ["x"]}))
    rows = spark.range(2, 5).selectExpr("CAST(id AS INT) AS id")
    sink = sink_of(tmp_path)
    sink.check(rows.limit(0))
    publish(sink, rows)
    assert sorted(by_duckdb(tmp_path / "table", "id, more")) == [(1, "x"), (2, None), (3, None), (4, None)]


def test_a_query_that_does_not_fit_is_refused_by_the_names_of_its_columns(
    spark: SparkSession, tmp_path: Path
) -> None:
    first = spark.range(3).selectExpr("CAST(id AS INT) AS id", "'x' AS text")
    sink_of(tmp_path).check(first.limit(0))
    for query, words in (
        (["id", "'x' AS text"], "'id' is long in the query and integer in the table"),
        (["CAST(id AS INT) AS ID"], "'ID' is 'id' in the table"),
        (["CAST(id AS INT) AS id", "1 AS more"], "no column 'more'.*AddColumns"),
        (["CAST(id AS INT) AS id", "INTERVAL '1' DAY AS i"], "'i' has the type interval day; use CAST"),
        (["CAST(id AS INT) AS `a b`"], "the name 'a b' has ' '; give it another one with AS"),
        (["1 AS x", "2 AS X"], "'x' occurs more than once"),
        (["array(named_struct('b', 1, 'B', 2)) AS x"], "'x' has more than one field 'b'"),
        (["NULL AS x"], "'x' has the type void"),
    ):
        with pytest.raises(InvalidSinkError, match=words):
            sink_of(tmp_path).check(spark.range(0).selectExpr(*query))
    with pytest.raises(InvalidSinkError, match="partitioned by nothing, not by text"):
        sink_of(tmp_path, partition_by=("text",)).check(first.limit(0))
    with pytest.raises(InvalidSinkError, match="'gone', which the query does not return"):
        sink_of(tmp_path / "new", partition_by=("gone",)).check(first.limit(0))
    assert by_duckdb(tmp_path / "table") == []


def test_columns_are_added_if_the_sink_may(spark: SparkSession, tmp_path: Path) -> None:
    first, more = (
        spark.range(2).selectExpr(*columns) for columns in (["id"], ["id", "map('k', id) AS more"])
    )
    sink = sink_of(tmp_path)
    sink.check(first.limit(0))
    publish(sink, first)
    sink = sink_of(tmp_path, add_columns=True)
    sink.check(more.limit(0))
    sink.check(more.limit(0))
    publish(sink, more, begin=20)
    found = sorted(by_duckdb(tmp_path / "table", "id, more"), key=repr)
    assert found == [(0, None), (0, {"k": 0}), (1, None), (1, {"k": 1})]


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("constraint", "constraint 'positive', which nothing would check"),
        ("retention", "remove its property delta.setTransactionRetentionDuration"),
        ("feature", "feature 'rowTracking', which this sink does not write"),
    ],
)
def test_a_table_with_demands_that_the_sink_does_not_meet_is_refused(
    spark: SparkSession, tmp_path: Path, what: str, words: str
) -> None:
    rows = spark.range(3)
    sink_of(tmp_path).check(rows.limit(0).toDF("id"))
    table = DeltaTable(str(tmp_path / "table"))
    if what == "constraint":
        table.alter.add_constraint({"positive": "id >= 0"})
    elif what == "retention":
        properties = {"delta.setTransactionRetentionDuration": "interval 1 days"}
        table.alter.set_table_properties(properties, raise_if_not_exists=False)
    else:
        protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["rowTracking"]}
        (tmp_path / "table/_delta_log" / f"{1:020}.json").write_text(json.dumps({"protocol": protocol}))
    with pytest.raises(InvalidSinkError, match=words):
        sink_of(tmp_path).check(rows.limit(0).toDF("id"))


def test_a_table_that_changes_while_the_worker_runs_loses_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = spark.range(3).toDF("id")
    sink = sink_of(tmp_path)
    sink.check(rows.limit(0))
    publish(sink, rows)
    table = DeltaTable(str(tmp_path / "table"))
    table.alter.add_constraint({"positive": "id >= 0"})
    with pytest.raises(InvalidSinkError, match="positive"):
        publish(sink, rows, begin=20)
    assert len(active_files(tmp_path / "table")) == len(list((tmp_path / "table").glob("*.parquet")))
    table = DeltaTable(str(tmp_path / "table"))
    table.alter.drop_constraint("positive")
    publish(sink, rows, begin=20)
    table = DeltaTable(str(tmp_path / "table"))
    table.optimize.compact()
    publish(sink, rows, begin=30)
    assert Counter(row[0] for row in by_duckdb(tmp_path / "table", "id")) == {0: 3, 1: 3, 2: 3}


def test_a_table_that_is_gone_is_unavailable(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.range(3).toDF("id")
    sink = sink_of(tmp_path)
    sink.check(rows.limit(0))
    publish(sink, rows)
    (tmp_path / "table").rename(tmp_path / "moved")
    with pytest.raises(OSError, match="gone"):
        sink.open_shard(SHARD)
    shutil.move(tmp_path / "moved", tmp_path / "table")
    publish(sink, rows, begin=20)
    assert len(by_duckdb(tmp_path / "table")) == 6


def test_a_folder_that_cannot_be_written_is_reported_before_spark_starts(tmp_path: Path) -> None:
    (tmp_path / "table").write_text("a file")
    with pytest.raises(OSError, match="table"):
        sink_of(tmp_path)
    with pytest.raises(InvalidSinkError, match="absolute"):
        make_sink(
            worker_config("http://x", DeltaSink(path="relative")),
            consumer="w-0",
            source=SOURCE,
            scratch=tmp_path,
        )
