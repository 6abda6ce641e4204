"""The files that tasks of the source write: with the content of those that Spark writes, each row once,
whatever else a task has left in the staging folder.

The tasks run in the test's process here; `query/test_source_writes.py` has them in Spark.
"""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from loghub.contract.sinks import DeltaSink, FileRoll, JsonSink, ParquetSink
from loghub_consumer.batch_plan import Range
from loghub_consumer.reading.decoding import EVERYTHING
from loghub_consumer.resumption import ShardIncarnation
from loghub_worker.sink.batch_sink import InvalidSinkError, RowsRejectedError
from loghub_worker.sink.files.source_files import (
    SourceFileOptions,
    SourceWriting,
    partition_numbers,
)
from loghub_worker.sink.files.task_files import MAX_OPEN, FileOptions, FolderPlace, Manifest
from loghub_worker.sink.sinks import make_sink
from tests.loghub_worker.sink.delta_tables import active_files, by_protocol
from tests.loghub_worker.sink.every_type import COLUMNS, KINDS, of_spark
from tests.loghub_worker.support import SOURCE, worker_config


class AsTheyAre:
    """A query whose rows are the logs."""

    selection = EVERYTHING

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema

    def apply(self, logs: pa.RecordBatch) -> pa.RecordBatch:
        return logs


def writing_to(folder: Path, schema: pa.Schema, **settings: Any) -> SourceWriting:
    """Lines of JSON in staging folders that begin with ``w-``."""
    options = {"place": FolderPlace(), "parquet": None, "target_bytes": 1 << 20} | settings
    by = options.pop("partition_by", ())
    files = SourceFileOptions(files=FileOptions(**options), prefix=str(folder / "w-"), partition_by=by)
    return SourceWriting(query=AsTheyAre(schema), options=files)


def lines_of(folder: Path, manifest: Manifest) -> dict[str, list[str]]:
    """The lines of the files of a manifest, by partition."""
    found: dict[str, list[str]] = {}
    for file in manifest.files:
        lines = (folder / file.name).read_text().splitlines()
        assert len(lines) == file.rows
        found.setdefault(file.folder, []).extend(lines)
    return found


def test_rows_of_many_partitions_in_any_order_are_in_few_open_files(tmp_path: Path) -> None:
    """And a second attempt, or one that has ended midway, has other files."""
    (tmp_path / "w-1").mkdir()
    values = [str(number * 7 % (2 * MAX_OPEN)) for number in range(1_000)]
    rows = pa.record_batch({"n": pa.array(range(1_000), pa.int64()), "p": pa.array(values)})
    batches = [rows.slice(begin, 100) for begin in range(0, 1_000, 100)]
    writing = writing_to(tmp_path, rows.schema, partition_by=("p",), target_bytes=400)
    manifests = [writing.write("1", batches) for _ in range(2)]
    for manifest in manifests:
        found = lines_of(tmp_path / "w-1", manifest)
        assert {folder: sorted(lines) for folder, lines in found.items()} == {
            f"p={value}": sorted(f'{{"n":{n}}}' for n in range(1_000) if values[n] == value)
            for value in set(values)
        }
    names = [file.name for manifest in manifests for file in manifest.files]
    assert len(set(names)) == len(names)
    assert all(name.startswith("_") for name in names), "a reader of the folder skips them"


def test_many_partition_columns_have_a_number_for_each_combination() -> None:
    """Six columns of 4,096 values each have 2 ** 72 combinations, more than a number of 64 bits can tell."""
    values = [str(number) for number in range(4_096)]
    texts = [pa.array([*values, "16" if column == 0 else "0"]) for column in range(6)]
    assert len(partition_numbers(texts).unique()) == len(values) + 1
    again = [pa.array([None, "", None, "x"]), pa.array(["y", "y", "y", "y"])]
    assert partition_numbers(again).to_pylist() == [0, 1, 0, 2]


def failing(batch: pa.RecordBatch, error: Exception) -> Iterator[pa.RecordBatch]:
    yield batch
    raise error


def test_an_outage_of_the_disk_is_no_error_of_the_service_and_neither_is_one_of_the_rows(
    tmp_path: Path,
) -> None:
    rows = pa.record_batch({"n": ["1"]})
    writing = writing_to(tmp_path, rows.schema)
    absent = writing.write("gone", [rows])
    assert "No such file or directory" in absent.outage
    assert absent.errno == 2
    elsewhere = writing_to(tmp_path, rows.schema, place=FolderPlace(is_elsewhere=True)).write("gone", [rows])
    assert elsewhere.outage.startswith("executor on ")
    assert "the volume of the sink must be mounted in all executors" in elsewhere.outage
    (tmp_path / "w-1").mkdir()
    with pytest.raises(ConnectionError, match="service"):
        writing.write("1", failing(rows, ConnectionError("the service")))
    rejected = writing.write("1", failing(rows, RowsRejectedError("[CAST_INVALID_INPUT] x")))
    assert (rejected.files, rejected.outage, rejected.rejected) == ([], "", "[CAST_INVALID_INPUT] x")


