"""A lock that gives one process exclusive ownership of the data directory.

Two services that write to the same files would corrupt them, so the second one fails at startup.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from loghub.service.faults import ServiceFault
from loghub.service.ports import Disk

LOCK_NAME = "lock"


class DataDirInUse(ServiceFault):
    """Another process holds the lock; the message names the folder and that process."""


@contextmanager
def owned(disk: Disk, data: str) -> Iterator[None]:
    """Hold the lock for the duration of the block. Raises DataDirInUse.

    The kernel releases the lock when the process ends, even if it crashes.
    """
    disk.make_dirs(data)
    fd = os.open(os.path.join(data, LOCK_NAME), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _lock(fd, data)
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(fd)


@contextmanager
def unused(data: str) -> Iterator[None]:
    """Keep a service from using the folder for the duration of the block, without writing to the folder.

    Raises DataDirInUse.
    """
    try:
        fd = os.open(os.path.join(data, LOCK_NAME), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
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
