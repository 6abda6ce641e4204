"""The sinks: where the rows of a batch go.

All sinks have one small interface. Parquet files and JSON lines in a folder are written exactly once, through
`loghub_worker.sink.commit_log`; another logstore and the worker's own output are written at least once.
`loghub_worker.query.streaming_query` calls `write` and `publish` in this order.
"""

import secrets
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TextIO

import structlog
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from loghub.worker_contract import (
    ConsoleSink,
    CopyPipeline,
    JsonSink,
    LogstoreSink,
    ParquetSink,
    WorkerConfig,
)
from loghub_worker.batch_plan import Range
from loghub_worker.log_service import Address
from loghub_worker.sink.commit_log import CommitLog, EarlierLayoutError, ShardIncarnation, data_files
from loghub_worker.sink.file_formats import JSON, PARQUET, FileFormat
from loghub_worker.sink.logstore import Logstore, LogstoreWriter

log = structlog.get_logger()

COPIED_LOGS = "logs"  # the column with the number of logs in the log groups that a range was copied as


class InvalidSinkError(Exception):
    """The sink's settings or the query's columns cannot work; retries do not help."""


class BatchSink(Protocol):
    """What a sink guarantees to the query runner. Cursors are integers."""

    def check(self, empty: DataFrame) -> None:
        """Reject columns that this sink does not support, by means of an empty result of the query."""

    def open_shard(self, shard: ShardIncarnation) -> None:
        """This worker was assigned the shard. Called before its checkpoint is requested."""

    def resume(
        self, shard: ShardIncarnation, checkpoint: int, *, confirm: Callable[[], None], moved: bool = False
    ) -> int:
        """Where the shard continues, given the service's checkpoint and whether that was `moved` on purpose.
        `confirm` is called before anything is changed; it raises if the shard was lost since it was
        opened."""

    def write(self, result: DataFrame, batch: str) -> int:
        """Write the rows and return their number. They count once `publish` has returned."""

    def publish(self, batch: str, ranges: tuple[Range, ...], may_commit: Callable[[], bool]) -> None:
        """Make the batch part of the sink. Raises `commit_log.RangeTakenError` or
        `commit_log.SessionLostError` if it is not."""

    def abort(self, batch: str) -> None:
        """The batch failed before `publish`."""

    def acknowledge(self, shard: int, checkpoint: int) -> None:
        """The service has the checkpoint."""


class FilesSink:
    """Files of one format in a folder, each batch and range exactly once. A batch is one file, so its rows
    become visible together."""

    def __init__(self, folder: Path, commit_log: CommitLog, file_format: FileFormat) -> None:
        self._folder = folder
        self._commit_log = commit_log
        self._file_format = file_format
        self._created: dict[int, int] = {}

    def check(self, empty: DataFrame) -> None:
        trial = f"check-{secrets.token_hex(8)}"  # other workers may start at the same time
        try:
            self._write(empty, self._commit_log.stage(trial))
        finally:
            self._commit_log.discard(trial)

    def open_shard(self, shard: ShardIncarnation) -> None:
        self._created[shard.shard] = shard.created
        self._commit_log.open_shard(shard)

    def resume(
        self, shard: ShardIncarnation, checkpoint: int, *, confirm: Callable[[], None], moved: bool = False
    ) -> int:
        return self._commit_log.resume(shard, checkpoint, confirm=confirm, moved=moved)

    def write(self, result: DataFrame, batch: str) -> int:
        stage = self._commit_log.stage(batch)
        self._write(result, stage)
        rows = {path: self._file_format.count_rows(path) for path in data_files(stage)}
        files = [path for path in rows if rows[path]]
        if len(files) > 1:
            joined = stage / f"_{files[0].name}"  # not a data file until it is complete
            self._file_format.join(result.sparkSession, files, joined)
            joined.rename(files[0])
            files = files[:1]
        for path in rows.keys() - set(files):
            path.unlink()
        return sum(rows.values())

    def _write(self, result: DataFrame, stage: Path) -> None:
        writer = result.write.mode("overwrite").format(self._file_format.name)
        writer.options(**self._file_format.options).save(stage.as_uri())

    def publish(self, batch: str, ranges: tuple[Range, ...], may_commit: Callable[[], bool]) -> None:
        pairs = [(self._incarnation(shard_range.shard), shard_range) for shard_range in ranges]
        self._commit_log.publish(batch, pairs, may_commit=may_commit)

    def abort(self, batch: str) -> None:
        # It has claimed nothing, so nobody needs to know how it ended.
        self._commit_log.discard(batch)

    def acknowledge(self, shard: int, checkpoint: int) -> None:
        self._commit_log.acknowledge(self._incarnation(shard), checkpoint)

    def _incarnation(self, shard: int) -> ShardIncarnation:
        return ShardIncarnation(shard=shard, created=self._created[shard])