# -- next to Spark


def sink_in(folder: Path, kind: Any, **settings: Any) -> Any:
    (folder / "scratch").mkdir(parents=True)
    (folder / "out").mkdir()
    config = worker_config("http://x", kind(path=str(folder / "out"), **settings))
    return make_sink(config, consumer="w-0", source=SOURCE, scratch=folder / "scratch")


def deliver(sink: Any, rows: DataFrame, *, by_source: bool) -> int:
    """Deliver a batch of these rows, by Spark, or by three tasks of the source and a fourth whose attempt
    counts for nothing."""
    manifests, token = rows, "aa"
    if by_source:
        options = sink.let_source_write(rows.limit(0), consumer="w-0", is_elsewhere=False)
        table = rows.toArrow().combine_chunks()
        writing = SourceWriting(query=AsTheyAre(table.schema), options=options)
        assert SourceWriting.from_text(writing.to_text()).options == options
    sink.check(rows.limit(0))
    shard = ShardIncarnation(shard=0, created=1)
    sink.open_shard(shard)
    assert sink.resume(shard, 10, confirm=lambda: None) == 10
    if by_source:
        manifests = Tasks(rows.sparkSession, writing, token, table.to_batches())
    written: int = sink.write(manifests, f"w-0-{token}")
    sink.publish(f"w-0-{token}", (Range(0, 10, 11),), lambda: True)
    return written


