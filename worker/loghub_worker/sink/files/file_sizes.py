"""How large the files of a batch become. Pure.

Spark writes a file for each task, and for each partition that a task has rows of. A task begins another file
once it has written as many rows as are in a part of a file; that number is estimated from earlier batches.
Neighbouring files are then joined to files of about the target size, so that a batch that is a little larger
than the target leaves no small rest.
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import TypeVar

F = TypeVar("F", bound=Hashable)

DEFAULT_TARGET_BYTES = 1 << 30  # 1 GiB, the size that Delta's OPTIMIZE also aims at
PARTS = 4  # of a file of the target size: joined files differ from it by a quarter at most


@dataclass(frozen=True, slots=True)
class RowSize:
    """The mean bytes that a row takes in a file. It rises at once and falls by half of the difference, so
    that files become too small rather than too large."""

    bytes: float = 0.0  # 0: no row was written yet

    def after(self, *, file_bytes: int, rows: int) -> "RowSize":
        """The mean after a batch."""
        if not rows:
            return self
        mean = file_bytes / rows
        return RowSize(max(mean, (self.bytes + mean) / 2))

    def rows_of_a_part(self, target_bytes: int) -> int:
        """The most rows that Spark writes to a file for this target size; 0: no limit is known."""
        return max(1, int(target_bytes / PARTS / self.bytes)) if self.bytes else 0


def files_to_join(sizes: Mapping[F, int], target_bytes: int) -> list[list[F]]:
    """The files of one folder, in their order, divided into groups that become one file each. There are as
    many groups as come nearest to the target, of about the same size; no group is empty."""
    total = sum(sizes.values())
    share = total / max(1, round(total / target_bytes))
    groups: dict[int, list[F]] = {}
    before = 0
    for file, size in sizes.items():
        groups.setdefault(int((before + size / 2) / share) if share else 0, []).append(file)
        before += size
    return list(groups.values())
