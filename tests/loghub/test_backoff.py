"""The pauses between retries grow, and workers that fail at the same moment do not retry at the same
moment."""

import random
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from loghub.backoff import Backoff, backoff_s

LARGEST = Backoff(first_s=1.0, max_s=10.0, random=lambda: 1.0)
SMALLEST = Backoff(first_s=1.0, max_s=10.0, random=lambda: 0.0)


def test_the_pauses_double_up_to_the_longest() -> None:
    assert [LARGEST.pause_s(failures) for failures in (1, 2, 3, 4, 5, 10_000)] == [1, 2, 4, 8, 10, 10]
    assert [SMALLEST.pause_s(failures) for failures in (1, 2, 3, 4, 5)] == [0.5, 1, 2, 4, 5]


def test_without_chance_each_pause_has_its_largest_value() -> None:
    for failures in (1, 2, 3, 4, 5, 10_000):
        assert backoff_s(failures, first_s=1.0, max_s=10.0) == LARGEST.pause_s(failures)


def test_the_first_pause_is_the_shortest_and_never_above_the_longest() -> None:
    assert [backoff_s(failures, first_s=1.0, max_s=10.0) for failures in (-1, 0, 1)] == [1, 1, 1]
    assert backoff_s(1, first_s=8.0, max_s=5.0) == 5


@given(st.integers(1, 100), st.integers())
def test_a_pause_is_between_half_and_the_whole_of_its_largest_value(failures: int, seed: int) -> None:
    pause_s = Backoff(first_s=1.0, max_s=10.0, random=random.Random(seed).random).pause_s(failures)
    assert SMALLEST.pause_s(failures) <= pause_s <= LARGEST.pause_s(failures)


def test_workers_that_fail_at_the_same_moment_spread_out() -> None:
    workers = [Backoff(first_s=1.0, max_s=10.0, random=random.Random(seed).random) for seed in range(50)]
    times = sorted(sum(worker.pause_s(failures) for failures in range(1, 5)) for worker in workers)
    assert times[-1] - times[0] > 3
    assert max(after - before for before, after in pairwise(times)) < 1
