"""Breadth-first search through every order of events of a small group.

A system that was reached is remembered by its 64-bit hash only. Two of three million systems share one with a
probability of one in four million; the second would not be searched.
"""

import itertools
from collections.abc import Iterable
from dataclasses import dataclass

from tests.properties.group_system import GroupModel
from tests.properties.system import System, check_exclusive

Story = tuple["Story", str] | None  # the events so far, the newest last


@dataclass
class SearchResult:
    """The numbers of a search."""

    systems: int
    steps: int
    depth: int


def _in_order(story: Story, last: str) -> str:
    events = [last]
    while story is not None:
        story, event = story
        events.append(event)
    return "; ".join(reversed(events))


def search(model: GroupModel, starts: Iterable[System], *, systems: int) -> SearchResult:
    """Search until so many systems were reached, or no further one exists.

    Breadth first, so that a failure is reported with a shortest sequence of events that leads to it.
    """
    layer: list[tuple[System, Story]] = [(start, None) for start in starts]
    reached = {hash(start) for start, _ in layer}
    steps = 0
    for depth in itertools.count():
        following: list[tuple[System, Story]] = []
        for system, story in layer:
            event = "the group settles"
            try:
                model.check_settles(system)
                event = "the next event"
                for event, after in model.successors(system):
                    steps += 1
                    number = hash(after)
                    if number not in reached:
                        check_exclusive(after)
                        reached.add(number)
                        following.append((after, (story, event)))
            except AssertionError as error:
                raise AssertionError(f"{error}\nafter: {_in_order(story, event)}") from error
            if len(reached) >= systems:
                return SearchResult(systems=len(reached), steps=steps, depth=depth + 1)
        if not following:
            return SearchResult(systems=len(reached), steps=steps, depth=depth)
        layer = following
    raise AssertionError("unreachable")
