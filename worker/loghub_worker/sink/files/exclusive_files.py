"""Files that one of several machines creates once, with their whole content, and that survive a power loss.

The content is written and flushed under another name and then linked to its final name, which succeeds for
one caller only. The result of the call is not trusted. On NFS a reply may be lost, and the repeated request
finds the link that the first request has made (link(2), BUGS); a request may be carried out after its error
was reported; and some clients report success for a name that exists. What counts is the file that is there
afterwards.
"""

import contextlib
import errno
import os
import secrets
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from loghub.atomic_file import errors_naming, sync_all


@contextmanager
def unlinked_file(folder: Path, content: bytes, *, sync_too: Collection[Path] = ()) -> Iterator[Path]:
    """A file with this content, flushed to disk together with other files and folders, for
    `link_exclusively`. It is removed afterwards."""
    part = folder / secrets.token_hex(16)  # several machines use the folder at the same time
    try:
        with errors_naming(part):
            part.write_bytes(content)
        sync_all([part, *sync_too])
        yield part
    finally:
        # An error here must not replace the outcome; what is left over is removed when it is old.
        with contextlib.suppress(OSError):
            part.unlink()


def link_exclusively(part: Path, path: Path) -> bytes:
    """Give `part` the name `path` unless that exists. Return the content of `path`, which is the content of
    `part` if and only if this call or an equal one was first. Raises `OSError` if that is not known."""
    failure: OSError | None = None
    try:
        os.link(part, path)
    except OSError as error:
        failure = error
    try:
        return path.read_bytes()
    except FileNotFoundError:
        reported = OSError(errno.EIO, "the link was reported as made but does not exist", str(path))
        raise (failure or reported) from None


def require_folder(folder: Path, what: str) -> None:
    """Raises `OSError` unless the folder is there; `what` is gone then. A sink creates its folders when a
    worker starts, and not while it runs: if a volume is not mounted for a while, files that are written in
    its place would be hidden once it is mounted again. Spark would create the folders."""
    try:
        os.close(os.open(folder, os.O_RDONLY | os.O_DIRECTORY))
    except FileNotFoundError as error:
        message = (
            f"{what} is gone; bring it back, or, if it was removed on purpose, restart the workers, which"
            " create it again"
        )
        raise FileNotFoundError(errno.ENOENT, message, str(folder)) from error


def age_s(path: Path, now_unix_s: float) -> float:
    """Seconds since the file was last changed; 0 if it does not exist."""
    with contextlib.suppress(FileNotFoundError):
        return now_unix_s - path.stat().st_mtime
    return 0.0
