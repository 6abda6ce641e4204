"""The sink that writes a Delta table, each log exactly once.

Spark writes a batch as Parquet files into a staging folder. They get their final names in the table, where
no reader sees them, and one commit adds them together with the positions of the batch's shards
(`loghub_worker.sink.delta_positions`). No row passes through the driver. Executors elsewhere write the files
for a bucket under their final names (`loghub_worker.sink.executor_files`).
"""

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import unquote

import msgspec
from pyspark.sql import DataFrame

from loghub.sink_settings import DeltaSink as DeltaSettings
from loghub.sink_settings import S3Settings
from loghub_worker.batch_plan import Range
from loghub_worker.sink.batch_sink import InvalidSinkError, RowsRejectedError, SinkOwner
from loghub_worker.sink.bucket import SCHEME, Bucket
from loghub_worker.sink.bucket_storage import BucketStorage
from loghub_worker.sink.commit_log import RangeTakenError, SessionLostError
from loghub_worker.sink.delta_files import BucketFiles, FolderFiles, TableFiles, folder_of, token_of
from loghub_worker.sink.delta_options import s3_options
from loghub_worker.sink.delta_positions import Move, TablePosition, delivered, resumption
from loghub_worker.sink.delta_schema import (
    Field,
    TableDescription,
    missing_columns,
    query_fields,
)
from loghub_worker.sink.delta_statistics import file_statistics
from loghub_worker.sink.delta_table import AddedFile, Table
from loghub_worker.sink.exclusive_files import require_folder
from loghub_worker.sink.executor_files import ExecutorFiles
from loghub_worker.sink.log_storage import FOLDER, data_files
from loghub_worker.sink.partition_columns import NULL_PARTITION, partitioning
from loghub_worker.sink.range_claims import ShardIncarnation
from loghub_worker.sink.resumption import CheckpointOrigin
from loghub_worker.sink.sink_credentials import SinkCredentials
from loghub_worker.sink.volume import writing_to

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
    """A file that is written, and what the table will say of it."""

    path: Path | None  # in the staging folder; None if executors have given the file its name in the table
    name: str
    size: int
    modified_ms: int
    partition_values: Mapping[str, str | None]
    stats: str


class DeltaSink:
    """The rows in a Delta table, each batch and range exactly once."""

    def __init__(
        self,
        table: Table,
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

    # -- the table and the query

    def check(self, empty: DataFrame) -> None:
        schema = msgspec.json.decode(empty.schema.json())
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
        trial = f"check-{secrets.token_hex(8)}"  # other workers may start at the same time
        try:
            if self._executors is None:
                self._write(empty, trial)
            else:
                self._write_by_executors(self._executors, empty, trial, is_trial=True)
        finally:
            self._files.discard(trial)

    def _require_place(self) -> None:
        """Raises `InvalidSinkError` if a new table would be created among other files: VACUUM
        would remove them."""
        if self._table.exists():
            return
        found = self._files.any_file()
        if found is not None and not self._table.exists():  # another worker may have created it just now
            raise InvalidSinkError(
                f"{self._table.url} has files, such as {found}, and is no Delta table, whose VACUUM would"
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
        """Raises `InvalidSinkError` unless what was written for the query fits the table."""
        if table == self._fitting or self._query is None:
            return
        if self._missing(self._query, table):
            raise InvalidSinkError("the table has lost a column of the query")
        if self._fitting is not None and table.partition_columns != self._fitting.partition_columns:
            raise InvalidSinkError("the table has got other partition columns")
        self._fitting = table

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
        # The position is the one that was found before the checkpoint was requested: a worker that has
        # delivered something since then has changed it, and moving the shard back then fails.
        found = self._positions[shard]
        confirm()
        resumed = resumption(found, checkpoint, origin)
        if resumed.after is not None:
            move = Move(shard=shard, before=found, after=resumed.after)
            try:
                self._table.commit(f"moved-{secrets.token_hex(8)}", [move], may_commit=lambda: True)
            except RangeTakenError as error:
                raise OSError(f"shard {shard.shard} was not moved back: {error}") from error
            self._positions[shard] = resumed.after
        return resumed.cursor

    def acknowledge(self, shard: int, checkpoint: int) -> None:
        """Do nothing: the table keeps one position for each shard, whatever the checkpoint."""

    # -- batches

    def write(self, result: DataFrame, batch: str) -> int:
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
                found = path.stat()
                staged.append(
                    StagedFile(
                        path=path,
                        name=f"part-{len(staged):05}-{token_of(batch)}.parquet",
                        size=found.st_size,
                        modified_ms=int(found.st_mtime * 1000),
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
        staged = [
            StagedFile(
                path=None,
                name=f"{folder}/{file.name}",
                size=file.bytes,
                modified_ms=file.modified_ms,
                partition_values=_partition_values(file.folder.split("/") if file.folder else ()),
                stats=file.statistics,
            )
            for file in files
        ]
        return staged, sum(file.rows for file in files)

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
            # After other errors of a commit it may have been made, or may yet be.
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


def _partition_values(folders: Iterable[str]) -> dict[str, str | None]:
    """The values of the partition columns, from the names of Spark's folders: ``column=value``, escaped."""
    pairs = (folder.partition("=") for folder in folders)
    return {unquote(name): None if value == NULL_PARTITION else unquote(value) for name, _, value in pairs}


def make_delta_sink(sink: DeltaSettings, credentials: SinkCredentials, owner: SinkOwner) -> DeltaSink:
    """The sink of these settings. Raises `InvalidSinkError`, or `OSError` if its place cannot be used."""
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
    elif not Path(sink.path).is_absolute():
        raise InvalidSinkError(f"a Delta table needs an absolute path or an s3:// URL, not {sink.path!r}")
    elif unusable := sorted(UNUSABLE_IN_PATHS & set(sink.path)):
        raise InvalidSinkError(
            f"the path of a Delta table must not have {' or '.join(unusable)}: {sink.path!r}"
        )
    else:
        folder = Path(sink.path)
        files = FolderFiles(folder, folder.joinpath(FOLDER, *owner.group_path, "stage"))
        files.prepare(owner=owner.consumer)
    table = Table(
        sink.path,
        group_path=owner.group_path,
        options=partial(s3_options, settings, credentials),
        read=files.read,
    )
    return DeltaSink(
        table, files, partition_by=sink.partition_by, add_columns=sink.add_columns, executors=executors
    )
