"""The sink that writes a Delta table, each log exactly once.

Spark writes a batch as Parquet files into a staging folder. They get their final names in the table, where no
reader sees them, and one commit adds them together with the positions of the batch's shards
(`loghub_worker.sink.delta.table`). No row passes through the driver. For a bucket, executors elsewhere write
the files under their final names (`loghub_worker.sink.files.executor_files`).

A data file without a commit is invisible. The process that placed it removes it, once it is certain that no
commit ever has it. Files of a process that ends in between are removed by VACUUM, which waits for days,
because no other process can know whether that process continues.
"""

import secrets
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote

import msgspec
import structlog
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema

from loghub.atomic_file import sync
from loghub.contract.sinks import DeltaSink as DeltaSettings
from loghub.contract.sinks import S3Settings
from loghub_consumer.batch_plan import Range
from loghub_consumer.resumption import CheckpointOrigin, ShardIncarnation
from loghub_worker.sink.batch_sink import InvalidSinkError, RowsRejectedError, SinkOwner
from loghub_worker.sink.delta.table import (
    AddedFile,
    DeltaGroupTable,
    Field,
    Move,
    TableDescription,
    TablePosition,
    delivered,
    missing_columns,
    query_fields,
    resumption,
)
from loghub_worker.sink.files.bucket import (
    ACCESS_KEY_ID,
    SCHEME,
    SECRET_ACCESS_KEY,
    SESSION_TOKEN,
    Bucket,
    BucketStorage,
    read_keys,
)
from loghub_worker.sink.files.commit_log import RangeTakenError, SessionLostError
from loghub_worker.sink.files.exclusive_files import (
    age_s,
    link_exclusively,
    require_folder,
    unlinked_file,
)
from loghub_worker.sink.files.executor_files import ExecutorFiles, parquet_options
from loghub_worker.sink.files.file_sizes import DEFAULT_TARGET_BYTES
from loghub_worker.sink.files.formats import (
    NULL_PARTITION,
    file_statistics,
    partitioning,
    require_columns,
)
from loghub_worker.sink.files.source_files import SourceFileOptions, collected, try_to_write
from loghub_worker.sink.files.storage import FOLDER, data_files, writing_to
from loghub_worker.sink.files.task_files import BucketPlace, FileOptions, FolderPlace, WrittenFile
from loghub_worker.sink.sink_start import CredentialFiles

log = structlog.get_logger()


HIDDEN = ("_", ".")  # readers skip names that begin so
ABANDONED_S = 86_400.0  # no batch takes that long


class TableFiles(Protocol):
    """The data files in one place."""

    def any_file(self) -> str | None:
        """The name of one file or folder that readers see; None if there is none. Raises `OSError`."""

    def read(self, name: str) -> bytes | None:
        """The content of a file of the table; None if there is none. Raises `OSError`."""

    def stage(self, batch: str) -> Path:
        """Where the files of a batch are written first. Spark creates the folder."""

    def place(self, file: Path | None, name: str) -> None:
        """Give a staged file its name in the table, and make it durable; None if executors have done so
        already. Raises `OSError`."""

    def placed(self) -> None:
        """Make the names durable. Raises `OSError`."""

    def remove(self, name: str) -> None:
        """Remove a file that no commit has. What cannot be removed is left."""

    def discard(self, batch: str) -> None:
        """Remove the staged files of a batch that have no name in the table."""


