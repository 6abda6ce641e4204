"""Receive times when the wall clock was wrong for a while: by how much, and how long, does not matter."""

import struct
import zlib

import pytest

from loghub_service.storage import segment, segment_format
from loghub_service.storage.segment import NewGroup
from loghub_service.storage.segment_format import Marks, SegmentHeader, Totals
from loghub_service.storage.shardlog import ShardLog
from tests.loghub_service.simdisk import SimDisk
from tests.loghub_service.storage.opened_log import open_log

SECOND, MINUTE, DAY = 1_000_000, 60_000_000, 86_400_000_000
FIRST = 1000
T0 = 1_700_000_000 * SECOND


def log_of(*received_us: int, segment_bytes: int = 2048) -> ShardLog:
    """A log with one group for each of these times, read again from the disk."""
    disk = SimDisk()
    birth = SegmentHeader(first_cursor=FIRST, logs_before=0, received_us=T0)
    log, _ = open_log(disk, folder="/l", birth=birth, segment_bytes=segment_bytes)
    for time_us in received_us:
        log.append([NewGroup(group=b"x" * 100, logs=1, received_us=time_us)])
    log.sync()
    return open_log(disk, folder="/l", birth=birth, segment_bytes=segment_bytes)[0]


def times(log: ShardLog) -> list[int]:
    read = log.read(cursor=0, end_cursor=1 << 62, max_groups=10_000, max_bytes=1 << 30)
    return [entry.received_us for entry in read.entries]


def test_a_small_step_back_of_the_clock_is_evened_out() -> None:
    assert times(log_of(T0 + 500, T0 + 400, T0 + 600)) == [T0 + 500, T0 + 500, T0 + 600]


def test_after_a_correction_of_the_clock_the_times_are_true_again() -> None:
    wrong = T0 + 30 * DAY
    assert times(log_of(T0, wrong, T0 + MINUTE)) == [T0, wrong, T0 + MINUTE]


@pytest.mark.parametrize("segment_bytes", [512, 2048, 1 << 20])
def test_cursors_by_time_are_right_after_a_corrected_jump(segment_bytes: int) -> None:
    """30 groups a minute apart, 5 with a time 30 days ahead, 30 more: also while these days last."""
    before = [T0 + number * MINUTE for number in range(30)]
    wrong = [T0 + 30 * DAY + number for number in range(5)]
    after = [T0 + (35 + number) * MINUTE for number in range(30)]
    log = log_of(*before, *wrong, *after, segment_bytes=segment_bytes)
    for now_us in (T0 + 2 * 60 * MINUTE, T0 + 10 * DAY):
        for number, time_us in enumerate(before):
            assert log.cursor_at(time_us, now_us=now_us) == FIRST + number
        # Received at some time between 29 and 35 minutes: they are not left out.
        assert log.cursor_at(T0 + 32 * MINUTE, now_us=now_us) == FIRST + 30
        assert log.cursor_at(after[0], now_us=now_us) == FIRST + 30
        for number, time_us in enumerate(after[1:], 36):
            assert log.cursor_at(time_us, now_us=now_us) == FIRST + number
        assert log.cursor_at(after[-1] + 1, now_us=now_us) == FIRST + 65


def test_cursors_by_time_after_the_clock_was_behind_for_a_while() -> None:
    log = log_of(T0 + MINUTE, T0 - 30 * DAY, T0 + 2 * MINUTE, T0 + 3 * MINUTE)
    assert log.cursor_at(T0, now_us=T0 + 5 * MINUTE) == FIRST
    assert log.cursor_at(T0 + 2 * MINUTE, now_us=T0 + 5 * MINUTE) == FIRST + 2


def test_while_all_times_are_ahead_nothing_is_left_out() -> None:
    log = log_of(T0, T0 + 30 * DAY)
    assert log.cursor_at(T0 + MINUTE, now_us=T0 + 2 * MINUTE) == FIRST + 1


