"""Writes the rows of a batch to objects of a bucket where they are: in executors that share no disk with the
worker.

It is the writer of a data source because that is Spark's only way to pass Arrow to Python that does not need
pandas. Spark hands over what each task returns, of one attempt only. What other attempts have written is
named to nobody, and is removed with whatever else is staged of the batch.

A storage that cannot be used is not an error of the task: the task returns the reason. Spark would repeat the
task at once, and its message would not say what is at fault; the worker pauses and says so.
"""

import errno
import os
import socket
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from loghub.atomic_file import replace_file
from loghub.sink_settings import S3Settings
from loghub_worker.sink.batch_sink import InvalidSinkError, RowsRejectedError
from loghub_worker.sink.bucket import Bucket, ObjectStorageError
from loghub_worker.sink.file_sizes import DEFAULT_TARGET_BYTES
from loghub_worker.sink.json_times import TIMES
from loghub_worker.sink.logstore import column_named
from loghub_worker.sink.parquet_settings import CODEC, TIMESTAMPS, codec, require_columns, timestamps
from loghub_worker.sink.sink_credentials import SinkCredentials
from loghub_worker.sink.task_files import FileOptions, ParquetOptions, TaskFiles, WrittenFile

FORMAT = "loghub-worker-files"
PARTITION = "__loghub_partition__"  # of the rows for a task, their last column


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What the tasks of a batch have written, or why one of them has not."""

    files: list[WrittenFile]
    outage: str = ""  # the storage or a disk cannot be used
    rejected: str = ""  # because of the rows


@dataclass
class Wrote(WriterCommitMessage):
    """What one task says, as JSON of a `Manifest`."""

    manifest: bytes


class FilesDataSource(DataSource):
    """Registered under `FORMAT`; only for writes of this module."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def writer(self, schema: StructType, overwrite: bool) -> "FilesWriter":  # noqa: ARG002
        options = msgspec.json.decode(self.options["settings"], type=FileOptions)
        return FilesWriter(options, schema)


