"""The sinks: where the rows of a batch go.

All sinks have one small interface. Parquet files and JSON lines in a folder are written exactly once, through
`loghub_worker.sink.commit_log`; another logstore and the worker's own output are written at least once.
`loghub_worker.query.streaming_query` calls `write` and `publish` in this order.
"""

import secrets
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TextIO

import pyarrow.parquet as pq
import structlog
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from loghub.worker_contract import ConsoleSink, JsonSink, LogstoreSink, ParquetSink, WorkerConfig
from loghub_worker.batch_plan import Range
from loghub_worker.log_service import Address
from loghub_worker.sink.commit_log import CommitLog, ShardIncarnation, data_files
from loghub_worker.sink.logstore import LogstoreWriter

log = structlog.get_logger()


class InvalidSinkError(Exception):
    """The sink's settings or the query's columns cannot work; retries do not help."""


class BatchSink(Protocol):
    """What a sink guarantees to the query runner. Cursors are integers."""

    def check(self, empty: DataFrame) -> None:
        """Reject columns that this sink does not support, by means of an empty result of the query."""

    def resume(
        self, shard: ShardIncarnation, checkpoint: int, *, confirm: Callable[[], None], moved: bool = False
    ) -> int:
        """Where the shard continues, given the service's checkpoint and whether that was `moved` on purpose.
        `confirm` is called before anything is changed; it raises if the shard was lost since the checkpoint
        was requested."""

    def write(self, result: DataFrame, batch: str) -> int:
        """Write the rows and return their number. They count once `publish` has returned."""

    def publish(self, batch: str, ranges: tuple[Range, ...], may_commit: Callable[[], bool]) -> None:
        """Make the batch part of the sink. Raises `commit_log.RangeTakenError` or
        `commit_log.SessionLostError` if it is not."""

    def abort(self, batch: str) -> None:
        """The batch failed before `publish`."""

    def acknowledge(self, shard: int, checkpoint: int) -> None:
        """The service has the checkpoint."""


@dataclass(frozen=True, slots=True)
class FileFormat:
    """One file format: how Spark writes it, and how many rows a file contains."""

    name: str
    options: Mapping[str, str]
    count_rows: Callable[[Path], int]


def _parquet_rows(file: Path) -> int:
    return int(pq.read_metadata(file).num_rows)


def _lines(file: Path) -> int:
    with file.open("rb") as content:
        return sum(part.count(b"\n") for part in iter(lambda: content.read(1 << 20), b""))


PARQUET = FileFormat("parquet", {}, _parquet_rows)
# Uncompressed whatever Hadoop's settings are, because the lines are counted.
JSON = FileFormat("json", {"compression": "none", "lineSep": "\n", "encoding": "UTF-8"}, _lines)


class FilesSink:
    """Files of one format in a folder, each batch and range exactly once."""

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

    def resume(
        self, shard: ShardIncarnation, checkpoint: int, *, confirm: Callable[[], None], moved: bool = False
    ) -> int:
        self._created[shard.shard] = shard.created
        return self._commit_log.resume(shard, checkpoint, confirm=confirm, moved=moved)

    def write(self, result: DataFrame, batch: str) -> int:
        stage = self._commit_log.stage(batch)
        self._write(result, stage)
        return sum(self._file_format.count_rows(path) for path in data_files(stage))

    def _write(self, result: DataFrame, stage: Path) -> None:
        writer = result.write.mode("overwrite").format(self._file_format.name)
        writer.options(**self._file_format.options).save(stage.as_uri())

    def publish(self, batch: str, ranges: tuple[Range, ...], may_commit: Callable[[], bool]) -> None:
        pairs = [(self._incarnation(shard_range.shard), shard_range) for shard_range in ranges]
        self._commit_log.publish(batch, pairs, may_commit=may_commit)

    def abort(self, batch: str) -> None:
        self._commit_log.abort(batch)

    def acknowledge(self, shard: int, checkpoint: int) -> None:
        self._commit_log.acknowledge(self._incarnation(shard), checkpoint)

    def _incarnation(self, shard: int) -> ShardIncarnation:
        return ShardIncarnation(shard=shard, created=self._created[shard])


class AtLeastOnceSink:
    """The base of sinks that keep no record: a batch that failed midway is delivered again."""

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


class LogstoreCopy(AtLeastOnceSink):
    """Another logstore, at least once."""

    def __init__(self, writer: LogstoreWriter) -> None:
        self._writer = writer

    def check(self, empty: DataFrame) -> None:
        self._writer.put(empty)

    def write(self, result: DataFrame, batch: str) -> int:  # noqa: ARG002 - nothing is staged
        return self._writer.put(result)


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
        address = Address(endpoint=config.endpoint, project=sink.project, credentials_dir=credentials_dir)
        return LogstoreCopy(LogstoreWriter(address, sink.logstore, scratch=scratch))
    if isinstance(sink, ConsoleSink):
        return Console(sink.rows, sys.stdout)
    folder = _folder_of(sink)
    commit_log = CommitLog(folder, group_path=(config.project, config.logstore, config.consumer_group))
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
