"""The formats of file sinks: how Spark writes them, how many rows a file has, and how files are joined.

Spark writes a batch as one file for each task. They are joined to one file, because one file can become
visible in one step and several cannot."""

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from loghub_worker.sink.json_times import TIMES

# As in parquet-hadoop's own defaults; row groups are copied whole, whatever their size.
ROW_GROUP_BYTES, MAX_PADDING_BYTES = 128 << 20, 8 << 20


@dataclass(frozen=True, slots=True)
class FileFormat:
    """One file format. ``join`` writes the rows of several files of one schema to a new file, in order."""

    name: str
    options: Mapping[str, str]
    count_rows: Callable[[Path], int]
    join: Callable[[SparkSession, Sequence[Path], Path], None]


def _parquet_rows(file: Path) -> int:
    return int(pq.read_metadata(file).num_rows)


def _join_parquet(spark: SparkSession, files: Sequence[Path], target: Path) -> None:
    """Copy the row groups as they are, so that neither types nor compression change. Only Parquet's own
    library, which is part of Spark, can do that: pyarrow would decode and encode again, and its types are
    not Spark's."""
    jvm: Any = spark._jvm
    conf = spark._jsparkSession.sessionState().newHadoopConf()
    parquet = jvm.org.apache.parquet.hadoop

    def path(file: Path) -> Any:  # from a URI, since a text is not decoded, and partitions have a % in them
        return jvm.org.apache.hadoop.fs.Path(jvm.java.net.URI(file.as_uri()))

    inputs = [parquet.util.HadoopInputFile.fromPath(path(file), conf) for file in files]
    reader = parquet.ParquetFileReader.open(inputs[0])
    try:
        metadata = reader.getFooter().getFileMetaData()
    finally:
        reader.close()
    output = parquet.util.HadoopOutputFile.fromPath(path(target), conf)
    mode = parquet.ParquetFileWriter.Mode.CREATE
    writer = parquet.ParquetFileWriter(output, metadata.getSchema(), mode, ROW_GROUP_BYTES, MAX_PADDING_BYTES)
    writer.start()
    for file in inputs:
        writer.appendFile(file)
    writer.end(metadata.getKeyValueMetaData())


def _lines(file: Path) -> int:
    with file.open("rb") as content:
        return sum(part.count(b"\n") for part in iter(lambda: content.read(1 << 20), b""))


def _join_lines(_spark: SparkSession, files: Sequence[Path], target: Path) -> None:
    with target.open("xb") as joined:
        for file in files:
            with file.open("rb") as content:
                shutil.copyfileobj(content, joined, 1 << 20)


PARQUET = FileFormat("parquet", {}, _parquet_rows, _join_parquet)
# Uncompressed whatever Hadoop's settings are, because the lines are counted.
JSON = FileFormat(
    "json", {"compression": "none", "lineSep": "\n", "encoding": "UTF-8", **TIMES}, _lines, _join_lines
)