class Tasks:
    """A DataFrame of manifests, which are made when they are collected."""

    def __init__(
        self, spark: SparkSession, writing: SourceWriting, token: str, batches: list[pa.RecordBatch]
    ) -> None:
        self.sparkSession = spark
        self._write = lambda part: writing.write(token, part)
        self._batches = batches

    def collect(self) -> list[tuple[str]]:
        (batch,) = self._batches
        third = max(1, batch.num_rows // 3)
        parts: list[Iterable[pa.RecordBatch]] = [
            [batch.slice(0, third)],
            [batch.slice(third, third), batch.slice(2 * third)],
            [],
        ]
        self._write(parts[0])
        with pytest.raises(ValueError, match="killed"):
            self._write(failing(batch, ValueError("killed")))
        return [(msgspec.json.encode(self._write(part)).decode(),) for part in parts]


def delivered(sink_folder: Path, pattern: str) -> dict[str, list[Path]]:
    """What a reader finds, by folder."""
    out, found = sink_folder / "out", {}
    for path in sorted(out.rglob(pattern)):
        if "_loghub" not in path.parts:
            found.setdefault(str(path.parent.relative_to(out)), []).append(path)
    return found


def left_over(sink_folder: Path) -> list[Path]:
    return list((sink_folder / "out").glob("_loghub/*/*/*/stage/*"))


@pytest.mark.spark
@pytest.mark.parametrize("by", [("kind", "half"), pytest.param((), marks=pytest.mark.deep)])
def test_parquet_files_of_the_source_are_those_of_spark(
    by: tuple[str, ...], spark: SparkSession, tmp_path: Path
) -> None:
    kinds = spark.createDataFrame(list(enumerate(KINDS)), "id INT, kind STRING")
    rows = kinds.selectExpr(*COLUMNS, "kind", "id % 2 = 0 AS half").coalesce(1)
    for name in ("ours", "sparks"):
        sink = sink_in(tmp_path / name, ParquetSink, partition_by=by)
        assert deliver(sink, rows, by_source=name == "ours") == len(KINDS)
        assert left_over(tmp_path / name) == []
    written, expected = (delivered(tmp_path / name, "*.parquet") for name in ("ours", "sparks"))
    assert written.keys() == expected.keys()
    for folder, (path,) in written.items():
        (spark_path,) = expected[folder]
        one, other = pq.ParquetFile(path), pq.ParquetFile(spark_path)
        assert one.schema.equals(other.schema)
        assert of_spark(one) == of_spark(other)
        assert repr(one.read().to_pylist()) == repr(other.read().to_pylist())


@pytest.mark.spark
def test_lines_of_json_of_the_source_are_those_of_spark(spark: SparkSession, tmp_path: Path) -> None:
    kinds = spark.createDataFrame(list(enumerate(KINDS)), "id INT, kind STRING")
    texts = "MAP('k\"', kind, kind || 'x', NULL)"
    rows = kinds.selectExpr(
        "id", "kind AS `a \"\n name`", "CAST(id AS DECIMAL(9, 6)) AS d", "id = 1 AS b",
        "TIMESTAMP'1969-12-31 23:59:59.9' + MAKE_INTERVAL(0, 0, 0, 0, 0, 0, id / 10) AS t",
        f"IF(id % 3 = 0, NULL, IF(id % 3 = 1 OR kind IS NULL OR kind = '', MAP(), {texts})) AS m",
        "IF(id % 2 = 0, TIMESTAMP'+12345-01-02 03:04:05', TIMESTAMP'-0045-01-02 03:04:05') AS odd",
        "id % 2 AS half",
    ).coalesce(1)  # fmt: skip
    for name in ("ours", "sparks"):
        sink = sink_in(tmp_path / name, JsonSink, partition_by=("half",))
        assert deliver(sink, rows, by_source=name == "ours") == len(KINDS)
    contents = [
        {
            folder: [path.read_bytes() for path in paths]
            for folder, paths in delivered(tmp_path / name, "*.json").items()
        }
        for name in ("ours", "sparks")
    ]
    assert contents[0] == contents[1]
    sink = sink_in(tmp_path / "refused", JsonSink)
    for columns, why in ((["id / 3 AS f"], "'f' has the type double"), (["id", "kind AS Id"], "'id' occurs")):
        with pytest.raises(InvalidSinkError, match=why):
            sink.let_source_write(kinds.selectExpr(*columns), consumer="w-0", is_elsewhere=False)


@pytest.mark.spark
def test_a_delta_table_of_the_source_has_the_rows_values_and_statistics_of_sparks_files(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Partitioned as the table is, which was there before."""
    kinds = spark.createDataFrame(list(enumerate(KINDS)), "id INT, kind STRING")
    rows = kinds.selectExpr(*COLUMNS, "kind", "id % 2 = 0 AS half").coalesce(1)
    rows = rows.withColumnRenamed("a text.", "text").drop("st")
    found = []
    for name in ("ours", "sparks"):
        sink_in(tmp_path / name, DeltaSink, partition_by=("half",)).check(rows.limit(0))
        (tmp_path / name / "scratch").rmdir()
        found.append(tmp_path / name / "out")
        config = worker_config("http://x", DeltaSink(path=str(found[-1])))
        (tmp_path / name / "scratch").mkdir()
        sink = make_sink(config, consumer="w-0", source=SOURCE, scratch=tmp_path / name / "scratch")
        assert deliver(sink, rows, by_source=name == "ours") == len(KINDS)
        assert left_over(tmp_path / name) == []
    tables = [sorted(by_protocol(out), key=lambda row: row["id"]) for out in found]
    assert repr(tables[0]) == repr(tables[1])
    statistics = [[json.loads(add["stats"]) for add in active_files(out)] for out in found]
    assert merged(statistics[0]) == merged(statistics[1])


def merged(statistics: list[dict[str, Any]]) -> dict[str, Any]:
    """The number of rows, and the least and the greatest bounds, of several files. Which files have bounds of
    floating-point numbers depends on the rows in them: NaN and 0 have none."""
    bounds = {
        f"{choose.__name__} {name}": choose(one[key][name] for one in statistics if name in one[key])
        for key, choose in (("minValues", min), ("maxValues", max))
        for name in {name for one in statistics for name in one[key]} - {"e", "f"}
    }
    return {"rows": sum(one["numRecords"] for one in statistics)} | bounds


@pytest.mark.spark
def test_files_of_a_target_size_are_joined_from_those_of_tasks(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.range(30_000).selectExpr("CAST(id * 7919 % 30000 AS STRING) AS id").coalesce(1)
    roll = FileRoll(target_bytes=64 << 10, max_delay_s=60)
    sink = sink_in(tmp_path / "roll", ParquetSink, roll=roll)
    assert deliver(sink, rows, by_source=True) == 30_000
    (paths,) = delivered(tmp_path / "roll", "*.parquet").values()
    sizes = [path.stat().st_size for path in paths]
    assert len(sizes) > 1
    assert all(roll.target_bytes * 0.6 < size < roll.target_bytes * 1.5 for size in sizes), sizes
    ids = [one for path in paths for one in pq.read_table(path).column("id").to_pylist()]
    assert sorted(map(int, ids)) == list(range(30_000))
