"""Writes the rows of a batch to objects of a bucket where they are computed: in executors that share no disk
with the worker.

The writer is the writer of a data source because that is Spark's only way to pass Arrow to Python that does
not need pandas. Spark passes the driver what one attempt of each task returns. The worker does not learn of
files of other attempts; they are removed with everything else that is staged of the batch.

A file is complete on the executor's own disk before it is uploaded, and each attempt at a task gives its
files other names. So whatever executors end, repeat or do twice, an object is the whole file of one attempt,
and the worker, which knows the attempts that succeeded, decides which objects count.

If a storage cannot be used, the task does not fail: it returns the reason. Spark would repeat a failed task
at once, and its message would not name the cause; the worker pauses and names it.
"""

import errno
import os
import secrets
import socket
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import BinaryIO, Protocol

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from loghub.atomic_file import replace_file
from loghub.contract.sinks import S3Settings
from loghub_worker.sink.batch_sink import TIMES, InvalidSinkError, RowsRejectedError
from loghub_worker.sink.files.bucket import Bucket, ObjectStorageError
from loghub_worker.sink.files.file_sizes import DEFAULT_TARGET_BYTES, PARTS
from loghub_worker.sink.files.formats import (
    CODEC,
    INT96,
    MILLIS,
    TIMESTAMPS,
    codec,
    file_statistics,
    partition_folder,
    require_columns,
    require_few_partitions,
    timestamps,
)
from loghub_worker.sink.logstore.sink import column_named
from loghub_worker.sink.sink_start import CredentialFiles

# The bytes in memory of the rows of a row group. Spark's row groups have up to 128 MiB in the file.
ROW_GROUP_BYTES = 64 << 20


class ParquetOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How Parquet files are written."""

    compression: str  # pyarrow's name of it
    timestamps: str  # a value of spark.sql.parquet.outputTimestampType
    metadata: dict[str, str]  # of each file


class FileOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a task needs to know. Spark shows it in plans: it names the folder of the keys, but contains no
    key."""

    url: str
    s3: S3Settings
    credentials_dir: str | None
    prefix: str  # of the keys
    parquet: ParquetOptions | None  # None: the only column has lines of JSON
    partition_by: tuple[str, ...]  # the last column has their values, as a JSON array of texts
    target_bytes: int
    max_partitions: int | None
    for_delta: bool  # with statistics, and not in folders of their partitions
    even_if_empty: bool  # a task without rows writes a file nevertheless
    manifest: str  # the file into which the driver writes a `Manifest` once all tasks have ended


class WrittenFile(msgspec.Struct, frozen=True, kw_only=True):
    """An object that a task has written. Its key is the prefix and `name`."""

    name: str
    folder: str  # of its partition, such as ``day=2026-01-31/hour=8``
    rows: int
    bytes: int
    modified_ms: int  # unix, of the executor's clock
    statistics: str  # in the form of a Delta table; empty for other sinks


class _GrowingFile(Protocol):
    """A file on the executor's disk that grows."""

    rows: int
    without_bounds: set[str]  # columns that the statistics must leave out

    @property
    def size(self) -> int: ...

    def add(self, rows: pa.RecordBatch) -> None: ...

    def close(self) -> None: ...


