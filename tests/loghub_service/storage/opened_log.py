"""One shard's log, opened as the start of the service does it."""

from loghub_service.ports import Disk
from loghub_service.storage.log_inspection import LoadedSegments, inspect_log
from loghub_service.storage.segment import LogDamaged, Room
from loghub_service.storage.segment_format import SegmentHeader
from loghub_service.storage.shardlog import ShardLog


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
