"""The contents of a data folder besides the logs themselves: its identity, and the folders of log data.

::

    <data>/metadata.sqlite           the catalog, the consumer groups and the checkpoints
    <data>/logs/folder.json          `FolderState`
    <data>/logs/<logstore>/<shard>/  the log of a shard: its segments and `shard.json`

The identity shows that a catalog belongs to these logs, and that it is not older than they are. `shard.json`
in a shard's folder says to which logstore and shard the log data belongs, in case the catalog is lost. It is
written when the shard is created, and contains only properties that never change. `loghub fsck` adopts log
data by it; the running service does not read it. These small files are replaced atomically and durably
through the disk's port.
"""

import re
from contextlib import suppress
from dataclasses import dataclass, field

import msgspec

from loghub.domain.shards import BadHashKey, HashRange
from loghub_service.errors import ServiceFault
from loghub_service.facts import FORM_OPTION, LogstoreSaved, ShardSaved
from loghub_service.ports import Disk
from loghub_service.storage import segment_format
from loghub_service.storage.segment_format import DamagedRecord

_MAX_BYTES = 1 << 20  # descriptions have a few hundred bytes; what is larger is not one


def replace_durably(disk: Disk, folder: str, name: str, content: bytes) -> None:
    """After a crash the file has the old or the new content; on return it has the new one. Raises OSError."""
    fresh = f"{folder}/{name}.new"
    with suppress(FileNotFoundError):  # left by a crash
        disk.remove(fresh)
    file = disk.create(fresh)
    try:
        file.write_at(content, offset=0)
        file.sync_data()
    finally:
        file.close()
    disk.rename(fresh, f"{folder}/{name}")
    disk.sync_dir(folder)


def read_small(disk: Disk, folder: str, name: str) -> bytes | None:
    """The content of a small file; None if it does not exist. Raises OSError."""
    try:
        file = disk.open(f"{folder}/{name}")
    except FileNotFoundError:
        return None
    try:
        return file.read_at(_MAX_BYTES, offset=0)
    finally:
        file.close()


DESCRIPTION_NAME = "shard.json"


class ShardDescription(msgspec.Struct, frozen=True, kw_only=True):
    """The file's fields. A shard is read-only if it is a parent of another shard. ``form`` is the form of its
    records for Kafka clients; "" by default, and in a file of an earlier release."""

    project: str
    logstore: str
    shard: int
    begin_key: str
    end_key: str
    parents: tuple[int, ...]
    born_us: int
    first_cursor: int
    first_ordinal: int = 0
    form: str = ""


def describe(logstore: LogstoreSaved, shard: ShardSaved) -> ShardDescription:
    return ShardDescription(
        project=logstore.project,
        logstore=logstore.name,
        shard=shard.shard,
        begin_key=shard.spec.keys.begin_key,
        end_key=shard.spec.keys.end_key,
        parents=shard.spec.parents,
        born_us=shard.born_us,
        first_cursor=shard.first_cursor,
        first_ordinal=logstore.first_ordinal,
        form=str(msgspec.json.decode(logstore.options).get(FORM_OPTION, "")),
    )


def is_described(disk: Disk, folder: str, description: ShardDescription) -> bool:
    """Whether the file has the form of records, which earlier releases left out. Raises OSError."""
    return not description.form or read_description(disk, folder) == description


def write_description(disk: Disk, folder: str, description: ShardDescription) -> None:
    """Write the file durably. Raises OSError."""
    replace_durably(disk, folder, DESCRIPTION_NAME, msgspec.json.encode(description))


def read_description(disk: Disk, folder: str) -> ShardDescription | None:
    """The file's content; None if it does not exist or is damaged."""
    content = read_small(disk, folder, DESCRIPTION_NAME)
    try:
        description = None if content is None else msgspec.json.decode(content, type=ShardDescription)
        if description is not None:
            HashRange.parse(begin_key=description.begin_key, end_key=description.end_key)
    except (msgspec.DecodeError, UnicodeDecodeError, BadHashKey):
        return None
    return description


