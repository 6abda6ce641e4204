"""The storage of a commit log: the steps that it needs (`LogStorage`), and the storage in a folder of a POSIX
file system, local or NFS. `loghub_worker.sink.files.bucket` has the storage in a bucket.

Under ``<folder>/_loghub/<project>/<logstore>/<group>/`` are the records in their folders, ``stage/<batch>/``
with the files of a batch, and ``parts/`` with files that are about to get the name of a record by hard link.
An opening is written in place, never replaced: NFS shows a file's new content to everyone who opens it
afterwards, but not always at once a new file under an old name (nfs(5), close-to-open cache consistency).
"""

import contextlib
import errno
import os
import secrets
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec
from py4j.protocol import Py4JNetworkError

from loghub.atomic_file import sync, sync_all
from loghub_worker.sink.batch_sink import RowsRejectedError
from loghub_worker.sink.files.exclusive_files import (
    age_s,
    link_exclusively,
    require_folder,
    unlinked_file,
)
from loghub_worker.sink.files.formats import obstacle
from loghub_worker.spark_errors import SPARK_ERRORS, java_causes

# A disk that was too full for a large file has room again for a small one, once the first is removed.
TRIAL_BYTES = 1 << 20


@contextmanager
def writing_to(folder: Path | None, partition_by: Sequence[str] = ()) -> Iterator[None]:
    """Let Spark write below a folder of the target; None if it writes elsewhere. Spark's errors do not say
    whether the target, the query or a disk of Spark's own is at fault. So the folder gets a trial file after
    an error, and if that fails, its `OSError` is raised instead. A value of a partition column that no folder
    can have is a `RowsRejectedError`."""
    try:
        yield
    except Py4JNetworkError:  # the JVM has exited
        raise
    except SPARK_ERRORS as error:
        if folder is not None:
            with unlinked_file(folder, bytes(TRIAL_BYTES)):
                pass
        obstacles = (obstacle(text, partition_by) for _, text in java_causes(error))
        if (said := next(filter(None, obstacles), None)) is not None:
            raise RowsRejectedError(f"the rows have {said}") from None
        raise


T = TypeVar("T")
FOLDER = "_loghub"  # readers of a folder of Parquet or JSON skip names that begin with an underscore


class DamagedRecordError(OSError):
    """A record has another content than the one that was written: only a person can tell what it was."""


class CreateRecords(Protocol):
    """What `LogStorage.creating` yields."""

    def __call__(self, names: Sequence[str]) -> Iterable[bytes]:
        """Create the record of each name unless it exists, and return the content of the record that is there
        afterwards, in the same order. So that content is the creator's if and only if this call or an equal
        one was first, whatever the storage reported. Records may be created all at once, or one by one while
        the contents are read."""


class LogStorage(Protocol):
    """The steps of a commit log, for one group in one sink. Several machines take them at the same time; each
    finds at once what another has done. A record has a name such as ``batches/b.json``. All methods raise
    `OSError`. After an error a step may have been taken, or may still be."""

    def try_out(self) -> None:
        """Raises if the steps cannot be taken here."""

    # -- records

    def describe(self, name: str) -> str:
        """Where a record is, for people."""

    def read(self, names: Collection[str]) -> Mapping[str, bytes]:
        """The contents of the records among these that exist."""

    def now_unix_s(self) -> float:
        """The time on the storage's own clock, by which it dates what is written. The clock of this machine
        may be wrong."""

    def creating(
        self, content: bytes, *, files_of: str | None = None, names_in: str | None = None
    ) -> AbstractContextManager["CreateRecords"]:
        """A function that creates records with this content. Before the first record exists, the content is
        durable, and so are the staged files of the batch `files_of`, which any machine can then place, and
        the names of the records in the folder `names_in`."""

    def flush(self, folder: str) -> None:
        """Make the names of the records in a folder durable."""

    def existing(self, names: Collection[str]) -> frozenset[str]:
        """The records among these that exist."""

    def names(self, folder: str) -> list[str]:
        """The names in a folder, without the folder."""

    def ages_s(self, folder: str, now_unix_s: float) -> Mapping[str, float]:
        """The names in a folder, and for how many seconds each has been there."""

    def remove(self, names: Collection[str]) -> None:
        """Remove the records among these that exist, in any order."""

    # -- openings

    def open(self, name: str) -> str:
        """Become the last opener of this name. Return a unique token of this opening."""

    def last_openings(self, names: Iterable[str]) -> Mapping[str, str]:
        """The token of the last opening of each of these names that was ever opened."""

    # -- the files of batches

    def stage(self, batch: str) -> Path:
        """The local folder into which the files of a batch are written."""

    def staged_files(self, batch: str) -> list[str]:
        """The names of the staged files of a batch, with their folders."""

    def obstacle(self, batch: str, name: str, target: str) -> str | None:
        """Why a staged file can never be placed as `target`; None if it can."""

    def staged(self) -> frozenset[str]:
        """The batches that have staged files."""

    def place(self, batch: str, targets: Mapping[str, str]) -> Iterable[bool]:
        """Give staged files their names in the sink, all at once or one by one as the results are read.
        Several machines may do this at the same time. False: that file is neither staged nor there."""

    def flush_files(self, folders: Collection[str]) -> None:
        """Make the names of placed files durable, in these folders of the sink (``.`` is the sink itself)."""

    def discard(self, batch: str) -> None:
        """Remove the staged files of a batch. Raises nothing: `prune` finds the rest."""

    def staged_ages_s(self, now_unix_s: float) -> Mapping[str, float]:
        """The batches that have staged files, and for how many seconds."""

    def remove_parts(self, *, older_than_s: float, now_unix_s: float) -> None:
        """Remove parts that are older than this, which have no name yet."""


