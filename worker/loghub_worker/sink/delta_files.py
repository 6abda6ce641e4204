"""The data files of a Delta table: where a batch is staged, and how its files come into the table.

A file that no commit has is invisible. It is removed by the one who placed it, once it is certain that no
commit ever has it. What a process leaves that ends in between is removed by VACUUM, which waits for days:
nobody else can know whether that process goes on.
"""

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

import structlog

from loghub_worker.sink.bucket import Bucket
from loghub_worker.sink.exclusive_files import age_s, link_exclusively, sync, unlinked_file

log = structlog.get_logger()

HIDDEN = ("_", ".")  # readers skip names that begin so
ABANDONED_S = 86_400.0  # no batch takes that long


class TableFiles(Protocol):
    """The data files in one place."""

    def any_file(self) -> str | None:
        """The name of one file or folder that readers see; None if there is none. Raises `OSError`."""

    def read(self, name: str) -> bytes | None:
        """The content of a file of the table; None if there is none. Raises `OSError`."""

    def stage(self, batch: str) -> Path:
        """Where the files of a batch are written first. Spark creates the folder."""

    def place(self, file: Path | None, name: str) -> None:
        """Give a staged file its name in the table, and make it durable; None if executors have done so
        already. Raises `OSError`."""

    def placed(self) -> None:
        """Make the names durable. Raises `OSError`."""

    def remove(self, name: str) -> None:
        """Remove a file that no commit has. What cannot be removed is left."""

    def discard(self, batch: str) -> None:
        """Remove what is staged of a batch, and has no name in the table."""


class FolderFiles:
    """In a folder. Files are staged below it, so that they need not be copied."""

    def __init__(self, folder: Path, stage: Path) -> None:
        self._folder = folder
        self._stage = stage

    def prepare(self, *, owner: str) -> None:
        """Remove what earlier processes have left staged: of this consumer (batches are named
        ``<consumer>-<token>``), and of any after a day by the clock of the storage: that of this machine may
        be wrong. One of them that goes on finds its files gone, and its batch fails. Raises `OSError` if the
        folder is not writable or does not support hard links, which commits are made with."""
        self._stage.mkdir(parents=True, exist_ok=True)
        trial = self._stage / f"{owner}-trial"
        with unlinked_file(self._stage, bytes(4096)) as part:
            link_exclusively(part, trial)
            now_unix_s = part.stat().st_mtime  # it was written just now
        trial.unlink()
        for path in self._stage.iterdir():
            if path.name.rpartition("-")[0] == owner or age_s(path, now_unix_s) > ABANDONED_S:
                if path.is_dir():
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    path.unlink(missing_ok=True)

    def any_file(self) -> str | None:
        names = (path.name for path in self._folder.iterdir())
        return next((name for name in names if not name.startswith(HIDDEN)), None)

    def read(self, name: str) -> bytes | None:
        try:
            return (self._folder / name).read_bytes()
        except FileNotFoundError:
            return None

    def stage(self, batch: str) -> Path:
        return self._stage / batch

    def place(self, file: Path | None, name: str) -> None:
        assert file is not None  # executors write to the stage, too
        sync(file)
        file.rename(self._folder / name)

    def placed(self) -> None:
        sync(self._folder)

    def remove(self, name: str) -> None:
        try:
            (self._folder / name).unlink(missing_ok=True)
        except OSError as error:
            log.warning("a file that is not part of the table is left", message=str(error))

    def discard(self, batch: str) -> None:
        shutil.rmtree(self.stage(batch), ignore_errors=True)


class BucketFiles:
    """Under a prefix of a bucket. Files are staged in a folder of this worker, which is empty when it
    starts; or executors write those of a batch into a folder of the table, where no commit has them yet."""

    def __init__(self, bucket: Bucket, stage: Path, *, has_executors: bool = False) -> None:
        self._bucket = bucket
        self._stage = stage
        self._has_executors = has_executors
        self._placed: set[str] = set()  # of the files that executors have written

    def any_file(self) -> str | None:
        return self._bucket.any_key(lambda key: not key.startswith(HIDDEN))

    def read(self, name: str) -> bytes | None:
        return self._bucket.read(name)

    def stage(self, batch: str) -> Path:
        return self._stage / batch

    def place(self, file: Path | None, name: str) -> None:
        if file is None:
            self._placed.add(name)
            return
        self._bucket.upload(name, file)
        file.unlink()

    def placed(self) -> None:
        """An object is durable once it is written."""

    def remove(self, name: str) -> None:
        self._placed.discard(name)
        self._remove([name])

    def _remove(self, names: Iterable[str]) -> None:
        try:
            self._bucket.remove(names)
        except OSError as error:
            log.warning("a file that is not part of the table is left", message=str(error))

    def discard(self, batch: str) -> None:
        shutil.rmtree(self.stage(batch), ignore_errors=True)
        if not self._has_executors:
            return
        folder = folder_of(batch)
        try:
            names = [f"{folder}/{name}" for name in self._bucket.times(folder)]
        except OSError as error:
            log.warning("files that are not part of the table may be left", message=str(error))
            return
        self._remove(name for name in names if name not in self._placed)
        self._placed = {name for name in self._placed if not name.startswith(f"{folder}/")}


def folder_of(batch: str) -> str:
    """The folder of the table into which executors write the files of a batch."""
    return f"batch-{token_of(batch)}"


def token_of(batch: str) -> str:
    """What names a batch in the table: with the consumer's name, a path in the log would need quoting."""
    return batch.rpartition("-")[2]
