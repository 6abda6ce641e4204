"""How much of the volume a segment takes.

Space is allocated ahead, so that a full disk is noticed before a write, and a torn write by the zeros in its
place. A segment begins small and grows, so that a shard with one log does not take 16 MiB; one that follows a
large one begins as large.
"""

import errno
import os
from dataclasses import dataclass

from loghub.service.ports import Disk

FIRST_BYTES = 256 << 10
_GROWTH = 4
# Space that log data leaves to the metadata: without it, no checkpoint could be saved and no log removed.
# What groups of Kafka clients hold comes on top (`reserved_for`).
RESERVED_BYTES = 64 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """How much of the volume the log of a shard takes for a segment, and what it leaves to the metadata."""

    segment_bytes: int
    first_bytes: int = FIRST_BYTES
    reserved_bytes: int = RESERVED_BYTES


def grown(capacity: int, *, least: int, most: int) -> int | None:
    """The next size of a segment that needs ``least``; None if it has to end."""
    return max(min(_GROWTH * capacity, most), least) if least <= most else None


def new_size(*, first: int, used_before: int, least: int, most: int) -> int:
    """The size of a new segment that needs ``least``, after one of which so much was used."""
    size = min(first, most)
    while size < min(used_before, most):
        size = min(_GROWTH * size, most)
    return max(size, least)


def check_free(disk: Disk, folder: str, size: int, *, reserved_bytes: int) -> None:
    """Raises OSError if there is no room for so much more."""
    if disk.free_bytes(folder) < size + reserved_bytes:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), folder)


def reserved_for(group_bytes: int) -> int:
    """What log data leaves to the metadata if groups of Kafka clients may hold ``group_bytes``. In the
    database and its write-ahead log, 82 MB of offsets with 4 KB of metadata took 93 MB."""
    return RESERVED_BYTES + group_bytes * 5 // 4
