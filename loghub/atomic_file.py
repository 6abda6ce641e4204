"""Files that are replaced atomically, so that another process can read them at any time.

`loghub.worker_contract` names such files.
"""

import contextlib
import os
import threading
from pathlib import Path


def replace_file(path: Path, content: bytes, *, private: bool = False) -> None:
    """Replace the content of `path` atomically: a reader sees the old or the new content, never a part.

    ``private``: only the current user may read the file. Raises `OSError` and leaves the old file in
    place.
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