class FilesWriter(DataSourceArrowWriter):
    """Writes the rows of each task, and then a file for the worker."""

    def __init__(self, options: FileOptions, schema: StructType) -> None:
        self.options = options
        self.schema = schema

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Wrote:
        try:
            manifest = Manifest(files=self._write(iterator))
        except RowsRejectedError as error:
            manifest = Manifest(files=[], rejected=str(error))
        except (OSError, InvalidSinkError) as error:
            manifest = Manifest(files=[], outage=f"executor on {socket.gethostname()}: {_said_of(error)}")
        return Wrote(msgspec.json.encode(manifest))

    def _write(self, iterator: Iterator[pa.RecordBatch]) -> list[WrittenFile]:
        first = next(iterator, None)
        if first is None and not self.options.even_if_empty:
            return []
        schema = to_arrow_schema(self.schema, timezone="UTC") if first is None else first.schema
        options = self.options
        bucket = _bucket(options.url, options.s3, options.credentials_dir)
        with tempfile.TemporaryDirectory(prefix="loghub-", dir=_scratch()) as disk:
            files = TaskFiles(options, schema, Path(disk), partial(_upload, bucket))
            return files.write(_all(first, iterator))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Called where the driver is."""
        said = [
            msgspec.json.decode(one.manifest, type=Manifest) for one in messages if isinstance(one, Wrote)
        ]
        manifest = Manifest(
            files=[file for one in said for file in one.files],
            outage=next((one.outage for one in said if one.outage), ""),
            rejected=next((one.rejected for one in said if one.rejected), ""),
        )
        replace_file(Path(self.options.manifest), msgspec.json.encode(manifest))


def _all(first: pa.RecordBatch | None, others: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    if first is not None:
        yield first
    yield from others


def _upload(bucket: Bucket, key: str, file: Path) -> None:
    """Raises `RowsRejectedError` for a key that no object can have: the storage's refusal would read as if it
    could not be used."""
    if (obstacle := bucket.obstacle(key)) is not None:
        raise RowsRejectedError(f"the rows make {obstacle}")
    bucket.upload(key, file)


def _said_of(error: Exception) -> str:
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        # The error names no file, and would read as if the bucket were full.
        folder = _scratch() or tempfile.gettempdir()
        return f"its scratch folder {folder} has no room for a file of rows: {error}"
    return str(error)


def _scratch() -> str | None:
    """A folder that ends with the executor: one of those where Spark spills."""
    return next((folder for folder in os.environ.get("SPARK_LOCAL_DIRS", "").split(",") if folder), None)


@cache
def _bucket(url: str, settings: S3Settings, credentials_dir: str | None) -> Bucket:
    """One for all tasks of a process. Raises `OSError` if the keys are not there."""
    if credentials_dir is not None and not Path(credentials_dir).is_dir():
        raise ObjectStorageError(
            f"there is no folder {credentials_dir} with the keys of the bucket: all executors of"
            " spec.spark.master need the Secret of spec.pipeline.sink.credentialsSecret there"
        )
    return Bucket(url, settings, SinkCredentials(None if credentials_dir is None else Path(credentials_dir)))


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorFiles:
    """Lets executors write the files of batches."""

    bucket: Bucket  # as this worker sees it
    s3: S3Settings
    credentials: SinkCredentials
    scratch: Path  # a folder of this worker alone
    is_parquet: bool = True  # otherwise lines of JSON
    for_delta: bool = False  # with statistics, and without folders of partitions
    target_bytes: int = DEFAULT_TARGET_BYTES

    def write(
        self,
        result: DataFrame,
        prefix: str,
        *,
        partition_by: Sequence[str],
        most_partitions: int | None = None,
        is_trial: bool = False,
    ) -> list[WrittenFile]:
        """Write all rows to objects whose keys begin with `prefix`, and return those that have them, each row
        once; in a trial, one of them has no row. Raises `InvalidSinkError` for columns that cannot be
        written, `RowsRejectedError`, and `OSError` if the bucket cannot be used."""
        if self.is_parquet:  # before a column is chosen by a name that two of them have
            require_columns(msgspec.json.decode(result.schema.json()))
        data = [name for name in result.columns if name not in partition_by]
        folder = self.credentials.folder
        options = FileOptions(
            url=self.bucket.url,
            s3=self.s3,
            credentials_dir=None if folder is None else str(folder.absolute()),
            prefix=prefix,
            parquet=_parquet(result.select([column_named(name) for name in data]))
            if self.is_parquet
            else None,
            partition_by=tuple(partition_by),
            target_bytes=self.target_bytes,
            most_partitions=most_partitions,
            for_delta=self.for_delta,
            even_if_empty=is_trial,
            manifest=str(self.scratch.absolute() / "written-files"),
        )
        self._rows(result, data, partition_by).write.format(FORMAT).mode("append").option(
            "settings", msgspec.json.encode(options).decode()
        ).save()
        manifest = msgspec.json.decode(Path(options.manifest).read_bytes(), type=Manifest)
        if manifest.rejected:
            raise RowsRejectedError(manifest.rejected)
        if manifest.outage:
            raise ObjectStorageError(manifest.outage)
        self._require_found(prefix, manifest.files)
        return manifest.files

    def _require_found(self, prefix: str, files: Sequence[WrittenFile]) -> None:
        """Raises `OSError` if executors have reached another storage than this worker: a name or the
        identity of a machine may mean another one there. Rows would count as delivered that are not there."""
        found = self.bucket.times(prefix) if files else {}
        missing = [file.name for file in files if file.name not in found]
        if missing:
            raise ObjectStorageError(
                f"executors have uploaded {len(missing)} files that this worker does not find, such as"
                f" {self.bucket.url}/{prefix}/{missing[0]}: s3.endpoint and the identity of the executors of"
                " spec.spark.master must lead to the same storage"
            )

    def _rows(self, result: DataFrame, data: Sequence[str], partition_by: Sequence[str]) -> DataFrame:
        """The columns as a task takes them, and the rows of each partition together."""
        columns = [column_named(name) for name in data]
        if not self.is_parquet:
            columns = [F.to_json(F.struct(*columns), TIMES).alias("line")]
        if not partition_by:
            return result.select(columns)
        texts = [F.nullif(column_named(name).cast("string"), F.lit("")) for name in partition_by]
        partition = F.to_json(F.array(*texts)).alias(PARTITION)
        return result.select(*columns, partition).sortWithinPartitions(PARTITION)


def _parquet(rows: DataFrame) -> ParquetOptions:
    """How Spark itself would write these rows. Raises `InvalidSinkError`."""
    conf, schema = rows.sparkSession.conf, rows.schema.json()
    return ParquetOptions(
        compression=codec(str(conf.get(CODEC))),
        timestamps=timestamps(msgspec.json.decode(schema), str(conf.get(TIMESTAMPS))),
        # By these Spark knows a file as its own, with the exact types.
        metadata={
            "org.apache.spark.version": rows.sparkSession.version,
            "org.apache.spark.sql.parquet.row.metadata": schema,
        },
    )
