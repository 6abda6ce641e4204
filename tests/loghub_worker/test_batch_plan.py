"""The plan of the next batch."""

from hypothesis import given
from hypothesis import strategies as st

from loghub_consumer.batch_plan import (
    EMPTY_PLAN,
    MAX_GROUP_BYTES,
    BatchLimits,
    BatchPlan,
    GroupSize,
    Range,
    next_plan,
    pack,
    smoothed,
)

RANGES = st.lists(st.tuples(st.integers(0, 50), st.integers(1, 1000)), unique_by=lambda r: r[0]).map(
    lambda pairs: [Range(shard, 7, 7 + groups) for shard, groups in pairs]
)
TEN = BatchLimits(log_groups=10, bytes=1 << 30, logs=1_000_000)
SMALL = {shard: GroupSize(bytes=1, logs=1) for shard in range(2)}
LIMITS = st.builds(
    BatchLimits,
    log_groups=st.integers(1, 1000),
    bytes=st.integers(1 << 16, 1 << 30),
    logs=st.integers(1, 1_000_000),
)
SIZES = st.integers(1, MAX_GROUP_BYTES)


def test_the_last_plan_is_returned_if_there_is_nothing_to_read() -> None:
    last = BatchPlan(4, (Range(0, 1, 2),))
    assert next_plan(last, positions={0: 2, 1: 5}, ends={0: 2}, sizes=SMALL, limits=TEN) is last


def test_a_range_begins_at_the_position_and_ends_at_the_limit_or_the_end() -> None:
    plan = next_plan(EMPTY_PLAN, positions={1: 5, 0: 100}, ends={0: 103, 1: 500}, sizes=SMALL, limits=TEN)
    assert plan == BatchPlan(1, (Range(0, 100, 103), Range(1, 5, 15)))


def test_a_range_that_is_planned_again_makes_a_different_plan() -> None:
    first = next_plan(EMPTY_PLAN, positions={0: 5}, ends={0: 9}, sizes=SMALL, limits=TEN)
    again = next_plan(first, positions={0: 5}, ends={0: 9}, sizes=SMALL, limits=TEN)
    assert again.ranges == first.ranges
    assert again.to_json() != first.to_json()


def test_a_position_beyond_the_end_is_not_read_and_the_other_shards_are() -> None:
    """`EndWatch` reports it."""
    plan = next_plan(EMPTY_PLAN, positions={0: 9, 1: 5}, ends={0: 5, 1: 7}, sizes=SMALL, limits=TEN)
    assert plan == BatchPlan(1, (Range(1, 5, 7),))
    assert next_plan(EMPTY_PLAN, positions={0: 9}, ends={0: 5}, sizes=SMALL, limits=TEN) is EMPTY_PLAN


@given(RANGES)
def test_a_plan_is_equal_after_json(ranges: list[Range]) -> None:
    plan = BatchPlan(3, tuple(sorted(ranges)))
    assert BatchPlan.from_json(plan.to_json()) == plan


@given(RANGES, st.integers(1, 8))
def test_pack_distributes_every_range_evenly_over_few_bins(ranges: list[Range], bins: int) -> None:
    packed = pack(ranges, bins=bins)
    assert sorted(r for b in packed for r in b) == sorted(ranges)
    assert len(packed) == min(bins, len(ranges))
    if len(ranges) >= bins:
        loads = [sum(r.groups for r in b) for b in packed]
        assert max(loads) - min(loads) <= max(r.groups for r in ranges)


@given(LIMITS, st.none() | st.builds(GroupSize, bytes=st.floats(0, 1e9), logs=st.floats(0, 1e5)))
def test_at_least_one_log_group_and_at_most_the_limit_is_read(
    limits: BatchLimits, size: GroupSize | None
) -> None:
    assert 1 <= limits.groups_of(size) <= limits.log_groups


@given(LIMITS)
def test_the_first_batch_of_a_shard_never_exceeds_the_bytes(limits: BatchLimits) -> None:
    groups = limits.groups_of(None)
    assert groups == 1 or groups * MAX_GROUP_BYTES <= limits.bytes


