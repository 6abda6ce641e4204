"""The paths of everything that `loghub up` stores, all in one root folder.

::

    <root>/service/            the embedded service: data/, address, kafka-address and
                               pulsar-address, options.json, log
    <root>/volumes/<claim>/    the content of a volume claim; never removed by `loghub`
    <root>/groups/<name>/      one LogHubConsumerGroup: object.json, lock, lock.sign, down,
                               credentials/
    <root>/groups/<name>/workers/<name>-0/   config.json, drain, status.json, last-words, log, state/
    <root>/made-by-demo        the folder is one of `make demo`, which the next demo empties

File locks that end with the process, and a check whether a lock is held.
"""

import fcntl
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
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


DEMO_MARK = "made-by-demo"


@contextmanager
def owner_only() -> Iterator[None]:
    """What is created meanwhile, by child processes too, is for this user alone: logs, tables, keys and
    variables with secrets, also in a root folder that others may read."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


@dataclass(frozen=True, slots=True)
class WorkerFolder:
    """The files of one worker process (loghub.contract.worker)."""

    folder: Path

    @property
    def config(self) -> Path:
        return self.folder / "config.json"

    @property
    def drain(self) -> Path:
        return self.folder / "drain"

    @property
    def status(self) -> Path:
        return self.folder / "status.json"

    @property
    def last_words(self) -> Path:
        return self.folder / "last-words"

    @property
    def log(self) -> Path:
        return self.folder / "log"

    @property
    def state(self) -> Path:
        return self.folder / "state"


@dataclass(frozen=True, slots=True)
class GroupFolder:
    """The files of one consumer group."""

    folder: Path

    @property
    def object(self) -> Path:
        return self.folder / "object.json"

    @property
    def lock(self) -> Path:
        return self.folder / "lock"

    @property
    def down(self) -> Path:
        """A file whose existence makes the process that runs the group take it down."""
        return self.folder / "down"

    @property
    def credentials(self) -> Path:
        return self.folder / "credentials"

    @property
    def checkpoints(self) -> Path:
        """The backups of checkpoint resets, for undo."""
        return self.folder / "checkpoints"

    @property
    def workers(self) -> Path:
        return self.folder / "workers"

    def worker(self, name: str) -> WorkerFolder:
        return WorkerFolder(self.workers / name)

    def remove_states(self) -> None:
        """Of all workers, as a cluster removes their volumes with the object."""
        for path in self.workers.glob("*"):
            shutil.rmtree(self.worker(path.name).state, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class Root:
    """The root folder of `loghub up`, for a user or for a demo."""

    folder: Path

    @classmethod
    def default(cls, environment: Mapping[str, str]) -> "Root":
        """``$XDG_STATE_HOME/loghub``, usually ``~/.local/state/loghub``."""
        state = environment.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
        return cls(Path(state).absolute() / "loghub")

    def use(self) -> None:
        """Makes the folder the user's: for all but the demo itself, which would remove it as its own."""
        for folder in (self.folder, self.groups, self.volumes):
            folder.mkdir(parents=True, exist_ok=True)
        self.groups.chmod(0o700)  # an earlier release left it open
        (self.folder / DEMO_MARK).unlink(missing_ok=True)

    @property
    def service(self) -> Path:
        return self.folder / "service"

    @property
    def volumes(self) -> Path:
        return self.folder / "volumes"

    @property
    def groups(self) -> Path:
        return self.folder / "groups"

    def group_names(self) -> list[str]:
        """Of all groups that have a folder."""
        return sorted(path.name for path in self.groups.glob("*"))

    def group(self, name: str) -> GroupFolder:
        return GroupFolder(self.groups / name)