DATABASE_NAME = "metadata.sqlite"
STATE_NAME = "folder.json"
_NUMBER = re.compile(r"\d{1,18}\Z")
_SEGMENT = re.compile(r"\d{20}\.seg\Z")
_EMPTY = re.compile(rf"(\d{{20}}\.seg\.new|{re.escape(DESCRIPTION_NAME)}(\.new)?)\Z")


class DamagedState(ServiceFault):
    """The file with the `FolderState` is not what the service has written."""


class FolderState(msgspec.Struct, frozen=True, kw_only=True):
    """``folder`` identifies the data folder and ``starts`` counts the starts of the service on it, as in the
    catalog. ``clean``: the service has stopped cleanly, so the catalog knows the exact end of each log.
    ``merged``: the database is complete without its write-ahead log."""

    folder: str
    starts: int
    clean: bool
    merged: bool


def logs_folder(data: str) -> str:
    return f"{data}/logs"


def shard_folder(data: str, logstore: int, shard: int) -> str:
    return f"{logstore_folder(data, logstore)}/{shard:06d}"


def logstore_folder(data: str, logstore: int) -> str:
    return f"{logs_folder(data)}/{logstore:08d}"


def read_state(disk: Disk, data: str) -> FolderState | None:
    """The state; None if the service has never started on the folder. Raises OSError, DamagedState."""
    content = read_small(disk, logs_folder(data), STATE_NAME)
    try:
        return None if content is None else msgspec.json.decode(content, type=FolderState)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DamagedState(f"logs/{STATE_NAME} is damaged: {error}") from error


def write_state(disk: Disk, data: str, state: FolderState) -> None:
    """Write the state durably. Raises OSError."""
    disk.make_dirs(logs_folder(data))
    replace_durably(disk, logs_folder(data), STATE_NAME, msgspec.json.encode(state))


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundFolder:
    """The folder of a shard that the catalog may lack.

    ``is_empty``: the catalog lacks it, and it contains neither a record nor an unknown file.
    """

    logstore: int
    shard: int
    path: str
    is_empty: bool


@dataclass(slots=True, kw_only=True)
class FoundFolders:
    """The folders of shards below ``logs``, logstores whose folder is empty, and unknown names."""

    shards: list[FoundFolder] = field(default_factory=list)
    bare: list[int] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)


def find_folders(disk: Disk, data: str, known_shards: set[tuple[int, int]]) -> FoundFolders:
    """List the folders of log data. Only folders of unknown shards are read. Raises OSError."""
    folders, root = FoundFolders(), logs_folder(data)
    for name in disk.list_names(root):
        if not _NUMBER.match(name):
            if name not in (STATE_NAME, f"{STATE_NAME}.new"):
                folders.unknown.append(f"{root}/{name}")
            continue
        inner = disk.list_names(f"{root}/{name}")
        if not inner:
            folders.bare.append(int(name))
        for shard in inner:
            path = f"{root}/{name}/{shard}"
            if _NUMBER.match(shard):
                is_empty = (int(name), int(shard)) not in known_shards and _is_empty(disk, path)
                folders.shards.append(
                    FoundFolder(logstore=int(name), shard=int(shard), path=path, is_empty=is_empty)
                )
            else:
                folders.unknown.append(path)
    return folders


def remove_tree(disk: Disk, folder: str) -> None:
    """Remove a folder with all its contents, durably. Raises OSError."""
    files, folders = disk.list_tree(folder)
    for path in files:
        disk.remove(path)
    for path in folders:
        disk.remove_dir(path)


def _is_empty(disk: Disk, folder: str) -> bool:
    for name in disk.list_names(folder):
        if _SEGMENT.match(name):
            if _holds_records(disk, f"{folder}/{name}"):
                return False
        elif not _EMPTY.match(name):
            return False
    return True


def _holds_records(disk: Disk, path: str) -> bool:
    """Whether anything follows a valid header."""
    file = disk.open(path)
    try:
        data = file.read_at(file.size(), offset=0)
        segment_format.unpack_segment_header(data)
    except DamagedRecord:
        return True
    finally:
        file.close()
    return any(data[segment_format.SEGMENT_HEADER_BYTES :])
