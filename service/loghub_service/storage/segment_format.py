"""The binary layout of a segment file: packs and checks the file header, the records and the footer.

This module alone defines the layout. All numbers are little endian. A segment is a `SegmentHeader` of
`SEGMENT_HEADER_BYTES`, whose first bytes name the format version, then records, each at a multiple of 8
bytes, then zeros up to the preallocated size or, once the segment is sealed, a footer. A record is a header
of `RECORD_HEADER_BYTES`, followed by the log group in its stored form (`stored_group`)::

    u32 length      of the stored log group; 0 ends the records
    u32 crc         CRC-32 of everything after this field: the rest of the header and the stored group
    i64 cursor      consecutive within a segment
    i64 received_us unix microseconds
    u32 logs        number of logs in the group
    u32 synced      offset below which the file was on stable storage when this record was written

Formats 2 and 3 end each record, and the footer, with an end mark of 4 bytes that contains no zero byte and
differs from segment to segment, in a way that no client can compute. A write that was cut short therefore
never looks complete, whatever a client sent; `recovery` says what follows from that. In format 3, log groups
may be compressed, and older releases refuse the format because they cannot read them. Format 1 has neither
end marks nor a footer. Formats 1 and 2 are only read.

The footer has the sparse index of a segment, so that a start reads a few bytes of a sealed segment instead of
all its records, and the index can be loaded at any time and need not stay in memory. It follows the last
record::

    8 bytes         `FOOTER_BEGIN`; its zeros end the records
    marks           four i64 each: cursor, offset, received_us, logs_before
    end block       magic, next_cursor, logs_total, received_us, latest_us, earliest_us, number of marks,
                    CRC-32 of the marks, CRC-32 of the end block, the segment's end mark

A footer repeats the content of the records. A segment without a valid footer, such as a segment of format 1,
is read completely and gets one; an older release does so with a segment of this release. Its own end blocks
have no earliest_us.
"""

import re
import struct
import sys
import zlib
from array import array
from bisect import bisect_right
from dataclasses import dataclass

from loghub_service.errors import ServiceFault

_MAGIC = {1: b"LOGHUB1\n", 2: b"LOGHUB2\n", 3: b"LOGHUB3\n"}
_VERSION = {magic: version for version, magic in _MAGIC.items()}
_SEGMENT = {1: struct.Struct("<8sqqqI"), 2: struct.Struct("<8sqqqqI"), 3: struct.Struct("<8sqqqqI")}
_SALT = struct.Struct("<II")  # after the CRC of a segment header: the salt and its own CRC-32
_RECORD = struct.Struct("<IIqqII")
_AFTER_CRC = struct.Struct("<qqII")
_CRC_BYTES = 4  # CRC-32
_CRC_SKIP = 8  # length and CRC, which the CRC does not cover
_NO_ZERO_BYTE = 0x01010101  # zeros are the unwritten rest of a segment, so an end mark has none

FORMAT = 3  # of new segments
SEGMENT_HEADER_BYTES = 64  # room for later formats, and records begin at a multiple of 8
RECORD_HEADER_BYTES = _RECORD.size
END_MARK_BYTES = 4  # a 32-bit number, which distinguishes a torn write from damage
SALT_DIGITS = 8  # hexadecimal
MAX_GROUP_BYTES = 64 << 20  # far above the maximum that the service accepts; a larger length is damage


class DamagedRecord(ServiceFault):
    """The bytes are not a whole record, because of a torn tail or damage."""