@given(LIMITS, SIZES, SIZES)
def test_the_plan_converges_to_as_many_log_groups_as_fit_into_the_bytes(
    limits: BatchLimits, before: int, size: int
) -> None:
    """Whatever the mean was: after some batches of equal log groups, each batch reads as many as fit."""
    mean: GroupSize | None = GroupSize(bytes=before, logs=before)
    for _ in range(40):
        groups = limits.groups_of(mean)
        mean = smoothed(mean, read_bytes=groups * size, logs=groups, groups=groups)
    fits = max(1, min(limits.log_groups, limits.bytes // size, limits.logs))
    assert fits - 1 <= limits.groups_of(mean) <= fits


@given(LIMITS, st.lists(SIZES, min_size=1, max_size=2000))
def test_a_batch_exceeds_the_bytes_only_as_far_as_its_log_groups_grew(
    limits: BatchLimits, stream: list[int]
) -> None:
    mean: GroupSize | None = None
    at = 0
    while at < len(stream):
        groups = limits.groups_of(mean)
        batch = stream[at : at + groups]
        expected = MAX_GROUP_BYTES if mean is None else mean.bytes
        growth = max(1.0, sum(batch) / len(batch) / expected)
        assert groups == 1 or sum(batch) <= limits.bytes * growth + 1
        mean = smoothed(mean, read_bytes=sum(batch), logs=len(batch), groups=len(batch))
        at += groups


def test_the_mean_size_rises_immediately_and_falls_by_half_of_the_difference() -> None:
    first = smoothed(None, read_bytes=100, logs=50, groups=10)
    assert first == GroupSize(bytes=10, logs=5)
    second = smoothed(first, read_bytes=400, logs=10, groups=10)
    assert second == GroupSize(bytes=40, logs=3)
    assert smoothed(second, read_bytes=100, logs=70, groups=10) == GroupSize(bytes=25, logs=7)
    assert smoothed(second, read_bytes=0, logs=0, groups=10) == second, "all of it had expired"


def test_each_shard_has_its_own_mean_size() -> None:
    limits = BatchLimits(log_groups=10, bytes=1 << 20, logs=1000)
    plan = next_plan(
        EMPTY_PLAN,
        positions={0: 0, 1: 0, 2: 0},
        ends={0: 99, 1: 99, 2: 99},
        sizes={0: GroupSize(bytes=9, logs=1), 1: GroupSize(bytes=1 << 18, logs=1)},
        limits=limits,
    )
    assert [shard_range.groups for shard_range in plan.ranges] == [10, 4, 1]


SHARDS = st.dictionaries(
    st.integers(0, 40), st.tuples(st.integers(1, 5000), st.floats(0, 50)), min_size=1, max_size=12
)


@given(SHARDS, st.integers(1, 100_000))
def test_the_logs_of_a_batch_are_limited_over_all_shards_and_shared(
    shards: dict[int, tuple[int, float]], logs: int
) -> None:
    """Each shard gets what it can use, up to a share that is the same for all that could use more."""
    limits = BatchLimits(log_groups=10_000, bytes=1 << 40, logs=logs)
    sizes = {shard: GroupSize(bytes=1, logs=mean) for shard, (_, mean) in shards.items()}
    plan = next_plan(
        EMPTY_PLAN,
        positions=dict.fromkeys(shards, 0),
        ends={shard: groups for shard, (groups, _) in shards.items()},
        sizes=sizes,
        limits=limits,
    )
    means = {shard: max(1.0, mean) for shard, (_, mean) in shards.items()}
    planned = {part.shard: part.groups * means[part.shard] for part in plan.ranges}
    assert planned.keys() == shards.keys()
    minimum = sum(means.values())  # one log group of each shard
    assert sum(planned.values()) <= max(logs, logs + minimum)
    if sum(groups * means[shard] for shard, (groups, _) in shards.items()) <= logs:
        assert {part.shard: part.groups for part in plan.ranges} == {s: g for s, (g, _) in shards.items()}
    cut = [part for part in plan.ranges if part.groups < shards[part.shard][0]]
    for part in cut:
        assert planned[part.shard] + means[part.shard] * 2 >= max(planned.values()) - minimum