@pytest.mark.parametrize("segment_bytes", [512, 1 << 20])
def test_the_age_of_a_group_with_an_implausible_time_is_that_of_the_group_before(segment_bytes: int) -> None:
    """Else its lag would be 0 for a month."""
    wrong = [T0 + 30 * DAY + number for number in range(300)]
    log = log_of(T0 + MINUTE, *wrong, T0 + 5 * MINUTE, segment_bytes=segment_bytes)
    now_us = T0 + 10 * MINUTE
    for cursor in (FIRST, FIRST + 1, FIRST + 250):
        assert log.place(cursor, now_us=now_us).received_us == T0 + MINUTE
    assert log.place(FIRST + 301, now_us=now_us).received_us == T0 + 5 * MINUTE


def test_retention_drops_a_segment_of_an_implausible_time_with_the_next_one() -> None:
    times_us = [T0, T0 + 30 * DAY, *(T0 + number * MINUTE for number in range(1, 40))]
    log = log_of(*times_us, segment_bytes=512)
    now_us = T0 + DAY
    assert log.expire(T0, now_us=now_us, maximum=100) == []
    assert log.expire(T0 + 20 * MINUTE, now_us=now_us, maximum=100)
    assert FIRST + 2 < log.extent.oldest_cursor <= FIRST + 22


def test_segments_of_implausible_times_are_not_read_to_find_a_time() -> None:
    """A day under a clock that was ahead was read at each call, until the true time had passed it."""
    disk = SimDisk()
    birth = SegmentHeader(first_cursor=FIRST, logs_before=0, received_us=T0)
    log, _ = open_log(disk, folder="/l", birth=birth, segment_bytes=4096)
    for number in range(400):
        time_us = T0 + number * SECOND if number < 100 else T0 + DAY + number * SECOND
        log.append([NewGroup(group=b"x" * 100, logs=1, received_us=time_us)])
    log.sync()
    log, _ = open_log(disk, folder="/l", birth=birth, segment_bytes=4096)
    now_us = T0 + 200 * SECOND
    # In the future, too: the next segment is where such times begin, or the one where they pass that time.
    for asked_us in (T0 + 99 * SECOND, T0 + 150 * SECOND, T0 + DAY + 250 * SECOND):
        log.cursor_at(asked_us, now_us=now_us)
        disk.bytes_read = 0
        cursor = log.cursor_at(asked_us, now_us=now_us)
        assert disk.bytes_read <= 4 * 4096
        before = {T0 + 99 * SECOND: 99, T0 + 150 * SECOND: 100}.get(asked_us, 250)
        assert cursor == FIRST + before
        received_us = log.place(FIRST + 350, now_us=now_us).received_us
        assert received_us is not None
        assert T0 <= received_us <= T0 + 99 * SECOND


def test_segments_with_the_footer_of_an_earlier_release_are_read_to_find_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It has no earliest time, so nothing is passed over."""
    times_us = [T0 + number * SECOND for number in range(40)] + [T0 + DAY] * 40 + [T0 + 50 * SECOND] * 40

    def old_footer(marks: Marks, totals: Totals, *, end_mark: bytes) -> bytes:
        body = marks.to_bytes()
        numbers = (totals.next_cursor, totals.logs_total, totals.received_us, totals.latest_us)
        block = struct.pack("<8sqqqqII", b"LOGHUBF2", *numbers, len(marks), zlib.crc32(body))
        return segment_format.FOOTER_BEGIN + body + block + zlib.crc32(block).to_bytes(4, "little") + end_mark

    new = log_of(*times_us, segment_bytes=512)
    monkeypatch.setattr(segment, "pack_footer", old_footer)
    old = log_of(*times_us, segment_bytes=512)
    totals = [one.totals for one in old._published.segments]
    assert [one.earliest_us is None for one in totals] == [True] * (len(totals) - 1) + [False]
    for asked_us in (T0, T0 + 39 * SECOND, T0 + 45 * SECOND, T0 + 50 * SECOND, T0 + DAY, T0 + 2 * DAY):
        now_us = T0 + 60 * SECOND
        assert old.cursor_at(asked_us, now_us=now_us) == new.cursor_at(asked_us, now_us=now_us)
    assert groups(old) == groups(new)


def groups(log: ShardLog) -> list[bytes]:
    read = log.read(cursor=0, end_cursor=1 << 62, max_groups=10_000, max_bytes=1 << 30)
    return [entry.group for entry in read.entries]
