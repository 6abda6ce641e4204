"""The sparse index of a segment, and the footer that stores it in a sealed segment.

A footer makes a start read a few bytes of a sealed segment instead of all its records, and makes the index
loadable at any time, so that it need not stay in memory. It follows the last record::

    8 bytes         `FOOTER_BEGIN`; its zeros end the records
    marks           four i64 each: cursor, offset, received_us, logs_before
    end block       magic, next_cursor, logs_total, received_us, latest_us, earliest_us, number of marks,
                    CRC-32 of the marks, CRC-32 of the end block, the segment's end mark

A footer repeats what the records say. A segment without a valid one, such as a segment of format 1, is read
completely and gets one; an older release does so with a segment of this one. Its own end blocks have no
earliest_us.
"""

import struct
import sys
import zlib
from array import array
from bisect import bisect_right
from dataclasses import dataclass

from loghub.service.storage.record import SEGMENT_HEADER_BYTES, DamagedRecord

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
    """What is known of a segment's records without reading them."""

    used: int  # offset of the end of the records
    next_cursor: int
    logs_total: int  # in all groups of the shard before next_cursor
    received_us: int  # of the last record, or of the last one before the segment
    latest_us: int  # the greatest in the segment; the wall clock may have gone back
    earliest_us: int | None  # the least of its records; None without records, and in older footers


def footer_room(used: int) -> int:
    """The most bytes that the footer of records up to this offset needs."""
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
