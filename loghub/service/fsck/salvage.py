"""Finds the good records in a damaged segment, before and after the damage."""

import struct
from dataclasses import dataclass

from loghub.service.storage import record
from loghub.service.storage.record import DamagedRecord, Layout

_CURSOR = struct.Struct("<q")
_MIN_RECORD_BYTES = record.RECORD_HEADER_BYTES + 8


@dataclass(frozen=True, slots=True)
class GoodRecord:
    """One record that is complete and whose CRC matches."""

    cursor: int
    received_us: int
    logs: int
    group: bytes


def good_runs(data: bytes, *, first_cursor: int) -> list[list[GoodRecord]]:
    """The good records of a segment, in runs of consecutive cursors.

    No length is relied on: after a bad record, the next record is the next valid one whose cursor may be in
    this segment, which begins with ``first_cursor``. It must have the segment's end mark, if the header is
    good, since the bad record may contain what a client made look like a record.
    """
    layout = _layout(data)
    runs: list[list[GoodRecord]] = []
    most = first_cursor + len(data) // _MIN_RECORD_BYTES
    at, expected = record.SEGMENT_HEADER_BYTES, first_cursor
    while (found := _next_record(data, at, layout, least=expected, most=most)) is not None:
        good, at = found
        if not runs or good.cursor != expected:
            runs.append([])
        runs[-1].append(good)
        expected = good.cursor + 1
    return runs


def _layout(data: bytes) -> Layout:
    """That of format 1, which has no end marks, if the header is damaged."""
    try:
        return record.unpack_segment_header(data)[1]
    except DamagedRecord:
        return Layout(version=1, end_mark=b"")


def _next_record(
    data: bytes, at: int, layout: Layout, *, least: int, most: int
) -> tuple[GoodRecord, int] | None:
    """The first valid record at or after ``at``, where a good record ended, and the offset after it."""
    for begin in range(at, len(data) - record.RECORD_HEADER_BYTES, 8):
        (cursor,) = _CURSOR.unpack_from(data, begin + 8)
        if least <= cursor <= most:
            header = record.read_header(data, begin)
            if (
                header is not None
                and _is_valid(data, begin, header)
                and (begin == at or layout.ends_record(data, begin, header.length))
            ):
                group = record.group_bytes(data, begin, header)
                good = GoodRecord(cursor, header.received_us, header.logs, group)
                return good, begin + layout.stored_bytes(header.length)
    return None


def _is_valid(data: bytes, at: int, header: record.RecordHeader) -> bool:
    try:
        record.check(data, at, header)
    except DamagedRecord:
        return False
    return True
