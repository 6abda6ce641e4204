"""The log of one shard: durable appends, reads by cursor or time, exact counts, and retention.

A log consists of segments (see `segment`). One thread at a time writes (`append`, `sync`, `drop_before`;
see `commits`), while any thread may read the range that `extent` describes. A group becomes readable only
once it is durable, so a reader never sees a group or a cursor that a crash could undo. All times are
arguments.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from loghub.service.ports import Disk
from loghub.service.storage.record import SEGMENT_HEADER_BYTES, SegmentHeader, stored_bytes
from loghub.service.storage.segment import Entry, LogDamaged, NewGroup, Segment, create_segment, open_segment


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """The readable part of a shard: the cursors in [oldest_cursor, end_cursor)."""

    oldest_cursor: int
    end_cursor: int  # the cursor of the next write
    logs_total: int  # in all groups since the shard's birth, including dropped groups
    received_us: int  # of the newest group, or the shard's birth


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """Log groups in order, and the cursor after the last of them."""

    entries: tuple[Entry, ...]
    next_cursor: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The groups and logs between a cursor and the end, and the receive time at the cursor."""

    groups_left: int
    logs_left: int
    received_us: int | None  # of the group at the cursor; None at the end


class NoRoom(Exception):  # noqa: N818 - the name states the problem
    """There is no room for a new segment. The first ``written`` groups were written; the cause is the
    OSError."""

    def __init__(self, written: int) -> None:
        super().__init__(f"no space for a new segment after {written} log groups")
        self.written = written


