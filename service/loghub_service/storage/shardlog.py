"""The log of one shard: durable appends, reads by cursor or time, exact counts, and retention.

A log consists of segments (see `segment`). One thread at a time writes (`append`, `sync`, `expire`; see
`group_commit`), while any thread may read the range that `extent` describes. A group becomes readable only
once it is durable, so a reader never sees a group or a cursor that a crash could undo. Cursors are
consecutive, except that a segment may skip some after an accepted loss. All times are arguments.

Cursors are in the order of arrival; receive times usually are, too. After the wall clock was set back, groups
received before that have times in the future, which say nothing. Such a group was received after the last
earlier group, and before the first later group, whose time is plausible. Segments with only such times are
not read to find a time.

Ordinals, from which Kafka offsets are made (docs/kafka.md 2), count the groups of a shard. A logstore that
was created again under the same name begins above the ordinals of the earlier one.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import structlog

from loghub_service.facts import KnownEnd
from loghub_service.ports import Disk
from loghub_service.storage import segment_format
from loghub_service.storage.log_inspection import FoundSegment, LoadedSegments, LogInspection
from loghub_service.storage.recovery import Tail
from loghub_service.storage.segment import (
    CLOCK_STEP_US,
    Entry,
    LogDamaged,
    NewGroup,
    OpenSegment,
    Room,
    SealedSegment,
    Segment,
    check_free,
    create_segment,
    new_size,
    scan,
)
from loghub_service.storage.segment_format import (
    SEGMENT_HEADER_BYTES,
    Marks,
    SegmentHeader,
    footer_room,
    pack_footer,
    stored_bytes,
)
from loghub_service.storage.stored_group import raw_size


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """The readable part of a shard: the cursors in [oldest_cursor, end_cursor)."""

    oldest_cursor: int
    end_cursor: int  # the cursor of the next write
    logs_total: int  # in all groups since the shard's birth, including dropped groups
    received_us: int  # of the newest group; without one, the shard's birth
    # Numbers of logs: of the newest group, if it was written since the start; and of the group before the
    # oldest one, if it is known. Reads do not depend on them.
    newest_logs: int | None = field(default=None, compare=False)
    expired_logs: int | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """Log groups in order, and the cursor after the last one."""

    entries: tuple[Entry, ...]
    next_cursor: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardRemainder:
    """The groups and logs between a cursor and the end, and the receive time at the cursor. ``logs_before``
    were ever written before it: the difference of two cursors does not depend on what arrives meanwhile."""

    groups_left: int
    logs_left: int
    logs_before: int
    received_us: int | None  # None at the end


@dataclass(frozen=True, slots=True, kw_only=True)
class Newest:
    """The newest group of a log that ends at ``end_cursor``.

    ``next_cursor`` is the cursor after it, which is less than the end if cursors were skipped there after a
    loss; ``logs`` is the number of its logs, None if it is not known any more.
    """

    end_cursor: int
    next_cursor: int
    logs: int | None


def first_received_since(
    segments: Sequence[Segment], received_us: int, *, end_cursor: int, now_us: int
) -> int:
    """The cursor from which on all groups received at or after a time are read; the end if there is none.

    Groups with an implausible time are included if they may have been received at or after that time.
    """
    latest_us = now_us + CLOCK_STEP_US
    uncertain: int | None = None  # the first group with an implausible time since the last earlier group
    for segment in segments:
        if segment.totals.latest_us < received_us:
            uncertain = None
            continue
        if _is_all_implausible(segment, latest_us) and (segment.totals.earliest_us or 0) >= received_us:
            uncertain = segment.header.first_cursor if uncertain is None else uncertain
            continue
        begin, skips_earlier = _begin(segment, received_us)
        if skips_earlier:
            uncertain = None
        for entry in scan(segment, cursor=begin, end_cursor=min(segment.totals.next_cursor, end_cursor)):
            if entry.received_us < received_us:
                uncertain = None
            elif entry.received_us > latest_us:
                uncertain = entry.cursor if uncertain is None else uncertain
            else:
                return entry.cursor if uncertain is None else uncertain
    return end_cursor if uncertain is None else uncertain


def _is_all_implausible(segment: Segment, latest_us: int) -> bool:
    earliest_us = segment.totals.earliest_us
    return earliest_us is not None and earliest_us > latest_us


def _begin(segment: Segment, received_us: int) -> tuple[int, bool]:
    """The cursor of the last mark before the first one at or after a time, and whether groups precede it."""
    _, marks = segment.contents()
    times = marks.received()
    first = next((index for index, time_us in enumerate(times) if time_us >= received_us), len(times))
    begin = max(first - 1, 0)
    return (marks[begin].cursor if len(marks) else segment.header.first_cursor), begin > 0


def plausible_time(segments: Sequence[Segment], cursor: int, received_us: int, *, now_us: int) -> int:
    """The receive time of the group at a cursor; if it is in the future, the time of the last group before it
    with a plausible time, to the precision of the index."""
    latest_us = now_us + CLOCK_STEP_US
    if received_us <= latest_us:
        return received_us
    for segment in reversed(segments):
        if segment.header.first_cursor > cursor:
            continue
        marks = Marks() if _is_all_implausible(segment, latest_us) else segment.contents()[1]
        for index in range(len(marks) - 1, -1, -1):
            if marks[index].cursor <= cursor and marks[index].received_us <= latest_us:
                return marks[index].received_us
        if segment.header.received_us <= latest_us:
            return segment.header.received_us
    return now_us


_log = structlog.get_logger("loghub_service.storage")
T = TypeVar("T")


class NoRoom(Exception):  # noqa: N818 - the name states the problem
    """There is no room for a new segment. The first ``written`` groups were written; the cause is the
    OSError."""

    def __init__(self, written: int) -> None:
        super().__init__(f"no space for a new segment after {written} log groups")
        self.written = written


@dataclass(frozen=True, slots=True)
class _Published:
    """The state that readers see. It is replaced as a whole, because an extent belongs to the segments of the
    same moment."""

    extent: Extent
    segments: tuple[Segment, ...]


class ShardLog:
    """The log of one shard. `restore` it from an inspection."""

    def __init__(
        self,
        disk: Disk,
        *,
        folder: str,
        birth: SegmentHeader,
        room: Room,
        files: LoadedSegments,
    ) -> None:
        self._disk = disk
        self._folder = folder
        self._birth = birth
        self.first_ordinal = 0  # of the first group, for Kafka clients; the engine sets it before any use
        self._room = room
        self._files = files
        self._sealed: tuple[SealedSegment, ...] = ()
        self._open: OpenSegment | None = None
        self._dirty = False
        self._newest_logs: int | None = None
        self._expired_logs: int | None = None
        self._newest: Newest | None = None  # at the last read
        born = Extent(
            oldest_cursor=birth.first_cursor,
            end_cursor=birth.first_cursor,
            logs_total=birth.logs_before,
            received_us=birth.received_us,
        )
        self._published = _Published(born, ())

    @property
    def extent(self) -> Extent:
        return self._published.extent

    @property
    def first_cursor(self) -> int:
        """The cursor of the first group that was ever written, or will be."""
        return self._birth.first_cursor

    @property
    def last_roll(self) -> int:
        """The first cursor of the newest segment; the shard's first cursor if there is none."""
        return self._birth.first_cursor if self._open is None else self._open.header.first_cursor

    # Writing: one thread.

    def append(self, groups: Sequence[NewGroup]) -> None:
        """Write groups at the end. Call `sync` before acknowledging them.

        Raises NoRoom, or WriteFailed if the log accepts no further appends.
        """
        run: list[NewGroup] = []
        run_bytes = 0
        for index, new in enumerate(groups):
            size = stored_bytes(len(new.group))
            if self._open is None or not self._open.fits(run_bytes + size):
                self._write(run)
                run, run_bytes = [], 0
                try:
                    self._make_room(size)
                except OSError as error:
                    raise NoRoom(index) from error
            run.append(new)
            run_bytes += size
        self._write(run)

    def _write(self, run: list[NewGroup]) -> None:
        if run:
            assert self._open is not None
            self._dirty = True
            self._open.append(run)
            self._newest_logs = run[-1].logs

    def _make_room(self, size: int) -> None:
        if self._open is not None and self._open.fits(size):
            return
        end = SEGMENT_HEADER_BYTES + size
        last, used, maximum = self._open, 0, self._room.segment_bytes
        if last is not None and not last.is_empty:
            size_now, used = last.size_for(size, maximum=maximum), last.totals.used
            if size_now is not None:
                self._check_free(size_now - used)
                last.grow(size_now)
                return
        minimum = end + footer_room(end)
        allocated = new_size(first=self._room.first_bytes, used_before=used, minimum=minimum, maximum=maximum)
        self._check_free(allocated)
        self._roll(allocated)

    def _check_free(self, size: int) -> None:
        check_free(self._disk, self._folder, size, reserved_bytes=self._room.reserved_bytes)

    def _roll(self, allocated: int) -> None:
        """Create a new segment of this size. The previous segment is sealed first, so only the newest can
        have a torn tail. A segment without records is replaced: the new one has the same name, which
        retention would remove together with the sealed one. New segments have the salt of ``birth``."""
        header, sealed = self._birth, self._sealed
        if self._open is not None and self._open.is_empty:
            header = replace(self._open.header, salt=self._birth.salt)
        elif self._open is not None:
            last = self._open.seal(self._files)
            sealed = (*sealed, last)
            header = SegmentHeader(
                first_cursor=last.totals.next_cursor,
                logs_before=last.totals.logs_total,
                received_us=last.totals.received_us,
                salt=self._birth.salt,
            )
        self._open = create_segment(self._disk, folder=self._folder, header=header, size=allocated)
        self._sealed = sealed

    def sync(self) -> None:
        """Make all appends durable and then readable. Raises WriteFailed, which is final."""
        if self._dirty and self._open is not None:
            self._open.sync()
            self._dirty = False
            self._publish()

    def _publish(self) -> None:
        assert self._open is not None
        segments: tuple[Segment, ...] = (*self._sealed, self._open)
        totals = self._open.totals
        extent = Extent(
            oldest_cursor=segments[0].header.first_cursor,
            end_cursor=totals.next_cursor,
            logs_total=totals.logs_total,
            received_us=totals.received_us,
            newest_logs=self._newest_logs,
            expired_logs=self._expired_logs,
        )
        self._published = _Published(extent, segments)

    def expire(self, received_us: int, *, now_us: int, maximum: int) -> list[str]:
        """Drop at most ``maximum`` whole segments, of which all groups are older than this time.

        Returns their files, which the caller removes once the new oldest cursor is persisted: until then a
        crash brings them back. Raises OSError if there is no space for a new segment.
        """
        if self._open is not None and not self._open.is_empty and self.extent.received_us < received_us:
            try:
                self._roll(SEGMENT_HEADER_BYTES)  # the next write makes one with room
            except OSError:
                if not self._sealed:
                    raise
        expired = 0
        for number, segment in enumerate(self._sealed[:maximum], 1):
            latest_us = segment.totals.latest_us
            if latest_us < received_us:
                expired = number
            elif latest_us <= now_us:  # a time in the future says nothing, so a later segment decides
                break
        if self._open is not None and self._sealed:
            dropped, self._sealed = self._sealed[:expired], self._sealed[expired:]
            if dropped:
                self._expired_logs = _logs_of_last_group(dropped[-1])
            self._publish()
            return [segment.path for segment in dropped]
        return []

    def close(self) -> None:
        if self._open is not None:
            self._open.close()

    def restore(self, inspection: LogInspection, *, known_end: KnownEnd | None = None) -> None:
        """Take over an inspection without problems, and make its records durable. ``known_end`` is the end of
        the log in the database.

        After a kill, the newest name may be in the page cache only, as the newest records were before the
        inspection. It is synced before they can be read. Raises OSError, WriteFailed.
        """
        for path in inspection.unfinished:
            self._disk.remove(path)
        for segment in inspection.segments[:-1]:
            if segment.read is not None:
                self._add_footer(segment, segment.read.marks)
        self._sealed = tuple(
            SealedSegment(segment.path, segment.header, segment.layout, segment.totals, self._files)
            for segment in inspection.segments[:-1]
        )
        if inspection.segments:
            if (
                known_end is not None
                and known_end.oldest_cursor == inspection.segments[0].header.first_cursor
            ):
                self._expired_logs = known_end.expired_logs
            self._open = self._opened(inspection.segments[-1], is_clean=inspection.is_clean)
            self._disk.sync_dir(self._folder)
            self._publish()

    def _opened(self, last: FoundSegment, *, is_clean: bool) -> OpenSegment:
        assert last.read is not None
        segment = OpenSegment(
            path=last.path, file=self._disk.open(last.path), header=last.header, layout=last.layout
        )
        # Older formats are not written. A file of an unclean run is not written either: a write or sync of it
        # may have failed, and then it is unknown which of its blocks can be written.
        writable = is_clean and last.layout.version == segment_format.FORMAT and last.read.tail is Tail.CLEAN
        segment.restore(last.read, writable=writable)
        return segment

    def _add_footer(self, segment: FoundSegment, marks: Marks) -> None:
        """Give a segment of an older format a footer, so that the next start need not read it."""
        footer = pack_footer(marks, segment.totals, end_mark=segment.layout.end_mark)
        try:
            file = self._disk.open(segment.path)
            file.write_at(footer, offset=segment.totals.used)
            file.truncate(segment.totals.used + len(footer))
            file.sync_data()
            file.close()
        except OSError as error:
            _log.warning("index not written, the next start reads the segment again", error=str(error))

    # Reading: any thread.

    def read(self, *, cursor: int, end_cursor: int, max_groups: int, max_bytes: int) -> Read:
        """The groups in [cursor, end_cursor), in order and at most ``max_groups``.

        Reading stops with the group that reaches ``max_bytes`` without compression, so the first group is
        always returned, and before cursors that are not in the log. A cursor that is not in the log, because
        its group has expired or was lost, starts at the next group.
        """

        def read(seen: _Published) -> Read:
            index, begin = _find(seen, cursor)
            end = min(end_cursor, seen.extent.end_cursor, begin + max_groups)
            entries: list[Entry] = []
            size = 0
            for number, segment in enumerate(seen.segments[index:]):
                first = max(begin, segment.header.first_cursor)
                if first >= end or (number and segment.header.skipped):
                    break
                for entry in scan(segment, cursor=first, end_cursor=min(end, segment.totals.next_cursor)):
                    entries.append(entry)
                    size += raw_size(entry.group)
                    if size >= max_bytes:
                        return Read(entries=tuple(entries), next_cursor=entry.cursor + 1)
            return Read(entries=tuple(entries), next_cursor=begin + len(entries))

        return self._reading(read)

    def place(self, cursor: int, *, now_us: int) -> ShardRemainder:
        """The exact amount of data that is readable between a cursor and the end, without dropped groups."""

        def place(seen: _Published) -> ShardRemainder:
            index, begin = _find(seen, cursor)
            if begin >= seen.extent.end_cursor:
                total = seen.extent.logs_total
                return ShardRemainder(groups_left=0, logs_left=0, logs_before=total, received_us=None)
            entry = next(scan(seen.segments[index], cursor=begin, end_cursor=begin + 1))
            skipped = sum(segment.header.skipped for segment in seen.segments[index + 1 :])
            return ShardRemainder(
                groups_left=seen.extent.end_cursor - begin - skipped,
                logs_left=seen.extent.logs_total - entry.logs_before,
                logs_before=entry.logs_before,
                received_us=plausible_time(seen.segments, begin, entry.received_us, now_us=now_us),
            )

        return self._reading(place)

    def known_newest(self) -> Newest | None:
        """The newest group, if it is known without a disk access."""
        extent = self.extent
        if extent.newest_logs is not None:
            return Newest(
                end_cursor=extent.end_cursor, next_cursor=extent.end_cursor, logs=extent.newest_logs
            )
        if extent.oldest_cursor == extent.end_cursor:
            return Newest(
                end_cursor=extent.end_cursor, next_cursor=extent.end_cursor, logs=extent.expired_logs
            )
        read = self._newest
        return read if read is not None and read.end_cursor == extent.end_cursor else None

    def newest(self) -> Newest:
        """The newest group. It is read once, and again only when the log has another end."""

        def newest(seen: _Published) -> Newest:
            end = seen.extent.end_cursor
            # The newest segment may have no records yet.
            last = next((one for one in reversed(seen.segments) if _has_records(one)), None)
            if last is None:
                return Newest(end_cursor=end, next_cursor=end, logs=None)
            next_cursor = last.totals.next_cursor
            return Newest(end_cursor=end, next_cursor=next_cursor, logs=_logs_of_last_group(last))

        newest_group = self.known_newest()
        if newest_group is None:
            newest_group = self._newest = self._reading(newest)
        return newest_group

    def cursor_at(self, received_us: int, *, now_us: int) -> int:
        """The cursor of the first group received at or after a time; the end cursor if there is none."""
        return self._reading(
            lambda seen: first_received_since(
                seen.segments, received_us, end_cursor=seen.extent.end_cursor, now_us=now_us
            )
        )

    def _reading(self, read: Callable[[_Published], T]) -> T:
        """Read from the published state, again if retention removed a segment meanwhile."""
        while True:
            seen = self._published
            try:
                return read(seen)
            except FileNotFoundError as error:
                if self.extent.oldest_cursor == seen.extent.oldest_cursor:
                    raise LogDamaged(f"{error.filename}: the segment is missing") from error


