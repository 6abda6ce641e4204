"""Parts that take turns: by threads of their own and by a crew, in virtual time."""

import math
from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
from structlog.contextvars import get_contextvars

from loghub_consumer.log_context import about
from loghub_consumer.membership.turns import MIN_TIMES, Crew, OwnThreads, Turns
from tests.loghub_consumer.virtual import Program, World, world

LIMIT = 3


class Parts(Program):
    """A process with threads for parts. Each counts its turns."""

    turns: Turns

    def main(self) -> None:
        self.taken: Counter[str] = Counter()
        self.times: dict[str, list[float]] = {}
        self.ended = False
        self.has_begun = True
        while not self.ended:
            self.world.sleep(1.0)

    def take(self, name: str, pause_s: float | None, hook: Callable[[], object] = lambda: None) -> Any:
        self.taken[name] += 1
        self.times.setdefault(name, []).append(self.world.clock.now_s)
        hook()
        return pause_s


def begin(one: World, make: Callable[[], Turns]) -> Parts:
    parts = Parts("parts", world=one, make=lambda: None)  # type: ignore[arg-type, return-value]
    one.programs.append(parts)
    one.threads.begin(parts, parts.main)
    one.until(lambda: parts.has_begun, "the process")
    parts.turns = parts.call(lambda _: make())
    return parts


KINDS = {"own": lambda _: OwnThreads(), "crew": lambda one: Crew("crew", LIMIT, one.clock)}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(5))
def test_a_part_has_its_turn_when_it_is_due_woken_or_had_none(kind: str, seed: int) -> None:
    with world(seed) as one:
        parts = begin(one, lambda: KINDS[kind](one))
        began_s = one.clock.now_s

        def start(_: Any) -> list[Any]:
            paces = {"each second": 1.0, "each ten": 10.0, "never": math.inf, "once": None}
            return [parts.turns.start(name, partial(parts.take, name, s)) for name, s in paces.items()]

        started = parts.call(start)
        one.pass_time(100.5)
        assert parts.times["each ten"] == [pytest.approx(began_s + n, abs=1) for n in range(0, 101, 10)]
        assert len(parts.times["each second"]) in (100, 101)
        assert (parts.taken["never"], parts.taken["once"]) == (1, 1)
        parts.call(lambda _: started[2].wake())
        parts.call(lambda _: started[3].wake())
        one.pass_time(0.5)
        assert (parts.taken["never"], parts.taken["once"]) == (2, 1)
        parts.call(lambda _: [turn.stop(60.0) for turn in started])
        before = Counter(parts.taken)
        one.pass_time(100)
        assert parts.taken == before


def test_a_crew_needs_no_thread_for_parts_that_wait_and_turns_that_take_long_delay_nobody() -> None:
    with world() as one:
        parts = begin(one, lambda: Crew("crew", LIMIT, one.clock))
        before = len(parts.threads)

        def start(_: Any) -> None:
            for number in range(200):
                parts.turns.start(f"part {number}", partial(parts.take, f"part {number}", 10.0))
            for number in range(LIMIT - 2):  # one thread goes on with the others, and one watches the times
                blocks = partial(one.sleep, 1000.0)
                parts.turns.start(f"slow {number}", partial(parts.take, f"slow {number}", 1.0, blocks))

        parts.call(start)
        one.pass_time(500)
        assert len(parts.threads) <= before + LIMIT + 1  # that of the call
        for number in range(200):
            times = parts.times[f"part {number}"]
            assert max(after - at for at, after in pairwise(times)) < 10.5
            assert len(times) >= 49


def test_what_a_part_raises_ends_that_part_alone() -> None:
    with world() as one:
        parts = begin(one, lambda: Crew("crew", 1, one.clock))

        def fail() -> None:
            raise ValueError("a part")

        def start(_: Any) -> None:
            parts.turns.start("bad", partial(parts.take, "bad", 1.0, fail))
            parts.turns.start("good", partial(parts.take, "good", 1.0))

        parts.call(start)
        one.pass_time(10)
        assert parts.taken["bad"] == 1
        assert parts.taken["good"] >= 10


def test_parts_that_are_always_due_take_turns() -> None:
    """One that has something to do all the time has one turn in a round."""
    with world() as one:
        parts = begin(one, lambda: Crew("crew", 1, one.clock))

        def start(_: Any) -> None:
            for name in "abcde":
                parts.turns.start(name, partial(parts.take, name, 0.0, partial(one.sleep, 1.0)))

        parts.call(start)
        one.pass_time(100)
        assert max(parts.taken.values()) - min(parts.taken.values()) <= 1


@pytest.mark.parametrize("seed", range(5))
def test_of_two_parts_that_are_woken_together_none_waits_for_the_other(seed: int) -> None:
    with world(seed) as one:
        parts = begin(one, lambda: Crew("crew", 2, one.clock))
        turns: list[Any] = []

        def work() -> None:
            one.sleep(1.0 if max(parts.taken.values()) == 1 else 1000.0)

        def start(_: Any) -> None:
            turns.extend(parts.turns.start(name, partial(parts.take, name, math.inf, work)) for name in "ab")

        parts.call(start)
        one.pass_time(10)  # then one thread waits for work, and one for the first of the times
        parts.call(lambda _: [turn.wake() for turn in turns])
        one.pass_time(10)
        assert parts.taken == {"a": 2, "b": 2}


def test_messages_of_a_part_name_what_those_of_its_starter_name() -> None:
    with world() as one:
        parts = begin(one, lambda: Crew("crew", 1, one.clock))
        seen: dict[str, set[str]] = {}

        def start(_: Any) -> None:
            for name in "ab":
                note = partial(
                    lambda name: seen.setdefault(name, set()).add(get_contextvars()["logstore"]), name
                )
                with about(project="", logstore=name, group=""):
                    parts.turns.start(name, partial(parts.take, name, 1.0, note))

        parts.call(start)
        one.pass_time(10)
        assert seen == {"a": {"a"}, "b": {"b"}}


def test_a_part_that_is_woken_all_the_time_leaves_few_times_behind() -> None:
    with world() as one:
        crew = Crew("crew", LIMIT, one.clock)
        parts = begin(one, lambda: crew)

        def start(_: Any) -> None:
            late = parts.turns.start("late", partial(parts.take, "late", 3600.0))
            parts.turns.start("first", partial(parts.take, "first", 1000.0))

            def wake() -> None:
                late.wake()
                one.sleep(0.01)

            parts.turns.start("waking", partial(parts.take, "waking", 0.0, wake))

        parts.call(start)
        one.pass_time(50)
        assert parts.taken["late"] > 2 * MIN_TIMES
        assert len(crew._times) <= MIN_TIMES