class ShardLog:
    """The log of one shard. Open it with `open_log`."""

    def __init__(self, disk: Disk, *, folder: str, birth: SegmentHeader, segment_bytes: int) -> None:
        self._disk = disk
        self._folder = folder
        self._birth = birth
        self._segment_bytes = segment_bytes
        self._segments: tuple[Segment, ...] = ()
        self._dirty = False
        born = Extent(
            oldest_cursor=birth.first_cursor,
            end_cursor=birth.first_cursor,
            logs_total=birth.logs_before,
            received_us=birth.received_us,
        )
        # A single reference that is replaced atomically: a reader must never see an extent
        # together with the segments of another moment.
        self._published: tuple[Extent, tuple[Segment, ...]] = (born, ())

    @property
    def extent(self) -> Extent:
        return self._published[0]

    # Writing: one thread.

    def append(self, groups: Sequence[NewGroup]) -> None:
        """Write groups at the end. Call `sync` before acknowledging them.

        Raises NoRoom, or WriteFailed if the log accepts no further appends.
        """
        run: list[NewGroup] = []
        run_bytes = 0
        for index, new in enumerate(groups):
            size = stored_bytes(len(new.group))
            if not self._segments or not self._segments[-1].fits(run_bytes + size):
                self._write(run)
                run, run_bytes = [], 0
                try:
                    self._make_room(len(new.group))
                except OSError as error:
                    raise NoRoom(index) from error
            run.append(new)
            run_bytes += size
        self._write(run)

    def _write(self, run: list[NewGroup]) -> None:
        if run:
            self._dirty = True
            self._segments[-1].append(run)

    def _make_room(self, group_bytes: int) -> None:
        if not self._segments or not self._segments[-1].fits(group_bytes):
            self._roll(SEGMENT_HEADER_BYTES + stored_bytes(group_bytes))

    def _roll(self, least_bytes: int) -> None:
        """Create a new segment. The previous segment is synced first, so only the newest can have a torn
        tail."""
        header = self._birth
        if self._segments:
            last = self._segments[-1]
            last.seal()
            header = SegmentHeader(
                first_cursor=last.next_cursor, logs_before=last.logs_total, received_us=last.received_us
            )
        size = max(self._segment_bytes, least_bytes)
        fresh = create_segment(self._disk, folder=self._folder, header=header, size=size)
        self._segments = (*self._segments, fresh)

    def sync(self) -> None:
        """Make all appends durable and then readable. Raises WriteFailed, which is final."""
        if self._dirty:
            self._segments[-1].sync()
            self._dirty = False
            self._publish()

    def _publish(self) -> None:
        last = self._segments[-1]
        extent = Extent(
            oldest_cursor=self._segments[0].first_cursor,
            end_cursor=last.next_cursor,
            logs_total=last.logs_total,
            received_us=last.received_us,
        )
        self._published = (extent, self._segments)

    def drop_before(self, received_us: int) -> int:
        """Drop whole segments whose newest group is older than this time; return the number of groups.

        The oldest segment is removed first, and each removal is durable before the next: after a power loss
        any of the names that were removed together may reappear, and recovery treats a gap as damage. For the
        same reason, if a segment cannot be removed (OSError), it and all later segments stay.
        """
        before = self.extent.oldest_cursor
        if self._segments and self.extent.end_cursor > before and self.extent.received_us < received_us:
            self._roll(SEGMENT_HEADER_BYTES)
        while len(self._segments) > 1 and self._segments[0].received_us < received_us:
            self._disk.remove(self._segments[0].path)
            self._disk.sync_dir(self._folder)
            self._segments = self._segments[1:]
            self._publish()
        return self.extent.oldest_cursor - before

    def close(self) -> None:
        for segment in self._segments:
            segment.close()

    def recover(self) -> int:
        """Open the segments on disk; return the number of bytes of a torn tail that were cut.

        After a kill, the newest records and the newest name may be in the page cache only. They are synced
        before they can be read.
        """
        paths = [f"{self._folder}/{name}" for name in self._disk.list_names(self._folder)]
        for path in paths:
            if path.endswith(".new"):
                self._disk.remove(path)
        segments: list[Segment] = []
        cut = 0
        names = [path for path in paths if path.endswith(".seg")]
        for path in names:
            segment = open_segment(self._disk, path=path)
            _refuse_gap(segments, segment)
            cut += segment.recover(sealed=path != names[-1])
            segments.append(segment)
        self._segments = tuple(segments)
        if segments:
            self._disk.sync_dir(self._folder)
            self._publish()
        return cut

    # Reading: any thread.

    def read(self, *, cursor: int, end_cursor: int, max_groups: int, max_bytes: int) -> Read:
        """The groups in [cursor, end_cursor), in order and at most ``max_groups``.

        Reading stops with the group that reaches ``max_bytes``, so the first group is always returned. A
        cursor below the oldest group starts at the oldest.
        """
        extent, segments = self._published
        cursor = max(cursor, extent.oldest_cursor)
        end_cursor = min(end_cursor, extent.end_cursor, cursor + max_groups)
        entries: list[Entry] = []
        size = 0
        for entry in _scan(segments, cursor, end_cursor):
            entries.append(entry)
            size += len(entry.group)
            if size >= max_bytes:
                break
        return Read(entries=tuple(entries), next_cursor=cursor + len(entries))

    def place(self, cursor: int) -> Place:
        """The exact amount of data that is readable between a cursor and the end, without dropped groups."""
        extent, segments = self._published
        cursor = max(cursor, extent.oldest_cursor)
        entry = next(_scan(segments, cursor, min(cursor + 1, extent.end_cursor)), None)
        if entry is None:
            return Place(groups_left=0, logs_left=0, received_us=None)
        return Place(
            groups_left=extent.end_cursor - cursor,
            logs_left=extent.logs_total - entry.logs_before,
            received_us=entry.received_us,
        )

    def cursor_at(self, received_us: int) -> int:
        """The cursor of the first group received at or after a time; the end cursor if there is none."""
        extent, segments = self._published
        for segment in segments:
            if segment.received_us >= received_us:
                start = bisect_right(segment.marks, received_us - 1, key=lambda mark: mark.received_us)
                first = segment.marks[max(start - 1, 0)].cursor if segment.marks else segment.first_cursor
                for entry in segment.scan(
                    cursor=first, end_cursor=min(segment.next_cursor, extent.end_cursor)
                ):
                    if entry.received_us >= received_us:
                        return entry.cursor
        return extent.end_cursor


def open_log(disk: Disk, *, folder: str, birth: SegmentHeader, segment_bytes: int) -> tuple[ShardLog, int]:
    """The shard's log after recovery, and the number of bytes of a torn tail that were cut."""
    log = ShardLog(disk, folder=folder, birth=birth, segment_bytes=segment_bytes)
    return log, log.recover()


def _scan(segments: tuple[Segment, ...], cursor: int, end_cursor: int) -> Iterator[Entry]:
    index = max(bisect_right(segments, cursor, key=lambda segment: segment.first_cursor) - 1, 0)
    for segment in segments[index:]:
        if segment.first_cursor >= end_cursor:
            return
        yield from segment.scan(
            cursor=max(cursor, segment.first_cursor), end_cursor=min(end_cursor, segment.next_cursor)
        )


def _refuse_gap(before: list[Segment], segment: Segment) -> None:
    if before and segment.first_cursor != before[-1].next_cursor:
        raise LogDamaged(f"{segment.path}: the segment before it is missing or truncated")
