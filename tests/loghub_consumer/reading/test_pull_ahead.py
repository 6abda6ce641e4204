"""Pulling ahead: in parallel, in order, and never more than the bytes that are allowed to wait."""

import threading
from collections.abc import Iterator

import pytest

from loghub_consumer.reading.shard_reader import PullAhead
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
