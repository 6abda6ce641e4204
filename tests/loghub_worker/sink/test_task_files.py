"""The files of a task, without Spark."""

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from loghub.sink_settings import S3Settings
from loghub_worker.sink.parquet_settings import MILLIS
from loghub_worker.sink.task_files import FileOptions, ParquetOptions, TaskFiles

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def options_of(**settings: Any) -> FileOptions:
    return FileOptions(
        url="s3://b",
        s3=S3Settings(),
        credentials_dir=None,
        prefix="stage",
        parquet=ParquetOptions(compression="none", metadata={}, **settings),
        partition_by=(),
        target_bytes=1 << 30,
        most_partitions=None,
        for_delta=False,
        even_if_empty=False,
        manifest="",
    )


def test_times_become_milliseconds_as_spark_rounds_them(tmp_path: Path) -> None:
    """Down, before 1970 too."""
    micros = [-1_001, -1_000, -999, -1, None, 1, 1_999]
    rows = pa.record_batch({"at": pa.array(micros, pa.timestamp("us", tz="UTC"))})
    disk, uploaded = tmp_path / "disk", tmp_path / "uploaded"
    disk.mkdir()
    files = TaskFiles(
        options_of(timestamps=MILLIS), rows.schema, disk, lambda _, file: shutil.copy(file, uploaded)
    )
    [written] = files.write([rows])
    assert written.rows == len(micros)
    found = pq.read_table(uploaded).column("at")
    assert found.type == pa.timestamp("ms", tz="UTC")
    millis = [None if at is None else (at - EPOCH) / timedelta(milliseconds=1) for at in found.to_pylist()]
    assert millis == [-2, -1, -1, -1, None, 0, 1]
