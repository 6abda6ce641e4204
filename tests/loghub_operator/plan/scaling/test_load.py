"""The formula and the bounds, as values."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loghub.domain.replica_bounds import ReplicaBounds
from loghub_operator.plan.scaling.load import (
    LoadInputs,
    ReplicaRange,
    formula,
    replica_range_of,
    rounded,
    spread,
)


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


def test_numbers_are_reported_with_three_digits() -> None:
    assert [rounded(number) for number in (1234.5, 0.012345, 99.99)] == [1230.0, 0.0123, 100.0]
