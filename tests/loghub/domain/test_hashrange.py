"""Half-open ranges of the MD5 key space and their 32 digits (docs/sls-protocol.md 2.3, ListShards)."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loghub.domain.shards import (
    MAX_KEY,
    TOP,
    WHOLE,
    BadHashKey,
    HashRange,
    even_ranges,
    format_key,
    parse_key,
)

bounds = st.lists(st.integers(0, MAX_KEY - 1) | st.just(TOP), min_size=2, max_size=2, unique=True).map(sorted)
ranges = bounds.map(lambda pair: HashRange(begin=pair[0], end=pair[1]))

# No deadline: other work on the machine must not fail a test.
steady = settings(deadline=None, derandomize=True)


def test_the_whole_space_is_all_0_to_all_f() -> None:
    assert (WHOLE.begin_key, WHOLE.end_key) == ("0" * 32, "f" * 32)
    assert HashRange.parse(begin_key="0" * 32, end_key="F" * 32) == WHOLE


def test_the_top_key_belongs_to_the_last_range() -> None:
    *others, last = even_ranges(5)
    assert MAX_KEY in last
    assert all(MAX_KEY not in keys for keys in others)


def test_a_range_contains_its_begin_and_not_its_end() -> None:
    left, right = WHOLE.split(100)
    assert 99 in left
    assert 100 not in left
    assert 100 in right


@pytest.mark.parametrize(
    "text", ["", "f" * 31, "f" * 33, "g" * 32, "-" + "1" * 31, " " * 32, "1" * 31 + "\n", "0x" + "0" * 30]
)
def test_a_bad_key_is_refused(text: str) -> None:
    with pytest.raises(BadHashKey, match="32 hex digits"):
        parse_key(text)


@pytest.mark.parametrize(
    ("begin", "end"), [(5, 5), (6, 5), (-1, 5), (0, TOP + 1), (0, MAX_KEY), (MAX_KEY, TOP)]
)
def test_a_range_that_the_wire_cannot_express_is_refused(begin: int, end: int) -> None:
    with pytest.raises(BadHashKey):
        HashRange(begin=begin, end=end)


@pytest.mark.parametrize("key", [0, 10, 20, 21, MAX_KEY, TOP])
def test_a_split_key_outside_is_refused(key: int) -> None:
    with pytest.raises(BadHashKey, match="does not lie inside"):
        HashRange(begin=10, end=20).split(key)


def test_the_top_key_splits_nothing() -> None:
    with pytest.raises(BadHashKey, match="does not lie inside"):
        WHOLE.split(MAX_KEY)


def test_a_range_is_too_small_for_more_parts_than_it_has_keys() -> None:
    assert len(HashRange(begin=7, end=9).parts(2)) == 2
    with pytest.raises(BadHashKey, match="too small"):
        HashRange(begin=7, end=9).parts(3)


def test_keys_outside_the_key_space_cannot_be_formatted() -> None:
    for key in (-1, TOP + 1):
        with pytest.raises(BadHashKey):
            format_key(key)


@steady
@given(ranges)
def test_the_wire_form_comes_back(keys: HashRange) -> None:
    assert HashRange.parse(begin_key=keys.begin_key, end_key=keys.end_key) == keys


@steady
@given(ranges, st.integers(0, MAX_KEY))
def test_split_parts_hold_each_key_once_and_join_again(keys: HashRange, key: int) -> None:
    if keys.begin < key < keys.end and key != MAX_KEY:
        left, right = keys.split(key)
        assert left.join(right) == keys
        for probe in (keys.begin, key - 1, key, min(keys.end, TOP) - 1):
            assert (probe in left) + (probe in right) == 1
        with pytest.raises(BadHashKey, match="does not follow"):
            right.join(left)


@steady
@given(st.integers(1, 300))
def test_even_ranges_tile_the_space(count: int) -> None:
    parts = even_ranges(count)
    assert parts[0].begin == 0
    assert parts[-1].end == TOP
    assert all(a.end == b.begin for a, b in itertools.pairwise(parts))
    widths = {part.end - part.begin for part in parts}
    assert max(widths) - min(widths) <= 1


@pytest.mark.parametrize("count", [0, -1, 1 << 17])
def test_a_bad_count_is_refused(count: int) -> None:
    with pytest.raises(BadHashKey):
        even_ranges(count)
