"""A part of `loghub_consumer.membership.turns` has a turn after each wake-up, at whatever line it comes."""

import math
from collections.abc import Callable

import pytest

from loghub_consumer.membership import turns
from loghub_consumer.membership.turns import Crew, OwnThreads, Turns
from tests.loghub_consumer.membership.test_turns import LIMIT, Parts, begin
from tests.loghub_consumer.virtual import World, world
from tests.simulator.lines import STOPPED_S, Lines

KINDS: dict[str, Callable[[World], Turns]] = {
    "own": lambda _: OwnThreads(),
    "crew": lambda one: Crew("crew", LIMIT, one.clock),
    "crew of one": lambda one: Crew("crew", 1, one.clock),
}
MIN_LINES = 5  # from one turn of a part to the next


class Part:
    """`is_missed`: no turn has begun since the last wake-up did."""

    def __init__(self, parts: Parts, pause_s: float) -> None:
        self.is_missed = False
        self._pause_s = pause_s
        self._turn = parts.call(lambda _: parts.turns.start("part", self._take))

    def _take(self) -> float:
        self.is_missed = False
        return self._pause_s

    def wake(self) -> None:
        self.is_missed = True
        self._turn.wake()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("pause_s", [math.inf, 1000.0])
def test_a_part_that_is_woken_while_it_stands_at_any_line_has_a_turn_after_that(
    kind: str, pause_s: float
) -> None:
    with world() as one, (lines := Lines(one.threads, turns)).followed():
        parts = begin(one, lambda: KINDS[kind](one))
        part = Part(parts, pause_s)

        def wake_at(number: int) -> bool:
            lines.stop_at(number)
            part.wake()
            if not lines.is_stopped():
                return False
            part.wake()
            return True

        number = 0
        while parts.call(lambda _, number=number: wake_at(number)):  # type: ignore[misc]
            one.pass_time(2 * STOPPED_S)
            assert not part.is_missed, f"woken at {lines.stopped_at}"
            number += 1
        assert number >= MIN_LINES
