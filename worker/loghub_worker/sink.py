"""Where the rows of a batch go.

What for: the two sinks behind one small interface: Parquet files in a folder (exactly once, by
`loghub_worker.ledger`) and another logstore (at least once). What it must not know: heartbeats,
how a batch was read. Read next: `loghub_worker.job` calls `write` and `publish` in this order.
"""

import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import pyarrow.parquet as pq
from pyspark.sql import DataFrame

from loghub.worker_contract import LogstoreSink, ParquetSink, WorkerConfig
from loghub_worker.hub import Address
from loghub_worker.ledger import Incarnation, Ledger
from loghub_worker.logstore_writer import LogstoreWriter
from loghub_worker.planning import Range


class InvalidSinkError(Exception):
    """The sink's settings or the query's columns cannot work; trying again does not help."""


class Sink(Protocol):
    """What a sink promises the job. Cursors are integers."""

    def check(self, empty: DataFrame) -> None:
        """Refuse columns that this sink cannot take, with an empty result of the query."""

    def resume(self, shard: Incarnation, checkpoint: int, *, confirm: Callable[[], None]) -> int:
        """Where the shard goes on, given the service's checkpoint. `confirm` is called before
        anything is changed; it raises if the shard was lost since the checkpoint was asked for."""

    def write(self, result: DataFrame, batch: str) -> int:
        """Bring the rows to the sink; how many. With `publish` they count."""

    def publish(self, batch: str, ranges: tuple[Range, ...], may_commit: Callable[[], bool]) -> None:
        """Make the batch part of the sink. `ledger.RangeTakenError`, `ledger.LeaseLostError`: it is not."""

    def abort(self, batch: str) -> None:
        """The batch failed before `publish`."""

    def acknowledge(self, shard: int, checkpoint: int) -> None:
        """The service has the checkpoint."""


class ParquetFolder:
    """Parquet files, each batch and range exactly once."""

    def __init__(self, folder: Path, ledger: Ledger) -> None:
        self._folder = folder
        self._ledger = ledger
        self._created: dict[int, int] = {}

    def check(self, empty: DataFrame) -> None:
        trial = f"check-{secrets.token_hex(8)}"  # other workers may start at this moment
        try:
            self._write(empty, self._ledger.stage(trial))
        finally:
            self._ledger.discard(trial)

    def resume(self, shard: Incarnation, checkpoint: int, *, confirm: Callable[[], None]) -> int:
        self._created[shard.shard] = shard.created
        return self._ledger.resume(shard, checkpoint, confirm=confirm)

    def write(self, result: DataFrame, batch: str) -> int:
        stage = self._ledger.stage(batch)
        self._write(result, stage)
        return sum(pq.read_metadata(path).num_rows for path in stage.glob("*.parquet"))

    def _write(self, result: DataFrame, stage: Path) -> None:
        result.write.mode("overwrite").parquet(stage.as_uri())

    def publish(self, batch: str, ranges: tuple[Range, ...], may_commit: Callable[[], bool]) -> None:
        pairs = [(self._incarnation(piece.shard), piece) for piece in ranges]
        self._ledger.publish(batch, pairs, may_commit=may_commit)

    def abort(self, batch: str) -> None:
        self._ledger.abort(batch)

    def acknowledge(self, shard: int, checkpoint: int) -> None:
        self._ledger.acknowledge(self._incarnation(shard), checkpoint)

    def _incarnation(self, shard: int) -> Incarnation:
        return Incarnation(shard=shard, created=self._created[shard])


class LogstoreCopy:
    """Another logstore, at least once: a batch that failed half-way is put again."""

    def __init__(self, writer: LogstoreWriter) -> None:
        self._writer = writer

    def check(self, empty: DataFrame) -> None:
        self._writer.put(empty)

    def resume(self, shard: Incarnation, checkpoint: int, *, confirm: Callable[[], None]) -> int:  # noqa: ARG002
        """It keeps no record."""
        confirm()
        return checkpoint

    def write(self, result: DataFrame, batch: str) -> int:  # noqa: ARG002 - nothing is staged
        return self._writer.put(result)

    def publish(self, batch: str, ranges: tuple[Range, ...], may_commit: Callable[[], bool]) -> None:
        """Nothing to do: what was put is there."""

    def abort(self, batch: str) -> None:
        """What was put is there, and comes again."""

    def acknowledge(self, shard: int, checkpoint: int) -> None:
        """It keeps no record."""


def make_sink(
    config: WorkerConfig, *, consumer: str, credentials_dir: str, scratch: Path, now_unix_s: float
) -> Sink:
    """The sink of a worker's settings. Raises `InvalidSinkError`."""
    sink = config.sink
    if isinstance(sink, LogstoreSink):
        address = Address(endpoint=config.endpoint, project=sink.project, credentials_dir=credentials_dir)
        return LogstoreCopy(LogstoreWriter(address, sink.logstore, scratch=scratch))
    folder = _folder_of(sink)
    ledger = Ledger(folder, home=(config.project, config.logstore, config.consumer_group))
    ledger.prune(owner=consumer, now_unix_s=now_unix_s)
    return ParquetFolder(folder, ledger)


def _folder_of(sink: ParquetSink) -> Path:
    if "://" in sink.path:
        scheme = sink.path.split("://")[0]
        raise InvalidSinkError(
            f"the parquet sink writes to a folder of a mounted file system; {scheme}:// is not supported yet"
        )
    folder = Path(sink.path)
    if not folder.is_absolute():
        raise InvalidSinkError(f"the parquet sink needs an absolute path, not {sink.path!r}")
    return folder
