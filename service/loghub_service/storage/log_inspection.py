"""Reads the contents of a shard's folder without changing anything: the segments, and what is wrong with
them.

The start of the service and `loghub fsck` use the same inspection. Of a sealed segment it reads the header
and the end of the footer; all of its records only if there is no valid footer. The last segment, which may
have been written to, is read completely, and from the disk: the page cache may have records that a failed
sync has not written, and which are gone after the next start of the machine.

`LoadedSegments` has the files and indexes of the sealed segments that were read last, for all shards
together. Memory and open files must not grow with the amount of stored data, so only a bounded number of
segments is loaded at a time. A reader with a file keeps it open until it is done, even if the segment is
evicted meanwhile.
"""

import re
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum

import structlog

from loghub_service.ports import Disk, File
from loghub_service.storage import segment_format
from loghub_service.storage.data_folder import DESCRIPTION_NAME
from loghub_service.storage.recovery import Inspection, Tail, inspect
from loghub_service.storage.segment import LogDamaged
from loghub_service.storage.segment_format import (
    END_BLOCK_BYTES,
    DamagedRecord,
    EndBlock,
    Layout,
    Marks,
    NewerFormat,
    SegmentHeader,
    Totals,
    unpack_end_block,
    unpack_marks,
)

_log = structlog.get_logger("loghub_service.storage")
# An index takes 32 bytes for 16 KiB of records, so these take 4 MiB, and 128 open files.
MAX_LOADED = 128


class LoadedSegments:
    """The `SegmentFiles` of a running service; any thread may use it."""

    def __init__(self, disk: Disk, *, maximum: int = MAX_LOADED) -> None:
        self._disk = disk
        self._most = maximum
        self._lock = threading.Lock()
        self._loaded: OrderedDict[str, tuple[File, Marks]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._loaded)

    def get(self, path: str) -> tuple[File, Marks]:
        """The file and the index of a segment. Raises FileNotFoundError, LogDamaged."""
        with self._lock:
            inspection = self._loaded.get(path)
            if inspection is not None:
                self._loaded.move_to_end(path)
                return inspection
        # Not under the lock: the disk may be slow, and other threads read loaded segments.
        loaded = _load(self._disk, path)
        with self._lock:
            self._loaded[path] = loaded
            while len(self._loaded) > self._most:
                self._loaded.popitem(last=False)
        return loaded

    def forget(self, path: str) -> None:
        """Close a segment that is being removed."""
        with self._lock:
            self._loaded.pop(path, None)


def read_end_block(file: File) -> EndBlock | None:
    """The end of a file's footer; None if there is no valid one."""
    size = file.size()
    at = max(size - END_BLOCK_BYTES, 0)
    return unpack_end_block(file.read_at(END_BLOCK_BYTES, offset=at), file_bytes=size)


def _load(disk: Disk, path: str) -> tuple[File, Marks]:
    file = disk.open(path)
    block = read_end_block(file)
    try:
        if block is not None:
            return file, unpack_marks(file.read_at(block.marks_bytes, offset=block.marks_at), block)
    except DamagedRecord as error:
        _log.warning(
            "index of a segment is damaged, reading the records instead", file=path, error=str(error)
        )
    return file, _marks_of_records(file, path)


def _marks_of_records(file: File, path: str) -> Marks:
    """The index of a segment without a footer. A damaged record is reported when it is read, not here."""
    data = file.read_at(file.size(), offset=0)
    try:
        header, layout = segment_format.unpack_segment_header(data)
    except DamagedRecord as error:
        raise LogDamaged(f"{path}: {error}") from error
    return inspect(data, header, layout).marks


_SEGMENT = re.compile(r"(\d{20})\.seg\Z")
_UNFINISHED = re.compile(rf"(\d{{20}}\.seg|{re.escape(DESCRIPTION_NAME)})\.new\Z")


class ProblemKind(StrEnum):
    """What is wrong with a shard's log."""

    DAMAGED_HEADER = "damaged_header"  # the first bytes of a segment are not its header
    DAMAGED_RECORDS = "damaged_records"  # acknowledged records are damaged
    MISSING_RECORDS = "missing_records"  # acknowledged records are not in any segment
    OVERLAP = "overlap"  # a segment begins before the end of the one before it


@dataclass(frozen=True, slots=True, kw_only=True)
class LogProblem:
    """Acknowledged log groups that are lost: the cursors in [begin_cursor, end_cursor)."""

    kind: ProblemKind
    path: str  # the segment at which the problem was noticed, or the folder
    offset: int | None
    begin_cursor: int
    end_cursor: int | None  # None: up to the end, which is unknown
    text: str

    def __str__(self) -> str:
        return f"{self.path}{'' if self.offset is None else f' at {self.offset}'}: {self.text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundSegment:
    """One segment. ``read`` is None unless its records were read."""

    path: str
    header: SegmentHeader
    layout: Layout
    totals: Totals
    read: Inspection | None


