"""The production implementations of `loghub.service.ports`: the file system and random numbers."""

import errno
import os
import random
import secrets
import weakref
from dataclasses import dataclass

from loghub.service.faults import WriteFailed


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


class OsDice:
    """Cryptographically strong numbers for ids and secrets; an ordinary generator to spread writes."""

    def __init__(self) -> None:
        self._spread = random.Random()  # noqa: S311 - spreads writes over shards, hides nothing

    def hex(self, length: int) -> str:
        return secrets.token_hex((length + 1) // 2)[:length].upper()

    def below(self, bound: int) -> int:
        return self._spread.randrange(bound)
