"""The files that executors write to a bucket of a real S3 server: with the content of those that Spark
writes for a worker without executors, each row once, whatever else a task has left there.

The tasks run in the session of the tests; `test_spark_masters.py` has real executors.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from loghub.contract.sinks import DeltaSink, FileRoll, JsonSink, ParquetSink, S3Settings
from loghub.contract.worker import LOCAL_MASTER
from loghub_consumer.batch_plan import Range
from loghub_consumer.resumption import ShardIncarnation
from loghub_worker.sink.batch_sink import RowsRejectedError
from loghub_worker.sink.sink_start import CredentialFiles
from loghub_worker.sink.sinks import make_sink
from tests.cluster.s3_server import S3Server
from tests.loghub_worker.sink.delta_tables import active_files, by_duckdb, by_protocol
from tests.loghub_worker.sink.every_type import COLUMNS, KINDS, of_spark
from tests.loghub_worker.support import SOURCE, worker_config

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.tools]
CLUSTER = "spark://elsewhere:7077"
PARTITION = ("kind", "half")

Make = Callable[..., Any]


@pytest.fixture
def make(s3: S3Server, tmp_path: Path) -> Make:
    """Makes a sink in a bucket, and says in ``out`` where its objects are."""

    def make_one(kind: Any, name: str, *, master: str = CLUSTER, **settings: Any) -> Any:
        keys = s3.credentials(tmp_path / "keys")
        bucket = f"{name}-{tmp_path.name}".replace("_", "-").lower()[:60].strip("-.")
        where = {"path": f"s3://{bucket}/rows", "s3": S3Settings(endpoint=s3.endpoint, allow_http=True)}
        out = s3.bucket(bucket) / "rows"
        (tmp_path / name).mkdir(exist_ok=True)
        sink: Any = make_sink(
            worker_config("http://x", kind(**where, **settings), spark_master=master),
            consumer="w-0",
            source=SOURCE,
            scratch=tmp_path / name,
            sink_credentials=CredentialFiles(keys),
        )
        sink.out = out
        return sink

    return make_one


def deliver(sink: Any, rows: DataFrame, *, batch: str = "w-0-aa", begin: int = 10) -> int:
    sink.check(rows.limit(0))
    shard = ShardIncarnation(shard=0, created=1)
    sink.open_shard(shard)
    assert sink.resume(shard, begin, confirm=lambda: None) == begin
    written: int = sink.write(rows, batch)
    sink.publish(batch, (Range(0, begin, begin + 1),), lambda: True)
    return written


def objects(sink: Any, pattern: str) -> dict[str, list[Path]]:
    """What a reader finds, by folder."""
    found: dict[str, list[Path]] = {}
    for path in sorted(sink.out.rglob(pattern)):
        if "_loghub" not in path.parts:
            found.setdefault(str(path.parent.relative_to(sink.out)), []).append(path)
    return found


def staged(sink: Any) -> list[Path]:
    return [path for path in sink.out.glob("_loghub/*/*/*/stage/**/*") if path.is_file()]


def every_type(spark: SparkSession) -> DataFrame:
    kinds = spark.createDataFrame(list(enumerate(KINDS)), "id INT, kind STRING")
    return kinds.selectExpr(*COLUMNS, "kind", "id % 2 = 0 AS half").coalesce(1)


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({}, id="default"),
        pytest.param(
            {"compression.codec": "zstd", "outputTimestampType": "TIMESTAMP_MILLIS"},
            id="set",
            marks=pytest.mark.deep,
        ),
    ],
)
def test_parquet_files_are_those_of_spark(
    settings: dict[str, str], make: Make, spark: SparkSession, request: pytest.FixtureRequest
) -> None:
    for name, value in settings.items():
        spark.conf.set(f"spark.sql.parquet.{name}", value)
        request.addfinalizer(lambda name=name: spark.conf.unset(f"spark.sql.parquet.{name}"))  # type: ignore[misc]
    rows = every_type(spark)
    ours, sparks = (
        make(ParquetSink, name, master=master, partition_by=PARTITION)
        for name, master in (("ours", CLUSTER), ("sparks", LOCAL_MASTER))
    )
    assert deliver(ours, rows) == deliver(sparks, rows) == len(KINDS)
    written, expected = objects(ours, "*.parquet"), objects(sparks, "*.parquet")
    assert written.keys() == expected.keys()
    assert len(written) >= len(KINDS) - 1
    for folder, (path,) in written.items():
        (spark_path,) = expected[folder]
        one, other = (pq.ParquetFile(path) for path in (path, spark_path))
        assert one.schema.equals(other.schema)
        assert of_spark(one) == of_spark(other)
        assert repr(one.read().to_pylist()) == repr(other.read().to_pylist())
    read = [sorted(map(repr, spark.read.parquet(str(sink.out)).collect())) for sink in (ours, sparks)]
    assert read[0] == read[1]


@pytest.mark.deep
def test_lines_of_json_are_those_of_spark(make: Make, spark: SparkSession) -> None:
    rows = every_type(spark).selectExpr("*", "CAST(moment AS TIMESTAMP_NTZ) AS ntz")
    ours, sparks = (
        make(JsonSink, name, master=master, partition_by=PARTITION)
        for name, master in (("ours", CLUSTER), ("sparks", LOCAL_MASTER))
    )
    assert deliver(ours, rows) == deliver(sparks, rows) == len(KINDS)
    contents = [
        {folder: [path.read_bytes() for path in paths] for folder, paths in objects(sink, "*.json").items()}
        for sink in (ours, sparks)
    ]
    assert contents[0] == contents[1]


def test_a_delta_table_has_the_rows_values_and_statistics_of_sparks_files(
    make: Make, spark: SparkSession
) -> None:
    rows = every_type(spark).withColumnRenamed("a text.", "text").drop("st")
    ours, sparks = (
        make(DeltaSink, name, master=master, partition_by=PARTITION[1:])
        for name, master in (("ours", CLUSTER), ("sparks", LOCAL_MASTER))
    )
    assert deliver(ours, rows) == deliver(sparks, rows) == len(KINDS)
    assert repr(by_key(by_protocol(ours.out))) == repr(by_key(by_protocol(sparks.out)))
    assert statistics(ours) == statistics(sparks)
    assert all("text" in one["minValues"] for one in statistics(ours).values())
    assert len(by_duckdb(ours.out)) == len(KINDS)


def statistics(sink: Any) -> dict[str, Any]:
    """By the values of the partition."""
    return {
        json.dumps(add["partitionValues"], sort_keys=True): json.loads(add["stats"])
        for add in active_files(sink.out)
    }


def by_key(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(({key: row[key] for key in sorted(row)} for row in rows), key=lambda row: row["id"])


@pytest.mark.parametrize("kind", [JsonSink, pytest.param(DeltaSink, marks=pytest.mark.deep)])
def test_what_other_attempts_have_written_is_in_no_batch_and_is_removed(
    kind: Any, make: Make, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the files count that tasks have returned."""
    sink = make(kind, "attempts")
    executors = sink._executors if kind is DeltaSink else sink._executors._files
    suffix = "parquet" if kind is DeltaSink else "json"
    write = type(executors).write
    stray: list[Path] = []

    def write_twice(self: Any, result: DataFrame, prefix: str, **options: Any) -> Any:
        write(self, result, prefix, **options)
        stray.extend(sink.out.glob(f"{prefix}/*.{suffix}"))
        return write(self, result, prefix, **options)

    rows = spark.range(7).selectExpr("CAST(id AS STRING) AS id")
    monkeypatch.setattr(type(executors), "write", write_twice)
    assert deliver(sink, rows) == 7
    assert stray
    assert not any(path.exists() for path in stray)
    assert staged(sink) == []
    found = [path for paths in objects(sink, f"*.{suffix}").values() for path in paths]
    if kind is DeltaSink:
        assert sorted(row["id"] for row in by_protocol(sink.out)) == list("0123456")
        assert len(found) == len(active_files(sink.out))
    else:
        assert sorted("".join(path.read_text() for path in found).splitlines()) == [
            f'{{"id":"{number}"}}' for number in range(7)
        ]
    sink.write(rows, "w-0-bb")
    sink.abort("w-0-bb")
    assert staged(sink) == []
    assert [path for paths in objects(sink, f"*.{suffix}").values() for path in paths] == found


