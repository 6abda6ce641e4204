"""The balancer against the invariants of docs/shard-states.md 3 and against brute force."""

import itertools
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from loghub.domain.balance import ShardAssignment, balance
from tests.loghub.domain.invariants import fewest_moves


def assignments(counted: dict[int, str | None]) -> list[ShardAssignment]:
    return [ShardAssignment(shard=shard, counted_for=name) for shard, name in counted.items()]


def test_the_example_of_the_docstring() -> None:
    counted = {0: "a", 1: "a", 2: "a", 3: "a", 4: "b", 5: None}
    result = balance(assignments(counted), "abc")
    assert result == {0: "a", 1: "a", 2: "c", 3: "b", 4: "b", 5: "c"}


def test_the_extra_shard_stays_with_the_consumer_that_has_most() -> None:
    counted = {0: "b", 1: "b", 2: "b", 3: "a", 4: "a"}
    result = balance(assignments({**counted, 5: None, 6: None}), "abc")
    assert Counter(result.values()) == {"a": 2, "b": 3, "c": 2}
    assert all(result[shard] == name for shard, name in counted.items())


def test_without_consumers_no_shard_is_assigned() -> None:
    assert balance(assignments({0: "a", 1: None}), []) == {}


def test_surplus_consumers_get_no_shard() -> None:
    assert balance(assignments({0: None}), ["c", "b", "a"]) == {0: "a"}


def test_a_shard_that_is_moving_to_a_consumer_is_taken_from_it_first() -> None:
    ways = [
        ShardAssignment(shard=0, counted_for="b", under_way_from="a"),
        ShardAssignment(shard=1, counted_for="b"),
    ]
    assert balance(ways, "bc") == {0: "c", 1: "b"}


def test_a_moving_shard_returns_to_its_holder_if_the_quota_allows() -> None:
    ways = [ShardAssignment(shard=s, counted_for="b", under_way_from="a") for s in (0, 1)]
    assert balance(ways, "ab") == {0: "b", 1: "a"}


def test_a_moving_shard_returns_to_its_holder_before_names_decide() -> None:
    ways = [ShardAssignment(shard=s, counted_for="b", under_way_from="z") for s in (0, 1)]
    assert balance(ways, "abz") == {0: "b", 1: "z"}
    more = [*ways, ShardAssignment(shard=2, counted_for="b"), ShardAssignment(shard=3, counted_for="b")]
    assert balance(more, "abz") == {0: "z", 1: "a", 2: "b", 3: "b"}


NAMES = "abcd"
counted_maps = st.dictionaries(st.integers(0, 30), st.sampled_from([*NAMES, "gone", None]), max_size=14)
groups = st.sets(st.sampled_from(NAMES))


@settings(deadline=None, derandomize=True)
@given(counted_maps, groups)
def test_counts_differ_by_at_most_one_with_the_fewest_moves(
    counted: dict[int, str | None], consumers: set[str]
) -> None:
    result = balance(assignments(counted), consumers)
    assert result.keys() == (counted.keys() if consumers else set())
    tally = [sum(1 for name in result.values() if name == c) for c in consumers]
    assert not tally or max(tally) - min(tally) <= 1
    live = {shard: name for shard, name in counted.items() if name in consumers and name is not None}
    moves = sum(1 for shard, name in live.items() if result[shard] != name)
    assert moves == fewest_moves(live, len(counted), sorted(consumers))


@settings(deadline=None, derandomize=True)
@given(counted_maps, groups, st.randoms(use_true_random=False))
def test_the_order_of_the_inputs_does_not_matter_and_a_balanced_input_stays(
    counted: dict[int, str | None], consumers: set[str], dice: object
) -> None:
    result = balance(assignments(counted), consumers)
    shuffled = assignments(counted)
    dice.shuffle(shuffled)  # type: ignore[attr-defined]
    assert balance(shuffled, sorted(consumers, reverse=True)) == result
    assert balance(assignments(dict(result)), consumers) == result


def test_no_placement_moves_fewer_shards() -> None:
    """Every placement of up to five shards on up to three consumers, tried one by one."""
    for size, count in itertools.product(range(6), range(1, 4)):
        consumers = list(NAMES[:count])
        even = [p for p in itertools.product(consumers, repeat=size) if _is_even(p, consumers)]
        for counted in itertools.product([*consumers, None], repeat=size):
            fewest = min(
                sum(1 for old, new in zip(counted, p, strict=True) if old not in (None, new)) for p in even
            )
            result = balance(assignments(dict(enumerate(counted))), consumers)
            moves = sum(1 for shard, old in enumerate(counted) if old not in (None, result[shard]))
            assert moves == fewest, (counted, result)


def _is_even(placement: tuple[str, ...], consumers: list[str]) -> bool:
    tally = [placement.count(name) for name in consumers]
    return max(tally) - min(tally) <= 1


def test_the_extra_loose_shard_goes_to_the_consumer_that_has_most() -> None:
    assert balance(assignments({0: "b", 1: None, 2: None}), "ab") == {0: "b", 1: "a", 2: "b"}


class CountedName(str):
    """A consumer's name that counts how often it is compared."""

    __slots__ = ()
    compared = 0

    def __eq__(self, other: object) -> bool:
        CountedName.compared += 1
        return str.__eq__(self, other)

    def __lt__(self, other: str) -> bool:
        CountedName.compared += 1
        return str.__lt__(self, other)

    __hash__ = str.__hash__


def test_the_work_grows_with_shards_and_consumers_and_not_with_their_product() -> None:
    """Each of a thousand consumers of 400 shards that joined took 10 ms: 10 s in all."""
    names = [CountedName(f"c{number:04}") for number in range(1000)]
    assignments = [ShardAssignment(shard=n, counted_for=names[n % 300]) for n in range(400)]
    CountedName.compared = 0
    result = balance(assignments, names)
    assert len(result) == 400
    assert CountedName.compared < 100 * (len(names) + len(assignments))