class _Lines:
    """JSON, one object in a line."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.rows = 0
        self.without_bounds: set[str] = set()

    @property
    def size(self) -> int:
        return self._file.tell()

    def add(self, rows: pa.RecordBatch) -> None:
        lines = rows.column(0).to_pylist()
        self._file.write("".join(f"{line}\n" for line in lines).encode())
        self.rows += len(lines)

    def close(self) -> None:
        """Nothing is held back."""


class _Parquet:
    """Parquet as Spark writes it: the same types, nullability and compression."""

    def __init__(
        self, file: BinaryIO, schema: pa.Schema, options: ParquetOptions, *, group_bytes: int
    ) -> None:
        self._file = file
        # Of columns, not of fields inside them, whose times before 1970 pyarrow rounds up.
        self._millis = [
            number
            for number, field in enumerate(schema)
            if options.timestamps == MILLIS and pa.types.is_timestamp(field.type)
        ]
        for number in self._millis:
            field = schema.field(number)
            schema = schema.set(number, field.with_type(pa.timestamp("ms", field.type.tz)))
        self._schema = schema
        self._writer = pq.ParquetWriter(
            file,
            schema,
            compression=options.compression,
            store_schema=False,
            store_decimal_as_integer=True,
            use_deprecated_int96_timestamps=options.timestamps == INT96,
            coerce_timestamps="ms" if options.timestamps == MILLIS else None,
            allow_truncated_timestamps=True,
        )
        self._writer.add_key_value_metadata(options.metadata)
        self._group_bytes = group_bytes
        self._waiting: list[pa.RecordBatch] = []
        self._floats = [field.name for field in schema if pa.types.is_floating(field.type)]
        self.rows = 0
        self.without_bounds: set[str] = set()

    @property
    def size(self) -> int:
        return self._file.tell()

    def add(self, rows: pa.RecordBatch) -> None:
        for number in self._millis:
            rows = rows.set_column(number, self._schema.field(number), _milliseconds(rows.column(number)))
        self._waiting.append(rows)
        self.rows += rows.num_rows
        for name in self._floats:
            # pyarrow's bounds leave NaN out, which is the greatest value for Delta.
            if pc.any(pc.is_nan(rows.column(name))).as_py():
                self.without_bounds.add(name)
        if sum(one.nbytes for one in self._waiting) >= self._group_bytes:
            self._flush()

    def _flush(self) -> None:
        if self._waiting:
            self._writer.write_table(pa.Table.from_batches(self._waiting, self._schema))
            self._waiting = []

    def close(self) -> None:
        self._flush()
        self._writer.close()


def _milliseconds(times: pa.Array) -> pa.Array:
    """The milliseconds of times in microseconds, rounded down as Spark does: pyarrow's cast rounds towards
    1970."""
    micros = times.cast(pa.int64())
    millis = pc.divide(micros, 1000)
    is_above = pc.and_(pc.less(micros, 0), pc.not_equal(pc.multiply(millis, 1000), micros))
    return pc.subtract(millis, is_above.cast(pa.int64())).cast(pa.timestamp("ms", times.type.tz))


class TaskFiles:
    """The files of one attempt at a task. One file is open at a time."""

    def __init__(
        self, options: FileOptions, schema: pa.Schema, disk: Path, upload: Callable[[str, Path], None]
    ) -> None:
        """`schema` is the schema of the rows, `disk` an empty folder of this attempt alone; `upload` gets a
        key and a file."""
        self._options = options
        self._schema = schema.remove(len(schema) - 1) if options.partition_by else schema
        self._path = disk / "rows"
        self._upload = upload
        self._token = secrets.token_hex(8)
        self._folder = ""
        self._folders: set[str] = set()
        self._handle: BinaryIO | None = None
        self._file: _GrowingFile | None = None
        self._written: list[WrittenFile] = []

    def write(self, batches: Iterable[pa.RecordBatch]) -> list[WrittenFile]:
        """Write all rows; the rows of one partition come together. Raises `RowsRejectedError`, and `OSError`
        if the bucket or the disk cannot be used."""
        options = self._options
        for folder, rows in self._parts(batches):
            if folder != self._folder:
                self._finish()
                self._folder = folder
            self._folders.add(folder)
            if options.max_partitions is not None:
                require_few_partitions(
                    len(self._folders), options.partition_by, maximum=options.max_partitions
                )
            file = self._file or self._begin()
            file.add(rows)
            if file.size >= options.target_bytes:
                self._finish()
        if options.even_if_empty and not self._written:
            self._begin()
        self._finish()
        return self._written

    def _parts(self, batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, pa.RecordBatch]]:
        """The rows with the folder of their partition, each part much smaller than a file."""
        max_bytes = max(1, min(ROW_GROUP_BYTES, self._options.target_bytes) // PARTS)
        for batch in batches:
            for folder, rows in self._of_one_folder(batch):
                step = max(1, rows.num_rows * max_bytes // max(1, rows.nbytes))
                for begin in range(0, rows.num_rows, step):
                    yield folder, rows.slice(begin, step)

    def _of_one_folder(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        if not self._options.partition_by:
            yield "", batch
            return
        values = pc.run_end_encode(batch.column(batch.num_columns - 1))
        rows = batch.select(range(batch.num_columns - 1))
        begin = 0
        for end, value in zip(values.run_ends.to_pylist(), values.values.to_pylist(), strict=True):
            texts = msgspec.json.decode(value, type=list[str | None])
            yield partition_folder(self._options.partition_by, texts), rows.slice(begin, end - begin)
            begin = end

    def _begin(self) -> _GrowingFile:
        self._handle = self._path.open("xb")
        parquet = self._options.parquet
        if parquet is None:
            self._file = _Lines(self._handle)
        else:
            group_bytes = min(ROW_GROUP_BYTES, self._options.target_bytes)
            self._file = _Parquet(self._handle, self._schema, parquet, group_bytes=group_bytes)
        return self._file

    def _finish(self) -> None:
        if self._file is None or self._handle is None:
            return
        file, self._file = self._file, None
        file.close()
        self._handle.close()
        suffix = "json" if self._options.parquet is None else "parquet"
        name = f"part-{self._token}-{len(self._written):04}.{suffix}"
        if self._folder and not self._options.for_delta:
            name = f"{self._folder}/{name}"
        status = self._path.stat()
        self._upload(f"{self._options.prefix}/{name}", self._path)
        self._written.append(
            WrittenFile(
                name=name,
                folder=self._folder,
                rows=file.rows,
                bytes=status.st_size,
                modified_ms=status.st_mtime_ns // 1_000_000,
                statistics=self._statistics(file.without_bounds),
            )
        )
        self._path.unlink()

    def _statistics(self, without_bounds: Collection[str]) -> str:
        """Raises `RowsRejectedError` for a text that is no valid UTF-8."""
        if not self._options.for_delta:
            return ""
        return file_statistics(self._path, without_bounds=without_bounds)[1]


FORMAT = "loghub-worker-files"
PARTITION = "__loghub_partition__"  # the last column of the rows for a task


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What the tasks of a batch have written, or why a task has not."""

    files: list[WrittenFile]
    outage: str = ""  # the storage or a disk cannot be used
    rejected: str = ""  # the reason why the rows were refused


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
            msgspec.json.decode(message.manifest, type=Manifest)
            for message in messages
            if isinstance(message, Wrote)
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
    """A folder that ends with the executor: one of the folders into which Spark spills."""
    return next((folder for folder in os.environ.get("SPARK_LOCAL_DIRS", "").split(",") if folder), None)


@cache
def _bucket(url: str, settings: S3Settings, credentials_dir: str | None) -> Bucket:
    """The bucket, one for all tasks of a process. Raises `OSError` if the keys are not there."""
    if credentials_dir is not None and not Path(credentials_dir).is_dir():
        raise ObjectStorageError(
            f"there is no folder {credentials_dir} with the keys of the bucket: all executors of"
            " spec.spark.master need the Secret of spec.pipeline.sink.credentialsSecret there"
        )
    return Bucket(url, settings, CredentialFiles(None if credentials_dir is None else Path(credentials_dir)))


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
            max_partitions=max_partitions,
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
