"""Accepts that log groups of a shard are lost, so that the log goes on without them.

A damaged segment is replaced by segments with its good records; the original is put aside first. Where
cursors are missing, the next segment says how many it skips. A log whose end is lost goes on above every
cursor that may have been given out, so that no cursor stands for two log groups.

A kill or a full disk may end the repair anywhere, and repeating it completes it. So all new segments are
written elsewhere first, and take their places from the last one to the first: the remaining originals have
all log groups of the segments that are not in place yet, and a damaged end stays followed by the segment of
the next write.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass

from loghub_service.diagnosis import LogState
from loghub_service.facts import EndsKnown, KnownEnd
from loghub_service.fsck import folder
from loghub_service.fsck.salvage import GoodRecord, good_runs
from loghub_service.ports import OsDisk, OsRandom
from loghub_service.settings import MIB
from loghub_service.start import Survey
from loghub_service.storage import segment_format
from loghub_service.storage.data_folder import remove_tree
from loghub_service.storage.log_inspection import FoundSegment, LoadedSegments, ProblemKind
from loghub_service.storage.segment import NewGroup, OpenSegment, create_segment
from loghub_service.storage.segment_format import SegmentHeader, footer_room

_MIN_RECORD_BYTES = segment_format.stored_bytes(1)
_SEGMENT_BYTES = 16 * MIB
_DAMAGE = {ProblemKind.DAMAGED_HEADER, ProblemKind.DAMAGED_RECORDS}


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """The cursors that are lost, and the cursor of the next write."""

    ranges: tuple[tuple[int, int], ...]
    goes_on_at: int


def accept_loss(survey: Survey, log: LogState, *, end_is_exact: bool, damaged: set[str]) -> Loss:
    """Repair the log of one shard. Raises OSError.

    ``end_is_exact``: whether the end in the database is the end of all cursors that were given out, as after
    a clean stop. ``damaged`` are segments that are damaged although their footers are good.
    """
    repair = _Repair(survey.data, log, damaged)
    repair.run(end_is_exact=end_is_exact)
    ends = KnownEnd(
        logstore=log.shard.logstore,
        shard=log.shard.shard,
        oldest_cursor=repair.oldest_cursor,
        end_cursor=repair.end,
    )
    folder.commit(survey, EndsKnown(ends=(ends,)))
    return Loss(ranges=tuple(repair.lost), goes_on_at=repair.end)


class _Repair:
    """Goes through the segments of one log in order; ``end`` is the end of the repaired part."""

    def __init__(self, data: str, log: LogState, damaged: set[str]) -> None:
        self._data, self._log, self._disk = data, log, OsDisk()
        self._folder = log.inspection.folder
        self._unfinished = os.path.join(data, folder.LOST_AND_FOUND, "unfinished")
        self._written: list[str] = []  # names of new segments, in the order of the log
        self._replaced: list[str] = []  # paths of originals
        self._files = LoadedSegments(self._disk)
        self._salt = int(OsRandom().hex(segment_format.SALT_DIGITS), 16)
        self._segments = {segment.path: segment for segment in log.inspection.segments}
        self._damaged = damaged | {one.path for one in log.inspection.problems if one.kind in _DAMAGE}
        oldest = log.shard.first_cursor if log.known_end is None else log.known_end.oldest_cursor
        self.end = self.oldest_cursor = oldest
        self.lost: list[tuple[int, int]] = []
        self._before = SegmentHeader(first_cursor=oldest, logs_before=0, received_us=log.shard.born_us)
        self._is_first = True

    def run(self, *, end_is_exact: bool) -> None:
        remove_tree(self._disk, self._unfinished)
        self._disk.make_dirs(self._unfinished)
        self._build(end_is_exact=end_is_exact)
        self._put_in_place()
        remove_tree(self._disk, self._unfinished)

    def _build(self, *, end_is_exact: bool) -> None:
        paths = sorted({*self._segments, *self._damaged})
        loses_end = self._loses_end(paths)
        for path in paths:
            if os.path.basename(path) in self._written:
                continue  # an earlier repair that was interrupted has written it
            segment = self._segments.get(path)
            # A log that goes on in a new segment may have no torn tail before it.
            must_seal = loses_end and path == paths[-1]
            if segment is None or path in self._damaged or must_seal or not self._follows(segment):
                self._replace(path)
            else:
                self._keep(segment)
        if loses_end:
            self._go_on(end_is_exact=end_is_exact)

    def _loses_end(self, paths: list[str]) -> bool:
        ends_damaged = bool(paths) and paths[-1] in self._damaged
        return ends_damaged or self._log.highest_cursor > self._log.end_cursor

    def _follows(self, segment: FoundSegment) -> bool:
        """Whether the segment can stay unchanged. The first one may begin anywhere, as after retention."""
        return self._is_first or segment.header.follows == self.end

    def _keep(self, segment: FoundSegment) -> None:
        if self._is_first:
            # Without a known oldest cursor, the missing log groups before the segment may have expired.
            if self._log.known_end is not None:
                self._lose(segment.header.first_cursor)
            self.oldest_cursor = max(self.oldest_cursor, segment.header.first_cursor)
        self._is_first = False
        totals = segment.totals
        self._before = SegmentHeader(
            first_cursor=totals.next_cursor, logs_before=totals.logs_total, received_us=totals.received_us
        )
        self.end = totals.next_cursor

    def _lose(self, end_cursor: int) -> None:
        if end_cursor > self.end:
            self.lost.append((self.end, end_cursor))

    def _replace(self, path: str) -> None:
        """Write the good records of a segment to new ones."""
        with open(path, "rb") as file:
            content = file.read()
        first_cursor = int(os.path.basename(path).partition(".")[0])
        self._replaced.append(path)
        for run in good_runs(content, first_cursor=first_cursor):
            if run[-1].cursor >= self.end:
                self._write([one for one in run if one.cursor >= self.end])

    def _write(self, run: list[GoodRecord]) -> None:
        first = run[0]
        self._lose(first.cursor)
        header = SegmentHeader(
            first_cursor=first.cursor,
            logs_before=self._before.logs_before,
            received_us=self._before.received_us,
            skipped=0 if self._is_first else first.cursor - self.end,
            salt=self._salt,
        )
        used = segment_format.SEGMENT_HEADER_BYTES + sum(
            segment_format.stored_bytes(len(one.group)) for one in run
        )
        segment = self._create(header, size=used + footer_room(used))
        segment.append([NewGroup(group=one.group, logs=one.logs, received_us=one.received_us) for one in run])
        sealed = segment.seal(self._files)
        segment.close()
        self._keep(
            FoundSegment(
                path=sealed.path, header=header, layout=sealed.layout, totals=sealed.totals, read=None
            )
        )

    def _go_on(self, *, end_is_exact: bool) -> None:
        """Create the segment of the next write, above everything that may have been given out."""
        highest = max(self.end, self._log.highest_cursor)
        if not end_is_exact and not self._log.shard.spec.read_only:
            highest += 2 * self._segment_bytes() // _MIN_RECORD_BYTES
        self._lose(highest)
        header = SegmentHeader(
            first_cursor=highest,
            logs_before=self._before.logs_before,
            received_us=self._before.received_us,
            skipped=highest - self.end,
            salt=self._salt,
        )
        self._create(header, size=_SEGMENT_BYTES).close()
        self.end = highest
        if self._is_first:
            self.oldest_cursor = highest

    def _create(self, header: SegmentHeader, *, size: int) -> OpenSegment:
        segment = create_segment(self._disk, folder=self._unfinished, header=header, size=size)
        self._written.append(os.path.basename(segment.path))
        return segment

    def _put_in_place(self) -> None:
        """Put the originals aside, and the new segments in their places."""
        self._disk.make_dirs(self._folder)
        new = [os.path.join(self._folder, name) for name in self._written]
        for path in (*self._replaced, *(path for path in new if path not in self._replaced)):
            if os.path.exists(path):
                folder.put_aside(self._data, path)
        for path in reversed(new):
            self._disk.rename(os.path.join(self._unfinished, os.path.basename(path)), path)
            self._disk.sync_dir(self._folder)
        for path in self._replaced:
            if path not in new:
                self._disk.remove(path)
        self._disk.sync_dir(self._folder)

    def _segment_bytes(self) -> int:
        """At least the size of each segment of this log."""
        return max([_SEGMENT_BYTES, *self._sizes()])

    def _sizes(self) -> Iterator[int]:
        for entry in os.scandir(self._folder):
            yield entry.stat().st_size
