"""What the commit log needs of the place that it keeps its records and the files of batches in.

`folder_storage` has it for a POSIX folder, `bucket_storage` for object storage. The commit log, its claims
and its openings are the same on both.
"""

import errno
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec

T = TypeVar("T")
FOLDER = "_loghub"  # readers of a folder of Parquet or JSON skip names that begin with an underscore


class DamagedRecordError(OSError):
    """A record is there, but has not the content that was written: only a person can tell what it was."""


class CreateRecords(Protocol):
    """What `LogStorage.creating` yields."""

    def __call__(self, names: Sequence[str]) -> Iterable[bytes]:
        """Create the record of each name unless it exists, and return the content of the record that is there
        afterwards, in the same order. So that content is the creator's if and only if this call or an equal
        one was first, whatever the storage reported. Records may be created all at once, or one by one as
        the contents are read."""


class LogStorage(Protocol):
    """The steps of a commit log, for one group in one sink. Several machines take them at the same time; what
    one has done, all others find at once. A record has a name such as ``batches/b.json``. All methods raise
    `OSError`. After an error a step may have been taken, or may still be."""

    def try_out(self) -> None:
        """Raises if the steps cannot be taken here."""

    # -- records

    def describe(self, name: str) -> str:
        """Where a record is, for people."""

    def read(self, names: Collection[str]) -> Mapping[str, bytes]:
        """The contents of those of the records that exist."""

    def now_unix_s(self) -> float:
        """The time on the storage's own clock, by which it dates what is written. The clock of this machine
        may be wrong."""

    def creating(
        self, content: bytes, *, files_of: str | None = None, names_in: str | None = None
    ) -> AbstractContextManager["CreateRecords"]:
        """A function that creates records with this content. Before the first of them exists, the content is
        durable, and so are the staged files of the batch `files_of`, which any machine can then place, and
        the names of the records in the folder `names_in`."""

    def flush(self, folder: str) -> None:
        """Make the names of the records in a folder durable."""

    def existing(self, names: Collection[str]) -> frozenset[str]:
        """Those of the records that exist."""

    def names(self, folder: str) -> list[str]:
        """The names in a folder, without the folder."""

    def ages_s(self, folder: str, now_unix_s: float) -> Mapping[str, float]:
        """The names in a folder, and for how many seconds each has been there."""

    def remove(self, names: Collection[str]) -> None:
        """Remove those of the records that exist, in any order."""

    # -- openings

    def open(self, name: str) -> str:
        """Become the last one that has opened what has this name. Return a token of this opening, which is
        like no other."""

    def last_openings(self, names: Iterable[str]) -> Mapping[str, str]:
        """The token of the last opening of each name that was ever opened."""

    # -- the files of batches

    def stage(self, batch: str) -> Path:
        """The local folder into which the files of a batch are written."""

    def staged_files(self, batch: str) -> list[str]:
        """The names of the files that are staged of a batch, with their folders."""

    def obstacle(self, batch: str, name: str, target: str) -> str | None:
        """Why a staged file can never be placed as `target`; None if it can."""

    def staged(self) -> frozenset[str]:
        """The batches of which something is staged."""

    def place(self, batch: str, targets: Mapping[str, str]) -> Iterable[bool]:
        """Give staged files their names in the sink, all at once or one by one as the results are read.
        Several machines may do this at the same time. False: that file is neither staged nor there."""

    def flush_files(self, folders: Collection[str]) -> None:
        """Make the names of placed files durable, in these folders of the sink (``.`` is the sink itself)."""

    def discard(self, batch: str) -> None:
        """Remove what is staged of a batch. Raises nothing: `prune` finds what is left over."""

    def staged_ages_s(self, now_unix_s: float) -> Mapping[str, float]:
        """The batches of which something is staged, and for how many seconds."""

    def remove_parts(self, *, older_than_s: float, now_unix_s: float) -> None:
        """Remove what was begun so long ago and has no name yet."""


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
    """The files in a folder and in those below it that a reader of the folder reads: neither Spark's own
    files, nor empty ones."""
    found: list[Path] = []
    for path in stage.glob("*"):
        if path.is_dir():
            # The folder of a partition, whatever its column's name begins with.
            found += data_files(path) if "=" in path.name else []
        elif not path.name.startswith((".", "_")) and path.stat().st_size:
            found.append(path)
    return sorted(found)
