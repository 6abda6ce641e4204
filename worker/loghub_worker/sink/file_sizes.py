"""How large the files of a batch become. Pure.

Spark writes a file for each task, and for each partition that a task has rows of. Files that are smaller than
the target are joined, and a task begins another file once it has written as many rows as fit one. How many
that are is known from the batches before."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import TypeVar

F = TypeVar("F", bound=Hashable)

DEFAULT_TARGET_BYTES = 1 << 30


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

    def rows_of(self, target_bytes: int) -> int:
        """The most rows of a file of this size; 0: no limit is known."""
        return max(1, int(target_bytes / self.bytes)) if self.bytes else 0


def files_to_join(sizes: Mapping[F, int], target_bytes: int) -> list[list[F]]:
    """The files of one folder, in their order, divided into those that become one file: as many as have no
    more bytes than the target together, and at least one."""
    groups: list[list[F]] = []
    total = 0
    for file, size in sizes.items():
        if groups and total + size <= target_bytes:
            groups[-1].append(file)
            total += size
        else:
            groups.append([file])
            total = size
    return groups
