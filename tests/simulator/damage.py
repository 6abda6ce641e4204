"""What may happen to the data of a service that is down, so that its start must be refused.

Only damage that the service can notice: a lost tail reaches below an end or a checkpoint that the metadata
knows (docs/decisions/storage.md).
"""

import random
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from loghub_service.storage import segment_format
from loghub_service.storage.data_folder import DATABASE_NAME, STATE_NAME
from loghub_service.storage.database import Database
from loghub_service.storage.log_inspection import FoundSegment, inspect_log
from tests.loghub_service.simdisk import SimDisk
from tests.simulator.faults import Fault

Copy = dict[str, bytes]  # name -> content
Undo = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Damage:
    """Call ``undo`` to repair the data."""

    fault: Fault
    undo: Undo


def log_data(disk: SimDisk) -> Copy:
    """The log data, without the file that counts starts and its unfinished replacement."""
    return {path: bytes(c.live) for path, c in disk.live.items() if f"/{STATE_NAME}" not in path}


def flip_a_bit(disk: SimDisk, data: str, metadata: Copy, dice: random.Random) -> Undo | None:
    """In the last record of one shard, whose write was completed: without its end mark it was not
    acknowledged, and counts as torn. None if there is none."""
    found = [
        (last, at)
        for _, last in _last_segments(disk, data, torn=True)
        if (at := _last_record(disk, last)) is not None and not (last.read and last.read.lacks_end_mark)
    ]
    if not found:
        return None
    segment, at = dice.choice(found)
    header = segment_format.read_header(bytes(disk.live[segment.path].live), at)
    assert header is not None
    byte = at + dice.randrange(4, segment_format.RECORD_HEADER_BYTES + header.length)
    bit = 1 << dice.randrange(8)

    def flip() -> None:
        content = disk.live[segment.path]
        content.live[byte] ^= bit
        content.durable[byte] ^= bit

    flip()
    return flip


def lose_a_tail(disk: SimDisk, data: str, metadata: Copy, dice: random.Random) -> Undo | None:
    """Records of one shard's last segment read as never written, at least one of them known to the metadata.

    None if there is no such shard.
    """
    known = _known_ends(metadata, scratch=data)
    found = [
        (last, known[shard])
        for shard, last in _last_segments(disk, data)
        if last.header.first_cursor < known.get(shard, 0) <= last.totals.next_cursor
    ]
    if not found:
        return None
    segment, end = dice.choice(found)
    before = bytes(disk.live[segment.path].live)
    at = _offset(before, dice.randrange(segment.header.first_cursor, end))
    _replace(disk, segment.path, before[:at] + bytes(len(before) - at))
    return lambda: _replace(disk, segment.path, before)


def _last_segments(
    disk: SimDisk, data: str, *, torn: bool = False
) -> list[tuple[tuple[int, int], FoundSegment]]:
    """The last segment of each shard whose log is whole, or only ``torn`` by a crash."""
    folders = sorted({path.rpartition("/")[0] for path in disk.live if path.endswith(".seg")})
    found, reader = [], SimDisk()  # of which no call fails
    reader.live = disk.live
    for folder in folders:
        log = inspect_log(reader, folder)
        if not log.problems and log.segments and (torn or not log.torn_bytes):
            logstore, shard = folder.removeprefix(f"{data}/logs/").split("/")
            found.append(((int(logstore), int(shard)), log.segments[-1]))
    return found


def _last_record(disk: SimDisk, segment: FoundSegment) -> int | None:
    if segment.totals.next_cursor == segment.header.first_cursor:
        return None
    return _offset(bytes(disk.live[segment.path].live), segment.totals.next_cursor - 1)


def _offset(data: bytes, cursor: int) -> int:
    """Where the record with this cursor begins."""
    header, layout = segment_format.unpack_segment_header(data)
    at = segment_format.SEGMENT_HEADER_BYTES
    for _ in range(header.first_cursor, cursor):
        read = segment_format.read_header(data, at)
        assert read is not None
        at += layout.stored_bytes(read.length)
    return at


def _replace(disk: SimDisk, path: str, content: bytes) -> None:
    disk.live[path].live[:] = content
    disk.live[path].durable[:] = content


def _known_ends(metadata: Copy, *, scratch: str) -> dict[tuple[int, int], int]:
    """The highest cursor of each shard that the metadata knows; ``scratch`` is a folder."""
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        for name, content in metadata.items():
            (Path(folder) / name).write_bytes(content)
        database = Database(f"{folder}/{DATABASE_NAME}")
        ends = {(end.logstore, end.shard): end.end_cursor for end in database.known_ends()}
        for used in database.used_cursors():
            key = (used.logstore, used.shard)
            ends[key] = max(used.cursor, ends.get(key, 0))
        database.close()
    return ends
