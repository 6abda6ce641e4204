"""One process owns the data directory.

What for: a second service on the same files would destroy them; it gets a clear refusal.
What it must not know: what lies in the folder. Read next: `__main__`.
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
    """Hold the folder for the length of the block. Raises DataDirInUse.

    The kernel drops the lock when the process ends, however it ends.
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


def _lock(fd: int, data: str) -> None:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = os.pread(fd, 32, 0).decode(errors="replace").strip() or "unknown"
        raise DataDirInUse(f"data directory {data} is in use by process {holder}") from error
