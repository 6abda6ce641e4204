"""Files that are replaced whole.

What for: what one process writes and another reads meanwhile. What it must not know: what is in
the files. Read next: `loghub.worker_contract` (which files those are).
"""

import contextlib
import os
import threading
from pathlib import Path


def replace_file(path: Path, content: bytes, *, private: bool = False) -> None:
    """Put `content` in the place of `path` at once: a reader sees the old or the new, never a part.

    ``private``: only this user may read it. Raises `OSError`, leaving what was there.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(part, flags, 0o600 if private else 0o666), "wb") as file:
            file.write(content)
        part.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            part.unlink()
        raise
