"""Breadth-first search through every order of events of a small system, and random walks that go deeper.

The rules of the coordinators and of the core of subscriptions are searched with it:
`tests.properties.domain`, `tests.properties.kafka` and `tests.properties.subscription` have the systems, and
what must hold in them.

A system that was reached is remembered by its 64-bit hash only. Two of three million systems share one with a
probability of one in four million; the second would not be searched.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, TypeVar

System = TypeVar("System")
Story = tuple["Story", object] | None  # the events so far, the newest last
LAST_EVENTS = 40  # of a walk, in the message of a failure


class Model(Protocol[System]):
    """All systems that a setup can lead to. A system is a hashable value; what must hold, is asserted."""

    def starts(self) -> list[System]: ...

    def successors(self, system: System) -> Iterator[tuple[object, System]]:
        """Each event that may come next, or its description, with the system after it."""

    def check(self, system: System) -> None:
        """What holds in every system."""

    def check_settles(self, system: System) -> None:
        """What comes about once nothing is late, lost or ended any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """The numbers of a search."""

    systems: int
    steps: int
    depth: int


def search(model: Model[System], *, systems: int, width: int | None = None) -> SearchResult:
    """Search until so many systems were reached, or no further one exists.

    Breadth first, so that a failure is reported with a shortest sequence of events that leads to it. Of a
    layer with more than ``width`` systems only so many go on, which are drawn by lot, and the others wait for
    a layer that has fewer: the search goes deeper, and fewer steps lead to a system that was reached before.
    """
    lot, rest = random.Random(0), list[tuple[System, Story]]()
    layer: list[tuple[System, Story]] = [(start, None) for start in model.starts()]
    reached = {hash(start) for start, _ in layer}
    steps, depth = 0, 0
    while layer and len(reached) < systems:
        following: list[tuple[System, Story]] = []
        for system, story in layer:
            event: object = "the system settles"
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
        if width is not None:
            lot.shuffle(following)
            rest += following[width:]
            following = following[:width]
            while rest and len(following) < width:
                following.append(rest.pop())
        layer, depth = following, depth + 1
    return SearchResult(systems=len(reached), steps=steps, depth=depth)


def _in_order(story: Story, last: object) -> str:
    events = [str(last)]
    while story is not None:
        story, event = story
        events.append(str(event))
    return "; ".join(reversed(events))


def walk(model: Model[System], *, seed: int, steps: int) -> None:
    """A random life of the first start: events of every kind, each as likely as any other."""
    dice = random.Random(seed)
    system, story = model.starts()[0], list[object]()
    for _ in range(steps):
        try:
            event, system = dice.choice(list(model.successors(system)))
            story.append(event)
            model.check(system)
            model.check_settles(system)
        except AssertionError as error:
            events = "; ".join(map(str, story[-LAST_EVENTS:]))
            raise AssertionError(f"{error}\nseed {seed}, after: {events}") from error
