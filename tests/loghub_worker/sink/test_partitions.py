"""File sinks with partition columns, and files of a target size, on a real Spark: on a volume, in a bucket
of a real S3 server, and in a bucket to which executors write, each row is there exactly once, under the
folder of its values."""

import datetime
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import spark_partition_id

from loghub.contract.sinks import DeltaSink, FileRoll, JsonSink, ParquetSink, S3Settings
from loghub.contract.worker import LOCAL_MASTER
from loghub_consumer.batch_plan import Range
from loghub_consumer.failure.policy import Cause
from loghub_consumer.resumption import ShardIncarnation
from loghub_worker.query.batch_errors import failure_of
from loghub_worker.sink.batch_sink import InvalidSinkError, RowsRejectedError
from loghub_worker.sink.files import bucket
from loghub_worker.sink.files import sink as files
from loghub_worker.sink.files.commit_log import RangeTakenError
from loghub_worker.sink.sink_start import CredentialFiles
from loghub_worker.sink.sinks import make_sink
from tests.cluster.s3_server import S3Server
from tests.loghub_worker.support import SOURCE, worker_config

pytestmark = pytest.mark.spark
DAY = datetime.date(2026, 1, 31)
# What Spark escapes in names of folders, what it does not, and what has no name.
ODD = ["ü x", "a/b=c", '100%:"', "#?&\n", "", None]

Make = Callable[..., Any]


CLUSTER = "spark://elsewhere:7077"  # the tasks of these tests run here all the same


EXECUTORS = pytest.param("executors", marks=[pytest.mark.tools, pytest.mark.deep])
SLOW_BUCKET = pytest.param("bucket", marks=[pytest.mark.tools, pytest.mark.deep])
# What a bucket, which has the same commit log, does not change.
anywhere = pytest.mark.parametrize("make", ["folder", SLOW_BUCKET, EXECUTORS], indirect=True)


@pytest.fixture(params=["folder", pytest.param("bucket", marks=pytest.mark.tools), EXECUTORS])
def make(request: Any, tmp_path: Path) -> Make:
    """Makes a sink of these settings, and says in ``out`` where its files are."""

    def make_one(kind: Any, **settings: Any) -> Any:
        keys = CredentialFiles(tmp_path / "keys")
        where: dict[str, Any] = {"path": str(tmp_path / "out")}
        out = tmp_path / "out"
        if request.param != "folder":
            server: S3Server = request.getfixturevalue("s3")
            keys = CredentialFiles(server.credentials(tmp_path / "keys"))
            name = f"p-{tmp_path.name}".replace("_", "-").lower()[-60:].strip("-.")
            out = server.bucket(name) / "logs"
            s3 = S3Settings(endpoint=server.endpoint, allow_http=True)
            where = {"path": f"s3://{name}/logs", "s3": s3}
        master = CLUSTER if request.param == "executors" else LOCAL_MASTER
        config = worker_config("http://x", kind(**where, **settings), spark_master=master)
        sink = make_sink(
            config,
            consumer="w-0",
            source=SOURCE,
            scratch=tmp_path,
            sink_credentials=keys,
        )
        sink.out, sink.executors = out, request.param == "executors"
        resume(sink, 10)
        return sink

    return make_one


@pytest.fixture
def kind(request: Any) -> Any:
    """Parquet on a volume, and JSON in a bucket: the formats know nothing of the place."""
    return ParquetSink if "folder" in request.node.name else JsonSink


def resume(sink: Any, checkpoint: int) -> int:
    shard = ShardIncarnation(shard=0, created=1)
    sink.open_shard(shard)
    position: int = sink.resume(shard, checkpoint, confirm=lambda: None)
    return position


def names(out: Path) -> list[str]:
    """The files that a reader finds."""
    found = [path.relative_to(out) for path in out.rglob("*.*") if path.is_file()]
    return sorted(str(path) for path in found if not path.parts[0].startswith("_loghub"))


def rows_of(spark: SparkSession, sink: Any, frame: DataFrame) -> list[str]:
    """The rows as Spark reads them, with the columns that are folders."""
    reader = spark.read.schema(frame.schema)
    read = getattr(reader, sink._file_format.name)(str(sink.out)).select(*frame.columns)
    return sorted(map(repr, read.collect()))


