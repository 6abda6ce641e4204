"""One segment file: append, sync, scan and recovery.

A segment is a part of a shard's log (see `shardlog`); `record` defines its binary layout. One thread writes
a segment. Other threads may scan the published part meanwhile, since records never change and `marks` only
grows.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from loghub.service.faults import ServiceFault
from loghub.service.ports import Disk, File
from loghub.service.storage import record
from loghub.service.storage.record import DamagedRecord, SegmentHeader

MARK_EVERY_BYTES = 16 << 10
_WINDOW_BYTES = 256 << 10


class LogDamaged(ServiceFault):
    """A log file has lost acknowledged data, which requires manual intervention. The message names the file,
    and the offset where it is known."""


class WriteFailed(ServiceFault):
    """A write or sync of log data failed. The content of the file is unknown until recovery."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """One entry of the sparse index: the position of a record."""

    cursor: int
    offset: int
    received_us: int
    logs_before: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One stored log group."""

    cursor: int
    received_us: int
    logs: int
    logs_before: int  # in all earlier groups of the shard, including dropped groups
    group: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class NewGroup:
    """A log group to append."""

    group: bytes
    logs: int
    received_us: int


class Segment:
    """An open segment file with its sparse index."""

    def __init__(self, *, path: str, file: File, header: SegmentHeader) -> None:
        self.path = path
        self.header = header
        self.marks: list[Mark] = []
        self.used = record.SEGMENT_HEADER_BYTES
        self.next_cursor = header.first_cursor
        self.logs_total = header.logs_before
        self.received_us = header.received_us
        self._file = file
        self._synced = self.used
        self._capacity = file.size()

    @property
    def first_cursor(self) -> int:
        return self.header.first_cursor

    def fits(self, group_bytes: int) -> bool:
        return self.used + record.stored_bytes(group_bytes) <= self._capacity

    def append(self, groups: Sequence[NewGroup]) -> None:
        """Append the groups with one write. They are durable after `sync`. Raises WriteFailed."""
        start = self.used
        parts = [self._pack(new) for new in groups]
        try:
            self._file.write_at(b"".join(parts), offset=start)
        except OSError as error:
            raise WriteFailed(f"{self.path}: {error}") from error

    def _pack(self, new: NewGroup) -> bytes:
        received_us = max(new.received_us, self.received_us)  # the wall clock may go back
        data = record.pack_record(
            new.group,
            cursor=self.next_cursor,
            received_us=received_us,
            logs=new.logs,
            synced=self._synced,
        )
        self._index_record(stored=len(data), received_us=received_us, logs=new.logs)
        return data

    def _index_record(self, *, stored: int, received_us: int, logs: int) -> None:
        if not self.marks or self.used - self.marks[-1].offset >= MARK_EVERY_BYTES:
            self.marks.append(
                Mark(
                    cursor=self.next_cursor,
                    offset=self.used,
                    received_us=received_us,
                    logs_before=self.logs_total,
                )
            )
        self.used += stored
        self.next_cursor += 1
        self.logs_total += logs
        self.received_us = received_us

    def sync(self) -> None:
        """Make all appends durable. Raises WriteFailed."""
        try:
            self._file.sync_data()
        except OSError as error:
            raise WriteFailed(f"{self.path}: {error}") from error
        self._synced = self.used

    def seal(self) -> None:
        """Free the unused blocks and make the segment durable; nothing may be appended afterwards."""
        self._file.truncate(self.used)
        self._capacity = self.used
        self.sync()

    def close(self) -> None:
        self._file.close()

    def scan(self, *, cursor: int, end_cursor: int) -> Iterator[Entry]:
        """The entries in [cursor, end_cursor). Each is checked; raises LogDamaged if an entry is damaged."""
        index = bisect_right(self.marks, cursor, key=lambda mark: mark.cursor) - 1
        if index < 0:
            return
        mark = self.marks[index]
        offset, logs_before, window, base = mark.offset, mark.logs_before, b"", mark.offset
        for _ in range(mark.cursor, end_cursor):
            window, base = self._window(window, base, offset)
            header = record.read_header(window, offset - base)
            try:
                if header is None:
                    raise DamagedRecord("a record is missing")
                record.check(window, offset - base, header)
            except DamagedRecord as error:
                raise LogDamaged(f"{self.path} at {offset}: {error}") from error
            if header.cursor >= cursor:
                yield Entry(
                    cursor=header.cursor,
                    received_us=header.received_us,
                    logs=header.logs,
                    logs_before=logs_before,
                    group=record.group_bytes(window, offset - base, header),
                )
            logs_before += header.logs
            offset += header.stored_bytes

    def _window(self, window: bytes, base: int, offset: int) -> tuple[bytes, int]:
        """A part of the file that contains the whole record at ``offset``, and the offset of that part."""
        header = record.read_header(window, offset - base)
        if header is not None and offset + header.stored_bytes <= base + len(window):
            return window, base
        window = self._file.read_at(_WINDOW_BYTES, offset=offset)
        header = record.read_header(window, 0)
        if header is not None and header.stored_bytes > len(window):
            window = self._file.read_at(min(header.stored_bytes, self._capacity), offset=offset)
        return window, offset

    def recover(self, *, sealed: bool) -> int:
        """Read the whole file, rebuild the index and cut a torn tail; return the number of bytes cut.

        A sealed segment cannot have a torn tail. In the open segment, a bad record below an offset that a
        later record names as synced was acknowledged. Raises LogDamaged in both cases. The open segment is
        synced, so that the recovered records are durable; raises WriteFailed if that fails.
        """
        data = self._file.read_at(self._capacity, offset=0)
        reason = self._index(data)
        tail = data[self.used :].rstrip(b"\0")
        if sealed and (reason or tail):
            raise LogDamaged(f"{self.path} at {self.used}: {reason or 'bytes after the last record'}")
        if tail:
            self._refuse_lost_sync(data)
            self._cut_tail(len(data))
        if not sealed:  # a sealed segment was synced before its successor was created
            self.sync()
        return len(tail)

    def _index(self, data: bytes) -> str:
        """Index the records up to the first bad one; return the reason for stopping, "" at a clean end."""
        view = memoryview(data)
        while (header := record.read_header(view, self.used)) is not None:
            try:
                record.check(view, self.used, header)
            except DamagedRecord as error:
                return str(error)
            if header.cursor != self.next_cursor:
                return f"a record has cursor {header.cursor} instead of {self.next_cursor}"
            self._index_record(stored=header.stored_bytes, received_us=header.received_us, logs=header.logs)
        return ""

    def _refuse_lost_sync(self, data: bytes) -> None:
        """Raises LogDamaged if a valid record after the bad record shows that the bad record was durable."""
        view, end = memoryview(data), len(data.rstrip(b"\0"))
        for at in range(self.used, end, 8):
            header = record.read_header(view, at)
            if header is None or header.cursor <= self.next_cursor or header.synced <= self.used:
                continue
            try:
                record.check(view, at, header)
            except DamagedRecord:
                continue
            raise LogDamaged(f"{self.path} at {self.used}: acknowledged records are damaged")

    def _cut_tail(self, size: int) -> None:
        self._file.truncate(self.used)
        self._file.allocate(size)


def create_segment(disk: Disk, *, folder: str, header: SegmentHeader, size: int) -> Segment:
    """Create a preallocated segment; the file and its name are durable before the call returns."""
    path = f"{folder}/{segment_name(header.first_cursor)}"
    fresh = f"{path}.new"
    file = disk.create(fresh)
    try:
        file.allocate(size)
        file.write_at(record.pack_segment_header(header), offset=0)
        file.sync_data()
        disk.rename(fresh, path)
    except BaseException:
        file.close()
        disk.remove(fresh)
        raise
    disk.sync_dir(folder)
    return Segment(path=path, file=file, header=header)


def open_segment(disk: Disk, *, path: str) -> Segment:
    """Open an existing segment without recovering it. Raises LogDamaged if its header is not valid."""
    file = disk.open(path)
    try:
        header = record.unpack_segment_header(file.read_at(record.SEGMENT_HEADER_BYTES, offset=0))
    except DamagedRecord as error:
        file.close()
        raise LogDamaged(f"{path}: {error}") from error
    return Segment(path=path, file=file, header=header)


def segment_name(first_cursor: int) -> str:
    return f"{first_cursor:020d}.seg"