def test_executors_without_the_keys_say_which_folder_they_lack(
    make: Make, spark: SparkSession, tmp_path: Path
) -> None:
    """And nothing that Spark shows has the keys."""
    sink = make(JsonSink, "keys", roll=FileRoll(target_bytes=1 << 20, max_delay_s=60))
    keys = tmp_path / "keys"
    executors = sink._executors._files
    sink._executors._files = replace(executors, credentials=CredentialFiles(tmp_path / "absent"))
    with pytest.raises(OSError, match=r"executor on .*no folder .*/absent .*credentialsSecret"):
        sink.check(spark.range(0))
    sink._executors._files = executors
    (keys / "secretAccessKey").write_text("wrongSecret")
    with pytest.raises(OSError, match="secretAccessKey does not belong to accessKeyId") as refused:
        # Many more rows than the task has taken when it ends.
        sink.write(spark.range(300_000).selectExpr("id", "id + 1 AS next"), "w-0-aa")
    assert not any(word in str(refused.value) for word in ("wrongSecret", S3Server.access_key_id))


def test_texts_that_are_not_utf8_are_a_failure_of_their_logs(make: Make, spark: SparkSession) -> None:
    sink = make(DeltaSink, "utf8")
    sink.check(spark.range(0).selectExpr("CAST(id AS STRING) AS id"))
    with pytest.raises(RowsRejectedError, match="make_valid_utf8"):
        sink.write(spark.range(1).selectExpr("CAST(X'ff' AS STRING) AS id"), "w-0-aa")
