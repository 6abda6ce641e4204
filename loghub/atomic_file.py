"""Files that another process can read at any time, since they are replaced atomically, and flushes to disk,
so that what was written survives a loss of power.

`loghub.contract.worker` names the files that are replaced.
"""

import contextlib
import os
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path

# A disk, or an NFS server, takes little longer for several flushes at the same time than for one.
_flushers = ThreadPoolExecutor(8, thread_name_prefix="flush")  # starts threads when needed


def replace_file(path: Path, content: bytes, *, private: bool = False, durable: bool = False) -> None:
    """Replace the content of `path` atomically: a reader sees the old or the new content, never a part.

    ``private``: only the current user may read the file. ``durable``: the new content survives a crash of
    the machine. Raises `OSError` and leaves the old file in place, except for an error of the last step of
    ``durable``.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(part, flags, 0o600 if private else 0o666), "wb") as file:
            file.write(content)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        part.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            part.unlink()
        raise
    if durable:
        sync(path.parent)


def sync(path: Path) -> None:
    """Flush a file, or the names in a folder, to disk."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with errors_naming(path):
            os.fsync(handle)
    finally:
        os.close(handle)


def sync_all(paths: Iterable[Path]) -> None:
    """Flush files and names in folders to disk, at the same time and in no order."""
    flushes = [_flushers.submit(sync, path) for path in paths]
    wait(flushes)
    for flush in flushes:
        flush.result()


@contextmanager
def errors_naming(path: Path) -> Iterator[None]:
    """Add the file's name to an error, because Python does not say for which file a full disk has no room."""
    try:
        yield
    except OSError as error:
        if error.filename is not None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error
