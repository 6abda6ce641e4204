"""Reads a whole segment: rebuilds its index, and classifies the bytes after the last good record.

A crash may leave the last write in any part: its end may be missing, and a disk that writes sectors in any
order may have lost a sector in its middle. Such a torn tail was never acknowledged, because a write is
acknowledged after its sync, and it is cut. Damage of an acknowledged record must not be mistaken for a torn
tail, since its cursor would be given to another log group. Three signs distinguish them:

- A later record that is valid names an offset below which everything was on stable storage. Since format 2 it
  must have the segment's end mark, because a group may contain bytes that a client made look like a record.
- Space that was not written reads as zeros. Since format 2 a record ends in the segment's end mark. If there
  is an end mark in the tail, and no sector before it consists of zeros, every sector up to it was written:
  a bad record there is damage, whatever follows.
- A write that was cut short left its bytes unchanged. Since format 2 a record's header and the place of
  its end mark have the written bytes or zeros. Anything else is damage, also if it covers the end mark.

The last two signs are missing if a damaged sector, or another sector of the group, consists of zeros. Then,
as for segments of format 1, only the end of the log in the database shows the loss
(`loghub_service.known_ends`).
"""

import struct
import zlib
from dataclasses import dataclass
from enum import Enum

from loghub_service.storage import segment_format
from loghub_service.storage.segment_format import (
    FOOTER_BEGIN,
    MARK_EVERY_BYTES,
    DamagedRecord,
    Layout,
    Marks,
    SegmentHeader,
    Totals,
)

SECTOR_BYTES = 512  # the unit in which a disk writes
_RECORD = struct.Struct("<IIqqII")
_WORD = struct.Struct("<q")
_HEAD = struct.Struct("<IIq")  # the begin of a record, up to its cursor
_BLOCK_BYTES = 64 << 10  # a comparison of blocks in C; a smaller block costs more steps in Python
_NEVER_US = 1 << 63  # above each time in 63 bits
_ZEROS = bytes(_BLOCK_BYTES)


class Tail(Enum):
    """What the bytes after the last good record of a segment are."""

    CLEAN = "clean"  # nothing
    FOOTER = "footer"  # the footer of a sealed segment, or a part of it
    TORN = "torn"  # a write that a crash cut short; it was not acknowledged
    DAMAGED = "damaged"  # records that were written completely, and at least one is damaged


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """One segment that was read completely. ``tail_bytes`` follow the last good record, final zeros aside.

    ``lacks_end_mark``: a crash cut the last good record within its end mark.
    """

    totals: Totals
    marks: Marks
    tail: Tail
    tail_bytes: int
    lacks_end_mark: bool
    reason: str  # why the record at ``totals.used`` is bad; "" if there is no bad record


def inspect(data: bytes, header: SegmentHeader, layout: Layout) -> Inspection:
    """Read a segment's content; ``header`` and ``layout`` were unpacked from its first bytes."""
    walk = _Walk(data, header, layout)
    walk.run()
    end = _end_of_bytes(data, walk.used)
    tail, reason = _classify(data, walk, layout, end=end)
    totals = Totals(
        used=walk.used,
        next_cursor=walk.next_cursor,
        logs_total=walk.logs_total,
        received_us=walk.received_us,
        latest_us=walk.latest_us,
        earliest_us=walk.earliest_us,
    )
    return Inspection(
        totals=totals,
        marks=walk.marks,
        tail=tail,
        tail_bytes=end - walk.used,
        lacks_end_mark=bool(walk.marks) and not data.endswith(layout.end_mark, 0, walk.used),
        reason=reason,
    )


def _end_of_bytes(data: bytes, used: int) -> int:
    """The offset after the last byte that is not zero; ``used`` if only zeros follow it."""
    end = len(data)
    while end - _BLOCK_BYTES > used and data[end - _BLOCK_BYTES : end] == _ZEROS:
        end -= _BLOCK_BYTES  # much faster than `rstrip` on a segment that is almost empty
    begin = max(used, end - _BLOCK_BYTES)
    return begin + len(data[begin:end].rstrip(b"\0"))


