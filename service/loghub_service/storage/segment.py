"""One segment file: append, sync, seal and scan.

A segment is a part of a shard's log (see `shardlog`); `segment_format` defines its binary layout. One thread
writes the `OpenSegment` at the end of a log. Any thread may scan its published part meanwhile, since records
never change. A `SealedSegment` keeps neither its file nor its index in memory:
`log_inspection.LoadedSegments` loads them when they are read.

Space is allocated ahead, so that a full disk is noticed before a write, and a torn write by the zeros in its
place. A segment begins small and grows, so that a shard with one log does not take 16 MiB; a segment that
follows a large one begins as large.
"""

import errno
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from loghub.wire import native
from loghub_service.errors import ServiceFault, WriteFailed, is_disk_full
from loghub_service.ports import Disk, File
from loghub_service.storage import segment_format
from loghub_service.storage.recovery import Inspection
from loghub_service.storage.segment_format import (
    DamagedRecord,
    Layout,
    Marks,
    SegmentHeader,
    Totals,
    footer_room,
    pack_footer,
)

# 256 KiB, 1 MiB, 4 MiB, 16 MiB: a shard with few logs takes little of the volume, and a busy shard grows its
# first segment three times.
FIRST_BYTES = 256 << 10
_GROWTH = 4
# The space that log data leaves to the metadata: without it, no checkpoint could be saved and no log removed.
# The groups of Kafka clients get more (`reserved_for`).
RESERVED_BYTES = 64 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """How much of the volume the log of a shard takes for a segment, and how much it leaves to the
    metadata."""

    segment_bytes: int
    first_bytes: int = FIRST_BYTES
    reserved_bytes: int = RESERVED_BYTES


def grown(capacity: int, *, minimum: int, maximum: int) -> int | None:
    """The next size of a segment that needs ``minimum``; None if the segment has to end."""
    return max(min(_GROWTH * capacity, maximum), minimum) if minimum <= maximum else None


def new_size(*, first: int, used_before: int, minimum: int, maximum: int) -> int:
    """The size of a new segment that needs ``minimum``, after a segment of which ``used_before`` bytes were
    used."""
    size = min(first, maximum)
    while size < min(used_before, maximum):
        size = min(_GROWTH * size, maximum)
    return max(size, minimum)


def check_free(disk: Disk, folder: str, size: int, *, reserved_bytes: int) -> None:
    """Raises OSError if ``size`` more bytes do not fit."""
    if disk.free_bytes(folder) < size + reserved_bytes:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), folder)


def reserved_for(group_bytes: int) -> int:
    """The space that log data leaves to the metadata if groups of Kafka clients may hold ``group_bytes``. In
    the database and its write-ahead log, 82 MB of offsets with 4 KB of metadata took 93 MB."""
    return RESERVED_BYTES + group_bytes * 5 // 4


# The first window is for one record, which is at most 16 KiB behind a mark unless it is large; a scan that
# continues from there reads more at once.
_FIRST_WINDOW_BYTES, _WINDOW_BYTES = 32 << 10, 256 << 10
# A small step back of the wall clock is evened out; a larger step is the correction of a wrong clock.
CLOCK_STEP_US = 60_000_000


class LogDamaged(ServiceFault):
    """A log file has lost acknowledged data. The message names the file, and the offset where it is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One stored log group."""

    cursor: int
    received_us: int
    logs: int
    logs_before: int  # in all earlier groups of the shard, including dropped groups
    group: bytes  # in its stored form (`stored_group`)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewGroup:
    """A log group to append."""

    group: bytes  # in its stored form (`stored_group`)
    logs: int
    received_us: int


class Segment(Protocol):
    """The properties of an open or sealed segment that reading needs."""

    @property
    def path(self) -> str: ...

    @property
    def header(self) -> SegmentHeader: ...

    @property
    def layout(self) -> Layout: ...

    @property
    def totals(self) -> Totals: ...

    def contents(self) -> tuple[File, Marks]:
        """The file and its index. Raises FileNotFoundError if the file was removed, LogDamaged."""


class SegmentFiles(Protocol):
    """Loads the files and indexes of sealed segments (`log_inspection.LoadedSegments`)."""

    def get(self, path: str) -> tuple[File, Marks]: ...


@dataclass(frozen=True, slots=True)
class SealedSegment:
    """A segment that never changes again."""

    path: str
    header: SegmentHeader
    layout: Layout
    totals: Totals
    files: SegmentFiles

    def contents(self) -> tuple[File, Marks]:
        return self.files.get(self.path)