class NewerFormat(DamagedRecord):
    """A newer release has written the segment: it is not damaged, and nothing may be repaired."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentHeader:
    """The totals of everything before the segment, so that dropped log groups are still counted.

    ``skipped`` cursors before ``first_cursor`` are not in the log: their log groups were lost, and the log
    continues above every cursor that may have been given out. ``salt`` is a random u32, so that no client can
    compute the end mark; segments of earlier releases have 0.
    """

    first_cursor: int
    logs_before: int  # logs in all groups below first_cursor since the shard's birth
    received_us: int  # of the last record before the segment, or the shard's birth
    skipped: int = 0
    salt: int = 0

    @property
    def follows(self) -> int:
        """The end of the log before this segment."""
        return self.first_cursor - self.skipped


@dataclass(frozen=True, slots=True)
class Layout:
    """The properties of a format version: the bytes that end each record, none in format 1."""

    version: int
    end_mark: bytes

    def stored_bytes(self, group_bytes: int) -> int:
        """The bytes that a group of this size occupies, including header, padding and end mark."""
        return (RECORD_HEADER_BYTES + group_bytes + len(self.end_mark) + 7) & ~7

    def ends_record(self, data: bytes | memoryview, at: int, group_bytes: int) -> bool:
        """Whether the record at ``at`` has its end mark. Only the service can write it: a record within a
        group that a client sent has none. Always true for format 1."""
        end = at + self.stored_bytes(group_bytes)
        return data[end - len(self.end_mark) : end] == self.end_mark


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordHeader:
    """The header of a record."""

    length: int
    crc: int
    cursor: int
    received_us: int
    logs: int
    synced: int


def stored_bytes(group_bytes: int) -> int:
    """The bytes that a group of this size occupies in a new segment."""
    return (RECORD_HEADER_BYTES + group_bytes + END_MARK_BYTES + 7) & ~7


def pack_segment_header(header: SegmentHeader) -> bytes:
    numbers = (header.first_cursor, header.logs_before, header.received_us, header.skipped)
    body = _SEGMENT[FORMAT].pack(_MAGIC[FORMAT], *numbers, 0)[:-_CRC_BYTES]
    packed = body + zlib.crc32(body).to_bytes(_CRC_BYTES, "little")
    if header.salt:
        packed += _SALT.pack(header.salt, _salt_crc(header.salt))
    return packed.ljust(SEGMENT_HEADER_BYTES, b"\0")


def _is_newer(data: bytes) -> bool:
    """Whether the number of the format is greater, and is not one of ours in which a bit has flipped: then
    the CRC would still match ours."""
    number = re.match(rb"LOGHUB(\d+)\n?", data[:8])
    if number is None or int(number[1]) <= FORMAT:
        return False
    for version, magic in _MAGIC.items():
        form, header = _SEGMENT[version], magic + data[8:]
        if zlib.crc32(header[: form.size - _CRC_BYTES]) == form.unpack_from(header)[-1]:
            return False
    return True


def unpack_segment_header(data: bytes) -> tuple[SegmentHeader, Layout]:
    """Raises DamagedRecord if ``data`` does not begin with a valid segment header, and NewerFormat if it
    begins with a header of a newer release."""
    if len(data) < SEGMENT_HEADER_BYTES:
        raise DamagedRecord("the segment header is truncated")
    version = _VERSION.get(data[:8])
    if version is None:
        if _is_newer(data):
            raise NewerFormat(
                "this release does not know the segment's format: use the release that has written it, or a"
                " newer one"
            )
        raise DamagedRecord("the segment header is invalid")
    _, first_cursor, logs_before, received_us, *skipped, crc = _SEGMENT[version].unpack_from(data)
    if crc != zlib.crc32(data[: _SEGMENT[version].size - _CRC_BYTES]):
        raise DamagedRecord("the segment header is invalid")
    salt, salt_crc = _SALT.unpack_from(data, _SEGMENT[version].size) if version > 1 else (0, 0)
    if (salt or salt_crc) and salt_crc != _salt_crc(salt):
        raise DamagedRecord("the segment header is invalid")
    header = SegmentHeader(
        first_cursor=first_cursor,
        logs_before=logs_before,
        received_us=received_us,
        skipped=skipped[0] if skipped else 0,
        salt=salt,
    )
    # Clients know the rest of the header: the first cursor of a shard is the time of its birth.
    unknown = zlib.crc32(_SALT.pack(salt, 0), crc) if salt else crc
    end_mark = (unknown | _NO_ZERO_BYTE).to_bytes(END_MARK_BYTES, "little") if version > 1 else b""
    return header, Layout(version, end_mark)


def _salt_crc(salt: int) -> int:
    return zlib.crc32(salt.to_bytes(_CRC_BYTES, "little"))


def pack_record(
    group: bytes, *, cursor: int, received_us: int, logs: int, synced: int, end_mark: bytes
) -> bytes:
    """The record with its padding and the end mark of the segment's layout."""
    rest = _AFTER_CRC.pack(cursor, received_us, logs, synced)
    crc = zlib.crc32(group, zlib.crc32(rest))
    head = _RECORD.pack(len(group), crc, cursor, received_us, logs, synced)
    padding = -(len(head) + len(group) + len(end_mark)) % 8
    return b"".join((head, group, bytes(padding), end_mark))


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


# A seek reads at most this much before its record, and the index has 32 bytes for it.
MARK_EVERY_BYTES = 16 << 10
FOOTER_BEGIN = b"\0\0\0\0MARK"
_END_MAGIC, _OLD_END_MAGIC = b"LOGHUBF3", b"LOGHUBF2"
_END, _OLD_END = struct.Struct("<8sqqqqqIIII"), struct.Struct("<8sqqqqIIII")
_END_BODY = struct.Struct("<8sqqqqqII")
_AFTER_BODY_BYTES = 8  # the CRC and the end mark
END_BLOCK_BYTES = _END.size
_MARK_BYTES = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """One entry of the sparse index: the position of a record."""

    cursor: int
    offset: int
    received_us: int
    logs_before: int


