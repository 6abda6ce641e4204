"""The file sinks and the console on a real Spark: they contain exactly the rows of the query."""

import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from loghub.contract.sinks import ConsoleSink, DeltaSink, JsonSink, ParquetSink, S3Settings, Sink
from loghub_consumer.batch_plan import Range
from loghub_consumer.resumption import ShardIncarnation
from loghub_worker.sink import console, kafka
from loghub_worker.sink.batch_sink import InvalidSinkError
from loghub_worker.sink.console import Console
from loghub_worker.sink.files.commit_log import RangeTakenError
from loghub_worker.sink.files.sink import FilesSink
from loghub_worker.sink.logstore import sink as logstore
from loghub_worker.sink.postgresql import table
from loghub_worker.sink.sink_start import CredentialFiles
from loghub_worker.sink.sinks import make_sink
from tests.cluster.s3_server import S3Server
from tests.loghub_worker.support import SOURCE, worker_config

pytestmark = pytest.mark.spark
ROWS = [{"id": number, "line": f'"{number}" ü\n\u2028 \\'} for number in range(5)]


@pytest.fixture(scope="module")
def frame(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame([tuple(row.values()) for row in ROWS], "id INT, line STRING").repartition(2)


def sink_of(sink: Sink, folder: Path) -> Any:
    config = worker_config("http://x", sink)
    return make_sink(config, consumer="w-0", source=SOURCE, scratch=folder)


def resumed(sink: Any, checkpoint: int) -> int:
    """Where shard 0 continues."""
    shard = ShardIncarnation(shard=0, created=1)
    sink.open_shard(shard)
    position: int = sink.resume(shard, checkpoint, confirm=lambda: None)
    return position


def contents(folder: Path) -> list[dict[str, Any]]:
    """The rows of a folder, as a reader finds them that does not know the commit log."""
    rows = [
        json.loads(line) for file in folder.glob("*.json") for line in file.read_text().split("\n") if line
    ]
    rows += [row for file in folder.glob("*.parquet") for row in pq.read_table(file).to_pylist()]
    return sorted(rows, key=lambda row: int(row["id"]))


@pytest.mark.parametrize("kind", [ParquetSink, JsonSink])
def test_a_batch_is_published_once_and_completely(kind: Any, frame: DataFrame, tmp_path: Path) -> None:
    sink = sink_of(kind(path=str(tmp_path / "out")), tmp_path)
    assert isinstance(sink, FilesSink)
    sink.check(frame.limit(0))
    assert resumed(sink, 10) == 10
    for batch in ("w-0-first", "w-0-again"):
        assert sink.write(frame, batch) == len(ROWS)
        assert contents(tmp_path / "out") == ([] if batch == "w-0-first" else ROWS)
        if batch == "w-0-first":
            sink.publish(batch, (Range(0, 10, 20),), lambda: True)
            continue
        with pytest.raises(RangeTakenError):
            sink.publish(batch, (Range(0, 10, 20),), lambda: True)
    assert contents(tmp_path / "out") == ROWS
    assert resumed(sink, 10) == 20


@pytest.mark.parametrize("kind", [ParquetSink, JsonSink])
def test_a_batch_of_several_tasks_becomes_visible_in_one_step(
    kind: Any, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At every change of the folder a reader sees all rows of the batch or none. Types are those that Spark
    wrote, also where other libraries have different ones."""
    columns = [
        "CAST(id AS INT) AS id", "TIMESTAMP'2024-01-02 03:04:05.678901' AS at",
        "TIMESTAMP_NTZ'2024-01-02 03:04:05.678901' AS local", "map('k', 'ü\n') AS m",
        "CAST(id AS DECIMAL(20, 3)) AS d", "named_struct('x', array(id)) AS s", "CAST(NULL AS STRING) AS n",
    ]  # fmt: skip
    rows = spark.range(90).selectExpr(*columns).repartition(4).filter("id < 80")
    sink = sink_of(kind(path=str(tmp_path / "out")), tmp_path)
    resumed(sink, 10)
    assert sink.write(rows, "w-0-many") == 80
    seen: list[int] = []
    real = Path.rename

    def rename(path: Path, target: Path) -> Path:
        moved = real(path, target)
        seen.append(len(contents(tmp_path / "out")))
        return moved

    monkeypatch.setattr(Path, "rename", rename)
    sink.publish("w-0-many", (Range(0, 10, 20),), lambda: True)
    assert seen == [80]
    reader = spark.read.schema(rows.schema)
    written = getattr(reader, sink._file_format.name)(str(tmp_path / "out"))
    assert sorted(map(repr, written.collect())) == sorted(map(repr, rows.collect()))
    if kind is ParquetSink:
        files = spark.read.parquet(str(tmp_path / "out"))
        assert files.schema.simpleString() == rows.schema.simpleString()
        (file,) = (tmp_path / "out").glob("*.parquet")
        at = pq.ParquetFile(file).schema.column(1)
        assert (at.name, at.physical_type) == ("at", "INT64"), "INT96 has no time zone and no statistics"


def test_a_batch_whose_staged_file_was_removed_does_not_count(frame: DataFrame, tmp_path: Path) -> None:
    """Such as by a job that makes room on a full disk."""
    sink = sink_of(ParquetSink(path=str(tmp_path / "out")), tmp_path)
    resumed(sink, 10)
    sink.write(frame, "w-0-gone")
    for staged in (tmp_path / "out").glob("_loghub/*/*/*/stage/*"):
        shutil.rmtree(staged)
    with pytest.raises(FileNotFoundError, match="a staged file was removed"):
        sink.publish("w-0-gone", (Range(0, 10, 20),), lambda: True)
    assert resumed(sink, 10) == 10
    sink.write(frame, "w-0-again")
    sink.publish("w-0-again", (Range(0, 10, 20),), lambda: True)
    assert contents(tmp_path / "out") == ROWS


@pytest.mark.parametrize("kind", [JsonSink, DeltaSink])
@pytest.mark.parametrize("replace", [lambda _: None, Path.mkdir], ids=["gone", "empty"])
def test_a_folder_that_is_away_is_not_created_again(
    kind: Any, replace: Callable[[Path], None], frame: DataFrame, tmp_path: Path
) -> None:
    """A volume could not be mounted there again, or would hide what was written in its place."""
    out = tmp_path / "out"
    sink = sink_of(kind(path=str(out)), tmp_path)
    sink.check(frame.limit(0))
    out.rename(tmp_path / "away")
    replace(out)
    with pytest.raises(FileNotFoundError, match=r"gone; bring it back, or, .* restart the workers"):
        sink.write(frame, "w-0-a")
    sink.abort("w-0-a")
    assert not out.exists() or not list(out.iterdir())


def test_files_are_not_written_into_a_delta_table(tmp_path: Path, s3: S3Server) -> None:
    """Its VACUUM would remove them."""
    keys = CredentialFiles(s3.credentials(tmp_path / "keys"))
    settings = S3Settings(endpoint=s3.endpoint, allow_http=True)
    for place in (tmp_path / "table", s3.bucket("vacuumed") / "table"):
        (place / "_delta_log").mkdir(parents=True)
        (place / "_delta_log" / "00000000000000000000.json").write_text("{}")
    for sink in (
        ParquetSink(path=str(tmp_path / "table")),
        ParquetSink(path="s3://vacuumed/table", s3=settings),
    ):
        config = worker_config("http://x", sink)
        with pytest.raises(InvalidSinkError, match="is a Delta table, whose VACUUM would remove them"):
            make_sink(
                config,
                consumer="w-0",
                source=SOURCE,
                sink_credentials=keys,
                scratch=tmp_path,
            )


@pytest.mark.parametrize("kind", [ParquetSink, JsonSink])
def test_a_batch_without_rows_creates_no_file(kind: Any, frame: DataFrame, tmp_path: Path) -> None:
    sink = sink_of(kind(path=str(tmp_path / "out")), tmp_path)
    resumed(sink, 10)
    assert sink.write(frame.limit(0), "w-0-empty") == 0
    sink.publish("w-0-empty", (Range(0, 10, 20),), lambda: True)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["_loghub"]


@pytest.mark.parametrize("kind", [ParquetSink, JsonSink])
def test_a_batch_in_a_bucket_is_published_once_and_completely(
    kind: Any, frame: DataFrame, tmp_path: Path, s3: S3Server
) -> None:
    folder = s3.bucket(f"spark-{kind.__name__.lower()}") / "raw" / "lines"
    settings = S3Settings(endpoint=s3.endpoint, allow_http=True)
    keys = CredentialFiles(s3.credentials(tmp_path / "keys"))
    config = worker_config("http://x", kind(path=f"s3://{folder.parents[1].name}/raw/lines", s3=settings))
    sink = make_sink(
        config,
        consumer="w-0",
        source=SOURCE,
        scratch=tmp_path,
        sink_credentials=keys,
    )
    sink.check(frame.limit(0))
    assert resumed(sink, 10) == 10
    assert sink.write(frame, "w-0-first") == len(ROWS)
    assert contents(folder) == []
    sink.publish("w-0-first", (Range(0, 10, 20),), lambda: True)
    assert contents(folder) == ROWS
    assert sink.write(frame, "w-0-again") == len(ROWS)
    with pytest.raises(RangeTakenError):
        sink.publish("w-0-again", (Range(0, 10, 20),), lambda: True)
    assert contents(folder) == ROWS
    assert resumed(sink, 10) == 20
    assert list((tmp_path / "sink-stage").iterdir()) == []


def test_the_console_shows_the_first_rows_and_counts_all(frame: DataFrame) -> None:
    out = io.StringIO()
    sink = Console(2, out)
    sink.check(frame.limit(0))
    assert out.getvalue() == ""
    assert sink.write(frame, "b") == len(ROWS)
    shown = [json.loads(line) for line in out.getvalue().split("\n")[:-1]]
    assert len(shown) == 2
    assert all(row in ROWS for row in shown)


def test_a_console_sink_resumes_at_the_checkpoint(tmp_path: Path) -> None:
    sink = sink_of(ConsoleSink(rows=3), tmp_path)
    assert isinstance(sink, Console)
    assert resumed(sink, 7) == 7


def test_times_in_json_have_microseconds_in_every_sink(spark: SparkSession) -> None:
    """Spark's own JSON cuts them to milliseconds."""
    at = "2024-01-02T03:04:05.000901"
    rows = spark.sql(
        "SELECT ARRAY(TIMESTAMP'2024-01-02 03:04:05.000901') AS at,"
        " ARRAY(TIMESTAMP_NTZ'2024-01-02 03:04:05.000901') AS local"
    )
    texts = [
        *console._as_json(rows).collect()[0],
        *rows.select(kafka._value({field.name: field.dataType for field in rows.schema})).collect()[0],
        "".join(rows.select([table.copied(field) for field in rows.schema]).collect()[0]),
        "".join(rows.select([logstore._text(f.name, f.dataType) for f in rows.schema]).collect()[0]),
    ]
    for text in texts:
        assert (text.count(f'"{at}Z"'), text.count(f'"{at}"')) == (1, 1), text
