"""Half-open ranges of the MD5 key space and their 32 digits; creation, split, merge, deletion and lookup of
shards (docs/sls-protocol.md 2.3, 5).
"""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from loghub.domain.shards import (
    MAX_KEY,
    TOP,
    WHOLE,
    BadHashKey,
    HashRange,
    NoRightNeighbour,
    Shard,
    ShardIsReadOnly,
    ShardIsWritable,
    ShardMap,
    ShardNotFound,
    create,
    delete,
    even_ranges,
    format_key,
    infer_parents,
    merge,
    parse_key,
    route,
    split,
    split_at,
)


def test_create_numbers_from_0_over_even_ranges() -> None:
    shards = create(4)
    assert list(shards.shards) == [0, 1, 2, 3]
    assert [s.keys.begin_key[0] for s in shards.writable()] == ["0", "4", "8", "c"]
    assert shards.next_shard == 4


def test_split_in_the_middle() -> None:
    done = split(create(1), shard=0)
    assert [s.shard for s in done.closed] == [0]
    assert [(s.shard, s.keys.begin, s.keys.end, s.parents) for s in done.created] == [
        (1, 0, TOP // 2, (0,)),
        (2, TOP // 2, TOP, (0,)),
    ]
    assert done.after.shards[0].read_only


def test_split_into_three() -> None:
    done = split(create(2), shard=1, parts=3)
    assert [s.shard for s in done.created] == [2, 3, 4]
    assert {s.parents for s in done.created} == {(1,)}
    assert (done.created[0].keys.begin, done.created[2].keys.end) == (TOP // 2, TOP)
    assert done.after.next_shard == 5


def test_split_at_a_key() -> None:
    left, right = split_at(create(1), shard=0, key=100).created
    assert (left.keys.end, right.keys.begin) == (100, 100)


def test_split_at_a_key_outside_is_refused() -> None:
    two = create(2)
    with pytest.raises(BadHashKey):
        split_at(two, shard=0, key=two.shards[0].keys.end)


def test_merge_takes_the_right_neighbour_by_key() -> None:
    before = split(create(2), shard=0).after  # by key: 2 3 1
    done = merge(before, shard=3)
    assert [s.shard for s in done.closed] == [3, 1]
    assert [(s.shard, s.parents) for s in done.created] == [(4, (1, 3))]
    assert done.created[0].keys == HashRange(begin=TOP // 4, end=TOP)


def test_the_last_shard_by_key_cannot_be_merged() -> None:
    with pytest.raises(NoRightNeighbour, match="shard 1 is the last by key"):
        merge(create(2), shard=1)


def test_a_read_only_shard_cannot_be_split_or_merged() -> None:
    after = split(create(2), shard=0).after
    for change in (split, merge):
        with pytest.raises(ShardIsReadOnly, match="shard 0 is read-only"):
            change(after, shard=0)


def test_an_unknown_shard_is_refused() -> None:
    for change in (split, merge, delete):
        with pytest.raises(ShardNotFound, match="shard 9 does not exist"):
            change(create(2), shard=9)


def test_only_a_read_only_shard_is_deleted_and_its_number_never_comes_back() -> None:
    with pytest.raises(ShardIsWritable, match="shard 0 accepts writes"):
        delete(create(1), shard=0)
    after = delete(split(create(1), shard=0).after, shard=0)
    assert list(after.shards) == [1, 2]
    assert [s.shard for s in split(after, shard=2).created] == [3, 4]


def test_a_key_is_routed_to_the_writable_shard_whose_range_contains_it() -> None:
    after = split(create(2), shard=1).after
    assert route(after, key=0).shard == 0
    assert route(after, key=TOP // 2).shard == 2
    assert route(after, key=MAX_KEY).shard == 3


def test_a_key_outside_the_key_space_is_refused() -> None:
    with pytest.raises(BadHashKey):
        route(create(2), key=TOP)


def test_an_older_ancestor_is_returned_for_a_deleted_parent() -> None:
    after = split(split(create(1), shard=0).after, shard=1).after  # 0; 1 2; 3 4 of 1
    without = [Shard(shard=s.shard, keys=s.keys) for s in delete(after, shard=1).shards.values()]
    assert infer_parents(without) == {0: (), 2: (0,), 3: (0,), 4: (0,)}


class Logstore(RuleBasedStateMachine):
    """Any splits, merges and deletes: the writable shards always tile the key space."""

    @initialize(count=st.integers(1, 5))
    def start(self, count: int) -> None:
        self.map: ShardMap = create(count)
        self.given_out = set(self.map.shards)
        self.deleted = False

    @rule(pick=st.integers(0, 50), share=st.integers(1, 99))
    def split(self, pick: int, share: int) -> None:
        writable = self.map.writable()
        old = writable[pick % len(writable)]
        width = old.keys.end - old.keys.begin
        if width > 1000 and len(writable) < 30:
            done = split_at(self.map, shard=old.shard, key=old.keys.begin + width * share // 100)
            self._took(done.after, done.created)

    @rule(pick=st.integers(0, 50), parts=st.integers(2, 5))
    def split_evenly(self, pick: int, parts: int) -> None:
        writable = self.map.writable()
        old = writable[pick % len(writable)]
        if old.keys.end - old.keys.begin > 1000 and len(writable) < 30:
            done = split(self.map, shard=old.shard, parts=parts)
            self._took(done.after, done.created)

    @rule(pick=st.integers(0, 50))
    def merge(self, pick: int) -> None:
        writable = self.map.writable()
        left = writable[pick % len(writable)]
        if left is not writable[-1]:
            done = merge(self.map, shard=left.shard)
            self._took(done.after, done.created)

    @rule(pick=st.integers(0, 50))
    def delete(self, pick: int) -> None:
        closed = [s.shard for s in self.map.shards.values() if s.read_only]
        if closed:
            self.map = delete(self.map, shard=closed[pick % len(closed)])
            self.deleted = True

    def _took(self, after: ShardMap, created: tuple[Shard, ...]) -> None:
        self.map = after
        numbers = {s.shard for s in created}
        assert not numbers & self.given_out, "a number given twice"
        self.given_out |= numbers

    @invariant()
    @precondition(lambda self: hasattr(self, "map"))
    def writable_shards_tile_the_space(self) -> None:
        writable = self.map.writable()
        assert writable[0].keys.begin == 0
        assert writable[-1].keys.end == TOP
        assert all(a.keys.end == b.keys.begin for a, b in itertools.pairwise(writable))
        assert list(self.map.shards) == sorted(self.map.shards)

    @invariant()
    @precondition(lambda self: hasattr(self, "map") and not self.deleted)
    def parents_follow_from_numbers_and_ranges(self) -> None:
        known = self.map.shards.values()
        bare = [Shard(shard=s.shard, keys=s.keys, read_only=s.read_only) for s in known]
        assert infer_parents(bare) == {s.shard: s.parents for s in known}


TestLogstore = Logstore.TestCase
TestLogstore.settings = settings(deadline=None, derandomize=True, max_examples=60, stateful_step_count=30)


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