class FolderFiles:
    """In a folder. Files are staged below it, so that they need not be copied."""

    def __init__(self, folder: Path, stage: Path) -> None:
        self._folder = folder
        self._stage = stage

    def prepare(self, *, owner: str) -> None:
        """Remove staged files of earlier processes: of this consumer (batches are named
        ``<consumer>-<token>``), and of any consumer after a day by the clock of the storage, because this
        machine's may be wrong. Such a process, if it continues, finds its files gone, and its batch fails.
        Raises `OSError` if the folder is not writable or does not support hard links, with which commits are
        made."""
        self._stage.mkdir(parents=True, exist_ok=True)
        trial = self._stage / f"{owner}-trial"
        with unlinked_file(self._stage, bytes(4096)) as part:
            link_exclusively(part, trial)
            now_unix_s = part.stat().st_mtime  # it was written just now
        trial.unlink()
        for path in self._stage.iterdir():
            if path.name.rpartition("-")[0] == owner or age_s(path, now_unix_s) > ABANDONED_S:
                if path.is_dir():
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    path.unlink(missing_ok=True)

    def any_file(self) -> str | None:
        names = (path.name for path in self._folder.iterdir())
        return next((name for name in names if not name.startswith(HIDDEN)), None)

    def read(self, name: str) -> bytes | None:
        try:
            return (self._folder / name).read_bytes()
        except FileNotFoundError:
            return None

    def stage(self, batch: str) -> Path:
        return self._stage / batch

    def place(self, file: Path | None, name: str) -> None:
        assert file is not None  # executors write to the stage, too
        sync(file)
        file.rename(self._folder / name)

    def placed(self) -> None:
        sync(self._folder)

    def remove(self, name: str) -> None:
        try:
            (self._folder / name).unlink(missing_ok=True)
        except OSError as error:
            log.warning("a file that is not part of the table is left", message=str(error))

    def discard(self, batch: str) -> None:
        shutil.rmtree(self.stage(batch), ignore_errors=True)


class BucketFiles:
    """The files under a prefix of a bucket. They are staged in a folder of this worker, which is empty when
    it starts; or executors write the files of a batch into a folder of the table, where no commit has them
    yet."""

    def __init__(self, bucket: Bucket, stage: Path, *, has_executors: bool = False) -> None:
        self._bucket = bucket
        self._stage = stage
        self._has_executors = has_executors
        self._placed: set[str] = set()  # of the files that executors have written

    def any_file(self) -> str | None:
        return self._bucket.any_key(lambda key: not key.startswith(HIDDEN))

    def read(self, name: str) -> bytes | None:
        return self._bucket.read(name)

    def stage(self, batch: str) -> Path:
        return self._stage / batch

    def place(self, file: Path | None, name: str) -> None:
        if file is None:
            self._placed.add(name)
            return
        self._bucket.upload(name, file)
        file.unlink()

    def placed(self) -> None:
        """An object is durable once it is written."""

    def remove(self, name: str) -> None:
        self._placed.discard(name)
        self._remove([name])

    def _remove(self, names: Iterable[str]) -> None:
        try:
            self._bucket.remove(names)
        except OSError as error:
            log.warning("a file that is not part of the table is left", message=str(error))

    def discard(self, batch: str) -> None:
        shutil.rmtree(self.stage(batch), ignore_errors=True)
        if not self._has_executors:
            return
        folder = folder_of(batch)
        try:
            names = [f"{folder}/{name}" for name in self._bucket.times(folder)]
        except OSError as error:
            log.warning("files that are not part of the table may be left", message=str(error))
            return
        self._remove(name for name in names if name not in self._placed)
        self._placed = {name for name in self._placed if not name.startswith(f"{folder}/")}


def folder_of(batch: str) -> str:
    """The folder of the table into which executors write the files of a batch."""
    return f"batch-{token_of(batch)}"


def token_of(batch: str) -> str:
    """What names a batch in the table: with the consumer's name, a path in the log would need quoting."""
    return batch.rpartition("-")[2]


# The same limits as for the other requests of a worker: a storage that does not answer is reported, and
# requested again later.
_LIMITS = {"timeout": "30s", "connect_timeout": "5s", "max_retries": "4", "retry_timeout": "30s"}
# The files of the credentials, and their names for delta-rs.
_KEYS = {
    ACCESS_KEY_ID: "AWS_ACCESS_KEY_ID",
    SECRET_ACCESS_KEY: "AWS_SECRET_ACCESS_KEY",
    SESSION_TOKEN: "AWS_SESSION_TOKEN",
}