class _Walk:
    """Reads records from the first one on, until the first bad one."""

    def __init__(self, data: bytes, header: SegmentHeader, layout: Layout) -> None:
        self._data = data
        self._mark_bytes = len(layout.end_mark)
        self.marks = Marks()
        self.used = segment_format.SEGMENT_HEADER_BYTES
        self.next_cursor = header.first_cursor
        self.logs_total = header.logs_before
        self.received_us = header.received_us
        self.latest_us = header.received_us
        self.earliest_us: int | None = None
        self.reason = ""

    def run(self) -> None:
        """Read all records. A start reads every record of each open segment, so this loop avoids a call and
        an object for each record."""
        data, marks, overhead = (
            self._data,
            self.marks,
            segment_format.RECORD_HEADER_BYTES + self._mark_bytes + 7,
        )
        view, unpack, crc32 = memoryview(data), _RECORD.unpack_from, zlib.crc32
        used, cursor, logs_total = self.used, self.next_cursor, self.logs_total
        received_us, latest_us, earliest_us = self.received_us, self.latest_us, _NEVER_US
        last_start, mark_due = len(data) - segment_format.RECORD_HEADER_BYTES, 0
        while used <= last_start:
            length, crc, record_cursor, received, logs, _ = unpack(data, used)
            if length == 0:
                break
            end = used + segment_format.RECORD_HEADER_BYTES + length
            if length > segment_format.MAX_GROUP_BYTES or end > len(data):
                self.reason = "a record is truncated"
                break
            if crc32(view[used + 8 : end]) != crc:
                self.reason = "a record's CRC does not match"
                break
            if record_cursor != cursor:
                self.reason = f"a record has cursor {record_cursor} instead of {cursor}"
                break
            received_us = received
            latest_us = max(latest_us, received)
            earliest_us = min(earliest_us, received)
            if used >= mark_due:
                marks.append(cursor, used, received, logs_total)
                mark_due = used + MARK_EVERY_BYTES
            cursor += 1
            logs_total += logs
            used += (overhead + length) & ~7
        self.used, self.next_cursor, self.logs_total = used, cursor, logs_total
        self.received_us, self.latest_us = received_us, latest_us
        self.earliest_us = earliest_us if marks else None


def _classify(data: bytes, walk: _Walk, layout: Layout, *, end: int) -> tuple[Tail, str]:
    if end <= walk.used:
        return Tail.CLEAN, ""
    if not walk.reason and data.startswith(FOOTER_BEGIN, walk.used):
        return Tail.FOOTER, ""
    if _was_acknowledged(data, walk, layout, end=end):
        return Tail.DAMAGED, "acknowledged records are damaged"
    if layout.end_mark and _was_written_completely(data, walk.used, end, layout.end_mark):
        return Tail.DAMAGED, "a record that was written completely is damaged"
    if layout.end_mark and not _may_be_torn(data, walk.used, walk.next_cursor, layout):
        return Tail.DAMAGED, "a record contains what was not written"
    return Tail.TORN, walk.reason or "bytes after the last record"


def _was_acknowledged(data: bytes, walk: _Walk, layout: Layout, *, end: int) -> bool:
    """Whether a valid record after the bad one shows that the bad one was on stable storage."""
    minimum, maximum = (
        walk.next_cursor,
        walk.next_cursor + (end - walk.used) // segment_format.RECORD_HEADER_BYTES,
    )
    words = memoryview(data)[walk.used + 8 : end & ~7]  # a record begins 8 bytes before its cursor
    for index, (word,) in enumerate(_WORD.iter_unpack(words)):
        if minimum < word <= maximum:
            at = walk.used + 8 * index
            header = segment_format.read_header(data, at)
            if header is not None and header.synced > walk.used and _is_valid(data, at, header, layout):
                return True
    return False


def _is_valid(data: bytes, at: int, header: segment_format.RecordHeader, layout: Layout) -> bool:
    try:
        segment_format.check(data, at, header)
    except DamagedRecord:
        return False
    return layout.ends_record(data, at, header.length)


def _was_written_completely(data: bytes, used: int, end: int, end_mark: bytes) -> bool:
    """Whether a record from ``used`` on has its end mark, and no sector up to it reads as if never written.

    Another write may follow that was cut short.
    """
    mark = data.find(end_mark, used, end)
    while mark >= 0 and (mark + len(end_mark)) % 8:
        mark = data.find(end_mark, mark + 1, end)
    if mark < 0:
        return False
    end = mark + len(end_mark)
    sectors = range(used - used % SECTOR_BYTES, end, SECTOR_BYTES)
    return all(any(data[max(at, used) : min(at + SECTOR_BYTES, end)]) for at in sectors)


def _may_be_torn(data: bytes, used: int, cursor: int, layout: Layout) -> bool:
    """Whether the bytes at ``used`` are the begin of a record or of a footer, or a part of one.

    A disk may have lost any sectors of it, and the write may have ended after any byte; either leaves zeros.
    A number that was cut is smaller than the written one, since its low bytes come first.
    """
    head = data[used : used + _HEAD.size].ljust(_HEAD.size, b"\0")
    length, _, record_cursor = _HEAD.unpack(head)
    if length == 0:
        first_sector = data[used : used - used % SECTOR_BYTES + SECTOR_BYTES]
        begin = head[: len(FOOTER_BEGIN)]
        return not any(first_sector) or (any(begin) and _is_cut(begin, FOOTER_BEGIN))
    if length > segment_format.MAX_GROUP_BYTES or not _is_cut(_WORD.pack(record_cursor), _WORD.pack(cursor)):
        return False
    end = used + layout.stored_bytes(length)  # space is allocated before anything is written
    return end <= len(data) and _is_cut(data[end - len(layout.end_mark) : end], layout.end_mark)


def _is_cut(data: bytes, written: bytes) -> bool:
    """Whether the bytes are a prefix of the written ones, followed by zeros."""
    return written.startswith(data.rstrip(b"\0"))
