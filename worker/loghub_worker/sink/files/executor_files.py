"""Lets executors that share no disk with the worker write the rows of a batch to objects of a bucket, where
the rows are computed (`loghub_worker.sink.files.task_files`).

The writer is the writer of a data source because that is Spark's only way to pass Arrow to Python that does
not need pandas.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from loghub.atomic_file import replace_file
from loghub.contract.sinks import S3Settings
from loghub_worker.sink.batch_sink import TIMES
from loghub_worker.sink.files.bucket import Bucket, ObjectStorageError
from loghub_worker.sink.files.file_sizes import DEFAULT_TARGET_BYTES
from loghub_worker.sink.files.formats import (
    CODEC,
    TIMESTAMPS,
    codec,
    partition_folder,
    require_columns,
    timestamps,
)
from loghub_worker.sink.files.task_files import (
    ROW_GROUP_BYTES,
    BucketPlace,
    FileOptions,
    Manifest,
    ParquetOptions,
    Part,
    WrittenFile,
    merged,
    write_files,
)
from loghub_worker.sink.logstore.sink import column_named
from loghub_worker.sink.sink_start import CredentialFiles

FORMAT = "loghub-worker-files"
PARTITION = "__loghub_partition__"  # the last column of the rows for a task


class WriterOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the writer of a batch needs to know. Spark shows it in plans."""

    files: FileOptions
    prefix: str  # of the keys
    partition_by: tuple[str, ...]  # the last column has their values, as a JSON array of texts
    manifest: str  # the file into which the driver writes a `Manifest` for each task, once all have ended


@dataclass
class Wrote(WriterCommitMessage):
    """The message of one task: a `Manifest` as JSON."""

    manifest: bytes


class FilesDataSource(DataSource):
    """Registered under `FORMAT`; only for writes of this module."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def writer(self, schema: StructType, overwrite: bool) -> "FilesWriter":  # noqa: ARG002
        options = msgspec.json.decode(self.options["settings"], type=WriterOptions)
        return FilesWriter(options, schema)


class FilesWriter(DataSourceArrowWriter):
    """Writes the rows of each task, and then a file for the worker."""

    def __init__(self, options: WriterOptions, schema: StructType) -> None:
        self.options = options
        self.schema = schema

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Wrote:
        return Wrote(msgspec.json.encode(self._write(iterator)))

    def _write(self, iterator: Iterator[pa.RecordBatch]) -> Manifest:
        options = self.options
        first = next(iterator, None)
        if first is None and not options.files.even_if_empty:
            return Manifest(files=[])
        schema = to_arrow_schema(self.schema, timezone="UTC") if first is None else first.schema
        if options.partition_by:
            schema = schema.remove(len(schema) - 1)
        parts = self._parts(_all(first, iterator))
        return write_files(options.files, options.prefix, schema, parts, partition_by=options.partition_by)

    def _parts(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Part]:
        """The rows with the folder of their partition; Spark has put the rows of each together."""
        partition_by = self.options.partition_by
        for batch in batches:
            if not partition_by:
                yield "", batch
                continue
            values = pc.run_end_encode(batch.column(batch.num_columns - 1))
            rows = batch.select(range(batch.num_columns - 1))
            begin = 0
            for end, value in zip(values.run_ends.to_pylist(), values.values.to_pylist(), strict=True):
                texts = msgspec.json.decode(value, type=list[str | None])
                yield partition_folder(partition_by, texts), rows.slice(begin, end - begin)
                begin = end

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Called where the driver is."""
        said = [msgspec.Raw(message.manifest) for message in messages if isinstance(message, Wrote)]
        replace_file(Path(self.options.manifest), msgspec.json.encode(said))