class Marks:
    """The marks of one segment, ascending, 32 bytes each. One thread appends while any thread reads."""

    __slots__ = ("_values",)

    def __init__(self, values: "array[int] | None" = None) -> None:
        self._values = array("q") if values is None else values

    def __len__(self) -> int:
        return len(self._values) // 4

    def __getitem__(self, index: int) -> Mark:
        cursor, offset, received_us, logs_before = self._values[4 * index : 4 * index + 4]
        return Mark(cursor=cursor, offset=offset, received_us=received_us, logs_before=logs_before)

    def append(self, cursor: int, offset: int, received_us: int, logs_before: int) -> None:
        self._values.extend((cursor, offset, received_us, logs_before))

    def is_due(self, offset: int) -> bool:
        """Whether a record at this offset gets a mark."""
        values = self._values
        return not values or offset - values[-3] >= MARK_EVERY_BYTES

    def received(self) -> "array[int]":
        """The receive times of all marks, in order."""
        return self._values[2::4]

    def before(self, cursor: int) -> Mark | None:
        """The last mark at or before a cursor."""
        values = self._values
        index = bisect_right(range(len(self)), cursor, key=lambda number: values[4 * number]) - 1
        return self[index] if index >= 0 else None

    def to_bytes(self) -> bytes:
        return _little_endian(self._values).tobytes()


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """The totals of a segment's records, which are known without reading them."""

    used: int  # offset of the end of the records
    next_cursor: int
    logs_total: int  # in all groups of the shard before next_cursor
    received_us: int  # of the last record in the segment or before it
    latest_us: int  # the greatest time in the segment; the wall clock may have gone back
    earliest_us: int | None  # the least time of its records; None without records, and in older footers


def footer_room(used: int) -> int:
    """The maximum of bytes of a footer for records up to this offset."""
    marks = 1 + (used - SEGMENT_HEADER_BYTES) // MARK_EVERY_BYTES
    return len(FOOTER_BEGIN) + marks * _MARK_BYTES + END_BLOCK_BYTES


def pack_footer(marks: Marks, totals: Totals, *, end_mark: bytes) -> bytes:
    body = marks.to_bytes()
    earliest_us = totals.received_us if totals.earliest_us is None else totals.earliest_us
    numbers = (totals.next_cursor, totals.logs_total, totals.received_us, totals.latest_us, earliest_us)
    block = _END_BODY.pack(_END_MAGIC, *numbers, len(marks), zlib.crc32(body))
    crc = zlib.crc32(block).to_bytes(4, "little")
    return b"".join((FOOTER_BEGIN, body, block, crc, end_mark or bytes(4)))


@dataclass(frozen=True, slots=True, kw_only=True)
class EndBlock:
    """The end of a footer: the totals, and where the marks are."""

    totals: Totals
    marks: int
    marks_crc: int

    @property
    def marks_at(self) -> int:
        return self.totals.used + len(FOOTER_BEGIN)

    @property
    def marks_bytes(self) -> int:
        return self.marks * _MARK_BYTES


def unpack_end_block(data: bytes, *, file_bytes: int) -> EndBlock | None:
    """The end block in the last `END_BLOCK_BYTES` of a file of this size; None if it is not valid."""
    for form, magic in ((_END, _END_MAGIC), (_OLD_END, _OLD_END_MAGIC)):
        block = data[-form.size :]
        if len(block) == form.size and block.startswith(magic):
            *numbers, count, marks_crc, crc, _ = form.unpack(block)[1:]
            break
    else:
        return None
    used = file_bytes - form.size - count * _MARK_BYTES - len(FOOTER_BEGIN)
    if crc != zlib.crc32(block[:-_AFTER_BODY_BYTES]) or used <= 0:
        return None
    next_cursor, logs_total, received_us, latest_us, *earliest_us = numbers
    totals = Totals(
        used=used,
        next_cursor=next_cursor,
        logs_total=logs_total,
        received_us=received_us,
        latest_us=latest_us,
        earliest_us=earliest_us[0] if earliest_us else None,
    )
    return EndBlock(totals=totals, marks=count, marks_crc=marks_crc)


def unpack_marks(data: bytes, block: EndBlock) -> Marks:
    """Raises DamagedRecord unless ``data`` contains the marks that the end block describes."""
    if len(data) != block.marks_bytes or zlib.crc32(data) != block.marks_crc:
        raise DamagedRecord("the index in the footer is damaged")
    values = array("q")
    values.frombytes(data)
    return Marks(_little_endian(values))


def _little_endian(values: "array[int]") -> "array[int]":
    if sys.byteorder == "big":
        values = values[:]
        values.byteswap()
    return values
