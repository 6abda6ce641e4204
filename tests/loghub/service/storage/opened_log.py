"""One shard's log, opened as the start of the service does it."""

from loghub.service.ports import Disk
from loghub.service.storage.allocation import Room
from loghub.service.storage.log_inspection import inspect_log
from loghub.service.storage.record import SegmentHeader
from loghub.service.storage.segment import LogDamaged
from loghub.service.storage.segment_files import LoadedSegments
from loghub.service.storage.shardlog import ShardLog


def open_log(
    disk: Disk, *, folder: str, birth: SegmentHeader, segment_bytes: int, files: LoadedSegments | None = None
) -> tuple[ShardLog, int]:
    """The shard's log after recovery, and the bytes of a torn tail that were cut. Raises LogDamaged."""
    found = inspect_log(disk, folder)
    if found.problems:
        raise LogDamaged(str(found.problems[0]))
    files = LoadedSegments(disk) if files is None else files
    log = ShardLog(disk, folder=folder, birth=birth, room=Room(segment_bytes=segment_bytes), files=files)
    log.restore(found)
    return log, found.torn_bytes
