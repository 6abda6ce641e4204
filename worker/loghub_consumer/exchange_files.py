"""The small files through which the processes of a worker exchange values.

The driver and Spark's planning process, which run on one machine, share no memory (docs/spark.md 1). Each
value that one of them has and the other needs is a file, which is replaced atomically:
`loghub_consumer.membership.shared_membership` writes the positions, and `loghub_worker.source` reads them and
writes reports. The processes that read may run elsewhere; their counts reach the driver through Spark
(`loghub_worker.source`).
"""

from pathlib import Path
from typing import TypeVar

import msgspec

from loghub.atomic_file import replace_file
from loghub_consumer.batch_plan import GroupSize, RangeRetry

T = TypeVar("T")


class Positions(msgspec.Struct, frozen=True, kw_only=True):
    """The positions that the source may read: for each shard the cursor to continue from. The driver writes
    it."""

    version: int
    shards: dict[int, int]
    group_sizes: dict[int, GroupSize] = {}  # by shard, where measured
    opening: list[int] = []  # held shards whose cursors are not known yet


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The observations of the source's planner. Spark's reader process writes it."""

    # The version of the positions by which it plans; every batch that was planned by an earlier version has
    # ended.
    version: int
    ends: dict[int, int]  # shard -> cursor after its last log group, as last requested
    reason: str = ""  # why some shard cannot be read, in CamelCase; empty if all can
    message: str = ""
    beyond_end: dict[int, int] = {}  # shard -> log groups by which its position lies beyond its end


class ShardRetries(msgspec.Struct, frozen=True, kw_only=True):
    """How shards are read after a batch with them failed. The driver writes it."""

    shards: dict[int, RangeRetry]


class FileShare(msgspec.Struct, frozen=True, kw_only=True):
    """The size of the files of a sink that rolls them. The driver writes it."""

    bytes: float = 1.0  # bytes of files for each byte of log groups; also before the first batch


class ExchangeFiles:
    """The folder that contains the exchange files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._positions = folder / "positions.json"
        self._report = folder / "report.json"
        self._retries = folder / "retries.json"
        self._file_share = folder / "file-share.json"

    def write_positions(self, positions: Positions) -> None:
        replace_file(self._positions, msgspec.json.encode(positions))

    def positions(self) -> Positions:
        return _read(self._positions, Positions) or Positions(version=-1, shards={})

    def write_retries(self, retries: ShardRetries) -> None:
        replace_file(self._retries, msgspec.json.encode(retries))

    def retries(self) -> ShardRetries:
        return _read(self._retries, ShardRetries) or ShardRetries(shards={})

    def write_file_share(self, share: FileShare) -> None:
        replace_file(self._file_share, msgspec.json.encode(share))

    def file_share(self) -> FileShare:
        return _read(self._file_share, FileShare) or FileShare()

    def write_report(self, report: Report) -> None:
        replace_file(self._report, msgspec.json.encode(report))

    def report(self) -> Report:
        return _read(self._report, Report) or Report(version=-1, ends={})


def _read(path: Path, kind: type[T]) -> T | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError:
        return None
