"""A search through every order of events over a small group, to a stated depth.

Each world reached has passed the invariants of architecture.md (in `world`), and from each the
group settles within two heartbeats once nothing else happens.
"""

from dataclasses import dataclass

import pytest

from tests.properties.world import (
    World,
    check_settled,
    check_world,
    new_world,
    settle,
    successors,
)


@dataclass
class Found:
    """What a search came to."""

    worlds: int
    steps: int


def search(start: World, *, depth: int, max_shards: int) -> Found:
    """Breadth first, so that a failure comes with the shortest story that leads to it."""
    seen = {start.key(): ""}
    layer = [(start, "start")]
    steps = 0
    for _ in range(depth):
        following: list[tuple[World, str]] = []
        for world, story in layer:
            for words, after in _successors(world, story, max_shards):
                steps += 1
                if after.key() not in seen:
                    seen[after.key()] = ""
                    following.append((after, f"{story}; {words}"))
        layer = following
    return Found(worlds=len(seen), steps=steps)


def _successors(world: World, story: str, max_shards: int) -> list[tuple[str, World]]:
    try:
        after = list(successors(world, max_shards=max_shards))
        for _, each in after:
            check_world(each)
        check_settled(settle(world))
    except AssertionError as error:
        raise AssertionError(f"after: {story}") from error
    return after


# The counts are what the searches really reach; far fewer would mean that events got lost.
FAST = [
    pytest.param(1, "ab", False, 5, 3, 1, id="one shard that may split"),
    pytest.param(1, "ab", True, 5, 3, 1, id="one ordered shard that may split"),
    pytest.param(3, "abc", False, 4, 3, 1, id="three shards, three consumers"),
]


@pytest.mark.parametrize(("shards", "names", "order", "depth", "max_shards", "at_least"), FAST)
def test_every_order_of_events(
    shards: int, names: str, order: bool, depth: int, max_shards: int, at_least: int
) -> None:
    found = search(new_world(shards=shards, names=names, order=order), depth=depth, max_shards=max_shards)
    print(found)
    assert found.worlds >= at_least
