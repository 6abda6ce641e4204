"""Writes the rows of one task of Spark to objects of a bucket, in the executor that has computed them.

A file is complete on the executor's own disk before it is uploaded, and each attempt at a task gives its
files names of its own. So whatever executors end, repeat or do twice, an object is the whole file of one
attempt, and the worker, which knows those that succeeded, decides which of them count.
"""

import secrets
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, Protocol

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from loghub.sink_settings import S3Settings
from loghub_worker.sink.delta_statistics import file_statistics
from loghub_worker.sink.file_sizes import PARTS
from loghub_worker.sink.parquet_settings import INT96, MILLIS
from loghub_worker.sink.partition_columns import partition_folder, require_few_partitions

# Of the rows of a row group, in memory. Spark's have up to 128 MiB in the file.
ROW_GROUP_BYTES = 64 << 20


class ParquetOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How Parquet files are written."""

    compression: str  # as pyarrow calls it
    timestamps: str  # as in spark.sql.parquet.outputTimestampType
    metadata: dict[str, str]  # of each file


class FileOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a task needs to know. Spark shows it in plans: it names the folder of the keys, and has none."""

    url: str
    s3: S3Settings
    credentials_dir: str | None
    prefix: str  # of the keys
    parquet: ParquetOptions | None  # None: the only column has lines of JSON
    partition_by: tuple[str, ...]  # the last column has their values, as a JSON array of texts
    target_bytes: int
    most_partitions: int | None
    for_delta: bool  # with statistics, and not in folders of their partitions
    even_if_empty: bool  # a task without rows writes a file nevertheless
    manifest: str  # where the driver writes what it knows once all tasks have ended


class WrittenFile(msgspec.Struct, frozen=True, kw_only=True):
    """An object that a task has written. Its key is the prefix and `name`."""

    name: str
    folder: str  # of its partition, such as ``day=2026-01-31/hour=8``
    rows: int
    bytes: int
    modified_ms: int  # unix, of the executor's clock
    statistics: str  # as a Delta table has them; empty for other sinks


class _File(Protocol):
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
    """Of times in microseconds, rounded down as by Spark: pyarrow's cast rounds towards 1970."""
    micros = times.cast(pa.int64())
    millis = pc.divide(micros, 1000)
    is_above = pc.and_(pc.less(micros, 0), pc.not_equal(pc.multiply(millis, 1000), micros))
    return pc.subtract(millis, is_above.cast(pa.int64())).cast(pa.timestamp("ms", times.type.tz))


class TaskFiles:
    """The files of one attempt at a task, of which one is open at a time."""

    def __init__(
        self, options: FileOptions, schema: pa.Schema, disk: Path, upload: Callable[[str, Path], None]
    ) -> None:
        """`schema` is that of the rows, `disk` an empty folder of this attempt alone; `upload` gets a key and
        a file."""
        self._options = options
        self._schema = schema.remove(len(schema) - 1) if options.partition_by else schema
        self._path = disk / "rows"
        self._upload = upload
        self._token = secrets.token_hex(8)
        self._folder = ""
        self._folders: set[str] = set()
        self._handle: BinaryIO | None = None
        self._file: _File | None = None
        self._written: list[WrittenFile] = []

    def write(self, batches: Iterable[pa.RecordBatch]) -> list[WrittenFile]:
        """Write all rows; those of one partition come together. Raises `RowsRejectedError`, and `OSError` if
        the bucket or the disk cannot be used."""
        options = self._options
        for folder, rows in self._parts(batches):
            if folder != self._folder:
                self._finish()
                self._folder = folder
            self._folders.add(folder)
            if options.most_partitions is not None:
                require_few_partitions(len(self._folders), options.partition_by, most=options.most_partitions)
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
        most_bytes = max(1, min(ROW_GROUP_BYTES, self._options.target_bytes) // PARTS)
        for batch in batches:
            for folder, rows in self._of_one_folder(batch):
                step = max(1, rows.num_rows * most_bytes // max(1, rows.nbytes))
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

    def _begin(self) -> _File:
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
        found = self._path.stat()
        self._upload(f"{self._options.prefix}/{name}", self._path)
        self._written.append(
            WrittenFile(
                name=name,
                folder=self._folder,
                rows=file.rows,
                bytes=found.st_size,
                modified_ms=found.st_mtime_ns // 1_000_000,
                statistics=self._statistics(file.without_bounds),
            )
        )
        self._path.unlink()

    def _statistics(self, without_bounds: Collection[str]) -> str:
        """Raises `RowsRejectedError` for a text that is no valid UTF-8."""
        if not self._options.for_delta:
            return ""
        return file_statistics(self._path, without_bounds=without_bounds)[1]
