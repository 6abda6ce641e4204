"""A part of `loghub_worker.membership.turns` has a turn after each wake-up, at whatever line it comes.

A thread of the part stops at each line of that module once, and the wake-up comes then: no schedule that is
drawn by chance would meet each of them.
"""

import math
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from loghub_worker.membership import turns
from loghub_worker.membership.turns import Crew, OwnThreads, Turns
from tests.loghub_worker.consumer.virtual import World, world
from tests.loghub_worker.membership.test_turns import LIMIT, Parts, begin
from tests.simulator.threads import SimThread, Threads

STOPPED_S = 1.0
FEWEST_LINES = 5  # of `turns`, from one turn to the next


class AtLine:
    """Stops a thread for a while at one line of `turns`, counted from the call of `watch` on."""

    def __init__(self, number: int, threads: Threads) -> None:
        self._left = number
        self._threads = threads
        self._thread: SimThread | None = None

    @property
    def is_met(self) -> bool:
        return self._left < 0

    def watch(self) -> None:
        """From now on, in the calling thread."""
        if self._thread is not None:
            return
        self._thread = self._threads.current
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            if frame.f_code.co_filename == turns.__file__:
                frame.f_trace = self._at
            frame = frame.f_back
        sys.settrace(self._called)

    def _called(self, frame: FrameType, event: str, value: Any) -> Any:  # noqa: ARG002 - see `sys.settrace`
        return self._at if frame.f_code.co_filename == turns.__file__ else None

    def _at(self, frame: FrameType, event: str, value: Any) -> Any:  # noqa: ARG002
        if event == "line" and self._threads.current is self._thread:
            self._left -= 1
            if self._left == -1:
                self._threads.sleep(STOPPED_S)
        return self._at


class Woken:
    """A part, and somebody who wakes it. `is_missed`: no turn has begun since the wake-up did."""

    def __init__(self, one: World, parts: Parts, pause_s: float) -> None:
        self._world, self._parts, self._pause_s = one, parts, pause_s
        self.is_missed = False
        self.watch: Callable[[], object] = lambda: None
        self.turn: Any = parts.call(lambda _: parts.turns.start("part", self._take))

    def _take(self) -> float:
        self.is_missed = False
        self.watch()
        return self._pause_s

    def wake(self) -> None:
        self.is_missed = True
        self.turn.wake()

    def wake_at(self, number: int) -> bool:
        """Wake it while it stands at this line after its next turn; False if it comes to no such line."""
        at = AtLine(number, self._world.threads)

        def wake_then(_: object) -> None:
            self.turn.wake()
            self._world.threads.wait(lambda: at.is_met, STOPPED_S)
            if at.is_met:
                self.wake()

        self.watch = at.watch
        self._parts.call(wake_then)
        self._world.pass_time(2 * STOPPED_S)
        self.watch = lambda: None
        sys.settrace(None)
        return at.is_met


def own(_: World) -> Turns:
    return OwnThreads()


def crew(one: World) -> Turns:
    return Crew("crew", LIMIT, one.clock)


def crew_of_one(one: World) -> Turns:
    return Crew("crew", 1, one.clock)


@pytest.mark.parametrize("make", [own, crew, crew_of_one])
@pytest.mark.parametrize("pause_s", [math.inf, 1000.0])
def test_a_part_that_is_woken_at_any_line_has_a_turn_after_that(
    make: Callable[[World], Turns], pause_s: float
) -> None:
    with world() as one:
        parts = begin(one, lambda: make(one))
        woken = Woken(one, parts, pause_s)
        one.pass_time(1.0)
        number = 0
        while woken.wake_at(number):
            assert not woken.is_missed, f"line {number} after a turn"
            number += 1
        assert number >= FEWEST_LINES
