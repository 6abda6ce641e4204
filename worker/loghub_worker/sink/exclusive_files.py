"""Files that are created once, by one of several machines, with their whole content, and survive a power
loss.

The content is written and flushed under a name of its own and then linked to its final name, which succeeds
for one caller only. The result of the call is not trusted. On NFS a reply may be lost, and the repeated
request finds the link that the first one has made (link(2), BUGS); a request may be carried out after its
error was reported; and some clients report success for a name that exists. What counts is the file that is
there afterwards."""

import contextlib
import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import msgspec

T = TypeVar("T")


class DamagedRecordError(OSError):
    """A file is there, but has not the content that was written: only a person can tell what it was."""


@contextmanager
def unlinked_file(folder: Path, content: bytes) -> Iterator[Path]:
    """A file with this content, flushed to disk, for `link_exclusively`. It is removed afterwards."""
    part = folder / secrets.token_hex(16)  # several machines use the folder at the same time
    try:
        part.write_bytes(content)
        sync(part)
        yield part
    finally:
        # An error here must not replace the outcome; what is left over is removed when it is old.
        with contextlib.suppress(OSError):
            part.unlink()


def link_exclusively(part: Path, path: Path) -> bytes:
    """Give `part` the name `path` unless that exists. Return the content of `path`, which is that of `part`
    if and only if this call or an equal one was first. Raises `OSError` if that is not known."""
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


def create_exclusively(folder: Path, path: Path, content: bytes) -> bytes:
    """Create `path` with this content unless it exists. Return its content, as `link_exclusively` does."""
    with unlinked_file(folder, content) as part:
        return link_exclusively(part, path)


def sync(path: Path) -> None:
    """Flush a file, or the names in a folder, to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def read_json(path: Path, kind: type[T]) -> T | None:
    """The content of a file; None if it does not exist. Raises `DamagedRecordError`."""
    try:
        return decode_json(path, path.read_bytes(), kind)
    except FileNotFoundError:
        return None


def decode_json(path: Path, content: bytes, kind: type[T]) -> T:
    """The content of the file `path`, decoded. Raises `DamagedRecordError`."""
    try:
        return msgspec.json.decode(content, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise damaged(path, str(error)) from error


def damaged(path: Path, why: str) -> DamagedRecordError:
    """The error for a file with a content that was never written."""
    return DamagedRecordError(errno.EIO, f"the record is damaged ({why})", str(path))


def age_s(path: Path, now_unix_s: float) -> float:
    """Seconds since the file was last changed; 0 if it does not exist."""
    with contextlib.suppress(FileNotFoundError):
        return now_unix_s - path.stat().st_mtime
    return 0.0