@dataclass(slots=True, kw_only=True)
class LogInspection:
    """A shard's folder. ``expired`` segments are below the oldest cursor, ``unfinished`` files belong to
    writes that a crash interrupted: the service removes both. It leaves ``unknown`` files in place.
    ``is_clean``: the last run of the service has stopped cleanly, so everything that it wrote is on the
    disk."""

    folder: str
    is_clean: bool = False
    segments: list[FoundSegment] = field(default_factory=list)
    problems: list[LogProblem] = field(default_factory=list)
    expired: list[str] = field(default_factory=list)
    unfinished: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    is_described: bool = False

    @property
    def end_cursor(self) -> int | None:
        """The end of the readable log groups; None without segments."""
        return self.segments[-1].totals.next_cursor if self.segments else None

    @property
    def torn_bytes(self) -> int:
        """The bytes of a torn tail."""
        last = self.segments[-1].read if self.segments else None
        return last.tail_bytes if last is not None and last.tail is Tail.TORN else 0


def inspect_log(
    disk: Disk,
    folder: str,
    *,
    oldest_cursor: int | None = None,
    before_read: Callable[[], None] = lambda: None,
    is_clean: bool = False,
) -> LogInspection:
    """Inspect a shard's folder. Raises OSError, NewerFormat, WriteFailed.

    Log groups below ``oldest_cursor`` have expired; None if that is not known. ``before_read`` is called
    before all records of a segment are read, and may raise to end the inspection.
    """
    inspection = LogInspection(folder=folder, is_clean=is_clean)
    paths = _live_paths(disk, inspection, oldest_cursor)
    reader = _LogReader(disk, inspection, before_read, oldest_cursor)
    for path, first_cursor in paths:
        reader.read(path, first_cursor, last=path == paths[-1][0])
    return inspection


def _live_paths(disk: Disk, inspection: LogInspection, oldest_cursor: int | None) -> list[tuple[str, int]]:
    """The segments that are not expired, each with the first cursor in its name."""
    paths: list[tuple[str, int]] = []
    for name in disk.list_names(inspection.folder):
        path, match = f"{inspection.folder}/{name}", _SEGMENT.match(name)
        if match is not None:
            paths.append((path, int(match[1])))
        elif _UNFINISHED.match(name):
            inspection.unfinished.append(path)
        elif name == DESCRIPTION_NAME:
            inspection.is_described = True
        else:
            inspection.unknown.append(path)
    while oldest_cursor is not None and len(paths) > 1 and paths[1][1] <= oldest_cursor:
        inspection.expired.append(paths.pop(0)[0])
    return paths


class _LogReader:
    """Reads one segment after the other, and compares each with the end of the one before it."""

    def __init__(
        self,
        disk: Disk,
        inspection: LogInspection,
        before_read: Callable[[], None],
        oldest_cursor: int | None,
    ) -> None:
        self._disk, self._found, self._before_read = disk, inspection, before_read
        self._end = oldest_cursor  # None: not known
        self._is_first = True

    def read(self, path: str, first_cursor: int, *, last: bool) -> None:
        file = self._disk.open(path)
        if last:
            # Records that a kill has left in the cache; only clean pages can be dropped from it.
            file.sync_data()
            file.drop_cached()
        try:
            header, layout = segment_format.unpack_segment_header(
                file.read_at(segment_format.SEGMENT_HEADER_BYTES, offset=0)
            )
            if header.first_cursor != first_cursor:
                raise DamagedRecord(
                    f"the segment begins at cursor {header.first_cursor}, not as its name says"
                )
        except NewerFormat as error:
            raise NewerFormat(f"{path}: {error}") from error
        except DamagedRecord as error:
            self._add(ProblemKind.DAMAGED_HEADER, path, 0, begin=first_cursor, text=str(error))
            self._end = None
            return
        finally:
            self._is_first, is_first = False, self._is_first
        self._compare(path, header, is_first=is_first)
        self._found.segments.append(self._segment(file, path, header, layout, last=last))
        file.close()

    def _compare(self, path: str, header: SegmentHeader, *, is_first: bool) -> None:
        """Whether the segment begins where the one before it ended; the first one may begin earlier."""
        problems = self._found.problems
        if self._end is None and problems:
            problems[-1] = replace(problems[-1], end_cursor=header.follows)
        if self._end is None or header.follows == self._end or (is_first and header.follows < self._end):
            return
        if header.follows > self._end:
            text = "a segment is missing, or the one before it is truncated"
            self._add(ProblemKind.MISSING_RECORDS, path, None, begin=self._end, end=header.follows, text=text)
        else:
            text = f"the segment begins before the end {self._end} of the one before it"
            self._add(ProblemKind.OVERLAP, path, None, begin=header.follows, end=self._end, text=text)

    def _segment(
        self, file: File, path: str, header: SegmentHeader, layout: Layout, *, last: bool
    ) -> FoundSegment:
        block = None if last else read_end_block(file)
        if block is not None:
            self._end = block.totals.next_cursor
            return FoundSegment(path=path, header=header, layout=layout, totals=block.totals, read=None)
        self._before_read()
        read = inspect(file.read_at(file.size(), offset=0), header, layout)
        totals = read.totals
        self._end = totals.next_cursor
        if read.tail is Tail.DAMAGED or (read.tail is Tail.TORN and not last):
            self._add(
                ProblemKind.DAMAGED_RECORDS, path, totals.used, begin=totals.next_cursor, text=read.reason
            )
            self._end = None
        return FoundSegment(path=path, header=header, layout=layout, totals=totals, read=read)

    def _add(
        self,
        kind: ProblemKind,
        path: str,
        offset: int | None,
        *,
        begin: int,
        end: int | None = None,
        text: str,
    ) -> None:
        problem = LogProblem(
            kind=kind, path=path, offset=offset, begin_cursor=begin, end_cursor=end, text=text
        )
        self._found.problems.append(problem)