def s3_options(settings: S3Settings, credentials: CredentialFiles) -> dict[str, str]:
    """The options, with the keys as they are now; without a Secret the environment's or the machine's
    identity is used. Raises `OSError` if the keys cannot be read."""
    # delta-rs creates a commit's file with If-None-Match, which is its default and is named for clarity.
    options = {"aws_conditional_put": "etag", **_LIMITS}
    if settings.endpoint is not None:
        options["AWS_ENDPOINT_URL"] = settings.endpoint
    if settings.region is not None:
        options["AWS_REGION"] = settings.region
    if settings.virtual_hosted:
        options["AWS_VIRTUAL_HOSTED_STYLE_REQUEST"] = "true"
    if settings.allow_http:
        options["AWS_ALLOW_HTTP"] = "true"
    return options | {_KEYS[name]: value for name, value in read_keys(credentials).items()}


# Without it Spark writes timestamps in a form without statistics.
TIMESTAMPS = ("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
UNUSABLE_IN_PATHS = frozenset("%\\")  # delta-rs takes them as parts of an escape, and as a slash


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """The columns of the query, and which of them may be null."""

    fields: tuple[Field, ...]
    nullable: Mapping[str, bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedFile:
    """A written file, and its entry in the table."""

    path: Path | None  # in the staging folder; None if executors have given the file its name in the table
    name: str
    size: int
    modified_ms: int
    partition_values: Mapping[str, str | None]
    stats: str


class DeltaTableSink:
    """The rows in a Delta table, each batch and range exactly once."""

    def __init__(
        self,
        table: DeltaGroupTable,
        files: TableFiles,
        *,
        partition_by: Sequence[str],
        add_columns: bool,
        executors: ExecutorFiles | None = None,
    ) -> None:
        """`add_columns`: the table gets the columns of the query that it lacks."""
        self._table = table
        self._files = files
        self._executors = executors
        self._volume = files.stage("any").parent if isinstance(files, FolderFiles) else None
        self._wanted = tuple(partition_by)
        self._add_columns = add_columns
        self._query: Query | None = None
        self._fitting: TableDescription | None = None
        self._shards: dict[int, ShardIncarnation] = {}
        self._positions: dict[ShardIncarnation, TablePosition] = {}
        self._staged: dict[str, list[StagedFile]] = {}
        self._by_source: SourceFileOptions | None = None  # if tasks of the source write the files

    # -- the table and the query

    def check(self, empty: DataFrame) -> None:
        self._fit(msgspec.json.decode(empty.schema.json()))
        trial = f"check-{secrets.token_hex(8)}"  # other workers may start at the same time
        try:
            if self._by_source is not None and self._by_source.files.place == FolderPlace():
                schema = to_arrow_schema(empty.schema, timezone="UTC")
                try_to_write(self._by_source, self._make_stage(trial), schema)
            elif self._executors is None:
                self._write(empty, trial)
            else:
                self._write_by_executors(self._executors, empty, trial, is_trial=True)
        finally:
            self._files.discard(trial)

    def _fit(self, schema: Mapping[str, Any]) -> None:
        """Make the table fit a query of this schema, or raise `InvalidSinkError`."""
        nullable = {field["name"]: bool(field["nullable"]) for field in schema["fields"]}
        self._query = query = Query(fields=query_fields(schema), nullable=nullable)
        partitioning(query.fields, self._wanted)
        self._require_place()
        self._table.create(query.fields, self._wanted)
        table = self._table.describe()
        if missing := self._missing(query, table):
            self._table.add_columns(missing)
            table = self._table.describe()
        self._require_fit(table)

    def _require_place(self) -> None:
        """Raises `InvalidSinkError` if a new table would be created among other files: VACUUM
        would remove them."""
        if self._table.exists():
            return
        any_file = self._files.any_file()
        if any_file is not None and not self._table.exists():  # another worker may have created it just now
            raise InvalidSinkError(
                f"{self._table.url} has files, such as {any_file}, and is no Delta table, whose VACUUM would"
                " remove them: give the table a place of its own, or convert them to a Delta table"
            )

    def _missing(self, query: Query, table: TableDescription) -> tuple[Field, ...]:
        missing = missing_columns(table, query.fields, self._wanted, nullable=query.nullable)
        if missing and not self._add_columns:
            names = ", ".join(repr(field["name"]) for field in missing)
            raise InvalidSinkError(
                f"the query does not fit the table, which has no column {names}: leave the column out, or let"
                " the sink add it with schemaEvolution: AddColumns"
            )
        return missing

    def _require_fit(self, table: TableDescription) -> None:
        """Raises `InvalidSinkError` unless the files that were written for the query fit the table."""
        if table == self._fitting or self._query is None:
            return
        if self._missing(self._query, table):
            raise InvalidSinkError("the table has lost a column of the query")
        if self._fitting is not None and table.partition_columns != self._fitting.partition_columns:
            raise InvalidSinkError("the table has got other partition columns")
        self._fitting = table

    def let_source_write(self, empty: DataFrame, *, consumer: str, is_elsewhere: bool) -> SourceFileOptions:
        schema = msgspec.json.decode(empty.schema.json())
        require_columns(schema)
        self._fit(schema)  # a table that exists has partition columns of its own
        empty.sparkSession.conf.set(*TIMESTAMPS)
        by = tuple(self._partition_columns)
        fields = [field for field in schema["fields"] if field["name"] not in by]
        place: FolderPlace | BucketPlace = FolderPlace(is_elsewhere=is_elsewhere)
        if self._executors is not None:
            place = self._executors.place
        self._by_source = SourceFileOptions(
            files=FileOptions(
                place=place,
                parquet=parquet_options(empty.sparkSession, schema | {"fields": fields}),
                target_bytes=DEFAULT_TARGET_BYTES,
                for_delta=True,
            ),
            prefix=self._where(f"{consumer}-"),
            partition_by=by,
        )
        return self._by_source

    def _where(self, batch: str) -> str:
        """Where tasks of the source write the files of a batch."""
        return folder_of(batch) if self._executors is not None else str(self._files.stage(batch).absolute())

    # -- shards

    def open_shard(self, shard: ShardIncarnation) -> None:
        position = self._table.position(shard)
        self._shards[shard.shard] = shard
        self._positions[shard] = position

    def resume(
        self,
        shard: ShardIncarnation,
        checkpoint: int,
        *,
        confirm: Callable[[], None],
        origin: CheckpointOrigin = CheckpointOrigin.SAVED,
    ) -> int:
        # The position was read before the checkpoint was requested: a worker that has delivered something
        # since then has changed it, and moving the shard back then fails.
        position = self._positions[shard]
        confirm()
        resumed = resumption(position, checkpoint, origin)
        if resumed.after is not None:
            move = Move(shard=shard, before=position, after=resumed.after)
            try:
                self._table.commit(f"moved-{secrets.token_hex(8)}", [move], may_commit=lambda: True)
            except RangeTakenError as error:
                raise OSError(f"shard {shard.shard} was not moved back: {error}") from error
            self._positions[shard] = resumed.after
        return resumed.cursor

    def acknowledge(self, shard: int, checkpoint: int) -> None:
        """Does nothing, because the table keeps one position for each shard, whatever the checkpoint."""

    # -- batches

    def write(self, result: DataFrame, batch: str) -> int:
        if self._by_source is not None:
            self._staged[batch], rows = self._collect(result, batch)
            return rows
        self._require_no_nulls(result)
        if self._executors is not None:
            self._staged[batch], rows = self._write_by_executors(self._executors, result, batch)
            return rows
        self._write(result, batch)
        stage = self._files.stage(batch)
        staged: list[StagedFile] = []
        total = 0
        for path in data_files(stage):
            rows, stats = file_statistics(path)
            total += rows
            if rows:
                status = path.stat()
                staged.append(
                    StagedFile(
                        path=path,
                        name=f"part-{len(staged):05}-{token_of(batch)}.parquet",
                        size=status.st_size,
                        modified_ms=int(status.st_mtime * 1000),
                        partition_values=_partition_values(path.relative_to(stage).parts[:-1]),
                        stats=stats,
                    )
                )
        self._staged[batch] = staged
        return total

    def _require_no_nulls(self, result: DataFrame) -> None:
        """Raises `RowsRejectedError` if the rows may be null where the table's must not. Nothing compares the
        rows themselves, and a function may make other columns of some logs than when it was checked."""
        fields = () if self._fitting is None else self._fitting.fields
        required = {field["name"] for field in fields if not field["nullable"]}
        loose = [field.name for field in result.schema if field.nullable and field.name in required]
        if loose:
            names = ", ".join(map(repr, loose))
            raise RowsRejectedError(
                f"the table's columns {names} must not be null, and these rows may be: use coalesce"
            )

    def _write(self, result: DataFrame, batch: str) -> None:
        if self._table.folder is not None:
            require_folder(self._table.folder / "_delta_log", "the Delta table")
        result.sparkSession.conf.set(*TIMESTAMPS)
        writer = result.write.mode("overwrite").format("parquet").partitionBy(*self._partition_columns)
        with writing_to(self._volume, self._partition_columns):
            writer.save(self._files.stage(batch).as_uri())

    @property
    def _partition_columns(self) -> Sequence[str]:
        return self._fitting.partition_columns if self._fitting is not None else self._wanted

    def _write_by_executors(
        self, executors: ExecutorFiles, result: DataFrame, batch: str, *, is_trial: bool = False
    ) -> tuple[list[StagedFile], int]:
        """The files, and how many rows they have."""
        result.sparkSession.conf.set(*TIMESTAMPS)
        folder = folder_of(batch)
        files = executors.write(result, folder, partition_by=self._partition_columns, is_trial=is_trial)
        return _staged(files, lambda _number, file: (None, f"{folder}/{file.name}"))

    def _collect(self, manifests: DataFrame, batch: str) -> tuple[list[StagedFile], int]:
        """Let the source write the files of a batch. Return them, and how many rows they have."""
        if self._executors is not None:
            folder, files = folder_of(batch), collected(manifests)
            self._executors.require_found(folder, files)
            return _staged(files, lambda _number, file: (None, f"{folder}/{file.name}"))
        stage = self._make_stage(batch)
        with writing_to(self._volume):
            files = collected(manifests)
        token = token_of(batch)
        return _staged(files, lambda number, file: (stage / file.name, f"part-{number:05}-{token}.parquet"))

    def _make_stage(self, batch: str) -> Path:
        """Make the staging folder of a batch. The source does not: it may be a place where the volume is not
        mounted."""
        if self._table.folder is not None:
            require_folder(self._table.folder / "_delta_log", "the Delta table")
        stage = self._files.stage(batch)
        stage.mkdir(parents=self._volume is None)
        return stage

    def publish(self, batch: str, ranges: tuple[Range, ...], may_commit: Callable[[], bool]) -> None:
        staged = self._staged.pop(batch, None)
        try:
            if staged == []:  # nothing to add; a worker that reads the ranges again finds no rows either
                if not may_commit():
                    raise SessionLostError
                return
            moves = [self._move(shard_range) for shard_range in ranges]
            self._publish(batch, staged or [], moves, may_commit)
            for move in moves:
                self._positions[move.shard] = move.after
        finally:
            self._files.discard(batch)

    def _move(self, shard_range: Range) -> Move:
        shard = self._shards[shard_range.shard]
        before = self._positions[shard]
        after = delivered(before, begin=shard_range.begin, end=shard_range.end)
        if after is None:
            raise RangeTakenError(
                f"the table has shard {shard.shard} beyond cursor {shard_range.begin} already"
            )
        return Move(shard=shard, before=before, after=after)

    def _publish(
        self, batch: str, staged: list[StagedFile], moves: list[Move], may_commit: Callable[[], bool]
    ) -> None:
        is_tried = False

        def try_to_commit() -> bool:
            nonlocal is_tried
            is_tried = may_commit()
            return is_tried

        try:
            added = [self._place(file) for file in staged]
            self._files.placed()
            self._table.commit(batch, moves, added, may_commit=try_to_commit, check=self._require_fit)
        except Exception as error:
            # After other errors, the commit may have been made, or may still be made.
            if not is_tried or isinstance(error, RangeTakenError | SessionLostError | InvalidSinkError):
                for file in staged:
                    self._files.remove(file.name)
            raise

    def _place(self, file: StagedFile) -> AddedFile:
        self._files.place(file.path, file.name)
        self._table.at_step("file placed")
        return AddedFile(
            path=file.name,
            size=file.size,
            modified_ms=file.modified_ms,
            partition_values=file.partition_values,
            stats=file.stats,
        )

    def abort(self, batch: str) -> None:
        self._staged.pop(batch, None)
        self._files.discard(batch)


def _staged(
    files: Sequence[WrittenFile], place: Callable[[int, WrittenFile], tuple[Path | None, str]]
) -> tuple[list[StagedFile], int]:
    """The files that tasks have written, and how many rows they have. `place` returns the path and the name
    of a file."""
    staged = []
    for number, file in enumerate(files):
        path, name = place(number, file)
        staged.append(
            StagedFile(
                path=path,
                name=name,
                size=file.bytes,
                modified_ms=file.modified_ms,
                partition_values=_partition_values(file.folder.split("/") if file.folder else ()),
                stats=file.statistics,
            )
        )
    return staged, sum(file.rows for file in files)


def _partition_values(folders: Iterable[str]) -> dict[str, str | None]:
    """The values of the partition columns, from the names of Spark's folders: ``column=value``, escaped."""
    pairs = (folder.partition("=") for folder in folders)
    return {unquote(name): None if value == NULL_PARTITION else unquote(value) for name, _, value in pairs}


def require_table_path(path: str) -> None:
    """Raises `InvalidSinkError` for a path where no worker can have a Delta table."""
    if path.startswith(SCHEME):
        return
    if not Path(path).is_absolute():
        raise InvalidSinkError(f"a Delta table needs an absolute path or an s3:// URL, not {path!r}")
    if unusable := sorted(UNUSABLE_IN_PATHS & set(path)):
        raise InvalidSinkError(f"the path of a Delta table must not have {' or '.join(unusable)}: {path!r}")


def make_delta_sink(sink: DeltaSettings, credentials: CredentialFiles, owner: SinkOwner) -> DeltaTableSink:
    """The sink of these settings. Raises `InvalidSinkError`, or `OSError` if its place cannot be used."""
    require_table_path(sink.path)
    settings = sink.s3 or S3Settings()
    files: TableFiles
    executors = None
    if sink.path.startswith(SCHEME):
        bucket = Bucket(sink.path, settings, credentials)
        BucketStorage(bucket, owner.scratch / "sink-trial", group_path=owner.group_path).try_out()
        files = BucketFiles(bucket, owner.scratch / "sink-stage", has_executors=owner.has_executors)
        if owner.has_executors:
            executors = ExecutorFiles(
                bucket=bucket,
                s3=settings,
                credentials=credentials,
                scratch=owner.scratch,
                for_delta=True,
            )
    else:
        folder = Path(sink.path)
        files = FolderFiles(folder, folder.joinpath(FOLDER, *owner.group_path, "stage"))
        files.prepare(owner=owner.consumer)
    table = DeltaGroupTable(
        sink.path,
        group_path=owner.group_path,
        options=partial(s3_options, settings, credentials),
        read=files.read,
    )
    return DeltaTableSink(
        table, files, partition_by=sink.partition_by, add_columns=sink.add_columns, executors=executors
    )
