"""Files that are replaced atomically, so that another process can read them at any time.

`loghub.contract.worker` names such files.
"""

import contextlib
import os
import threading
from pathlib import Path


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
        _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
