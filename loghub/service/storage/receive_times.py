"""Finds log groups by the time at which they were received, also if the wall clock was wrong for a while.

Cursors are in the order of arrival; receive times usually are, too. After the wall clock was set back, groups
received before that have times in the future. Such a time says nothing. The group was received after the
last earlier group, and before the first later group, whose time is plausible. Segments that have only such
times are not read.
"""

from collections.abc import Sequence

from loghub.service.storage.footer import Marks
from loghub.service.storage.segment import CLOCK_STEP_US, Segment, scan


def first_received_since(
    segments: Sequence[Segment], received_us: int, *, end_cursor: int, now_us: int
) -> int:
    """The cursor from which on all groups received at or after a time are read; the end if there is none.

    Groups with an implausible time are included if they may have been received at or after that time.
    """
    latest_us = now_us + CLOCK_STEP_US
    uncertain: int | None = None  # the first group of an implausible time since the last earlier group
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
    """The receive time of the group at a cursor; if it is in the future, that of the last group before it
    that has a plausible one, to the precision of the index."""
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
