"""The files that one attempt at a task writes: in a folder that it shares with the worker, or as objects of a
bucket.

The driver of Spark gets what one attempt of each task returns: a `Manifest`. The worker does not learn of
files of other attempts. Each attempt gives its files other names, and a file in a folder has a name that no
reader of the folder takes for a data file, until the worker gives it another one. So whatever machines end,
repeat or do twice, the worker, which knows the attempts that succeeded, decides which files count.

If a storage cannot be used, the task does not fail: it returns the reason. Spark would repeat a failed task
at once, and its message would not name the cause; the worker pauses and names it.
"""

import errno
import os
import secrets
import socket
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from loghub.atomic_file import sync
from loghub.contract.sinks import S3Settings
from loghub_worker.sink.batch_sink import InvalidSinkError, RowsRejectedError
from loghub_worker.sink.files.file_sizes import PARTS
from loghub_worker.sink.files.formats import (
    INT96,
    MILLIS,
    file_statistics,
    require_few_partitions,
)
from loghub_worker.sink.sink_start import CredentialFiles

if TYPE_CHECKING:
    from loghub_worker.sink.files.bucket import Bucket

# The bytes in memory of the rows of a row group, and of all rows of a task that are not yet written. With
# twice as many a process has 40 MiB more, and files are a twentieth smaller.
ROW_GROUP_BYTES = 32 << 20
# The first rows of a file say which columns get dictionaries: where more than half of the values differ, a
# dictionary only takes time. Without it such a file costs a fifth less, and has the same size.
SAMPLE, MOST_DIFFERENT = 20_000, 0.5
MAX_OPEN = 100  # files of partitions, of which a process may have about a thousand


class ParquetOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How Parquet files are written."""

    compression: str  # pyarrow's name of it
    timestamps: str  # a value of spark.sql.parquet.outputTimestampType
    metadata: dict[str, str]  # of each file


class FolderPlace(msgspec.Struct, frozen=True, kw_only=True, tag="folder"):
    """Files in a folder that task and worker share, under the same path."""

    is_elsewhere: bool = False  # the task runs on another machine than the worker


class BucketPlace(msgspec.Struct, frozen=True, kw_only=True, tag="bucket"):
    """Objects of a bucket. Spark shows the options in plans: they name the folder of the keys, but contain no
    key."""

    url: str
    s3: S3Settings
    credentials_dir: str | None


class FileOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a task needs to know."""

    place: FolderPlace | BucketPlace
    parquet: ParquetOptions | None  # None: the only column has lines of JSON
    target_bytes: int  # of a file; then the next one begins
    group_bytes: int = ROW_GROUP_BYTES  # of the rows of a row group
    max_partitions: int | None = None
    for_delta: bool = False  # with statistics, and objects are not in folders of their partitions
    even_if_empty: bool = False  # a task without rows writes a file nevertheless


class WrittenFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that a task has written. Its place is the place of its batch, and `name`."""

    name: str
    folder: str  # of its partition, such as ``day=2026-01-31/hour=8``
    rows: int
    bytes: int
    modified_ms: int  # unix, of the task's clock
    statistics: str  # in the form of a Delta table; empty for other sinks


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What tasks have written, or why one of them has not."""

    files: list[WrittenFile]
    outage: str = ""  # the storage or a disk cannot be used
    errno: int | None = None  # of the outage
    rejected: str = ""  # the reason why the rows were refused


def merged(manifests: Iterable[Manifest]) -> Manifest:
    """What several tasks have written. Raises `RowsRejectedError`, and `OSError` for an outage."""
    files: list[WrittenFile] = []
    outage: Manifest | None = None
    rejected = ""
    for one in manifests:
        files += one.files
        outage = outage or (one if one.outage else None)
        rejected = rejected or one.rejected
    if rejected:
        raise RowsRejectedError(rejected)
    if outage is not None:
        error = OSError(outage.outage)
        error.errno = outage.errno
        raise error
    return Manifest(files=files)


