"""The sink that writes files of one format into a folder or under a prefix of a bucket, each log exactly
once."""

import secrets
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from loghub.contract.sinks import JsonSink, ParquetSink, S3Settings
from loghub_consumer.batch_plan import Range
from loghub_consumer.resumption import CheckpointOrigin, ShardIncarnation
from loghub_worker.sink.batch_sink import InvalidSinkError, RowsRejectedError, SinkOwner
from loghub_worker.sink.files.bucket import SCHEME, Bucket, BucketStorage
from loghub_worker.sink.files.commit_log import CommitLog
from loghub_worker.sink.files.exclusive_files import require_folder
from loghub_worker.sink.files.executor_files import ExecutorFiles, parquet_options
from loghub_worker.sink.files.file_sizes import DEFAULT_TARGET_BYTES, PARTS, RowSize, files_to_join
from loghub_worker.sink.files.formats import (
    JSON,
    PARQUET,
    FileFormat,
    partitioning,
    repeated_names,
    require_columns,
    require_few_partitions,
)
from loghub_worker.sink.files.json_lines import unwritten
from loghub_worker.sink.files.source_files import SourceFileOptions, collected, named_as_data, try_to_write
from loghub_worker.sink.files.storage import (
    RECORDS,
    EarlierLayoutError,
    FolderStorage,
    LogStorage,
    data_files,
    writing_to,
)
from loghub_worker.sink.files.task_files import (
    ROW_GROUP_BYTES,
    BucketPlace,
    FileOptions,
    FolderPlace,
    WrittenFile,
)
from loghub_worker.sink.sink_start import CredentialFiles

MAX_PARTITIONS = 1000  # of a batch: each is at least one file
DELTA_LOG = "_delta_log"  # the folder that makes a place a Delta table


class StagedByExecutors:
    """Lets executors stage the files of batches in a bucket."""

    def __init__(self, files: ExecutorFiles, storage: BucketStorage) -> None:
        self._files = files
        self._storage = storage

    def write(
        self, result: DataFrame, batch: str, partition_by: Sequence[str], *, is_trial: bool = False
    ) -> list[WrittenFile]:
        """See `ExecutorFiles.write`. The returned files are staged; nothing else of the batch is."""
        files = self._files.write(
            result,
            self._storage.stage_key(batch),
            partition_by=partition_by,
            max_partitions=MAX_PARTITIONS,
            is_trial=is_trial,
        )
        self.note(batch, files)
        return files

    def note(self, batch: str, files: Sequence[WrittenFile]) -> None:
        """These files of the batch are staged; nothing else of it is."""
        self._storage.uploaded(batch, {file.name: file.bytes for file in files})

    def take(self, batch: str, files: Sequence[WrittenFile]) -> None:
        """Take the files that tasks of the source have staged. Raises `OSError` if they are not there."""
        self._files.require_found(self._storage.stage_key(batch), files)
        self.note(batch, files)

    def source_options(self, consumer: str) -> tuple[BucketPlace, str]:
        """Where a task of the source stages files, and what the keys of a batch of this consumer begin with,
        before its token."""
        return self._files.place, self._storage.stage_key(f"{consumer}-")


