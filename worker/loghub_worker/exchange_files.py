"""The small files through which the processes of a worker exchange values.

The driver, Spark's reader process and Spark's data readers are three kinds of process that share no memory
(docs/spark.md 1). Whatever one of them knows and another needs is a file, which is replaced atomically:
`loghub_worker.membership.shared_membership` writes the positions, and `loghub_worker.source.datasource`
reads them and writes reports and counts.
"""

from pathlib import Path
from typing import TypeVar

import msgspec

from loghub.atomic_file import replace_file
from loghub_worker.batch_plan import GroupSize, RangeRetry

T = TypeVar("T")


class Positions(msgspec.Struct, frozen=True, kw_only=True):
    """What the source may read: for each shard the cursor to continue from. The driver writes it."""

    version: int
    shards: dict[int, int]
    group_sizes: dict[int, GroupSize] = {}  # by shard, where measured


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What the source's planner observed. Spark's reader process writes it."""

    version: int  # of the positions it plans by; every batch planned earlier has ended
    ends: dict[int, int]  # shard -> cursor after its last log group, as last requested
    reason: str = ""  # why some shard cannot be read, in CamelCase; empty if all can
    message: str = ""
    beyond_end: dict[int, int] = {}  # shard -> log groups by which its position lies beyond its end


class Retries(msgspec.Struct, frozen=True, kw_only=True):
    """How shards are read of which a batch failed. The driver writes it."""

    shards: dict[int, RangeRetry]


class ReadFailure(msgspec.Struct, frozen=True, kw_only=True):
    """Why nothing of a range could be read."""

    rejected: bool  # because of the content of its first log group; otherwise a later attempt may succeed
    reason: str  # in CamelCase
    message: str


class ReadCount(msgspec.Struct, frozen=True, kw_only=True):
    """What reading one range yielded. The process that read it writes the count; the last reading counts."""

    logs: int
    bytes: int
    replaced: int = 0  # text values with invalid UTF-8, which was replaced
    missing: int = 0  # log groups of the range that expired before they were read
    oldest: int = 0  # cursor of the oldest group that still exists, if that is past the range's end
    end: int = 0  # cursor at which the reading ended, if that is before the range's end
    failure: ReadFailure | None = None  # if nothing was read; the batch's other ranges count nevertheless


class ExchangeFiles:
    """The folder that contains the exchange files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._positions = folder / "positions.json"
        self._report = folder / "report.json"
        self._retries = folder / "retries.json"

    def write_positions(self, positions: Positions) -> None:
        replace_file(self._positions, msgspec.json.encode(positions))

    def positions(self) -> Positions:
        return _read(self._positions, Positions) or Positions(version=-1, shards={})

    def write_retries(self, retries: Retries) -> None:
        replace_file(self._retries, msgspec.json.encode(retries))

    def retries(self) -> Retries:
        return _read(self._retries, Retries) or Retries(shards={})

    def write_report(self, report: Report) -> None:
        replace_file(self._report, msgspec.json.encode(report))

    def report(self) -> Report:
        return _read(self._report, Report) or Report(version=-1, ends={})

    def _count_path(self, plan: int, shard: int) -> Path:
        return self.folder / "counts" / f"{plan}-{shard}.json"

    def write_count(self, count: ReadCount, *, plan: int, shard: int) -> None:
        path = self._count_path(plan, shard)
        path.parent.mkdir(exist_ok=True)
        replace_file(path, msgspec.json.encode(count))

    def take_count(self, *, plan: int, shard: int) -> ReadCount:
        """Return the count of one range and remove its file. The count is zero if nothing was read."""
        path = self._count_path(plan, shard)
        count = _read(path, ReadCount) or ReadCount(logs=0, bytes=0)
        path.unlink(missing_ok=True)
        return count


def _read(path: Path, kind: type[T]) -> T | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError:
        return None
