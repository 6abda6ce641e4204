"""The small files through which a worker's processes talk.

What for: the driver, Spark's reader process and Spark's readers of data are three kinds of
process (docs/spark.md 1); what one knows and another needs is a file here, replaced atomically.
What it must not know: Spark, HTTP. Read next: `loghub_worker.membership.shared_state` writes positions,
`loghub_worker.source.datasource` reads them and writes reports and counts.
"""

from pathlib import Path
from typing import TypeVar

import msgspec

from loghub.atomic_file import replace_file

T = TypeVar("T")


class Positions(msgspec.Struct, frozen=True, kw_only=True):
    """What the source may read: shard -> cursor to go on from. Written by the driver."""

    version: int
    shards: dict[int, int]
    group_bytes: dict[int, float] = {}  # shard -> mean size of its log groups, where measured


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What the source's planner saw. Written by Spark's reader process."""

    version: int  # of the positions it plans by; every batch planned before has ended
    ends: dict[int, int]  # shard -> cursor after its last log group, as last asked
    reason: str = ""  # why the ends could not be asked, one CamelCase word
    message: str = ""


class Count(msgspec.Struct, frozen=True, kw_only=True):
    """What reading one range gave. Written by the process that read it; the last reading counts."""

    logs: int
    bytes: int
    replaced: int = 0  # texts that were not UTF-8 and had bytes replaced
    missing: int = 0  # log groups of the range that the service has no more (expired)
    oldest: int = 0  # cursor of the first group that it has, where that is behind the range's end


class Handover:
    """The folder of these files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._positions = folder / "positions.json"
        self._report = folder / "report.json"

    def write_positions(self, positions: Positions) -> None:
        replace_file(self._positions, msgspec.json.encode(positions))

    def positions(self) -> Positions:
        return _read(self._positions, Positions) or Positions(version=-1, shards={})

    def write_report(self, report: Report) -> None:
        replace_file(self._report, msgspec.json.encode(report))

    def report(self) -> Report:
        return _read(self._report, Report) or Report(version=-1, ends={})

    def _count_path(self, plan: int, shard: int) -> Path:
        return self.folder / "counts" / f"{plan}-{shard}.json"

    def write_count(self, count: Count, *, plan: int, shard: int) -> None:
        path = self._count_path(plan, shard)
        path.parent.mkdir(exist_ok=True)
        replace_file(path, msgspec.json.encode(count))

    def take_count(self, *, plan: int, shard: int) -> Count:
        """The count of one range; its file is removed. Zero where nothing was read."""
        path = self._count_path(plan, shard)
        count = _read(path, Count) or Count(logs=0, bytes=0)
        path.unlink(missing_ok=True)
        return count


def _read(path: Path, kind: type[T]) -> T | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError:
        return None
