"""What the next batch reads."""

from hypothesis import given
from hypothesis import strategies as st

from loghub_worker.planning import NOTHING, Plan, Range, next_plan, pack

RANGES = st.lists(st.tuples(st.integers(0, 50), st.integers(1, 1000)), unique_by=lambda r: r[0]).map(
    lambda pairs: [Range(shard, 7, 7 + groups) for shard, groups in pairs]
)


def test_nothing_new_is_the_last_plan_itself() -> None:
    last = Plan(4, (Range(0, 1, 2),))
    assert next_plan(last, positions={0: 2, 1: 5}, ends={0: 2}, max_log_groups=10) is last


def test_each_shard_goes_on_from_its_position_up_to_the_bound_or_its_end() -> None:
    plan = next_plan(NOTHING, positions={1: 5, 0: 100}, ends={0: 103, 1: 500}, max_log_groups=10)
    assert plan == Plan(1, (Range(0, 100, 103), Range(1, 5, 15)))


def test_the_same_range_again_is_a_new_plan() -> None:
    first = next_plan(NOTHING, positions={0: 5}, ends={0: 9}, max_log_groups=10)
    again = next_plan(first, positions={0: 5}, ends={0: 9}, max_log_groups=10)
    assert again.ranges == first.ranges
    assert again.to_json() != first.to_json()


def test_position_past_the_known_end_is_nothing_to_read() -> None:
    assert next_plan(NOTHING, positions={0: 9}, ends={0: 5}, max_log_groups=10) is NOTHING


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
