"""What a batch reads, as values: limits, partitions and the order of shards."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loghub_consumer.batch_plan import Range
from loghub_spark.offsets import (
    SPLIT_GROUPS,
    Offset,
    ShardSample,
    ShardView,
    backlog,
    limited,
    new_shards,
    next_offset,
    ranges_between,
    split_ranges,
)
from loghub_spark.options import MicroBatchLimits

GROUPS = st.dictionaries(st.integers(0, 9), st.integers(0, 500), min_size=1)


def view(shard: int, end: int, *, read_only: bool = False, parents: tuple[int, ...] = ()) -> ShardView:
    return ShardView(shard=shard, end=end, read_only=read_only, parents=parents)


def views(*all_views: ShardView) -> dict[int, ShardView]:
    return {one.shard: one for one in all_views}


def test_an_offset_is_the_same_text_whatever_the_order_of_its_shards() -> None:
    one, other = Offset({10: 5, 2: 7}, frozenset({3, 1})), Offset({2: 7, 10: 5}, frozenset({1, 3}))
    assert json.dumps(one.to_json()) == json.dumps(other.to_json())
    assert one.to_json() == {"logstore": "", "shards": {"2": 7, "10": 5}, "finished": [1, 3]}
    assert Offset.from_json(json.loads(json.dumps(one.to_json()))) == other


def test_nothing_new_is_the_same_offset() -> None:
    start = Offset({0: 5, 1: 3})
    now = views(view(0, 5, read_only=True), view(1, 9))
    assert next_offset(start, now, begins={}, allowed={}) is start


def test_a_new_shard_enters_at_its_begin_and_is_read_in_the_next_batch() -> None:
    start, now = Offset({0: 5}), views(view(0, 5, read_only=True), view(1, 9, parents=(0,)))
    assert new_shards(start, now) == [1]
    entered = next_offset(start, now, begins={1: 4}, allowed={})
    assert entered == Offset({1: 4}, frozenset({0}))
    assert ranges_between(start, entered) == ()
    end = next_offset(entered, now, begins={}, allowed=backlog(entered, now, in_order=True))
    assert ranges_between(entered, end) == (Range(1, 4, 9),)


def test_a_shard_that_is_read_to_its_end_is_finished_at_once_and_leaves_the_offset_after() -> None:
    """It may be gone when the next batch is planned, which is then no loss."""
    now = views(view(0, 9, read_only=True), view(1, 5), view(2, 6, read_only=True))
    start = Offset({0: 5, 1: 3, 2: 1})
    end = next_offset(start, now, begins={}, allowed={0: 4, 1: 2, 2: 3})
    assert end == Offset({0: 9, 1: 5, 2: 4}, frozenset({0}))
    assert ranges_between(start, end) == (Range(0, 5, 9), Range(1, 3, 5), Range(2, 1, 4))
    assert backlog(end, now, in_order=True) == {2: 2}
    assert new_shards(end, now) == []
    assert next_offset(end, now, begins={}, allowed={}) is end
    last = next_offset(end, now, begins={}, allowed={2: 2})
    assert last == Offset({1: 5, 2: 6}, frozenset({0, 2}))
    gone = views(view(1, 6))
    assert next_offset(end, gone, begins={}, allowed={1: 1}) == Offset({1: 6})


def test_a_shard_waits_for_all_of_its_parents() -> None:
    now = views(view(0, 5, read_only=True), view(1, 8, read_only=True), view(2, 9, parents=(0, 1)))
    assert backlog(Offset({0: 5, 1: 7, 2: 0}), now, in_order=True) == {1: 1}
    assert backlog(Offset({0: 5, 1: 7, 2: 0}), now, in_order=False) == {1: 1, 2: 9}
    assert backlog(Offset({0: 5, 1: 8, 2: 0}), now, in_order=True) == {2: 9}
    assert backlog(Offset({1: 8, 2: 0}, frozenset({0})), now, in_order=True) == {2: 9}
    # A parent that has not entered the offset yet was not read either.
    assert backlog(Offset({1: 8, 2: 0}), now, in_order=True) == {}
    # One that no longer exists cannot be waited for.
    assert backlog(Offset({2: 0}), views(now[2]), in_order=True) == {2: 9}


def test_a_parent_that_is_still_written_to_is_not_finished() -> None:
    now = views(view(0, 5), view(2, 9, parents=(0,)))
    assert backlog(Offset({0: 5, 2: 0}), now, in_order=True) == {}


def test_what_is_gone_leaves_the_offset_once() -> None:
    start = Offset({0: 5, 7: 3}, frozenset({6}))
    end = next_offset(start, views(view(0, 5)), begins={}, allowed={})
    assert end == Offset({0: 5})
    assert next_offset(end, views(view(0, 5)), begins={}, allowed={}) is end


@pytest.mark.long
@given(groups=GROUPS, budget=st.integers(1, 2000))
def test_a_limit_in_log_groups_is_kept_and_used(groups: dict[int, int], budget: int) -> None:
    result = limited(groups, MicroBatchLimits(log_groups=budget))
    assert all(0 < count <= groups[shard] for shard, count in result.items())
    total, there = sum(result.values()), sum(groups.values())
    assert total <= budget
    # Only what does not divide among the shards stays unused.
    assert total >= min(there, budget) - len(groups)
    assert total > 0 or there == 0


@given(
    groups=GROUPS, costs=st.lists(st.integers(0, 1000), min_size=1, max_size=20), budget=st.integers(1, 9999)
)
def test_limits_in_logs_and_bytes_are_kept_where_the_sizes_are_known(
    groups: dict[int, int], costs: list[int], budget: int
) -> None:
    known = {shard: min(count, len(costs)) for shard, count in groups.items()}
    samples = {
        shard: ShardSample(logs=tuple(costs[:count]), bytes=tuple(costs[:count]))
        for shard, count in known.items()
    }
    for limits in (MicroBatchLimits(logs=budget), MicroBatchLimits(bytes=budget)):
        result = limited(known, limits, samples)
        if sum(result.values()) > 1:  # one log group is always read
            assert sum(sum(costs[:count]) for count in result.values()) <= budget


def test_each_shard_has_its_part_of_a_limit_and_one_log_group_at_least() -> None:
    assert limited({0: 1000, 1: 3, 2: 1000}, MicroBatchLimits(log_groups=103)) == {0: 51, 1: 1, 2: 51}
    assert limited({0: 900, 1: 100}, MicroBatchLimits(log_groups=50)) == {0: 45, 1: 5}


def test_all_limits_apply_together() -> None:
    samples = {0: ShardSample(logs=(10, 10), bytes=(100, 100))}
    assert limited({0: 50}, MicroBatchLimits(log_groups=30, logs=1000, bytes=10_000), samples) == {0: 30}
    assert limited({0: 50}, MicroBatchLimits(log_groups=30, logs=200, bytes=10_000), samples) == {0: 20}
    assert limited({0: 50}, MicroBatchLimits(log_groups=30, logs=200, bytes=700), samples) == {0: 7}


@given(groups=GROUPS, minimum=st.one_of(st.none(), st.integers(1, 40)), cores=st.integers(1, 16))
def test_partitions_have_each_log_group_once(groups: dict[int, int], minimum: int | None, cores: int) -> None:
    ranges = [Range(shard, 100, 100 + count) for shard, count in sorted(groups.items())]
    pieces = split_ranges(ranges, min_partitions=minimum, cores=cores)
    assert all(piece.groups > 0 for piece in pieces)
    for one in ranges:
        mine = [piece for piece in pieces if piece.shard == one.shard]
        assert [n for piece in mine for n in range(piece.begin, piece.end)] == list(range(one.begin, one.end))
    if minimum is not None:
        assert len(pieces) >= min(minimum, sum(groups.values()))


@pytest.mark.parametrize(
    ("groups", "cores", "expected"),
    [
        ([1000], 4, 4),
        ([1000, 1000], 4, 4),
        ([1000] * 6, 4, 6),  # one for each shard at least
        ([3 * SPLIT_GROUPS - 1], 4, 2),
        ([5], 4, 1),
        ([0], 4, 0),
    ],
)
def test_ranges_are_split_so_that_the_cores_are_used(groups: list[int], cores: int, expected: int) -> None:
    ranges = [Range(shard, 0, count) for shard, count in enumerate(groups)]
    assert len(split_ranges(ranges, min_partitions=None, cores=cores)) == expected
