"""Finds the good records in a damaged segment, before and after the damage, and reports the damaged records
of sealed segments, which a start does not read."""

import os
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from loghub_service.diagnosis import Finding, FindingKind, LogState
from loghub_service.fsck.folder import FsckProgress, ReadOnlyDisk
from loghub_service.storage import segment_format
from loghub_service.storage.log_inspection import FoundSegment
from loghub_service.storage.recovery import inspect
from loghub_service.storage.segment_format import DamagedRecord, Layout

_CURSOR = struct.Struct("<q")
_MIN_RECORD_BYTES = segment_format.RECORD_HEADER_BYTES + 8


@dataclass(frozen=True, slots=True)
class GoodRecord:
    """One record that is complete and whose CRC matches."""

    cursor: int
    received_us: int
    logs: int
    group: bytes


def good_runs(data: bytes, *, first_cursor: int) -> list[list[GoodRecord]]:
    """The good records of a segment, in runs of consecutive cursors.

    No length is trusted: after a bad record, the next record is the next valid one whose cursor may be in
    this segment, which begins with ``first_cursor``. If the header is good, the record must have the
    segment's end mark, since the bad record may contain bytes that a client made look like a record.
    """
    layout = _layout(data)
    runs: list[list[GoodRecord]] = []
    maximum = first_cursor + len(data) // _MIN_RECORD_BYTES
    at, expected = segment_format.SEGMENT_HEADER_BYTES, first_cursor
    while (next_record := _next_record(data, at, layout, minimum=expected, maximum=maximum)) is not None:
        good, at = next_record
        if not runs or good.cursor != expected:
            runs.append([])
        runs[-1].append(good)
        expected = good.cursor + 1
    return runs


def _layout(data: bytes) -> Layout:
    """The layout in the header; the layout of format 1, which has no end marks, if the header is damaged."""
    try:
        return segment_format.unpack_segment_header(data)[1]
    except DamagedRecord:
        return Layout(version=1, end_mark=b"")


def _next_record(
    data: bytes, at: int, layout: Layout, *, minimum: int, maximum: int
) -> tuple[GoodRecord, int] | None:
    """The first valid record at or after ``at``, where a good record ended, and the offset after it."""
    for begin in range(at, len(data) - segment_format.RECORD_HEADER_BYTES, 8):
        (cursor,) = _CURSOR.unpack_from(data, begin + 8)
        if minimum <= cursor <= maximum:
            header = segment_format.read_header(data, begin)
            if (
                header is not None
                and _is_valid(data, begin, header)
                and (begin == at or layout.ends_record(data, begin, header.length))
            ):
                group = segment_format.group_bytes(data, begin, header)
                good = GoodRecord(cursor, header.received_us, header.logs, group)
                return good, begin + layout.stored_bytes(header.length)
    return None


def _is_valid(data: bytes, at: int, header: segment_format.RecordHeader) -> bool:
    try:
        segment_format.check(data, at, header)
    except DamagedRecord:
        return False
    return True


def check_records(logs: Iterable[LogState], progress: FsckProgress) -> Iterator[Finding]:
    """The damaged records in the sealed segments of these logs, by segment and cursors. Raises OSError."""
    sealed = [(log, segment) for log in logs for segment in log.inspection.segments if segment.read is None]
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
