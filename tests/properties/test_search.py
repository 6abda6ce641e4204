"""A search through every order of events over a small group, to a stated depth.

Each world reached has passed the invariants of docs/shard-states.md 3 (in `simulation`), and from each the
group settles within two heartbeats once nothing else happens.
"""

from dataclasses import dataclass

import pytest

from tests.properties.simulation import System, check_exclusive, check_settled, new_system, settle, successors

pytestmark = pytest.mark.long


@dataclass
class SearchResult:
    """The result of a search."""

    worlds: int
    steps: int


def search(start: System, *, depth: int, max_shards: int) -> SearchResult:
    """Search breadth first, so that a failure is reported with the shortest sequence that leads to it."""
    seen = {start.key()}
    layer = [(start, "start")]
    steps = 0
    for _ in range(depth):
        following: list[tuple[System, str]] = []
        for system, story in layer:
            for words, after in _successors(system, story, max_shards):
                steps += 1
                if after.key() not in seen:
                    seen.add(after.key())
                    following.append((after, f"{story}; {words}"))
        layer = following
    return SearchResult(worlds=len(seen), steps=steps)


def _successors(system: System, story: str, max_shards: int) -> list[tuple[str, System]]:
    try:
        after = list(successors(system, max_shards=max_shards))
        for _, each in after:
            check_exclusive(each)
        check_settled(settle(system))
    except AssertionError as error:
        raise AssertionError(f"after: {story}") from error
    return after


# The last number is a little less than what the search really reaches: far fewer, and events got lost.
FAST = [
    pytest.param(1, "ab", False, 6, 3, 2_500, id="one shard that may split"),
    pytest.param(1, "ab", True, 6, 3, 2_000, id="one ordered shard that may split"),
    pytest.param(2, "ab", True, 5, 4, 3_000, id="two ordered shards that may merge"),
    pytest.param(3, "abc", False, 6, 3, 4_000, id="three shards, three consumers"),
]
DEEP = [
    pytest.param(1, "ab", False, 8, 4, 50_000, id="one shard that may split"),
    pytest.param(1, "ab", True, 8, 4, 30_000, id="one ordered shard that may split"),
    pytest.param(2, "ab", True, 7, 5, 60_000, id="two ordered shards that may merge"),
    pytest.param(2, "abc", False, 7, 4, 130_000, id="two shards, three consumers"),
    pytest.param(3, "abc", False, 9, 3, 50_000, id="three shards, three consumers"),
]
SIZES = ("shards", "names", "order", "depth", "max_shards", "at_least")


def check_search(shards: int, names: str, order: bool, depth: int, max_shards: int, at_least: int) -> None:
    found = search(new_system(shards=shards, names=names, order=order), depth=depth, max_shards=max_shards)
    assert found.worlds >= at_least, found


@pytest.mark.parametrize(SIZES, FAST)
def test_every_order_of_events(
    shards: int, names: str, order: bool, depth: int, max_shards: int, at_least: int
) -> None:
    check_search(shards, names, order, depth, max_shards, at_least)


@pytest.mark.deep
@pytest.mark.timeout(3600)  # a long search needs a longer hang guard
@pytest.mark.parametrize(SIZES, DEEP)
def test_every_order_of_events_deep(
    shards: int, names: str, order: bool, depth: int, max_shards: int, at_least: int
) -> None:
    check_search(shards, names, order, depth, max_shards, at_least)