def create(storage: LogStorage, name: str, content: bytes) -> bytes:
    """Create one record, as `LogStorage.creating` does."""
    with storage.creating(content) as create_as:
        return next(iter(create_as([name])))


def read_json(storage: LogStorage, name: str, kind: type[T]) -> T | None:
    """The content of a record; None if it does not exist. Raises `DamagedRecordError`."""
    content = storage.read([name]).get(name)
    return None if content is None else decode_json(storage, name, content, kind)


def decode_json(storage: LogStorage, name: str, content: bytes, kind: type[T]) -> T:
    """The content of a record, decoded. Raises `DamagedRecordError`."""
    try:
        return msgspec.json.decode(content, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise damaged(storage, name, str(error)) from error


def damaged(storage: LogStorage, name: str, why: str) -> DamagedRecordError:
    """The error for a record with a content that was never written."""
    return DamagedRecordError(errno.EIO, f"the record is damaged ({why})", storage.describe(name))


def data_files(stage: Path) -> list[Path]:
    """The files in a folder and below it that a reader of the folder reads: neither Spark's own files, nor
    empty ones."""
    files: list[Path] = []
    for path in stage.glob("*"):
        if path.is_dir():
            # The folder of a partition, whatever its column's name begins with.
            files += data_files(path) if "=" in path.name else []
        elif not path.name.startswith((".", "_")) and path.stat().st_size:
            files.append(path)
    return sorted(files)


PLACE_ATTEMPTS = 5  # to move a file into the folder of a partition, which others may remove while it is empty
RECORDS = "the folder of the sink, or its folder _loghub,"
_TOKEN_BYTES = 16  # the length of all tokens, so that one write replaces another


class EarlierLayoutError(Exception):
    """The folder has claims of an earlier release, which this one does not read."""


class FolderStorage:
    """`LogStorage` in a folder, which must support hard links."""

    def __init__(self, folder: Path, *, group_path: tuple[str, ...]) -> None:
        """`group_path` is project, logstore, group. Raises `EarlierLayoutError` and `OSError`."""
        self._folder = folder
        self._home = folder.joinpath(FOLDER, *group_path)
        self._stage = self._home / "stage"
        self._parts = self._home / "parts"
        self._openings = self._home / "openings"
        for path in (
            self._stage,
            self._parts,
            self._openings,
            self._home / "batches",
            self._home / "range-claims",
        ):
            path.mkdir(parents=True, exist_ok=True)
        earlier = self._home / "claims"
        if earlier.is_dir() and any(earlier.iterdir()):
            raise EarlierLayoutError(
                f"{earlier} has range claims of an earlier release, which this one does not read: run the"
                " workers of that release once more and suspend the group, which saves the checkpoints and"
                " removes the claims"
            )

    def try_out(self) -> None:
        """Raises `OSError` if the folder is not writable, or does not support hard links."""
        trial = f"batches/trial-{secrets.token_hex(8)}"  # never read: decisions end in .json
        create(self, trial, bytes(4096))
        (self._home / trial).unlink()

    def describe(self, name: str) -> str:
        return str(self._home / name)

    def read(self, names: Collection[str]) -> Mapping[str, bytes]:
        contents: dict[str, bytes] = {}
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                contents[name] = (self._home / name).read_bytes()
        return contents

    def now_unix_s(self) -> float:
        with unlinked_file(self._parts, b"now") as part:
            return part.stat().st_mtime

    @contextmanager
    def creating(
        self, content: bytes, *, files_of: str | None = None, names_in: str | None = None
    ) -> Iterator[CreateRecords]:
        """All records that are created with one content are links to one file, so that they cost one flush
        together."""
        sync_too = [] if files_of is None else self._all_staged(files_of)
        if names_in is not None:
            sync_too.append(self._home / names_in)
        with unlinked_file(self._parts, content, sync_too=sync_too) as part:
            yield lambda names: (link_exclusively(part, self._home / name) for name in names)

    def _all_staged(self, batch: str) -> list[Path]:
        """The files of a batch, and all folders in which they are named: all that must be flushed so that the
        batch is staged after a power loss."""
        stage = self.stage(batch)
        if not stage.exists():
            return []
        files = data_files(stage)
        return [*files, *{folder for file in files for folder in _folders_up_to(self._stage, file)}]

    def flush(self, folder: str) -> None:
        sync(self._home / folder)

    def existing(self, names: Collection[str]) -> frozenset[str]:
        return frozenset(name for name in names if (self._home / name).exists())

    def names(self, folder: str) -> list[str]:
        with os.scandir(self._home / folder) as entries:
            return [entry.name for entry in entries]

    def ages_s(self, folder: str, now_unix_s: float) -> Mapping[str, float]:
        return {path.name: age_s(path, now_unix_s) for path in (self._home / folder).iterdir()}

    def remove(self, names: Collection[str]) -> None:
        for name in names:
            (self._home / name).unlink(missing_ok=True)

    def open(self, name: str) -> str:
        token = secrets.token_hex(_TOKEN_BYTES)
        require_folder(self._openings, RECORDS)
        handle = os.open(self._openings / name, os.O_WRONLY | os.O_CREAT, 0o666)
        try:
            os.pwrite(handle, token.encode(), 0)
            os.ftruncate(handle, len(token))  # it may be a foreign or damaged file
        finally:
            os.close(handle)
        return token

    def last_openings(self, names: Iterable[str]) -> Mapping[str, str]:
        contents = self.read([f"openings/{name}" for name in names])
        return {path.partition("/")[2]: token.decode("latin-1") for path, token in contents.items()}

    def stage(self, batch: str) -> Path:
        return self._stage / batch

    def staged_files(self, batch: str) -> list[str]:
        stage = self.stage(batch)
        return [str(path.relative_to(stage)) for path in data_files(stage)]

    def obstacle(self, batch: str, name: str, target: str) -> str | None:  # noqa: ARG002 - Spark has written it
        return None

    def staged(self) -> frozenset[str]:
        return frozenset(self.names("stage"))

    def place(self, batch: str, targets: Mapping[str, str]) -> Iterable[bool]:
        stage = self.stage(batch)
        return (self._place(stage / name, self._folder / target) for name, target in targets.items())

    def _place(self, staged: Path, path: Path) -> bool:
        for _ in range(PLACE_ATTEMPTS):
            try:
                staged.rename(path)
            except FileNotFoundError:
                if not staged.exists():
                    require_folder(self._stage, RECORDS)  # it may be away, with the file in it
                    return path.exists()
                path.parent.mkdir(parents=True, exist_ok=True)  # of a partition
            else:
                return True
        raise FileNotFoundError(errno.ENOENT, "the folder of a partition is removed all the time", str(path))

    def flush_files(self, folders: Collection[str]) -> None:
        files = [self._folder / folder / "any" for folder in folders]
        paths = {folder for file in files for folder in _folders_up_to(self._folder, file)}
        # A partition that was removed needs no name.
        sync_all([path for path in paths if path.exists()])

    def discard(self, batch: str) -> None:
        shutil.rmtree(self.stage(batch), ignore_errors=True)

    def staged_ages_s(self, now_unix_s: float) -> Mapping[str, float]:
        return self.ages_s("stage", now_unix_s)

    def remove_parts(self, *, older_than_s: float, now_unix_s: float) -> None:
        for part in self._parts.iterdir():
            if age_s(part, now_unix_s) > older_than_s:
                part.unlink(missing_ok=True)


def _folders_up_to(top: Path, path: Path) -> list[Path]:
    """The folder of `path`, and the folders above it up to and including `top`."""
    parents = list(path.parents)
    return parents[: parents.index(top) + 1]
