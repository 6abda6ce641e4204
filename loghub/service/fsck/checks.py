"""Reads the records of sealed segments, which a start does not, and reports those that are damaged."""

import os
from collections.abc import Iterable, Iterator

from loghub.service.diagnosis import Finding, FindingKind, LogState
from loghub.service.fsck.folder import ReadOnlyDisk
from loghub.service.fsck.progress import Progress
from loghub.service.fsck.salvage import good_runs
from loghub.service.storage.log_inspection import FoundSegment
from loghub.service.storage.recovery import inspect


def check_records(logs: Iterable[LogState], progress: Progress) -> Iterator[Finding]:
    """What is damaged in the sealed segments of these logs, by segment and cursors. Raises OSError."""
    sealed = [(log, segment) for log in logs for segment in log.found.segments if segment.read is None]
    progress.expect(sum(os.path.getsize(segment.path) for _, segment in sealed))
    disk = ReadOnlyDisk()
    for log, segment in sealed:
        file = disk.open(segment.path)
        data = file.read_at(file.size(), offset=0)
        file.close()
        if inspect(data, segment.header, segment.layout).totals.next_cursor != segment.totals.next_cursor:
            yield from _damaged(log, segment, data)
        progress.read(len(data))


def _damaged(log: LogState, segment: FoundSegment, data: bytes) -> Iterator[Finding]:
    begin = segment.header.first_cursor
    bounds = [
        (run[0].cursor, run[-1].cursor + 1)
        for run in good_runs(data, first_cursor=segment.header.first_cursor)
    ]
    for first, after in (*bounds, (segment.totals.next_cursor, segment.totals.next_cursor)):
        if begin < first:
            yield Finding(
                kind=FindingKind.DAMAGED_RECORDS,
                text=f"{log.title}: {segment.path} has damaged records, which cannot be read",
                logstore=log.shard.logstore,
                shard=log.shard.shard,
                path=segment.path,
                begin_cursor=begin,
                end_cursor=first,
            )
        begin = after