class FilesSink:
    """Files of one format in one place, each batch and range exactly once.

    A batch is one file, so its rows become visible together, unless it has rows of several partitions or is
    larger than the target size of files."""

    def __init__(
        self,
        commit_log: CommitLog,
        file_format: FileFormat,
        *,
        partition_by: Sequence[str] = (),
        target_bytes: int = DEFAULT_TARGET_BYTES,
        on_volume: bool = True,
        executors: StagedByExecutors | None = None,
    ) -> None:
        """`on_volume`: the staging folders are on the target's volume, not on the worker's disk. With
        `executors`, these stage the files of a batch: each task stages its own files, which are not
        joined."""
        self._commit_log = commit_log
        self._file_format = file_format
        self._partition_by = tuple(partition_by)
        self._target_bytes = target_bytes
        self._volume = commit_log.stage("any").parent if on_volume else None
        self._executors = executors
        self._row_size = RowSize()
        self.file_bytes = 0
        self._created: dict[int, int] = {}
        self._written: dict[str, list[str]] = {}  # the files of a batch that is not yet published
        self._by_source: SourceFileOptions | None = None  # if tasks of the source write the files

    def check(self, empty: DataFrame) -> None:
        partitioning(msgspec.json.decode(empty.schema.json())["fields"], self._partition_by)
        trial = f"check-{secrets.token_hex(8)}"  # other workers may start at the same time
        try:
            if self._by_source is not None and self._by_source.files.place == FolderPlace():
                schema = to_arrow_schema(empty.schema, timezone="UTC")
                try_to_write(self._by_source, self._make_stage(trial), schema)
            elif self._executors is None:
                self._write(empty, self._commit_log.stage(trial))
            else:
                self._executors.write(empty, trial, self._partition_by, is_trial=True)
        finally:
            self._commit_log.discard(trial)

    def let_source_write(self, empty: DataFrame, *, consumer: str, is_elsewhere: bool) -> SourceFileOptions:
        schema = msgspec.json.decode(empty.schema.json())
        partitioning(schema["fields"], self._partition_by)
        parquet = None
        if self._file_format is PARQUET:
            require_columns(schema)
            fields = [field for field in schema["fields"] if field["name"] not in self._partition_by]
            parquet = parquet_options(empty.sparkSession, schema | {"fields": fields})
        elif problems := [*repeated_names(schema), *unwritten(schema)]:
            raise InvalidSinkError(f"lines of JSON in which {problems[0]}")
        place: FolderPlace | BucketPlace = FolderPlace(is_elsewhere=is_elsewhere)
        prefix = str(self._commit_log.stage(f"{consumer}-").absolute())
        target_bytes = max(1, self._target_bytes // PARTS)
        if self._executors is not None:
            place, prefix = self._executors.source_options(consumer)
            target_bytes = self._target_bytes  # the files are not joined
        self._by_source = SourceFileOptions(
            files=FileOptions(
                place=place,
                parquet=parquet,
                target_bytes=target_bytes,
                group_bytes=min(ROW_GROUP_BYTES, self._target_bytes),
                max_partitions=MAX_PARTITIONS,
            ),
            prefix=prefix,
            partition_by=self._partition_by,
        )
        return self._by_source

    def open_shard(self, shard: ShardIncarnation) -> None:
        self._created[shard.shard] = shard.created
        self._commit_log.open_shard(shard)

    def resume(
        self,
        shard: ShardIncarnation,
        checkpoint: int,
        *,
        confirm: Callable[[], None],
        origin: CheckpointOrigin = CheckpointOrigin.SAVED,
    ) -> int:
        return self._commit_log.resume(shard, checkpoint, confirm=confirm, origin=origin)

    def write(self, result: DataFrame, batch: str) -> int:
        if self._executors is None:
            rows, sizes = self._stage(result, batch)
        else:
            if self._by_source is None:
                files = self._executors.write(result, batch, self._partition_by)
            else:
                files = collected(result)
                self._executors.take(batch, files)
            rows, sizes = sum(file.rows for file in files), {file.name: file.bytes for file in files}
            self._require_few_partitions(len({file.folder for file in files}))
        if (obstacle := self._commit_log.obstacle(batch)) is not None:
            raise RowsRejectedError(f"the rows make {obstacle}")
        self._written[batch] = list(sizes)
        self.file_bytes = sum(sizes.values())
        self._row_size = self._row_size.after(file_bytes=self.file_bytes, rows=rows)
        return rows

    def _stage(self, result: DataFrame, batch: str) -> tuple[int, dict[str, int]]:
        """Let Spark, or the source, write the files of a batch, and join them. Return how many rows there
        are, and the names and bytes of the files."""
        stage = self._commit_log.stage(batch)
        if self._by_source is None:
            self._write(result, stage)
            rows = {path: self._file_format.count_rows(path) for path in data_files(stage)}
            for path in [path for path in rows if not rows[path]]:
                path.unlink()
        else:
            rows = self._collect(result, batch)
        sizes = {path: path.stat().st_size for path in rows if rows[path]}
        folders = sorted({path.parent for path in sizes})
        self._require_few_partitions(len(folders))
        files = []
        for folder in folders:
            inside = {path: size for path, size in sizes.items() if path.parent == folder}
            joined = files_to_join(inside, self._target_bytes)
            files += [self._join(result.sparkSession, together) for together in joined]
        return sum(rows.values()), {str(path.relative_to(stage)): path.stat().st_size for path in files}

    def _collect(self, manifests: DataFrame, batch: str) -> dict[Path, int]:
        """Let the source write the files of a batch. Return how many rows each has."""
        stage = self._make_stage(batch)
        with writing_to(self._volume):
            files = collected(manifests)
        return {path: file.rows for path, file in named_as_data(stage, files).items()}

    def _make_stage(self, batch: str) -> Path:
        """Make the staging folder of a batch. The source does not: it may be a place where the volume is not
        mounted."""
        if self._volume is not None:
            require_folder(self._volume, RECORDS)
        stage = self._commit_log.stage(batch)
        stage.mkdir(parents=self._volume is None)
        return stage

    def _require_few_partitions(self, partitions: int) -> None:
        require_few_partitions(partitions, self._partition_by, maximum=MAX_PARTITIONS)

    def _join(self, spark: SparkSession, files: Sequence[Path]) -> Path:
        """Make one file of several, under the name of the first."""
        first, *others = files
        if others:
            joined = first.with_name(f"_{first.name}")  # not a data file until it is complete
            with writing_to(self._volume):
                self._file_format.join(spark, files, joined)
            joined.rename(first)
        for path in others:
            path.unlink()
        return first

    def _write(self, result: DataFrame, stage: Path) -> None:
        if self._volume is not None:
            require_folder(self._volume, RECORDS)
        writer = (
            result.write.mode("overwrite").format(self._file_format.name).partitionBy(*self._partition_by)
        )
        writer = writer.option("maxRecordsPerFile", self._row_size.rows_of_a_part(self._target_bytes))
        with writing_to(self._volume, self._partition_by):
            writer.options(**self._file_format.options).save(stage.as_uri())

    def publish(self, batch: str, ranges: tuple[Range, ...], may_commit: Callable[[], bool]) -> None:
        pairs = [(self._incarnation(shard_range.shard), shard_range) for shard_range in ranges]
        written = self._written.pop(batch, ())
        self._commit_log.publish(batch, pairs, may_commit=may_commit, written=written)

    def abort(self, batch: str) -> None:
        # The batch has claimed nothing, so its outcome need not be recorded.
        self._written.pop(batch, None)
        self._commit_log.discard(batch)

    def acknowledge(self, shard: int, checkpoint: int) -> None:
        self._commit_log.acknowledge(self._incarnation(shard), checkpoint)

    def _incarnation(self, shard: int) -> ShardIncarnation:
        return ShardIncarnation(shard=shard, created=self._created[shard])


def make_files_sink(
    sink: ParquetSink | JsonSink, credentials: CredentialFiles, owner: SinkOwner
) -> FilesSink:
    """The sink of these settings. Settles the staged files of an earlier process of the consumer. Raises
    `InvalidSinkError`, or `OSError` if the place cannot be used."""
    storage = _storage_of(sink, credentials, owner)
    storage.try_out()
    target_bytes = DEFAULT_TARGET_BYTES if sink.roll is None else sink.roll.target_bytes
    executors = None
    if owner.has_executors and isinstance(storage, BucketStorage):
        s3 = sink.s3 or S3Settings()
        files = ExecutorFiles(
            bucket=Bucket(sink.path, s3, credentials),
            s3=s3,
            credentials=credentials,
            scratch=owner.scratch,
            is_parquet=isinstance(sink, ParquetSink),
            target_bytes=target_bytes,
        )
        executors = StagedByExecutors(files, storage)
    commit_log = CommitLog(storage)
    commit_log.prune(owner=owner.consumer)
    return FilesSink(
        commit_log,
        JSON if isinstance(sink, JsonSink) else PARQUET,
        partition_by=sink.partition_by,
        target_bytes=target_bytes,
        on_volume=not sink.path.startswith(SCHEME),
        executors=executors,
    )


def require_path(path: str) -> None:
    """Raises `InvalidSinkError` for a path to which no worker can write files."""
    if path.startswith(SCHEME):
        return
    if "://" in path:
        scheme = path.split("://")[0]
        raise InvalidSinkError(
            f"a file sink writes to a folder of a mounted file system or to s3://; {scheme}:// is not"
            " supported"
        )
    if not Path(path).is_absolute():
        raise InvalidSinkError(f"a file sink needs an absolute path, not {path!r}")


def _storage_of(sink: ParquetSink | JsonSink, credentials: CredentialFiles, owner: SinkOwner) -> LogStorage:
    require_path(sink.path)
    if sink.path.startswith(SCHEME):
        bucket = Bucket(sink.path, sink.s3 or S3Settings(), credentials)
        if bucket.any_key(lambda _: True, folder=DELTA_LOG) is not None:
            raise _is_delta_table(sink.path)
        return BucketStorage(bucket, owner.scratch / "sink-stage", group_path=owner.group_path)
    folder = Path(sink.path)
    if (folder / DELTA_LOG).exists():
        raise _is_delta_table(sink.path)
    try:
        return FolderStorage(folder, group_path=owner.group_path)
    except EarlierLayoutError as error:
        raise InvalidSinkError(str(error)) from error


def _is_delta_table(path: str) -> InvalidSinkError:
    return InvalidSinkError(
        f"files of this sink need a place of their own: {path} is a Delta table, whose VACUUM would remove"
        " them"
    )
