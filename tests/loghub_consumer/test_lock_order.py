"""Consumers take their locks in one order, so that no two threads wait for each other.

Two locks that are taken in both orders stop a program only if two threads meet, which a test rarely sees. It
sees each time that there are two orders.
"""

import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from loghub_consumer import (
    Consumer,
    DeadLetterLogstore,
    LogBatch,
    MultiLogstoreConsumer,
    MultiLogstoreListener,
    OnFailure,
    Processor,
    Tracker,
)
from tests.loghub_consumer.support import ids_of
from tests.loghub_consumer.virtual import PROJECT, AnyConsumer, World, world
from tests.simulator.threads import SimLock, SimThread

NAMES = ("ls-0", "ls-1")
BAD, REFUSED = "bad", "refused"
MIN_LOCKS = 4  # that a consumer has: of its shards, its group, its pulls, its tasks


class Orders:
    """Which locks are taken while which others are held. Each is named after the line that makes it."""

    def __init__(self) -> None:
        self.after: dict[str, set[str]] = defaultdict(set)
        self._held: dict[SimThread | None, list[SimLock]] = defaultdict(list)
        self._names: dict[SimLock, str] = {}

    @contextmanager
    def recorded(self) -> Iterator[None]:
        make, acquire, release = SimLock.__init__, SimLock.acquire, SimLock.release

        def made(lock: SimLock, *given: Any, **named: Any) -> None:
            make(lock, *given, **named)
            self._names[lock] = _maker()

        def acquired(lock: SimLock, depth: int = 1) -> None:
            held = self._held[lock._threads.current]
            if lock not in held:
                self.after[self._names[lock]].update(self._names[one] for one in held)
            acquire(lock, depth)
            held.extend([lock] * depth)

        def released(lock: SimLock, depth: int = 1) -> None:
            release(lock, depth)
            for _ in range(depth):
                self._held[lock._threads.current].remove(lock)

        with (
            patch.object(SimLock, "__init__", made),
            patch.object(SimLock, "acquire", acquired),
            patch.object(SimLock, "release", released),
        ):
            yield


def _maker() -> str:
    """The line of the product that is being executed."""
    frame = sys._getframe(2)
    while "/worker/loghub_consumer/" not in frame.f_code.co_filename and frame.f_back is not None:
        frame = frame.f_back
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"


class Mixed(Processor):
    """Takes some logs, refuses some, and fails for some."""

    def process(self, logs: LogBatch, tracker: Tracker) -> None:
        if BAD in ids_of(logs):
            raise ValueError(BAD)
        if REFUSED in ids_of(logs):
            tracker.nack()
        tracker.save()


class Calling(MultiLogstoreListener):
    """Pauses and resumes what it gets."""

    def __init__(self) -> None:
        self.program: Any = None

    def on_assigned(self, logstore: str, shards: tuple[int, ...]) -> None:
        self.program.pause([logstore])
        self.program.resume([logstore])


def alone(one: World) -> AnyConsumer:
    return Consumer(one.settings("ls-0", on_failure=policy()), Mixed)


def together(one: World) -> AnyConsumer:
    settings = replace(one.settings("ls-0", on_failure=policy()), logstore="")
    listener = Calling()
    listener.program = MultiLogstoreConsumer(settings, lambda _: Mixed, NAMES, listener)
    return listener.program  # type: ignore[no-any-return]


def policy() -> OnFailure:
    return OnFailure(
        policy="DeadLetter", max_attempts=2, dead_letter=DeadLetterLogstore(project=PROJECT, logstore="dead")
    )


def use(program: Any) -> None:
    """All that a program may ask."""
    several = isinstance(program, MultiLogstoreConsumer)
    for consumer in program.consumers().values() if several else (program,):
        consumer.pause()
        consumer.resume()
        consumer.seek(0, "begin")
        consumer.prioritize([0], 1)
        consumer.commit()
        consumer.lag(0)
        consumer.errors()
        consumer.failure_report()
        consumer.inspect(lambda membership, _, manager: (membership.shards, manager.error))
    program.errors()


@pytest.mark.parametrize("make", [alone, together])
def test_locks_are_taken_in_one_order(make: Callable[[World], AnyConsumer]) -> None:
    orders = Orders()
    with orders.recorded(), world() as one:
        one.make_logstore("dead", has_group=False)
        for name in NAMES:
            one.make_logstore(name)
            for log in ("a", BAD, REFUSED, "b"):
                one.put(name, [log])
        program = one.start(lambda: make(one))
        one.until(lambda: one.is_saved("ls-0"), "the end")
        program.call(use)
        one.until(lambda: one.is_saved("ls-0"), "the end again")
        program.end()
    assert len(orders.after) >= MIN_LOCKS
    TopologicalSorter(orders.after).prepare()  # raises `CycleError`, with the lines