class _GrowingFile:
    """A file that grows. It is opened with its first write."""

    def __init__(self, path: Path, *, group_bytes: int) -> None:
        self.path = path
        self.rows = 0
        self.waiting_bytes = 0  # of the rows that are not yet written
        self.without_bounds: set[str] = set()  # columns that the statistics must leave out
        self._group_bytes = group_bytes
        self._waiting: list[pa.RecordBatch] = []
        self._handle: BinaryIO | None = None

    @property
    def is_open(self) -> bool:
        return self._handle is not None

    @property
    def size(self) -> int:
        return 0 if self._handle is None else self._handle.tell()

    def add(self, rows: pa.RecordBatch) -> None:
        self._waiting.append(rows)
        self.waiting_bytes += rows.nbytes
        self.rows += rows.num_rows
        if self.waiting_bytes >= self._group_bytes:
            self.flush()

    def flush(self) -> None:
        """Write the rows that wait."""
        if self._waiting:
            self._write(self._open(), self._waiting)
        self._waiting, self.waiting_bytes = [], 0

    def _open(self) -> BinaryIO:
        if self._handle is None:
            self._handle = self.path.open("xb")
        return self._handle

    def close(self) -> None:
        self.flush()
        handle = self._open()
        self._end(handle)
        handle.close()

    def _write(self, file: BinaryIO, batches: list[pa.RecordBatch]) -> None:
        raise NotImplementedError

    def _end(self, file: BinaryIO) -> None:
        """Nothing is held back."""


class _Lines(_GrowingFile):
    """JSON, one object in a line: the only column."""

    def _write(self, file: BinaryIO, batches: list[pa.RecordBatch]) -> None:
        for rows in batches:
            lines = rows.column(0).to_pylist()
            file.write("".join(f"{line}\n" for line in lines).encode())


class _Parquet(_GrowingFile):
    """Parquet as Spark writes it: the same types, nullability and compression."""

    def __init__(self, path: Path, schema: pa.Schema, options: ParquetOptions, *, group_bytes: int) -> None:
        super().__init__(path, group_bytes=group_bytes)
        self._options = options
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
        self._floats = [field.name for field in schema if pa.types.is_floating(field.type)]
        self._writer: pq.ParquetWriter | None = None

    def add(self, rows: pa.RecordBatch) -> None:
        for number in self._millis:
            rows = rows.set_column(number, self._schema.field(number), _milliseconds(rows.column(number)))
        for name in self._floats:
            # pyarrow's bounds leave NaN out, which is the greatest value for Delta.
            if pc.any(pc.is_nan(rows.column(name))).as_py():
                self.without_bounds.add(name)
        super().add(rows)

    def _write(self, file: BinaryIO, batches: list[pa.RecordBatch]) -> None:
        rows = pa.Table.from_batches(batches, self._schema)
        self._written_to(file, rows).write_table(rows)

    def _end(self, file: BinaryIO) -> None:
        self._written_to(file, self._schema.empty_table()).close()

    def _written_to(self, file: BinaryIO, rows: pa.Table) -> pq.ParquetWriter:
        if self._writer is None:
            options = self._options
            self._writer = pq.ParquetWriter(
                file,
                self._schema,
                compression=options.compression,
                store_schema=False,
                use_dictionary=repetitive_columns(rows),
                store_decimal_as_integer=True,
                use_deprecated_int96_timestamps=options.timestamps == INT96,
                coerce_timestamps="ms" if options.timestamps == MILLIS else None,
                allow_truncated_timestamps=True,
            )
            self._writer.add_key_value_metadata(options.metadata)
        return self._writer


def repetitive_columns(rows: pa.Table) -> list[str]:
    """The paths in a Parquet file of the columns that get dictionaries, by the first rows of the file."""
    first = rows.slice(0, SAMPLE)
    repetitive: list[str] = []
    for field, column in zip(first.schema, first.columns, strict=True):
        is_text = pa.types.is_string(field.type)
        if not is_text or pc.count_distinct(column).as_py() <= MOST_DIFFERENT * first.num_rows:
            repetitive += _leaves(field.name, field.type)
    return repetitive


