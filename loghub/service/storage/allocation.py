"""How much of the volume a segment takes.

Space is allocated ahead, so that a full disk is noticed before a write, and a torn write by the zeros in its
place. A segment begins small and grows, so that a shard with one log does not take 16 MiB; one that follows a
large one begins as large.
"""

import errno
import os

from loghub.service.ports import Disk

FIRST_BYTES = 256 << 10
_GROWTH = 4
# Space that log data leaves to the metadata: without it, no checkpoint could be saved and no log removed.
RESERVED_BYTES = 64 << 20


def grown(capacity: int, *, least: int, most: int) -> int | None:
    """The next size of a segment that needs ``least``; None if it has to end."""
    return max(min(_GROWTH * capacity, most), least) if least <= most else None


def new_size(*, first: int, used_before: int, least: int, most: int) -> int:
    """The size of a new segment that needs ``least``, after one of which so much was used."""
    size = min(first, most)
    while size < min(used_before, most):
        size = min(_GROWTH * size, most)
    return max(size, least)


def check_free(disk: Disk, folder: str, size: int) -> None:
    """Raises OSError if there is no room for so much more."""
    if disk.free_bytes(folder) < size + RESERVED_BYTES:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), folder)
