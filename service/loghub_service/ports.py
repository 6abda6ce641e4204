"""Protocols for the external dependencies of the service, which are files, randomness and a steady wall
clock, and their production implementations.

They allow a seeded simulator to run the same service code with its own disk and random numbers. Time is
`loghub.clock`, and the network is ASGI.

A wall clock may be wrong for a while: after a reboot until it is synchronized, or because it was set by
mistake. A stamp or a deletion by a wrong time cannot be corrected later. The `SteadyClock` therefore compares
the wall clock with the monotonic one: it follows small differences at once, a jump only once it has lasted.
"""

import errno
import os
import random
import weakref
from dataclasses import dataclass
from typing import Protocol

from loghub.clock import Clock
from loghub_service.errors import WriteFailed
from loghub_service.facts import ExpiryReached


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """How full a file system is."""

    free_bytes: int  # for a process without privileges
    size_bytes: int


def usage_of(path: str) -> Usage:
    """The usage of the file system with this path; may block."""
    status = os.statvfs(path)
    return Usage(free_bytes=status.f_bavail * status.f_frsize, size_bytes=status.f_blocks * status.f_frsize)


class OsFile:
    """A file descriptor with positioned reads and writes, safe to use from several threads."""

    def __init__(self, fd: int, path: str) -> None:
        self._fd, self._path = fd, path
        # Another thread may still read a segment that retention dropped, so the file is closed
        # when its last reference goes away.
        self._closer = weakref.finalize(self, os.close, fd)

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def read_at(self, length: int, *, offset: int) -> bytes:
        parts = []
        while length > 0 and (part := os.pread(self._fd, length, offset)):
            parts.append(part)
            offset += len(part)
            length -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def write_at(self, data: bytes, *, offset: int) -> None:
        view = memoryview(data)
        while view:
            written = os.pwrite(self._fd, view, offset)
            offset += written
            view = view[written:]

    def allocate(self, size: int) -> None:
        try:
            os.posix_fallocate(self._fd, 0, size)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
                raise
            # Some network and overlay file systems cannot allocate; a sparse file is correct but slower.
            os.ftruncate(self._fd, size)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def sync_data(self) -> None:
        try:
            os.fdatasync(self._fd)
        except OSError as error:
            raise WriteFailed(f"{self._path}: {error}") from error

    def drop_cached(self) -> None:
        os.posix_fadvise(self._fd, 0, 0, os.POSIX_FADV_DONTNEED)

    def close(self) -> None:
        self._closer()


def _unless_missing(error: OSError) -> None:
    """`os.walk` would leave out a folder that cannot be listed."""
    if not isinstance(error, FileNotFoundError):
        raise error


