"""Ranges are pulled ahead in parallel and in order, and never more than the bytes that are allowed to wait.

What several tasks have read counts once.
"""

import threading
from collections.abc import Iterator
from itertools import pairwise

import pytest

from loghub_consumer.batch_plan import Range
from loghub_consumer.reading.shard_reader import PullAhead, ReadCount, ReadFailure
from loghub_worker.source import Counts, CountsByRange
from tests.support import wait_until


def size(answer: bytes) -> int:
    return len(answer)


def test_the_answers_are_those_of_each_range_in_order() -> None:
    ranges = [[f"{number}.{n}".encode() for n in range(number % 4)] for number in range(20)]
    with PullAhead([iter(one) for one in ranges], size=size, max_bytes=9, threads=3) as ahead:
        assert [list(ahead.answers(number)) for number in range(20)] == ranges


def test_ranges_are_pulled_at_the_same_time() -> None:
    """None of them gets an answer before all have asked."""
    together = threading.Barrier(5)

    def pull(number: int) -> Iterator[bytes]:
        together.wait(60)
        yield b"%d" % number

    with PullAhead([pull(n) for n in range(5)], size=size, max_bytes=1, threads=5) as ahead:
        assert [list(ahead.answers(n)) for n in range(5)] == [[b"0"], [b"1"], [b"2"], [b"3"], [b"4"]]


def test_no_more_than_the_bytes_wait_and_the_range_whose_turn_it_is_goes_on() -> None:
    pulled: list[int] = []
    lock = threading.Lock()

    def pull(number: int) -> Iterator[bytes]:
        for _ in range(50):
            with lock:
                pulled.append(number)
            yield bytes(10)

    with PullAhead([pull(n) for n in range(4)], size=size, max_bytes=100, threads=4) as ahead:
        taken = 0
        for number in range(4):
            for _ in ahead.answers(number):
                taken += 1
                with lock:
                    # Each thread may have seen room for one more.
                    assert len(pulled) - taken <= 10 + 4
    assert (taken, len(pulled)) == (200, 200)


def test_an_error_is_raised_where_its_range_is_taken_after_its_answers() -> None:
    def fail() -> Iterator[bytes]:
        yield b"first"
        raise OSError("away")

    with PullAhead([iter([b"a"]), fail()], size=size, max_bytes=100) as ahead:
        assert list(ahead.answers(0)) == [b"a"]
        answers = ahead.answers(1)
        assert next(answers) == b"first"
        with pytest.raises(OSError, match="away"):
            next(answers)


def test_the_threads_end_when_the_rows_are_no_longer_wanted() -> None:
    def endless() -> Iterator[bytes]:
        while True:
            yield bytes(10)

    before = set(threading.enumerate())  # some of another test may still be ending
    with PullAhead([endless(), endless()], size=size, max_bytes=50) as ahead:
        next(ahead.answers(0))
        assert set(threading.enumerate()) - before
    wait_until(lambda: not set(threading.enumerate()) - before, "the threads to end")


FIRST, SECOND = Range(0, 10, 20), Range(3, 5, 6)
COUNT = ReadCount(logs=7, bytes=9)
FAILURE = ReadFailure(rejected=False, reason="WriteQuotaExceed", message="wait")


def joined(*tasks: Counts) -> Counts:
    """The counts of tasks, in the order in which they end."""
    param = CountsByRange()
    counts = param.zero({})
    for task in tasks:
        counts = param.addInPlace(counts, task)
    return counts


def test_each_range_has_its_own_counts() -> None:
    other = ReadCount(logs=2, bytes=1, missing=2)
    assert joined({FIRST: COUNT}, {SECOND: other}) == {FIRST: COUNT, SECOND: other}


def test_a_range_that_two_tasks_have_read_counts_once() -> None:
    assert joined({FIRST: COUNT}, {FIRST: COUNT, SECOND: COUNT}) == {FIRST: COUNT, SECOND: COUNT}


ASCENDING = [
    COUNT,
    ReadCount(logs=7, bytes=9, replaced=1),
    ReadCount(logs=5, bytes=6, missing=2),
    ReadCount(logs=5, bytes=6, end=15),
    ReadCount(logs=3, bytes=6, end=12),
    ReadCount(logs=0, bytes=0, failure=FAILURE),
]


@pytest.mark.parametrize(("less", "more"), list(pairwise(ASCENDING)))
def test_of_two_readings_of_a_range_the_one_counts_that_has_lost_more(
    less: ReadCount, more: ReadCount
) -> None:
    """The sink has the rows of one of them, and nothing may be counted as read that it has not."""
    assert joined({FIRST: less}, {FIRST: more}) == joined({FIRST: more}, {FIRST: less}) == {FIRST: more}
