"""The formula, the bounds and the stabilization windows, as values."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loghub_operator.model.memory import NOTHING, Window
from loghub_operator.plan.scaling.autoscaler import Spans, largest, pushed, stabilize, with_replica_range
from loghub_operator.plan.scaling.load import (
    LoadInputs,
    ReplicaBounds,
    ReplicaRange,
    formula,
    replica_range_of,
    rounded,
    spread,
)

SPANS = Spans(up_s=30.0, down_s=300.0, gap_s=120.0)


def inputs(
    arrival: float | None, lag: int | None, rate: float | None, shards: int | None = 100
) -> LoadInputs:
    return LoadInputs(
        arrival_per_s=arrival,
        lag_groups=lag,
        worker_per_s=rate,
        catch_up_s=300,
        assignable=shards,
        ready=1,
    )


@pytest.mark.parametrize(
    ("arrival", "lag", "rate", "wanted"),
    [
        (100.0, 0, 10.0, 10),
        (100.0, 3000, 10.0, 11),
        (0.0, 1, 10.0, 1),
        (100.001, 0, 10.0, 10),
        (9e9, 0, 1.0, 1000),
    ],
)
def test_the_formula_is_arrival_plus_lag_over_catch_up_time_divided_by_the_rate(
    arrival: float, lag: int, rate: float, wanted: int
) -> None:
    replica_range = replica_range_of(inputs(arrival, lag, rate))
    assert replica_range is not None
    assert replica_range.wanted == wanted


def test_the_range_is_unknown_without_a_rate_unless_there_is_no_load() -> None:
    assert replica_range_of(inputs(0.0, 0, None)) == ReplicaRange.exactly(0)
    assert replica_range_of(inputs(1.0, 0, None)) is None
    assert replica_range_of(inputs(None, 0, 1.0)) is None
    assert replica_range_of(inputs(1.0, None, 1.0)) is None


def test_the_formula_is_shown_with_its_numbers() -> None:
    given_ = inputs(44.51, 600, 10.0, shards=8)
    assert formula(given_, replica_range_of(given_)) == (
        "ceil((44.5/s + 600 / 300 s) / 10/s) = 5; 8 shards spread over 8"
    )
    assert formula(inputs(1.0, 0, None), None) is None


@pytest.mark.parametrize(
    ("load", "shards", "workers"),
    [
        (4.0, 8, 4),
        (4.1, 8, 8),
        (2.7, 8, 4),
        (2.6, 8, 3),
        (4.1, 100, 5),
        (9.0, 8, 9),
        (0.1, 8, 1),
        (3.2, None, 4),
    ],
)
def test_workers_are_rounded_up_to_whole_shards(load: float, shards: int | None, workers: int) -> None:
    assert spread(load, shards) == workers


@pytest.mark.long
@given(load=st.floats(0.01, 60.0), shards=st.integers(1, 64))
def test_no_worker_has_more_shards_than_it_can_consume(load: float, shards: int) -> None:
    workers = spread(load, shards)
    assert workers >= load - 0.01
    if load <= shards:
        max_shards = -(-shards // workers)
        assert max_shards * load / shards <= 1.01
        assert workers == 1 or -(-shards // (workers - 1)) * load / shards >= 0.99


@pytest.mark.parametrize(
    ("workers", "cut", "bound"),
    [
        (5, 5, None),
        (1, 2, "Minimum"),
        (9, 8, "Shards"),
        (12, 8, "Shards"),
        (10, 8, "Shards"),
        (99, 8, "Shards"),
    ],
)
def test_the_number_is_limited_and_the_last_bound_is_reported(
    workers: int, cut: int, bound: str | None
) -> None:
    assert ReplicaBounds(minimum=2, maximum=10, shards=8).cut(workers) == (cut, bound)
    assert ReplicaBounds(minimum=2, maximum=6, shards=8).cut(99) == (6, "Maximum")


def test_the_largest_value_of_a_sliding_window() -> None:
    window = Window()
    for now, value in ((0, 3), (10, 5), (20, 2), (30, 4), (40, 1)):
        window = pushed(window, value, now=float(now), span_s=30.0, gap_s=60.0)
    assert largest(window, now=40.0, span_s=30.0) == 5
    window = pushed(window, 1, now=45.0, span_s=30.0, gap_s=60.0)
    assert largest(window, now=45.0, span_s=30.0) == 4
    assert largest(window, now=45.0, span_s=46.0) is None  # not known for so long
    assert largest(pushed(window, 1, now=200.0, span_s=30.0, gap_s=60.0), now=200.0, span_s=30.0) is None


@given(st.lists(st.integers(0, 20), min_size=1, max_size=300))
def test_a_window_is_bounded_and_returns_the_maximum(values: list[int]) -> None:
    window = Window()
    for now, value in enumerate(values):
        window = pushed(window, value, now=float(now), span_s=50.0, gap_s=60.0)
    assert len(window.peaks) <= 21
    end = len(values) - 1
    maximum = largest(window, now=float(end), span_s=min(50.0, float(end)))
    assert maximum == max(values[max(0, end - 50) :])


def after(ranges: list[ReplicaRange], *, current: int, every_s: float = 10.0) -> tuple[int, bool]:
    state, now = NOTHING, 0.0
    for replica_range in ranges:
        now += every_s
        state = with_replica_range(state, replica_range, now=now, spans=SPANS, up=True)
    stabilized = stabilize(state, ranges[-1], current=current, now=now, spans=SPANS)
    return stabilized.workers, stabilized.stabilizing


def test_scale_up_only_after_the_window_to_the_least_needed_throughout() -> None:
    assert after([ReplicaRange.exactly(5)] * 3, current=2) == (2, True)
    assert after([ReplicaRange.exactly(5)] * 4, current=2) == (5, False)
    assert after(
        [ReplicaRange.exactly(5), ReplicaRange.exactly(3), ReplicaRange.exactly(5), ReplicaRange.exactly(9)],
        current=2,
    ) == (
        3,
        False,
    )
    assert after(
        [ReplicaRange.exactly(5), ReplicaRange.exactly(2), ReplicaRange.exactly(5), ReplicaRange.exactly(9)],
        current=2,
    ) == (2, True)


def test_scale_down_only_after_the_window_to_the_most_needed_throughout() -> None:
    assert after([ReplicaRange.exactly(1)] * 30, current=4) == (4, True)
    assert after([ReplicaRange.exactly(1)] * 31, current=4) == (1, False)
    assert after(
        [*([ReplicaRange.exactly(1)] * 20), ReplicaRange.exactly(3), *([ReplicaRange.exactly(1)] * 20)],
        current=4,
    ) == (
        3,
        False,
    )


def test_between_low_and_high_the_number_is_kept() -> None:
    assert after([ReplicaRange(wanted=3, low=2, target=3, high=5)] * 50, current=4) == (4, False)


def test_numbers_are_reported_with_three_digits() -> None:
    assert [rounded(number) for number in (1234.5, 0.012345, 99.99)] == [1230.0, 0.0123, 100.0]