class OsDisk:
    """The machine's file system."""

    def create(self, path: str) -> OsFile:
        return OsFile(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), path)

    def open(self, path: str) -> OsFile:
        return OsFile(os.open(path, os.O_RDWR | os.O_CLOEXEC), path)

    def rename(self, old: str, new: str) -> None:
        os.rename(old, new)

    def remove(self, path: str) -> None:
        os.unlink(path)

    def remove_dir(self, path: str) -> None:
        try:
            os.rmdir(path)
        except FileNotFoundError:
            return
        self.sync_dir(os.path.dirname(path))

    def list_names(self, path: str) -> list[str]:
        try:
            return sorted(os.listdir(path))
        except FileNotFoundError:
            return []

    def list_tree(self, path: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        files: list[str] = []
        folders: list[str] = []
        for folder, _, names in os.walk(path, topdown=False, onerror=_unless_missing):
            files += (f"{folder}/{name}" for name in sorted(names))
            folders.append(folder)
        return tuple(files), tuple(folders)

    def free_bytes(self, path: str) -> int:
        status = os.statvfs(path)
        return status.f_bavail * status.f_frsize

    def make_dirs(self, path: str) -> None:
        if os.path.isdir(path):
            return
        parent = os.path.dirname(path)
        self.make_dirs(parent)
        os.mkdir(path, 0o700)
        self.sync_dir(parent)

    def sync_dir(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        except OSError as error:
            raise WriteFailed(f"{path}: {error}") from error
        finally:
            os.close(fd)


class OsRandom:
    """Cryptographically strong numbers for ids and secrets; an ordinary generator to spread writes."""

    def __init__(self) -> None:
        self._spread = random.Random()  # noqa: S311 - spreads writes over shards, hides nothing

    def hex(self, length: int) -> str:
        return os.urandom((length + 1) // 2).hex()[:length].upper()

    def below(self, bound: int) -> int:
        return self._spread.randrange(bound)


TOLERANCE_S = 60.0  # a difference up to this is followed at once
# A deletion by a wrong time cannot be undone, so the clock for deletions believes a jump only after a day.
BELIEVED_S = 86_400.0


class SteadyClock:
    """Unix seconds that continue on the monotonic clock until a jump of the wall clock has lasted a while.

    A jump counts after ``settle_s``. The first time is ``begin_s``, or the time of the wall clock. Read it at
    least every few hours, so that the drift of the clocks stays below the tolerance.
    """

    def __init__(self, clock: Clock, *, settle_s: float, begin_s: float | None = None) -> None:
        self._clock = clock
        self._settle_s = settle_s
        self._offset_s = (clock.unix_s() if begin_s is None else begin_s) - clock.monotonic_s()
        self._jumped: tuple[float, float] | None = None  # the offset after a jump, and when it was noticed

    def unix_s(self) -> float:
        now_s = self._clock.monotonic_s()
        offset_s = self._clock.unix_s() - now_s
        if abs(offset_s - self._offset_s) <= TOLERANCE_S:
            self._offset_s, self._jumped = offset_s, None
        elif self._jumped is None or abs(offset_s - self._jumped[0]) > TOLERANCE_S:
            self._jumped = (offset_s, now_s)
        elif now_s - self._jumped[1] >= self._settle_s:
            self._offset_s, self._jumped = offset_s, None
        return now_s + self._offset_s


def goes_on_from(last: ExpiryReached | None, *, wall_s: float) -> float:
    """The time at which a run of the service begins, in unix seconds, if retention came to ``last`` before
    it: at most a day later, and not later than the wall clock. A wall clock that has gone back is believed a
    day after it was found to be behind, also if the service starts again meanwhile."""
    if last is None:
        return wall_s
    last_s = last.unix_us / 1_000_000
    if wall_s < last_s - TOLERANCE_S:
        is_believed = last.behind_us and wall_s - last.behind_us / 1_000_000 >= BELIEVED_S
        return wall_s if is_believed else last_s
    passed_s = min(max(wall_s - last.wall_us / 1_000_000, 0.0), BELIEVED_S)
    return min(last_s + passed_s, wall_s)


class File(Protocol):
    """One open file; offsets and sizes in bytes. All calls may block and raise OSError."""

    def size(self) -> int: ...

    def read_at(self, length: int, *, offset: int) -> bytes:
        """Up to ``length`` bytes; fewer only at the end of the file."""

    def write_at(self, data: bytes, *, offset: int) -> None:
        """Write all of ``data``, or raise."""

    def allocate(self, size: int) -> None:
        """Make the file ``size`` bytes long, with allocated blocks that read as zeros."""

    def truncate(self, size: int) -> None: ...

    def sync_data(self) -> None:
        """Return once the written data, and the file size needed to read it, are on stable storage.

        Raises WriteFailed, which is final (`loghub_service.errors`).
        """

    def drop_cached(self) -> None:
        """Let later reads come from stable storage: call it after `sync_data`. Pages that a failed sync has
        left in the cache, readable and never written, are gone then."""

    def close(self) -> None: ...


class Disk(Protocol):
    """A tree of folders and files; paths are absolute strings."""

    def create(self, path: str) -> File:
        """A new empty file, open for reading and writing. Raises FileExistsError if it exists."""

    def open(self, path: str) -> File: ...

    def rename(self, old: str, new: str) -> None: ...

    def remove(self, path: str) -> None: ...

    def remove_dir(self, path: str) -> None:
        """Remove an empty folder, durably before the call returns. A missing folder is no error."""

    def list_names(self, path: str) -> list[str]:
        """Names in a folder, sorted; [] if the folder does not exist."""

    def list_tree(self, path: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The paths of all files below a folder, and of the folder and those below it, innermost first.

        Nothing if the folder does not exist.
        """

    def free_bytes(self, path: str) -> int:
        """The space that is left on the file system of this folder."""

    def make_dirs(self, path: str) -> None:
        """Create the folder and its missing parents, durably before the call returns."""

    def sync_dir(self, path: str) -> None:
        """Make creations, renames and removals in this folder durable. Raises WriteFailed, which is final."""


class Random(Protocol):
    """Random request ids, secrets and salts of segments, and the shard of a balanced write."""

    def hex(self, length: int) -> str:
        """``length`` random hex digits, upper case."""

    def below(self, bound: int) -> int:
        """A random integer in [0, bound)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Platform:
    """The machine that a service runs on: its clock, its disk and its randomness."""

    clock: Clock
    disk: Disk
    random: Random
