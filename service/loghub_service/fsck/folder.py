"""The data folder as fsck uses it: no service runs on it meanwhile, and nothing is written without an option.

A diagnosis reads a copy of the database, because SQLite writes even to read. A line on the terminal shows how
much of the folder was read.
"""

import os
import shutil
import tempfile
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime

from msgspec import structs

from loghub.progress_line import ProgressLine
from loghub_service.facts import ServiceFact
from loghub_service.ports import OsDisk, OsFile
from loghub_service.start import Survey, survey_catalog, survey_log
from loghub_service.storage.data_folder import DATABASE_NAME, write_state
from loghub_service.storage.database import Database, DatabaseUnusable, NewerSchema
from loghub_service.storage.log_inspection import inspect_log


class FsckProgress:
    """How much fsck has read: the ends of each shard's segments as at a start, then perhaps all records."""

    def __init__(self, line: ProgressLine) -> None:
        self._line = line
        self._read, self._total = 0, 0  # bytes

    def shard(self, number: int, count: int) -> None:
        """The shard with this number, from 1, is being read as at a start."""
        self._line.show(lambda _: f"shard {number} of {count}")

    def expect(self, size: int) -> None:
        """Add to the total of bytes of records that will be read."""
        self._read, self._total = 0, size

    def read(self, size: int) -> None:
        """Add to the bytes of records that were read."""
        self._read += size
        self._line.show(lambda _: f"{self._read / 1e6:,.1f} of {self._total / 1e6:,.1f} MB of records")

    def clear(self) -> None:
        self._line.clear()


LOST_AND_FOUND = "lost-and-found"


class ReadOnlyDisk(OsDisk):
    """A disk whose files are opened for reading only, so that a diagnosis cannot write by mistake."""

    def open(self, path: str) -> OsFile:
        return OsFile(os.open(path, os.O_RDONLY | os.O_CLOEXEC), path)


class NoDataFolder(Exception):  # noqa: N818 - says what is wrong
    """The path is not a data folder of the service."""


def read(data: str, progress: FsckProgress) -> Survey:
    """Read everything but the records of sealed segments. Raises NoDataFolder, OSError, and NewerSchema or
    NewerFormat for a folder of a newer release."""
    if not os.path.isdir(data):
        raise NoDataFolder(f"{data} is not a folder")
    path = os.path.join(data, DATABASE_NAME)
    if not os.path.exists(path) and not os.path.isdir(os.path.join(data, "logs")):
        raise NoDataFolder(
            f"{data} is not a data folder of the service: it has neither {DATABASE_NAME} nor logs"
        )
    disk, has_wal = ReadOnlyDisk(), os.path.exists(f"{path}-wal")
    with tempfile.TemporaryDirectory() as folder:
        database: Database | None = None
        try:
            database = _copy(path, folder)
            survey = survey_catalog(disk, data, database, has_wal=has_wal)
        except NewerSchema:  # whatever its logs look like to this release
            raise
        except DatabaseUnusable as error:
            survey = survey_catalog(disk, data, None, has_wal=has_wal)
            # The message names the path of the copy, so it is replaced.
            survey.catalog = replace(survey.catalog, unusable=str(error).replace(folder, data))
        finally:
            if database is not None:
                database.close()
    _refuse_newer(disk, survey)
    shards = survey.catalog.shards.values()
    for number, shard in enumerate(shards, start=1):
        progress.shard(number, len(shards))
        survey_log(disk, survey, shard)
    return survey


def _refuse_newer(disk: ReadOnlyDisk, survey: Survey) -> None:
    """Log data that the catalog lacks, or all of it without a catalog, may be written by a newer release:
    then every repair that fsck would propose is wrong. Raises OSError, NewerFormat."""
    known_shards = survey.catalog.shards.keys() | survey.catalog.deletions
    for folder in survey.folders.shards:
        if (folder.logstore, folder.shard) not in known_shards:
            inspect_log(disk, folder.path)


def _copy(path: str, folder: str) -> Database | None:
    """The database, opened from a copy; None if there is none. Raises DatabaseUnusable."""
    if not os.path.exists(path):
        return None
    copied = os.path.join(folder, DATABASE_NAME)
    for suffix in ("", "-wal"):
        if os.path.exists(path + suffix):
            shutil.copyfile(path + suffix, copied + suffix)
    return Database(copied)


def commit(survey: Survey, *facts: ServiceFact) -> None:
    """Commit facts to the database itself, which is created if there is none."""
    with closing(Database(os.path.join(survey.data, DATABASE_NAME))) as database:
        if survey.state is not None:
            # Opening the database wrote to it; closing it removes its write-ahead log.
            write_state(OsDisk(), survey.data, structs.replace(survey.state, merged=True))
        database.commit([facts])
        database.merge_write_ahead_log()


def put_aside(data: str, path: str) -> str:
    """Copy a file to the folder `LOST_AND_FOUND`, durably; return the copy's path."""
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    target = os.path.join(data, LOST_AND_FOUND, stamp, os.path.relpath(path, data))
    disk = OsDisk()
    disk.make_dirs(os.path.dirname(target))
    shutil.copyfile(path, target)
    fd = os.open(target, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
    disk.sync_dir(os.path.dirname(target))
    return target