def _leaves(path: str, kind: pa.DataType) -> Iterator[str]:
    """The paths of the columns of a file in which a field is stored."""
    if pa.types.is_struct(kind):
        for field in kind:
            yield from _leaves(f"{path}.{field.name}", field.type)
    elif pa.types.is_map(kind):
        yield from _leaves(f"{path}.key_value.key", kind.key_type)
        yield from _leaves(f"{path}.key_value.value", kind.item_type)
    elif pa.types.is_list(kind):
        yield from _leaves(f"{path}.list.element", kind.value_type)
    else:
        yield path


def _milliseconds(times: pa.Array) -> pa.Array:
    """The milliseconds of times in microseconds, rounded down as Spark does: pyarrow's cast rounds towards
    1970."""
    micros = times.cast(pa.int64())
    millis = pc.divide(micros, 1000)
    is_above = pc.and_(pc.less(micros, 0), pc.not_equal(pc.multiply(millis, 1000), micros))
    return pc.subtract(millis, is_above.cast(pa.int64())).cast(pa.timestamp("ms", times.type.tz))


Part = tuple[str, pa.RecordBatch]  # rows of one partition, with its folder; "" without partitions


class TaskFiles:
    """The files of one attempt at a task: one at a time for each partition."""

    def __init__(
        self,
        options: FileOptions,
        schema: pa.Schema,
        disk: Path,
        *,
        partition_by: Sequence[str] = (),
        keep: Callable[[str, Path], None],
    ) -> None:
        """`schema` is the schema of the parts, `disk` the folder in which files are written, and `keep` gets
        the name and the path of a complete one."""
        self._options = options
        self._schema = schema
        self._disk = disk
        self._partition_by = partition_by
        self._keep = keep
        self._token = secrets.token_hex(8)
        self._suffix = "json" if options.parquet is None else "parquet"
        self._begun = 0
        self._folders: set[str] = set()
        self._files: dict[str, _GrowingFile] = {}
        self._written: list[WrittenFile] = []

    def write(self, parts: Iterable[Part]) -> list[WrittenFile]:
        """Write all rows. Raises `RowsRejectedError`, and `OSError` if the place or the disk cannot be
        used."""
        options = self._options
        for folder, rows in self._small(parts):
            self._folders.add(folder)
            if options.max_partitions is not None:
                require_few_partitions(len(self._folders), self._partition_by, maximum=options.max_partitions)
            file = self._files.get(folder) or self._begin(folder)
            file.add(rows)
            if file.size >= options.target_bytes:
                self._finish(folder)
            elif folder:
                self._bound()
        if options.even_if_empty and not self._written and not self._files:
            self._begin("")
        for folder in list(self._files):
            self._finish(folder)
        return self._written

    def _small(self, parts: Iterable[Part]) -> Iterator[Part]:
        """The rows in parts that are much smaller than a file."""
        max_bytes = max(1, min(ROW_GROUP_BYTES, self._options.target_bytes) // PARTS)
        for folder, rows in parts:
            step = max(1, rows.num_rows * max_bytes // max(1, rows.nbytes))
            for begin in range(0, rows.num_rows, step):
                yield folder, rows.slice(begin, step)

    def _bound(self) -> None:
        """Bound the rows that wait, and the files that are open."""
        if sum(file.waiting_bytes for file in self._files.values()) >= ROW_GROUP_BYTES:
            max(self._files.values(), key=lambda file: file.waiting_bytes).flush()
        opened = [folder for folder, file in self._files.items() if file.is_open]
        if len(opened) > MAX_OPEN:
            self._finish(opened[0])

    def _begin(self, folder: str) -> _GrowingFile:
        options, group_bytes = self._options, self._options.group_bytes
        path = self._disk / f"_{self._token}-{self._begun:04}.{self._suffix}"
        self._begun += 1
        if options.parquet is None:
            group_bytes = min(
                group_bytes, max(1, options.target_bytes // PARTS)
            )  # about as large as in memory
            self._files[folder] = _Lines(path, group_bytes=group_bytes)
        else:
            self._files[folder] = _Parquet(path, self._schema, options.parquet, group_bytes=group_bytes)
        return self._files[folder]

    def _finish(self, folder: str) -> None:
        file = self._files.pop(folder)
        file.close()
        options, name = self._options, file.path.name
        if isinstance(options.place, BucketPlace):
            name = f"part-{name.removeprefix('_')}"
            name = f"{folder}/{name}" if folder and not options.for_delta else name
        status = file.path.stat()
        statistics = (
            file_statistics(file.path, without_bounds=file.without_bounds)[1] if options.for_delta else ""
        )
        self._keep(name, file.path)
        self._written.append(
            WrittenFile(
                name=name,
                folder=folder,
                rows=file.rows,
                bytes=status.st_size,
                modified_ms=status.st_mtime_ns // 1_000_000,
                statistics=statistics,
            )
        )


def write_files(
    options: FileOptions,
    where: str,
    schema: pa.Schema,
    parts: Iterable[Part],
    *,
    partition_by: Sequence[str] = (),
) -> Manifest:
    """Write all rows. `where` is the folder of the batch, or what the keys of its objects begin with. Passes
    on the errors of `parts`, except that `RowsRejectedError` and `OSError` become part of the manifest."""
    place = options.place
    try:
        if isinstance(place, FolderPlace):
            task = TaskFiles(
                options, schema, Path(where), partition_by=partition_by, keep=partial(_keep, place)
            )
            return Manifest(files=task.write(parts))
        bucket = _bucket(place.url, place.s3, place.credentials_dir)
        with tempfile.TemporaryDirectory(prefix="loghub-", dir=_scratch()) as disk:
            upload = partial(_upload, bucket, where)
            task = TaskFiles(options, schema, Path(disk), partition_by=partition_by, keep=upload)
            return Manifest(files=task.write(parts))
    except RowsRejectedError as error:
        return Manifest(files=[], rejected=str(error))
    except (OSError, InvalidSinkError) as error:
        number = error.errno if isinstance(error, OSError) else None
        return Manifest(files=[], outage=_said_of(error, place, where), errno=number)


def _keep(place: FolderPlace, _name: str, file: Path) -> None:
    """The worker flushes the file, but that says nothing of what another machine still holds back."""
    if place.is_elsewhere:
        sync(file)


def _upload(bucket: "Bucket", prefix: str, name: str, file: Path) -> None:
    """Raises `RowsRejectedError` for a key that no object can have: the storage's refusal would read as if it
    could not be used."""
    key = f"{prefix}/{name}"
    if (obstacle := bucket.obstacle(key)) is not None:
        raise RowsRejectedError(f"the rows make {obstacle}")
    bucket.upload(key, file)
    file.unlink()


def _said_of(error: Exception, place: FolderPlace | BucketPlace, where: str) -> str:
    host = f"executor on {socket.gethostname()}: "
    if isinstance(place, FolderPlace):
        if not place.is_elsewhere:
            return str(error)
        is_absent = not Path(where).is_dir()
        mount = (
            ": with spec.spark.master the volume of the sink must be mounted in all executors, under the same"
            " path"
        )
        return f"{host}{error}{mount if is_absent else ''}"
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        # The error names no file, and would read as if the bucket were full.
        folder = _scratch() or tempfile.gettempdir()
        return f"{host}its scratch folder {folder} has no room for a file of rows: {error}"
    return f"{host}{error}"


def _scratch() -> str | None:
    """A folder that ends with the executor: one of the folders into which Spark spills."""
    return next((folder for folder in os.environ.get("SPARK_LOCAL_DIRS", "").split(",") if folder), None)


@cache
def _bucket(url: str, settings: S3Settings, credentials_dir: str | None) -> "Bucket":
    """The bucket, one for all tasks of a process. Raises `OSError` if the keys are not there."""
    # Its library takes a tenth of a second, and most tasks write to folders.
    from loghub_worker.sink.files.bucket import Bucket, ObjectStorageError

    if credentials_dir is not None and not Path(credentials_dir).is_dir():
        raise ObjectStorageError(
            f"there is no folder {credentials_dir} with the keys of the bucket: all executors of"
            " spec.spark.master need the Secret of spec.pipeline.sink.credentialsSecret there"
        )
    return Bucket(url, settings, CredentialFiles(None if credentials_dir is None else Path(credentials_dir)))
