"""Acknowledged positions are a mark and ranges, as a set of positions would be."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from loghub_service.subscription.acked import Acked

SIZE = 24
RUNS = st.tuples(st.integers(0, SIZE - 1), st.integers(1, SIZE)).map(lambda r: (r[0], min(SIZE, r[0] + r[1])))


def filled(mark: int, runs: list[tuple[int, int]]) -> tuple[Acked, set[int]]:
    acked, naive = Acked(mark), set(range(mark))
    for first, stop in runs:
        acked.add(first, stop)
        naive |= set(range(first, stop))
    return acked, naive


@given(st.integers(0, 4), st.lists(RUNS, max_size=8), RUNS)
def test_it_is_the_set_of_all_positions_that_were_added(
    mark: int, runs: list[tuple[int, int]], asked: tuple[int, int]
) -> None:
    acked, naive = filled(mark, runs)
    assert {p for p in range(SIZE) if p in acked} == naive
    bounds = [acked.mark, *(bound for run in acked.ranges for bound in run)]
    assert bounds == sorted(set(bounds))  # disjoint, and neighbours joined
    gaps = list(acked.gaps(*asked))
    assert {p for first, stop in gaps for p in range(first, stop)} == set(range(*asked)) - naive
    assert all(a[1] < b[0] for a, b in pairwise(gaps))
    assert acked.covers(*asked) is (gaps == [])


@given(st.lists(RUNS, max_size=8), RUNS)
def test_a_run_touches_what_is_there_or_adds_a_range(
    runs: list[tuple[int, int]], added: tuple[int, int]
) -> None:
    acked, _ = filled(0, runs)
    touches, before = acked.touches(*added), len(acked.ranges)
    acked.add(*added)
    assert touches is (len(acked.ranges) <= before)


def test_a_run_touches_a_range_that_it_overlaps_or_is_next_to_and_no_other() -> None:
    acked = Acked(1, ((5, 7),))
    runs = ((0, 1), (1, 2), (2, 4), (3, 5), (5, 6), (7, 8), (8, 9))
    assert [acked.touches(*run) for run in runs] == [True, True, False, True, True, True, False]


def test_only_what_is_after_the_last_of_so_many_ranges_is_beyond() -> None:
    acked = Acked(0, ((2, 3), (5, 6)))
    assert [acked.is_beyond(p, max_ranges=2) for p in (1, 4, 6)] == [False, False, True]
    assert not acked.is_beyond(6, max_ranges=3)
    assert not Acked(0).is_beyond(6, max_ranges=1)


def test_saved_ranges_are_restored() -> None:
    acked = Acked(7, ((9, 12), (20, 21)))
    assert Acked(acked.mark, acked.ranges).ranges == ((9, 12), (20, 21))