def _has_records(segment: Segment) -> bool:
    return segment.totals.next_cursor > segment.header.first_cursor


def _logs_of_last_group(segment: Segment) -> int | None:
    """The number of logs in a segment's last group; None if it cannot be read."""
    end = segment.totals.next_cursor
    try:
        return next(scan(segment, cursor=end - 1, end_cursor=end)).logs
    except (LogDamaged, StopIteration):
        return None


def _find(seen: _Published, cursor: int) -> tuple[int, int]:
    """The segment that contains a cursor, and the cursor; for a cursor that is not in the log, the segment
    and the cursor of the next group."""
    segments = seen.segments
    cursor = max(cursor, seen.extent.oldest_cursor)
    index = max(bisect_right(segments, cursor, key=lambda segment: segment.header.first_cursor) - 1, 0)
    if index + 1 < len(segments) and cursor >= segments[index].totals.next_cursor:
        return index + 1, segments[index + 1].header.first_cursor
    return index, cursor


def ordinal_of(log: ShardLog, cursor: int) -> int:
    """The ordinal of the log group at a cursor."""
    return cursor - log.first_cursor + log.first_ordinal


def cursor_of(log: ShardLog, ordinal: int) -> int:
    """The cursor of the log group with an ordinal."""
    return ordinal - log.first_ordinal + log.first_cursor