class AtLeastOnceSink:
    """The base of sinks that keep no record: a batch that failed midway is delivered again."""

    def open_shard(self, shard: ShardIncarnation) -> None:
        """Do nothing: nobody else's delivery can be noticed."""

    def resume(
        self,
        shard: ShardIncarnation,  # noqa: ARG002
        checkpoint: int,
        *,
        confirm: Callable[[], None],
        moved: bool = False,  # noqa: ARG002
    ) -> int:
        """The checkpoint is the only record."""
        confirm()
        return checkpoint

    def publish(self, batch: str, ranges: tuple[Range, ...], may_commit: Callable[[], bool]) -> None:
        """Do nothing: the rows are visible already."""

    def abort(self, batch: str) -> None:
        """Do nothing: rows that are already written stay, and are delivered again."""

    def acknowledge(self, shard: int, checkpoint: int) -> None:
        """Do nothing: there is no record to remove."""


class LogstoreRows(AtLeastOnceSink):
    """The rows in another logstore, at least once."""

    def __init__(self, writer: LogstoreWriter) -> None:
        self._writer = writer

    def check(self, empty: DataFrame) -> None:
        self._writer.put(empty)

    def write(self, result: DataFrame, batch: str) -> int:  # noqa: ARG002 - nothing is staged
        return self._writer.put(result)


class LogGroupCopies(AtLeastOnceSink):
    """The log groups themselves in another logstore, at least once. The source writes them where it reads
    them (`loghub_worker.source.log_group_copier`), and yields the numbers of their logs."""

    def check(self, empty: DataFrame) -> None:
        """There is nothing to check: every log group is accepted as it is."""

    def write(self, result: DataFrame, batch: str) -> int:  # noqa: ARG002 - nothing is staged
        return sum(row[COPIED_LOGS] for row in result.collect())


class Console(AtLeastOnceSink):
    """The first rows of each batch as JSON lines, at least once, for trying out a pipeline."""

    def __init__(self, max_rows: int, out: TextIO) -> None:
        self._max_rows = max_rows
        self._out = out

    def check(self, empty: DataFrame) -> None:
        _as_json(empty).collect()

    def write(self, result: DataFrame, batch: str) -> int:  # noqa: ARG002 - nothing is staged
        lines = _as_json(result).persist()  # otherwise `count` and `take` would each read the logs
        try:
            rows = lines.count()
            shown = [row[0] for row in lines.take(self._max_rows)]
        finally:
            lines.unpersist()
        self._out.writelines(f"{line}\n" for line in shown)
        self._out.flush()
        if rows > len(shown):
            log.info("only the first rows of the batch are shown", shown=len(shown), rows=rows)
        return rows


def _as_json(rows: DataFrame) -> DataFrame:
    return rows.select(F.to_json(F.struct("*")))


def make_sink(
    config: WorkerConfig, *, consumer: str, credentials_dir: str, scratch: Path, now_unix_s: float
) -> BatchSink:
    """The sink of a worker's settings. Raises `InvalidSinkError`, or `OSError` if its folder cannot be
    used."""
    sink = config.sink
    if isinstance(sink, LogstoreSink):
        if isinstance(config.pipeline, CopyPipeline):
            return LogGroupCopies()
        target, source = (
            Logstore(
                address=Address(endpoint=config.endpoint, project=project, credentials_dir=credentials_dir),
                name=name,
            )
            for project, name in ((sink.project, sink.logstore), (config.project, config.logstore))
        )
        return LogstoreRows(LogstoreWriter(target, source, keep_order=sink.keep_order, scratch=scratch))
    if isinstance(sink, ConsoleSink):
        return Console(sink.rows, sys.stdout)
    folder = _folder_of(sink)
    try:
        commit_log = CommitLog(folder, group_path=(config.project, config.logstore, config.consumer_group))
    except EarlierLayoutError as error:
        raise InvalidSinkError(str(error)) from error
    commit_log.check_folder()
    commit_log.prune(owner=consumer, now_unix_s=now_unix_s)
    return FilesSink(folder, commit_log, JSON if isinstance(sink, JsonSink) else PARQUET)


def _folder_of(sink: ParquetSink | JsonSink) -> Path:
    if "://" in sink.path:
        scheme = sink.path.split("://")[0]
        raise InvalidSinkError(
            f"a file sink writes to a folder of a mounted file system; {scheme}:// is not supported"
        )
    folder = Path(sink.path)
    if not folder.is_absolute():
        raise InvalidSinkError(f"a file sink needs an absolute path, not {sink.path!r}")
    return folder
