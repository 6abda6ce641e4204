"""File locks that end with the process, and a check whether a lock is held."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class InUseError(Exception):
    """Another process holds the lock; the message names the folder."""


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Holds the lock file; the lock ends with the process, however that ends. Raises `InUseError`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # In this order, so that the lock is free again before another process sees it as free.
    with _sign(path).open("ab") as sign, path.open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InUseError(f"{path.parent} is in use by another process") from None
        fcntl.flock(sign, fcntl.LOCK_EX)  # waits only for checks, which end at once
        yield


def is_locked(path: Path) -> bool:
    """Whether a process holds the lock now. Checks the sign file, so that a check never holds the lock."""
    try:
        with _sign(path).open("rb") as sign:
            fcntl.flock(sign, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def process_that_uses(data: Path) -> str:
    """The id of the service process that uses a data folder of the service; "" if none does.

    Only for who may start a service there next: the check itself holds the lock for a moment.
    """
    try:
        with (data / "lock").open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return file.read(32).decode(errors="replace").strip() or "unknown"
    except FileNotFoundError:
        pass
    return ""


def _sign(lock: Path) -> Path:
    return lock.with_name(f"{lock.name}.sign")