def test_rows_are_under_the_folders_of_their_values_once(kind: Any, make: Make, spark: SparkSession) -> None:
    rows = [(number, value, DAY, number % 2) for number, value in enumerate(ODD * 2)]
    frame = spark.createDataFrame(rows, "id INT, kind STRING, date DATE, odd INT").repartition(3)
    sink = make(kind, partition_by=("date", "kind"))
    sink.check(frame.limit(0))
    assert sink.write(frame, "w-0-first") == len(rows)
    assert names(sink.out) == []
    sink.publish("w-0-first", (Range(0, 10, 20),), lambda: True)
    found = names(sink.out)
    folders = {str(Path(name).parent) for name in found}
    assert len(folders) == len(ODD) - 1, "one for each value; the empty text is null, as in Spark"
    assert all(name.startswith("date=2026-01-31/kind=") for name in folders)
    assert sum("__HIVE_DEFAULT_PARTITION__" in name for name in folders) == 1
    assert sink.executors or len(found) == len(folders), "a file for each"
    assert rows_of(spark, sink, frame) == sorted(map(repr, frame.replace("", None).collect()))
    sink.write(frame, "w-0-again")
    with pytest.raises(RangeTakenError):
        sink.publish("w-0-again", (Range(0, 10, 20),), lambda: True)
    assert names(sink.out) == found
    assert resume(sink, 10) == 20
    sink.acknowledge(0, 20)
    left = {path.name for path in sink.out.glob("_loghub/*/*/*/*/*") if path.parent.name != "openings"}
    assert left == {"w-0-again.json", "w-0-first.json", "0-1-10-0"}, "the abort, and the last claim"


