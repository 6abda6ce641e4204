"""The files of a task, without Spark."""

import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import StructType

from loghub.contract.sinks import S3Settings
from loghub_worker.sink.files.executor_files import FilesWriter, WriterOptions
from loghub_worker.sink.files.formats import MICROS, MILLIS
from loghub_worker.sink.files.task_files import (
    BucketPlace,
    FileOptions,
    Manifest,
    ParquetOptions,
    TaskFiles,
)

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def options_of(**settings: Any) -> FileOptions:
    return FileOptions(
        place=BucketPlace(url="s3://b", s3=S3Settings(), credentials_dir=None),
        parquet=ParquetOptions(compression="none", metadata={}, **settings),
        target_bytes=1 << 30,
    )


def test_a_disk_of_an_executor_that_is_full_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not the bucket."""
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path},/elsewhere")

    def rows() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"id": ["1"]})
        with Path("/dev/full").open("wb", buffering=0) as full:
            full.write(b"a row")

    wrote = FilesWriter(
        WriterOptions(files=options_of(timestamps=MICROS), prefix="stage", partition_by=(), manifest=""),
        StructType(),
    ).write(rows())
    said = msgspec.json.decode(wrote.manifest, type=Manifest)
    assert said.files == []
    assert f"its scratch folder {tmp_path} has no room for a file of rows: " in said.outage
    assert "No space left on device" in said.outage
    assert list(tmp_path.iterdir()) == []


def test_times_become_milliseconds_as_spark_rounds_them(tmp_path: Path) -> None:
    """Down, before 1970 too."""
    micros = [-1_001, -1_000, -999, -1, None, 1, 1_999]
    rows = pa.record_batch({"at": pa.array(micros, pa.timestamp("us", tz="UTC"))})
    disk, uploaded = tmp_path / "disk", tmp_path / "uploaded"
    disk.mkdir()
    files = TaskFiles(
        options_of(timestamps=MILLIS), rows.schema, disk, keep=lambda _, file: shutil.copy(file, uploaded)
    )
    [written] = files.write([("", rows)])
    assert written.rows == len(micros)
    found = pq.read_table(uploaded).column("at")
    assert found.type == pa.timestamp("ms", tz="UTC")
    millis = [None if at is None else (at - EPOCH) / timedelta(milliseconds=1) for at in found.to_pylist()]
    assert millis == [-2, -1, -1, -1, None, 0, 1]


def test_only_columns_whose_values_come_again_have_dictionaries(tmp_path: Path) -> None:
    """Of a file whose first rows are like all others; and columns inside of others always."""
    numbers = range(3_000)
    fields = pa.struct([("k", pa.string()), ("l", pa.list_(pa.map_(pa.string(), pa.int64())))])
    rows = pa.record_batch(
        {
            "few": pa.array([str(number % 7) for number in numbers]),
            "none": pa.array([None for _ in numbers], pa.string()),
            "all": pa.array([str(number) for number in numbers]),
            "st.": pa.array([{"k": "x", "l": [[("a", 1)]]} for _ in numbers], fields),
        }
    )
    uploaded = tmp_path / "uploaded"
    files = TaskFiles(
        options_of(timestamps=MICROS), rows.schema, tmp_path, keep=lambda _, file: shutil.copy(file, uploaded)
    )
    files.write([("", rows)])
    group = pq.read_metadata(uploaded).row_group(0)
    columns = [group.column(number) for number in range(group.num_columns)]
    plain = [column.path_in_schema for column in columns if not column.has_dictionary_page]
    assert plain == ["all"]
    assert pq.read_table(uploaded).to_pylist() == rows.to_pylist()
