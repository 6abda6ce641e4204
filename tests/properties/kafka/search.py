"""Breadth-first search through every order of events of a small Kafka group, and random walks that go deeper.

A system that was reached is remembered by its 64-bit hash only, as in `tests.properties.search`.
"""

import random
from dataclasses import dataclass

from tests.properties.kafka.group_system import GroupModel
from tests.properties.kafka.system import System

Story = tuple["Story", str] | None  # the events so far, the newest last


@dataclass
class SearchResult:
    """The numbers of a search."""

    systems: int
    steps: int
    depth: int


def search(model: GroupModel, *, systems: int) -> SearchResult:
    """Search until so many systems were reached.

    Breadth first, so that a failure is reported with a shortest sequence of events that leads to it.
    """
    layer: list[tuple[System, Story]] = [(start, None) for start in model.starts()]
    reached = {hash(start) for start, _ in layer}
    steps, depth = 0, 0
    while layer and len(reached) < systems:
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
                        model.check(after)
                        reached.add(number)
                        following.append((after, (story, event)))
            except AssertionError as error:
                raise AssertionError(f"{error}\nafter: {_in_order(story, event)}") from error
            if len(reached) >= systems:
                break
        layer, depth = following, depth + 1
    return SearchResult(systems=len(reached), steps=steps, depth=depth)


def _in_order(story: Story, last: str) -> str:
    events = [last]
    while story is not None:
        story, event = story
        events.append(event)
    return "; ".join(reversed(events))


def walk(model: GroupModel, *, seed: int, steps: int) -> None:
    """A random life of one group: events of every kind, each as likely as any other."""
    dice = random.Random(seed)
    system, story = model.starts()[0], list[str]()
    for _ in range(steps):
        try:
            event, system = dice.choice(list(model.successors(system)))
            story.append(event)
            model.check(system)
            model.check_settles(system)
        except AssertionError as error:
            raise AssertionError(f"{error}\nseed {seed}, after: {'; '.join(story[-40:])}") from error