def _all(first: pa.RecordBatch | None, others: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    if first is not None:
        yield first
    yield from others


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorFiles:
    """Lets executors write the files of batches."""

    bucket: Bucket  # from this worker
    s3: S3Settings
    credentials: CredentialFiles
    scratch: Path  # a folder of this worker alone
    is_parquet: bool = True  # otherwise lines of JSON
    for_delta: bool = False  # with statistics, and without folders of partitions
    target_bytes: int = DEFAULT_TARGET_BYTES

    @property
    def place(self) -> BucketPlace:
        """The bucket, as a task reaches it."""
        folder = self.credentials.folder
        credentials_dir = None if folder is None else str(folder.absolute())
        return BucketPlace(url=self.bucket.url, s3=self.s3, credentials_dir=credentials_dir)

    def write(
        self,
        result: DataFrame,
        prefix: str,
        *,
        partition_by: Sequence[str],
        max_partitions: int | None = None,
        is_trial: bool = False,
    ) -> list[WrittenFile]:
        """Write all rows to objects whose keys begin with `prefix`, and return the files, each row in one
        file; in a trial, one file has no rows. Raises `InvalidSinkError` for columns that cannot be written,
        `RowsRejectedError`, and `OSError` if the bucket cannot be used."""
        if self.is_parquet:  # before a column is chosen by a name that two of them have
            require_columns(msgspec.json.decode(result.schema.json()))
        data = [name for name in result.columns if name not in partition_by]
        parquet = None
        if self.is_parquet:
            columns = result.select([column_named(name) for name in data])
            parquet = parquet_options(columns.sparkSession, msgspec.json.decode(columns.schema.json()))
        options = WriterOptions(
            files=FileOptions(
                place=self.place,
                parquet=parquet,
                target_bytes=self.target_bytes,
                group_bytes=min(ROW_GROUP_BYTES, self.target_bytes),
                max_partitions=max_partitions,
                for_delta=self.for_delta,
                even_if_empty=is_trial,
            ),
            prefix=prefix,
            partition_by=tuple(partition_by),
            manifest=str(self.scratch.absolute() / "written-files"),
        )
        self._rows(result, data, partition_by).write.format(FORMAT).mode("append").option(
            "settings", msgspec.json.encode(options).decode()
        ).save()
        files = merged(msgspec.json.decode(Path(options.manifest).read_bytes(), type=list[Manifest])).files
        self.require_found(prefix, files)
        return files

    def require_found(self, prefix: str, files: Sequence[WrittenFile]) -> None:
        """Raises `OSError` if executors have reached another storage than this worker: a name or the identity
        of a machine may mean another storage there. Rows would count as delivered that are not there."""
        times = self.bucket.times(prefix) if files else {}
        missing = [file.name for file in files if file.name not in times]
        if missing:
            raise ObjectStorageError(
                f"executors have uploaded {len(missing)} files that this worker does not find, such as"
                f" {self.bucket.url}/{prefix}/{missing[0]}: s3.endpoint and the identity of the executors of"
                " spec.spark.master must lead to the same storage"
            )

    def _rows(self, result: DataFrame, data: Sequence[str], partition_by: Sequence[str]) -> DataFrame:
        """The columns for a task, with the rows of each partition together."""
        columns = [column_named(name) for name in data]
        if not self.is_parquet:
            columns = [F.to_json(F.struct(*columns), TIMES).alias("line")]
        if not partition_by:
            return result.select(columns)
        texts = [F.nullif(column_named(name).cast("string"), F.lit("")) for name in partition_by]
        partition = F.to_json(F.array(*texts)).alias(PARTITION)
        return result.select(*columns, partition).sortWithinPartitions(PARTITION)


def parquet_options(spark: SparkSession, schema: Mapping[str, Any]) -> ParquetOptions:
    """How Spark itself would write rows of this schema. Raises `InvalidSinkError`."""
    conf = spark.conf
    return ParquetOptions(
        compression=codec(str(conf.get(CODEC))),
        timestamps=timestamps(schema, str(conf.get(TIMESTAMPS))),
        # By these Spark knows a file as its own, with the exact types.
        metadata={
            "org.apache.spark.version": spark.version,
            "org.apache.spark.sql.parquet.row.metadata": msgspec.json.encode(schema).decode(),
        },
    )
