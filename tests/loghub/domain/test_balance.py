"""The balancer against the invariants of docs/shard-states.md 3 and against brute force."""

import itertools
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from loghub.domain.balance import Standing, balance
from tests.loghub.domain.invariants import fewest_moves


def standings(counted: dict[int, str | None]) -> list[Standing]:
    return [Standing(shard=shard, counted_for=name) for shard, name in counted.items()]


def test_the_example_of_the_docstring() -> None:
    counted = {0: "a", 1: "a", 2: "a", 3: "a", 4: "b", 5: None}
    result = balance(standings(counted), "abc")
    assert result == {0: "a", 1: "a", 2: "c", 3: "b", 4: "b", 5: "c"}


def test_one_more_stays_with_the_one_that_has_most() -> None:
    counted = {0: "b", 1: "b", 2: "b", 3: "a", 4: "a"}
    result = balance(standings({**counted, 5: None, 6: None}), "abc")
    assert Counter(result.values()) == {"a": 2, "b": 3, "c": 2}
    assert all(result[shard] == name for shard, name in counted.items())


def test_without_consumers_nothing_is_placed() -> None:
    assert balance(standings({0: "a", 1: None}), []) == {}


def test_more_consumers_than_shards() -> None:
    assert balance(standings({0: None}), ["c", "b", "a"]) == {0: "a"}


def test_what_is_under_way_is_given_up_before_what_is_worked_on() -> None:
    ways = [Standing(shard=0, counted_for="b", under_way_from="a"), Standing(shard=1, counted_for="b")]
    assert balance(ways, "bc") == {0: "c", 1: "b"}


def test_what_is_under_way_goes_back_to_who_works_on_it_where_there_is_room() -> None:
    ways = [Standing(shard=s, counted_for="b", under_way_from="a") for s in (0, 1)]
    assert balance(ways, "ab") == {0: "b", 1: "a"}


def test_what_is_under_way_goes_back_rather_than_to_one_first_by_name() -> None:
    ways = [Standing(shard=s, counted_for="b", under_way_from="z") for s in (0, 1)]
    assert balance(ways, "abz") == {0: "b", 1: "z"}
    more = [*ways, Standing(shard=2, counted_for="b"), Standing(shard=3, counted_for="b")]
    assert balance(more, "abz") == {0: "z", 1: "a", 2: "b", 3: "b"}


NAMES = "abcd"
counted_maps = st.dictionaries(st.integers(0, 30), st.sampled_from([*NAMES, "gone", None]), max_size=14)
groups = st.sets(st.sampled_from(NAMES))


@settings(deadline=None, derandomize=True)
@given(counted_maps, groups)
def test_counts_differ_by_one_at_most_with_the_fewest_moves(
    counted: dict[int, str | None], consumers: set[str]
) -> None:
    result = balance(standings(counted), consumers)
    assert result.keys() == (counted.keys() if consumers else set())
    tally = [sum(1 for name in result.values() if name == c) for c in consumers]
    assert not tally or max(tally) - min(tally) <= 1
    live = {shard: name for shard, name in counted.items() if name in consumers and name is not None}
    moves = sum(1 for shard, name in live.items() if result[shard] != name)
    assert moves == fewest_moves(live, len(counted), sorted(consumers))


@settings(deadline=None, derandomize=True)
@given(counted_maps, groups, st.randoms(use_true_random=False))
def test_the_order_of_the_inputs_is_of_no_matter_and_a_balance_stays(
    counted: dict[int, str | None], consumers: set[str], dice: object
) -> None:
    result = balance(standings(counted), consumers)
    shuffled = standings(counted)
    dice.shuffle(shuffled)  # type: ignore[attr-defined]
    assert balance(shuffled, sorted(consumers, reverse=True)) == result
    assert balance(standings(dict(result)), consumers) == result


def test_fewest_moves_by_brute_force() -> None:
    """Every placement of up to five shards on up to three consumers, tried one by one."""
    for size, count in itertools.product(range(6), range(1, 4)):
        consumers = list(NAMES[:count])
        even = [p for p in itertools.product(consumers, repeat=size) if _is_even(p, consumers)]
        for counted in itertools.product([*consumers, None], repeat=size):
            fewest = min(
                sum(1 for old, new in zip(counted, p, strict=True) if old not in (None, new)) for p in even
            )
            result = balance(standings(dict(enumerate(counted))), consumers)
            moves = sum(1 for shard, old in enumerate(counted) if old not in (None, result[shard]))
            assert moves == fewest, (counted, result)


def _is_even(placement: tuple[str, ...], consumers: list[str]) -> bool:
    tally = [placement.count(name) for name in consumers]
    return max(tally) - min(tally) <= 1
