"""Writes segments of format 1, which earlier releases wrote and this one only reads."""

import struct
import zlib
from collections.abc import Sequence

from loghub_service.storage.segment_format import SegmentHeader
from tests.loghub_service.simdisk import SimDisk

HEADER = struct.Struct("<8sqqqI")
RECORD = struct.Struct("<IIqqII")


def header_bytes(header: SegmentHeader) -> bytes:
    numbers = (header.first_cursor, header.logs_before, header.received_us)
    body = HEADER.pack(b"LOGHUB1\n", *numbers, 0)[:-4]
    return (body + zlib.crc32(body).to_bytes(4, "little")).ljust(64, b"\0")


def record_bytes(group: bytes, *, cursor: int, received_us: int, logs: int, synced: int) -> bytes:
    rest = struct.pack("<qqII", cursor, received_us, logs, synced)
    crc = zlib.crc32(group, zlib.crc32(rest))
    data = RECORD.pack(len(group), crc, cursor, received_us, logs, synced) + group
    return data.ljust((len(data) + 7) & ~7, b"\0")


def write_log(
    disk: SimDisk, folder: str, groups: Sequence[bytes], *, first_cursor: int, per_segment: int, size: int
) -> None:
    """A log of groups with one log each, received at 100, 101, ...; the last segment is preallocated."""
    for begin in range(0, len(groups), per_segment):
        part = groups[begin : begin + per_segment]
        data = header_bytes(
            SegmentHeader(first_cursor=first_cursor + begin, logs_before=begin, received_us=99 + begin)
        )
        for number, group in enumerate(part, begin):
            data += record_bytes(
                group, cursor=first_cursor + number, received_us=100 + number, logs=1, synced=len(data)
            )
        file = disk.create(f"{folder}/{first_cursor + begin:020d}.seg")
        file.write_at(data, offset=0)
        if begin + per_segment >= len(groups):
            file.allocate(size)
        file.sync_data()
    disk.sync_dir(folder)