def test_a_batch_of_many_partitions_is_completed_by_the_next_holder(
    make: Make, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker dies when some of the files have their names."""
    frame = spark.range(40).coalesce(1).selectExpr("id", "id % 8 AS part")
    sink = make(JsonSink, partition_by=("part",))
    sink.write(frame, "w-0-first")

    class DiedError(Exception): ...

    moved = 0

    def at_step(step: str) -> None:
        nonlocal moved
        moved += step == "file moved"
        if moved == 3:
            raise DiedError

    monkeypatch.setattr(sink._commit_log, "_at_step", at_step)
    with pytest.raises(DiedError):
        sink.publish("w-0-first", (Range(0, 10, 20),), lambda: True)
    assert 3 <= len(names(sink.out)) <= 8
    following = make(JsonSink, partition_by=("part",))
    assert resume(following, 10) == 20
    assert len(names(sink.out)) == 8
    assert rows_of(spark, sink, frame) == sorted(map(repr, frame.collect()))


@anywhere
def test_too_many_partitions_fail_the_batch_with_the_number(
    make: Make, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch is then divided; pipeline.onFailure says what happens to a log group with too many."""
    monkeypatch.setattr(files, "MAX_PARTITIONS", 5)
    sink = make(ParquetSink, partition_by=("user",))
    sink.check(spark.range(0).selectExpr("id", "id AS user"))
    with pytest.raises(RowsRejectedError, match=r"6 different values of user.*at most 5.*fewer values"):
        sink.write(spark.range(6).selectExpr("id", "id AS user"), "w-0-many")
    sink.abort("w-0-many")
    assert sink.write(spark.range(5).selectExpr("id", "id AS user"), "w-0-few") == 5


@pytest.mark.parametrize(
    ("columns", "partition_by", "message"),
    [
        (["id"], ("day",), "'day', which the query does not return"),
        (["id", "map('a', 1) AS m"], ("m",), "'m' of type map; a partition column is one of"),
        (["id", "CAST(id AS DOUBLE) AS d"], ("d",), "'d' of type double"),
        (["id"], ("id",), "every column of the query"),
    ],
)
def test_columns_that_cannot_be_folders_are_refused_at_the_start(
    columns: list[str], partition_by: tuple[str, ...], message: str, spark: SparkSession, tmp_path: Path
) -> None:
    config = worker_config("http://x", ParquetSink(path=str(tmp_path / "out"), partition_by=partition_by))
    sink = make_sink(config, consumer="w-0", source=SOURCE, scratch=tmp_path)
    with pytest.raises(InvalidSinkError, match=message):
        sink.check(spark.range(0).selectExpr(*columns))


@anywhere
def test_a_large_batch_is_several_files_of_the_target_size(
    kind: Any, make: Make, spark: SparkSession
) -> None:
    """From the second batch on, when the size of a row is known. Of executors, the last file of each task may
    be small."""
    sink = make(kind, roll=FileRoll(target_bytes=20_000, max_delay_s=60))
    frame = spark.range(4000).selectExpr("id", "md5(CAST(id AS STRING)) AS text").repartition(2)
    for number in range(2):
        sink.write(frame, f"w-0-{number}")
        sink.publish(f"w-0-{number}", (Range(0, 10 + number, 11 + number),), lambda: True)
    second = [(sink.out / name).stat().st_size for name in names(sink.out) if "w-0-1" in name]
    assert len(second) > 4
    assert all(size < 32_000 for size in second)
    assert sum(size <= 10_000 for size in second) <= (2 if sink.executors else 0)
    assert rows_of(spark, sink, frame) == sorted([*map(repr, frame.collect())] * 2)


@anywhere
def test_small_files_of_a_batch_become_one_file_of_the_target_size(make: Make, spark: SparkSession) -> None:
    """Executors do not join their files, as the page on sinks says."""
    sink = make(ParquetSink, roll=FileRoll(target_bytes=10 << 20, max_delay_s=60))
    frame = spark.range(400).repartition(8).withColumn("task", spark_partition_id())
    assert sink.write(frame, "w-0-0") == 400
    sink.publish("w-0-0", (Range(0, 10, 20),), lambda: True)
    rows = [pq.read_metadata(sink.out / name).num_rows for name in names(sink.out)]
    assert rows == ([50] * 8 if sink.executors else [400])


@pytest.mark.parametrize(
    "make",
    [
        pytest.param("folder", marks=pytest.mark.deep),
        pytest.param("bucket", marks=pytest.mark.tools),
        EXECUTORS,
    ],
    indirect=True,
)
def test_what_a_bucket_cannot_take_fails_its_batch_and_not_the_bucket(
    make: Make, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that it is divided. On a volume there is no such limit."""
    monkeypatch.setattr(bucket, "MAX_COPY_BYTES", 1000)
    sink = make(JsonSink)
    large, small = spark.range(500), spark.range(5)
    if "://" not in str(sink._commit_log._storage.describe("x")):
        assert sink.write(large, "w-0-0") == 500
        return
    with pytest.raises(
        RowsRejectedError, match=r"a file of \d+ bytes, of which .* at most 1000.*targetBytes"
    ):
        sink.write(large, "w-0-0")
    sink.abort("w-0-0")
    assert sink.write(small, "w-0-1") == 5
    sink.abort("w-0-1")
    columns = [f"c{number}" for number in range(8)]
    long = make(JsonSink, partition_by=tuple(columns))
    for length in (150, 117):  # in the second case only the key of the staged file is too long
        rows = small.selectExpr("id", *(f"repeat('x', {length}) AS {column}" for column in columns))
        with pytest.raises(RowsRejectedError, match=r"a key of more than 1024 bytes, logs/.*c0=x.*too long"):
            long.write(rows, f"w-0-{length}")
        assert long._commit_log._storage.names("stage") == [], "S3 itself refuses it"
        long.abort(f"w-0-{length}")
    if sink.executors:
        with pytest.raises(RowsRejectedError, match=r"a key with the character U\+0000, .*c0=x\\x00y"):
            make(JsonSink, partition_by=("c0",)).write(small.selectExpr("id", "'x\\0y' AS c0"), "w-0-3")


@pytest.mark.parametrize("kind", [JsonSink, DeltaSink])
@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("repeat('x', 300)", r"a value of 'part' that is too long .*, part=xxx.*255 bytes"),
        ("'x\\0y'", r"a value of 'part' with the character U\+0000"),
    ],
    ids=["long", "NUL"],
)
def test_a_value_that_no_folder_can_have_is_named(
    kind: Any, value: str, words: str, spark: SparkSession, tmp_path: Path
) -> None:
    """In Spark's words it is a folder that could not be made, as on a disk that is away."""
    config = worker_config("http://x", kind(path=str(tmp_path / "out"), partition_by=("part",)))
    sink = make_sink(config, consumer="w-0", source=SOURCE, scratch=tmp_path)
    frame = spark.range(2).selectExpr("id", f"{value} AS part")
    sink.check(frame.limit(0))
    with pytest.raises(RowsRejectedError, match=words) as raised:
        sink.write(frame, "w-0-0")
    assert failure_of(raised.value).cause is Cause.REJECTED
    sink.abort("w-0-0")
    assert sink.write(frame.selectExpr("id", "'x' AS part"), "w-0-1") == 2


def test_the_rows_of_a_json_file_lack_the_columns_of_its_folder(make: Make, spark: SparkSession) -> None:
    sink = make(JsonSink, partition_by=("part",))
    sink.write(spark.range(1).selectExpr("id", "7 AS part"), "w-0-0")
    sink.publish("w-0-0", (Range(0, 10, 20),), lambda: True)
    [name] = names(sink.out)
    assert json.loads((sink.out / name).read_text()) == {"id": 0}
