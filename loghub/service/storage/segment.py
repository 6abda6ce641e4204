"""One segment file: append, sync, find, scan, recover.

What for: the only code that reads and writes segment files. What it must not know: which
shard of which logstore, HTTP, SQLite. Read next: `record` (the bytes), `shardlog` (the
segments of a shard).

A segment is written by one thread; others may scan what has been published meanwhile,
since records never change and `marks` only grows.
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
    """A log file lost data that had been acknowledged; a person must look. Names file and offset."""


class WriteFailed(ServiceFault):
    """A write or sync of log data failed: what the file holds now is unknown, until a recovery."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """One entry of the sparse index: a record's place."""

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
    logs_before: int  # in all groups of the shard below this one, dropped ones included
    group: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class NewGroup:
    """A log group on its way into the file."""

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
        """Write the groups, in one write. Not yet durable: see `sync`. Raises WriteFailed."""
        start = self.used
        parts = [self._take(new) for new in groups]
        try:
            self._file.write_at(b"".join(parts), offset=start)
        except OSError as error:
            raise WriteFailed(f"{self.path}: {error}") from error

    def _take(self, new: NewGroup) -> bytes:
        received_us = max(new.received_us, self.received_us)  # the wall clock may jump back
        data = record.pack_record(
            new.group,
            cursor=self.next_cursor,
            received_us=received_us,
            logs=new.logs,
            synced=self._synced,
        )
        self._note(stored=len(data), received_us=received_us, logs=new.logs)
        return data

    def _note(self, *, stored: int, received_us: int, logs: int) -> None:
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
        """Make it durable and give the unused blocks back; no append after this."""
        self._file.truncate(self.used)
        self._capacity = self.used
        self.sync()

    def close(self) -> None:
        self._file.close()

    def scan(self, *, cursor: int, end_cursor: int) -> Iterator[Entry]:
        """Entries of [cursor, end_cursor), each checked; LogDamaged if a byte of them is wrong."""
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
        """A window of the file that holds the whole record at ``offset``, and its start."""
        header = record.read_header(window, offset - base)
        if header is not None and offset + header.stored_bytes <= base + len(window):
            return window, base
        window = self._file.read_at(_WINDOW_BYTES, offset=offset)
        header = record.read_header(window, 0)
        if header is not None and header.stored_bytes > len(window):
            window = self._file.read_at(min(header.stored_bytes, self._capacity), offset=offset)
        return window, offset

    def recover(self, *, sealed: bool) -> int:
        """Read the file anew: rebuild the index, cut a torn tail. Returns the bytes cut.

        A sealed segment has no tail that could be torn, and in the open one a bad record below
        an offset that a later record names as synced was acknowledged: both are LogDamaged.
        The open one is synced, so what it shows stays; WriteFailed if that fails.
        """
        data = self._file.read_at(self._capacity, offset=0)
        reason = self._index(data)
        tail = data[self.used :].rstrip(b"\0")
        if sealed and (reason or tail):
            raise LogDamaged(f"{self.path} at {self.used}: {reason or 'bytes after the last record'}")
        if tail:
            self._refuse_lost_sync(data)
            self._cut_tail(len(data))
        if not sealed:  # a sealed one was synced before its successor was made
            self.sync()
        return len(tail)

    def _index(self, data: bytes) -> str:
        """Walk the records as far as they are whole; the reason of the stop, "" for the clean end."""
        view = memoryview(data)
        while (header := record.read_header(view, self.used)) is not None:
            try:
                record.check(view, self.used, header)
            except DamagedRecord as error:
                return str(error)
            if header.cursor != self.next_cursor:
                return f"cursor {header.cursor} where {self.next_cursor} was due"
            self._note(stored=header.stored_bytes, received_us=header.received_us, logs=header.logs)
        return ""

    def _refuse_lost_sync(self, data: bytes) -> None:
        """Look for whole records beyond the bad one that know it to have been durable."""
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
    """A new preallocated segment, durable with its name before the call returns."""
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
    """An existing segment, not yet recovered. Raises LogDamaged if its head is not readable."""
    file = disk.open(path)
    try:
        header = record.unpack_segment_header(file.read_at(record.SEGMENT_HEADER_BYTES, offset=0))
    except DamagedRecord as error:
        file.close()
        raise LogDamaged(f"{path}: {error}") from error
    return Segment(path=path, file=file, header=header)


def segment_name(first_cursor: int) -> str:
    return f"{first_cursor:020d}.seg"
