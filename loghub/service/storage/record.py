"""The binary layout of a segment file: packs and checks the file header and the records.

This module alone defines the layout. All numbers are little endian. A segment is a `SegmentHeader` of
`SEGMENT_HEADER_BYTES`, then records, each at a multiple of 8 bytes, then zeros up to the preallocated size.
A record is a header of `RECORD_HEADER_BYTES`, followed by the log group exactly as it was received::

    u32 length      of the log group; 0 ends the segment
    u32 crc         CRC-32 of everything after this field: the rest of the header and the group
    i64 cursor      consecutive within a shard
    i64 received_us unix microseconds, never decreasing within a shard
    u32 logs        number of logs in the group
    u32 synced      offset below which the file was on stable storage when this record was written
"""

import struct
import zlib
from dataclasses import dataclass

from loghub.service.faults import ServiceFault

_MAGIC = b"LOGHUB1\n"
_SEGMENT = struct.Struct("<8sqqqI")
_RECORD = struct.Struct("<IIqqII")
_AFTER_CRC = struct.Struct("<qqII")
_CRC_SKIP = 8

SEGMENT_HEADER_BYTES = 64
RECORD_HEADER_BYTES = _RECORD.size
MAX_GROUP_BYTES = 64 << 20  # far above what the service accepts; a length beyond it is damage


class DamagedRecord(ServiceFault):
    """The bytes are not a whole record, because of a torn tail or damage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentHeader:
    """The totals of everything before the segment, so that dropped log groups are still counted."""

    first_cursor: int
    logs_before: int  # logs in all groups below first_cursor since the shard's birth
    received_us: int  # of the last record before the segment, or the shard's birth


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordHeader:
    """The header of a record."""

    length: int
    crc: int
    cursor: int
    received_us: int
    logs: int
    synced: int

    @property
    def stored_bytes(self) -> int:
        return stored_bytes(self.length)


def stored_bytes(group_bytes: int) -> int:
    """The bytes that a group of this size occupies in a segment, including header and padding."""
    return (RECORD_HEADER_BYTES + group_bytes + 7) & ~7


def pack_segment_header(header: SegmentHeader) -> bytes:
    body = _SEGMENT.pack(_MAGIC, header.first_cursor, header.logs_before, header.received_us, 0)[:-4]
    return (body + zlib.crc32(body).to_bytes(4, "little")).ljust(SEGMENT_HEADER_BYTES, b"\0")


def unpack_segment_header(data: bytes) -> SegmentHeader:
    """Raises DamagedRecord if ``data`` does not begin with a valid segment header."""
    if len(data) < SEGMENT_HEADER_BYTES:
        raise DamagedRecord("the segment header is truncated")
    magic, first_cursor, logs_before, received_us, crc = _SEGMENT.unpack_from(data)
    if magic != _MAGIC or crc != zlib.crc32(data[: _SEGMENT.size - 4]):
        raise DamagedRecord("the segment header is invalid")
    return SegmentHeader(first_cursor=first_cursor, logs_before=logs_before, received_us=received_us)


def pack_record(group: bytes, *, cursor: int, received_us: int, logs: int, synced: int) -> bytes:
    """The record with its padding."""
    rest = _AFTER_CRC.pack(cursor, received_us, logs, synced)
    crc = zlib.crc32(group, zlib.crc32(rest))
    head = _RECORD.pack(len(group), crc, cursor, received_us, logs, synced)
    return b"".join((head, group, bytes(stored_bytes(len(group)) - len(head) - len(group))))


def read_header(data: bytes | memoryview, at: int) -> RecordHeader | None:
    """The record header at ``at``, unchecked; None at the end of the records (zeros or too few bytes)."""
    if at + RECORD_HEADER_BYTES > len(data):
        return None
    length, crc, cursor, received_us, logs, synced = _RECORD.unpack_from(data, at)
    if length == 0:
        return None
    return RecordHeader(
        length=length, crc=crc, cursor=cursor, received_us=received_us, logs=logs, synced=synced
    )


def check(data: bytes | memoryview, at: int, header: RecordHeader) -> None:
    """Raises DamagedRecord unless the record at ``at`` is complete and its CRC matches."""
    end = at + RECORD_HEADER_BYTES + header.length
    if header.length > MAX_GROUP_BYTES or end > len(data):
        raise DamagedRecord("a record is truncated")
    if zlib.crc32(memoryview(data)[at + _CRC_SKIP : end]) != header.crc:
        raise DamagedRecord("a record's CRC does not match")


def group_bytes(data: bytes | memoryview, at: int, header: RecordHeader) -> bytes:
    start = at + RECORD_HEADER_BYTES
    return bytes(memoryview(data)[start : start + header.length])