class OpenSegment:
    """The segment at the end of a log. After `seal`, nothing may be appended."""

    def __init__(self, *, path: str, file: File, header: SegmentHeader, layout: Layout) -> None:
        self.path = path
        self.header = header
        self.layout = layout
        self._file = file
        self._capacity = file.size()
        self._marks = Marks()
        self._used = segment_format.SEGMENT_HEADER_BYTES
        self._next_cursor = header.first_cursor
        self._logs_total = header.logs_before
        self._received_us = self._latest_us = header.received_us
        self._earliest_us: int | None = None
        self._synced = self._used
        self._can_grow = True  # the file was created in this run, or in a run that has stopped cleanly

    def restore(self, inspection: Inspection, *, writable: bool) -> None:
        """Take over the inspected records, and make them whole and durable. Raises WriteFailed.

        Without ``writable``, the next append goes to a new segment, and the bytes after the records are cut:
        a torn tail, or blocks of which it is unknown after a failed sync whether they can be written. Only
        room for the footer is allocated again. In format 1, the footer is written over a torn tail.
        """
        totals = inspection.totals
        self._marks, self._used, self._next_cursor = inspection.marks, totals.used, totals.next_cursor
        self._logs_total, self._received_us = totals.logs_total, totals.received_us
        self._latest_us, self._earliest_us = totals.latest_us, totals.earliest_us
        try:
            mark = self.layout.end_mark
            if mark and not writable:
                self._file.truncate(self._used)
                self._allocate_footer_room()
            if mark and inspection.lacks_end_mark:
                # The end mark distinguishes later damage of the record from a torn tail.
                self._file.write_at(mark, offset=self._used - len(mark))
        except OSError as error:
            raise WriteFailed(f"{self.path}: {error}") from error
        if not writable:
            self._capacity, self._can_grow = self._used, False
            self.sync()

    def _allocate_footer_room(self) -> None:
        """Allocate room for the footer. A full disk must not prevent the start; the segment is then sealed
        once there is room."""
        if self.is_empty:
            return  # the file will be replaced
        try:
            self._file.allocate(self._used + footer_room(self._used))
        except OSError as error:
            if not is_disk_full(error):
                raise

    @property
    def totals(self) -> Totals:
        return Totals(
            used=self._used,
            next_cursor=self._next_cursor,
            logs_total=self._logs_total,
            received_us=self._received_us,
            latest_us=self._latest_us,
            earliest_us=self._earliest_us,
        )

    @property
    def is_empty(self) -> bool:
        """Whether it has no records."""
        return not self._marks

    def contents(self) -> tuple[File, Marks]:
        return self._file, self._marks

    def fits(self, stored_bytes: int) -> bool:
        """Whether records of this size fit and leave room for the footer."""
        used = self._used + stored_bytes
        return used + footer_room(used) <= self._capacity

    def size_for(self, stored_bytes: int, *, maximum: int) -> int | None:
        """The size to grow to for records of this size; None if the segment has to end."""
        used = self._used + stored_bytes
        return (
            grown(self._capacity, minimum=used + footer_room(used), maximum=maximum)
            if self._can_grow
            else None
        )

    def grow(self, size: int) -> None:
        """Make room, durably before anything is written there: the tail that a crash cuts must be inside
        allocated space.

        Raises OSError if there is no room, and WriteFailed.
        """
        try:
            self._file.allocate(size)
        except OSError as error:
            if is_disk_full(error):
                raise
            raise WriteFailed(f"{self.path}: {error}") from error
        self._file.sync_data()
        self._capacity = size

    def append(self, groups: Sequence[NewGroup]) -> None:
        """Append the groups with one write. They are durable after `sync`. Raises WriteFailed."""
        start = self._used
        parts = [self._pack(new) for new in groups]
        try:
            self._file.write_at(b"".join(parts), offset=start)
        except OSError as error:
            raise WriteFailed(f"{self.path}: {error}") from error

    def _pack(self, new: NewGroup) -> bytes:
        received_us = _received_us(new.received_us, self._received_us)
        data = segment_format.pack_record(
            new.group,
            cursor=self._next_cursor,
            received_us=received_us,
            logs=new.logs,
            synced=self._synced,
            end_mark=self.layout.end_mark,
        )
        if self._marks.is_due(self._used):
            self._marks.append(self._next_cursor, self._used, received_us, self._logs_total)
        self._used += len(data)
        self._next_cursor += 1
        self._logs_total += new.logs
        self._received_us = received_us
        self._latest_us = max(self._latest_us, received_us)
        earliest_us = received_us if self._earliest_us is None else self._earliest_us
        self._earliest_us = min(earliest_us, received_us)
        return data

    def sync(self) -> None:
        """Make all appends durable. Raises WriteFailed."""
        self._file.sync_data()
        self._synced = self._used

    def seal(self, files: SegmentFiles) -> SealedSegment:
        """Write the footer, free the unused blocks, and make the file durable.

        Raises WriteFailed; OSError if there is no space for the footer, which is possible only for a segment
        of format 1, or a segment that was recovered on a full disk. It may be called again.
        """
        totals = self.totals
        footer = pack_footer(self._marks, totals, end_mark=self.layout.end_mark)
        self._capacity, self._can_grow = self._used, False
        try:
            self._file.write_at(footer, offset=self._used)
            self._file.truncate(self._used + len(footer))
        except OSError as error:
            if is_disk_full(error):
                raise
            raise WriteFailed(f"{self.path}: {error}") from error
        self.sync()
        return SealedSegment(self.path, self.header, self.layout, totals, files)

    def close(self) -> None:
        self._file.close()


