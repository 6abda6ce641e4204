"""Folders of started clusters, and their owners.

A run's folder is locked by the process that uses it for as long as the process lives (the kernel releases the
lock of a dead one), so that a later run can distinguish leftovers from a running neighbour.
"""

import fcntl
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from tests.cluster import paths
from tests.cluster.processes import Processes

LOCK = "lock"
BEGUN = "begun"
SHARED_GUARD_S = 300.0


@contextmanager
def locked(
    path: Path, *, guard_s: float, what: str, say: Callable[[str], None] = print, every_s: float = 20.0
) -> Iterator[None]:
    """Hold the lock of ``path``; says every ``every_s`` seconds what it waits for."""
    path.parent.mkdir(parents=True, exist_ok=True)
    started = said = time.monotonic()
    with path.open("a") as handle:
        while not try_lock(handle.fileno()):
            now = time.monotonic()
            if now - started > guard_s:
                raise TimeoutError(f"{path} is held by another process: {what}")
            if now - said > every_s:
                said = now
                say(f"waiting for another process: {what} ({now - started:.0f} s)")
            time.sleep(0.2)
        yield


def try_lock(handle: int) -> bool:
    """Whether the open file is locked now, for as long as it is open."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def shared_folder(prefix: str, run: str, begin: Callable[[Path], None]) -> Iterator[Path]:
    """One folder for all processes of a test run: the first one begins what is in it, the last one ends it.

    Each of them holds its lock too, shared, so that a run that was killed is a leftover like others.
    """
    clean_dead(prefix)
    folder = paths.run_folder() / f"{prefix}-{run}"
    with _user_of(folder, prefix):
        with _entering(prefix):
            if not (folder / BEGUN).exists():
                begin(folder)
                (folder / BEGUN).touch()
        yield folder


@contextmanager
def _user_of(folder: Path, prefix: str) -> Iterator[None]:
    with _entering(prefix):
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / LOCK).open("a")
        fcntl.flock(lock, fcntl.LOCK_SH)
    try:
        yield
    finally:
        with _entering(prefix), lock:
            if try_lock(lock.fileno()):
                Processes(folder).stop()
                shutil.rmtree(folder, ignore_errors=True)


def _entering(prefix: str) -> AbstractContextManager[None]:
    """One process at a time begins, joins or ends."""
    path = paths.run_folder() / f"{prefix}.entering"
    return locked(path, guard_s=SHARED_GUARD_S, what=f"it begins or ends what is shared ({prefix})")


@contextmanager
def own_folder(prefix: str) -> Iterator[Path]:
    """A new folder for this process alone, with its processes ended and removed afterwards.

    Folders of the same prefix whose owner has died are cleaned first.
    """
    base = paths.run_folder()
    base.mkdir(parents=True, exist_ok=True)
    clean_dead(prefix)
    folder = Path(tempfile.mkdtemp(prefix=f"{prefix}-", dir=base))
    with locked(folder / LOCK, guard_s=10, what="its own new folder"):
        try:
            yield folder
        finally:
            Processes(folder).stop()
            shutil.rmtree(folder, ignore_errors=True)


def clean_dead(prefix: str) -> list[Path]:
    """End and remove runs whose owner has died; returns which."""
    cleaned = []
    for folder in sorted(paths.run_folder().glob(f"{prefix}-*")):
        lock = folder / LOCK
        if not lock.exists():
            continue  # being made right now
        with lock.open("a") as handle:
            if try_lock(handle.fileno()):
                Processes(folder).stop()
                shutil.rmtree(folder, ignore_errors=True)
                cleaned.append(folder)
    return cleaned
