"""What the next batch reads."""

from hypothesis import given
from hypothesis import strategies as st

from loghub_worker.batch_plan import (
    LARGEST_GROUP_BYTES,
    NOTHING,
    Bounds,
    Plan,
    Range,
    next_plan,
    pack,
    smoothed,
)

RANGES = st.lists(st.tuples(st.integers(0, 50), st.integers(1, 1000)), unique_by=lambda r: r[0]).map(
    lambda pairs: [Range(shard, 7, 7 + groups) for shard, groups in pairs]
)
TEN = Bounds(log_groups=10, bytes=1 << 30)
SMALL = {0: 1.0, 1: 1.0}
BOUNDS = st.builds(Bounds, log_groups=st.integers(1, 1000), bytes=st.integers(1 << 16, 1 << 30))
SIZES = st.integers(1, LARGEST_GROUP_BYTES)


def test_nothing_new_is_the_last_plan_itself() -> None:
    last = Plan(4, (Range(0, 1, 2),))
    assert next_plan(last, positions={0: 2, 1: 5}, ends={0: 2}, sizes=SMALL, bounds=TEN) is last


def test_each_shard_goes_on_from_its_position_up_to_the_bound_or_its_end() -> None:
    plan = next_plan(NOTHING, positions={1: 5, 0: 100}, ends={0: 103, 1: 500}, sizes=SMALL, bounds=TEN)
    assert plan == Plan(1, (Range(0, 100, 103), Range(1, 5, 15)))


def test_the_same_range_again_is_a_new_plan() -> None:
    first = next_plan(NOTHING, positions={0: 5}, ends={0: 9}, sizes=SMALL, bounds=TEN)
    again = next_plan(first, positions={0: 5}, ends={0: 9}, sizes=SMALL, bounds=TEN)
    assert again.ranges == first.ranges
    assert again.to_json() != first.to_json()


def test_position_past_the_known_end_is_nothing_to_read() -> None:
    assert next_plan(NOTHING, positions={0: 9}, ends={0: 5}, sizes=SMALL, bounds=TEN) is NOTHING


@given(RANGES)
def test_plan_survives_json(ranges: list[Range]) -> None:
    plan = Plan(3, tuple(sorted(ranges)))
    assert Plan.from_json(plan.to_json()) == plan


@given(RANGES, st.integers(1, 8))
def test_pack_keeps_every_range_in_few_even_bins(ranges: list[Range], bins: int) -> None:
    packed = pack(ranges, bins=bins)
    assert sorted(r for b in packed for r in b) == sorted(ranges)
    assert len(packed) == min(bins, len(ranges))
    if len(ranges) >= bins:
        loads = [sum(r.groups for r in b) for b in packed]
        assert max(loads) - min(loads) <= max(r.groups for r in ranges)


@given(BOUNDS, st.none() | st.floats(0, 1e9))
def test_never_no_group_and_never_more_than_asked(bounds: Bounds, size: float | None) -> None:
    assert 1 <= bounds.groups_of(size) <= bounds.log_groups


@given(BOUNDS)
def test_the_first_batch_of_a_shard_is_within_the_bytes_whatever_it_holds(bounds: Bounds) -> None:
    groups = bounds.groups_of(None)
    assert groups == 1 or groups * LARGEST_GROUP_BYTES <= bounds.bytes


@given(BOUNDS, SIZES, SIZES)
def test_it_converges_to_as_much_as_the_bytes_hold(bounds: Bounds, before: int, size: int) -> None:
    """However the shard began: after some batches of like groups each one takes what fits."""
    mean: float | None = float(before)
    for _ in range(40):
        groups = bounds.groups_of(mean)
        mean = smoothed(mean, read_bytes=groups * size, groups=groups)
    fits = max(1, min(bounds.log_groups, bounds.bytes // size))
    assert fits - 1 <= bounds.groups_of(mean) <= fits


@given(BOUNDS, st.lists(SIZES, min_size=1, max_size=2000))
def test_a_batch_passes_the_bytes_by_no_more_than_its_groups_outgrow_those_before(
    bounds: Bounds, stream: list[int]
) -> None:
    mean, at = None, 0
    while at < len(stream):
        groups = bounds.groups_of(mean)
        batch = stream[at : at + groups]
        expected = LARGEST_GROUP_BYTES if mean is None else mean
        growth = max(1.0, sum(batch) / len(batch) / expected)
        assert groups == 1 or sum(batch) <= bounds.bytes * growth + 1
        mean = smoothed(mean, read_bytes=sum(batch), groups=len(batch))
        at += groups


def test_a_mean_rises_at_once_and_falls_by_half() -> None:
    assert smoothed(None, read_bytes=100, groups=10) == 10
    assert smoothed(10, read_bytes=400, groups=10) == 40
    assert smoothed(40, read_bytes=100, groups=10) == 25
    assert smoothed(25, read_bytes=0, groups=10) == 25, "all of it had expired"


def test_each_shard_has_its_own_size() -> None:
    bounds = Bounds(log_groups=10, bytes=1 << 20)
    plan = next_plan(
        NOTHING,
        positions={0: 0, 1: 0, 2: 0},
        ends={0: 99, 1: 99, 2: 99},
        sizes={0: 9, 1: 1 << 18},
        bounds=bounds,
    )
    assert [piece.groups for piece in plan.ranges] == [10, 4, 1]