def _received_us(now_us: int, before_us: int) -> int:
    """The receive time of a record: not before the last record's, unless the wall clock was set back: then
    the later time is the right one."""
    return before_us if before_us - CLOCK_STEP_US <= now_us < before_us else now_us


def scan(segment: Segment, *, cursor: int, end_cursor: int) -> Iterator[Entry]:
    """The entries in [cursor, end_cursor). Each is checked; raises LogDamaged if an entry is damaged, and
    FileNotFoundError if the segment was removed."""
    if cursor >= end_cursor:
        return
    file, marks = segment.contents()
    mark = marks.before(cursor)
    if mark is None:
        return
    reader = _WindowReader(file, segment.path)
    offset, logs_before = mark.offset, mark.logs_before
    left = end_cursor - mark.cursor
    while left > 0:
        for of_record, received_us, logs, group in reader.read(offset, segment.layout, most=left):
            if of_record >= cursor:
                yield Entry(
                    cursor=of_record,
                    received_us=received_us,
                    logs=logs,
                    logs_before=logs_before,
                    group=group,
                )
            logs_before += logs
            offset += segment.layout.stored_bytes(len(group))
            left -= 1


class _WindowReader:
    """Reads records through a window on the file, most of them without a disk access."""

    def __init__(self, file: File, path: str) -> None:
        self._file, self._path = file, path
        self._window, self._base = b"", 0
        self._next_window_bytes = _FIRST_WINDOW_BYTES

    def read(self, offset: int, layout: Layout, *, most: int) -> Iterable[tuple[int, int, int, bytes]]:
        """Cursor, time of receipt, number of logs and group of the record at ``offset``, and of some of the
        records after it. Raises LogDamaged unless the first one is complete and its CRC matches."""
        at = offset - self._base
        return native.whole_records(self._window, at, len(layout.end_mark), most) or (self._read_one(offset),)

    def _read_one(self, offset: int) -> tuple[int, int, int, bytes]:
        try:
            header = self._load(offset)
            if header is None:
                raise DamagedRecord("a record is missing")
            segment_format.check(self._window, offset - self._base, header)
        except DamagedRecord as error:
            raise LogDamaged(f"{self._path} at {offset}: {error}") from error
        group = segment_format.group_bytes(self._window, offset - self._base, header)
        return header.cursor, header.received_us, header.logs, group

    def _load(self, offset: int) -> segment_format.RecordHeader | None:
        """Move the window so that it contains the whole record at ``offset``; return the record's header."""
        header = segment_format.read_header(self._window, offset - self._base)
        if header is not None and self._is_inside(header, offset):
            return header
        self._window, self._base = self._file.read_at(self._next_window_bytes, offset=offset), offset
        self._next_window_bytes = _WINDOW_BYTES
        header = segment_format.read_header(self._window, 0)
        if header is not None and not self._is_inside(header, offset):
            length = segment_format.RECORD_HEADER_BYTES + min(header.length, segment_format.MAX_GROUP_BYTES)
            self._window = self._file.read_at(length, offset=offset)
        return header

    def _is_inside(self, header: segment_format.RecordHeader, offset: int) -> bool:
        end = offset + segment_format.RECORD_HEADER_BYTES + header.length
        return end <= self._base + len(self._window)


def create_segment(disk: Disk, *, folder: str, header: SegmentHeader, size: int) -> OpenSegment:
    """Create a preallocated segment; the file and its name are durable before the call returns.

    Raises OSError if there is no room, and WriteFailed for any other error: a name that may or may not be on
    stable storage is as bad as a record.
    """
    path = f"{folder}/{segment_name(header.first_cursor)}"
    fresh = f"{path}.new"
    packed = segment_format.pack_segment_header(header)
    try:
        file = disk.create(fresh)
        try:
            file.allocate(size)
            file.write_at(packed, offset=0)
            file.sync_data()
            disk.rename(fresh, path)
        except OSError:
            file.close()
            disk.remove(fresh)
            raise
    except OSError as error:
        if is_disk_full(error):
            raise
        raise WriteFailed(f"{path}: {error}") from error
    disk.sync_dir(folder)
    return OpenSegment(
        path=path, file=file, header=header, layout=segment_format.unpack_segment_header(packed)[1]
    )


def segment_name(first_cursor: int) -> str:
    return f"{first_cursor:020d}.seg"
