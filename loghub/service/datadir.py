"""A lock that gives one process exclusive ownership of the data directory, for as long as it has its name.

Two services that write to the same files would corrupt them, so the second one fails at startup. The lock
moves with the directory: once it has another name, a second service may use a new directory of the old one.
So `OwnedDisk` changes nothing by a name that is not that of the locked directory any more.
"""

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from loghub.service.faults import ServiceFault
from loghub.service.ports import Disk, File

LOCK_NAME = "lock"


class DataDirInUse(ServiceFault):
    """Another process holds the lock; the message names the folder and that process."""


class OwnedDisk:
    """The disk of the process that holds the lock of ``data``.

    What creates, renames or removes something raises OSError if the directory was moved or removed meanwhile;
    ``directory`` is its open descriptor.
    """

    def __init__(self, disk: Disk, data: str, directory: int) -> None:
        self._disk, self._data, self._directory = disk, data, directory
        self.open = disk.open
        self.list_names = disk.list_names
        self.list_tree = disk.list_tree
        self.free_bytes = disk.free_bytes
        self.sync_dir = disk.sync_dir

    def check(self) -> None:
        """Raises OSError if the path is not that of the locked directory any more."""
        try:
            if os.path.samestat(os.stat(self._data), os.fstat(self._directory)):
                return
        except (FileNotFoundError, NotADirectoryError):
            pass
        except OSError:
            return  # says nothing about the directory
        raise OSError(
            errno.ESTALE,
            "the data directory was moved, removed or replaced while it was in use; what was acknowledged is "
            "where it was moved to",
            self._data,
        )

    def create(self, path: str) -> File:
        self.check()
        return self._disk.create(path)

    def rename(self, old: str, new: str) -> None:
        self.check()
        self._disk.rename(old, new)

    def remove(self, path: str) -> None:
        self.check()
        self._disk.remove(path)

    def remove_dir(self, path: str) -> None:
        self.check()
        self._disk.remove_dir(path)

    def make_dirs(self, path: str) -> None:
        self.check()
        self._disk.make_dirs(path)


@contextmanager
def owned(disk: Disk, data: str) -> Iterator[OwnedDisk]:
    """Hold the lock for the duration of the block. Raises DataDirInUse.

    The kernel releases the lock when the process ends, even if it crashes.
    """
    disk.make_dirs(data)
    fd = os.open(os.path.join(data, LOCK_NAME), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _lock(fd, data)
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        directory = os.open(data, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            yield OwnedDisk(disk, data, directory)
        finally:
            os.close(directory)
    finally:
        os.close(fd)


@contextmanager
def unused(data: str) -> Iterator[None]:
    """Keep a service from using the folder for the duration of the block, without writing to the folder.

    Raises DataDirInUse.
    """
    try:
        fd = os.open(os.path.join(data, LOCK_NAME), os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        yield  # no service was ever started on it
        return
    try:
        _lock(fd, data)
        yield
    finally:
        os.close(fd)


def _lock(fd: int, data: str) -> None:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = os.pread(fd, 32, 0).decode(errors="replace").strip() or "unknown"
        raise DataDirInUse(f"data directory {data} is in use by process {holder}") from error
