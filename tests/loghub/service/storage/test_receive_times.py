"""Receive times when the wall clock was wrong for a while: by how much, and how long, does not matter."""

import pytest

from loghub.service.storage.record import SegmentHeader
from loghub.service.storage.segment import NewGroup
from loghub.service.storage.shardlog import ShardLog, open_log
from tests.loghub.service.simdisk import SimDisk

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
    assert log.expire(T0, now_us=now_us, most=100) == []
    assert log.expire(T0 + 20 * MINUTE, now_us=now_us, most=100)
    assert FIRST + 2 < log.extent.oldest_cursor <= FIRST + 22
