"""Hundreds of logstores in one program, in virtual time: the threads that it has, and what no logstore does
to the others."""

from collections import defaultdict
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import structlog

from loghub_consumer import LogBatch, MultiLogstoreConsumer, MultiLogstoreListener, Processor, Tracker
from loghub_consumer.program_parts import PROCESSORS
from tests.loghub_consumer.virtual import TIMEOUT_S, Program, World, world

pytestmark = pytest.mark.long

MANY = 200
INTERVAL_S = 1.0  # of heartbeats
NEVER_S = 1e9


class Beats:
    """When heartbeats of each logstore were answered; those of a `slow` one take long."""

    def __init__(self, one: World) -> None:
        self.at: dict[str, list[float]] = defaultdict(list)
        self.slow: dict[str, float] = {}
        connect = one.connect

        def watched(project: str) -> Any:
            client = connect(project)
            heartbeat = client.heartbeat

            def beat(logstore: str, group: str, **more: Any) -> tuple[int, ...]:
                one.sleep(self.slow.get(logstore, 0.0))
                self.at[logstore].append(one.clock.now_s)
                return heartbeat(logstore, group, **more)

            client.heartbeat = beat  # type: ignore[method-assign]
            return client

        one.connect = watched  # type: ignore[method-assign]

    def longest_s(self, logstore: str) -> float:
        return max(after - before for before, after in pairwise(self.at[logstore]))


class Blocking(Processor):
    """Processes logs, but those of some logstores forever."""

    def __init__(self, one: World, logstore: str, *, blocks: bool, done: list[str]) -> None:
        self._world, self._logstore, self._blocks, self._done = one, logstore, blocks, done

    def initialize(self, shard: int) -> None: ...

    def process(self, logs: LogBatch, tracker: Tracker) -> None:
        if self._blocks:
            self._world.sleep(NEVER_S)
        self._done.append(self._logstore)
        tracker.save()

    def shutdown(self, tracker: Tracker) -> None: ...


def begin(one: World, names: list[str], blocked: set[str], done: list[str]) -> Program:
    for name in names:
        one.make_logstore(name)
    settings = replace(one.settings(names[0], heartbeat_interval_s=INTERVAL_S), logstore="")

    def factory(name: str) -> Any:
        return lambda: Blocking(one, name, blocks=name in blocked, done=done)

    return one.start(lambda: MultiLogstoreConsumer(settings, factory, names))


def test_two_hundred_logstores_need_fewer_than_a_hundred_threads() -> None:
    with world() as one:
        names, done = [f"ls-{number}" for number in range(MANY)], []
        program = begin(one, names, set(), done)
        for name in names:
            one.put(name, [f"{name} {number}" for number in range(3)])
        one.until(lambda: all(one.is_saved(name) for name in names), "all logs")
        assert sorted(set(done)) == sorted(names)
        assert len(program.threads) < 100
        program.end()


@pytest.mark.parametrize("number", [1, pytest.param(PROCESSORS - 1, marks=pytest.mark.deep)])
def test_processors_that_never_return_delay_no_other_logstore(number: int) -> None:
    with world() as one:
        beats = Beats(one)
        names, done = [f"ls-{n:02}" for n in range(number + 5)], []
        blocked = set(names[:number])
        program = begin(one, names, blocked, done)
        for name in names:
            one.put(name, [name])
        others = [name for name in names if name not in blocked]
        one.until(lambda: all(one.is_saved(name) for name in others), "the others' logs")
        one.pass_time(2 * TIMEOUT_S)
        for name in others:
            one.put(name, [f"{name} again"])
        one.until(lambda: all(one.is_saved(name) for name in others), "the others' logs again")
        assert {name for name in names if beats.longest_s(name) > 2 * INTERVAL_S} == set()
        program.kill()


def test_heartbeats_that_are_answered_late_delay_those_of_no_other_logstore() -> None:
    with world() as one:
        beats = Beats(one)
        names = [f"ls-{n:03}" for n in range(12)]
        beats.slow = dict.fromkeys(names[:5], 3.0)
        program = begin(one, names, set(), [])
        one.pass_time(2 * TIMEOUT_S)
        assert {name for name in names[5:] if beats.longest_s(name) > 2 * INTERVAL_S} == set()
        held = program.call(lambda one: {name: c.assignment() for name, c in one.consumers().items()})
        assert held == dict.fromkeys(names, (0,))
        program.end()


def test_a_listener_is_called_for_its_logstore_and_may_shut_down_when_that_was_deleted() -> None:
    """Its messages name the logstore, and `shutdown` does not wait for the call it is made in."""
    about: list[tuple[str, str]] = []

    class Leaving(MultiLogstoreListener):
        def on_assigned(self, logstore: str, shards: tuple[int, ...]) -> None:
            about.append((logstore, structlog.contextvars.get_contextvars()["logstore"]))

        def on_lost(self, logstore: str, shards: tuple[int, ...]) -> None:
            about.append((logstore, structlog.contextvars.get_contextvars()["logstore"]))
            assert not program.consumer.shutdown()

    with world() as one:
        names = ["ls-0", "ls-1"]
        for name in names:
            one.make_logstore(name)
        settings = replace(one.settings(names[0]), logstore="")
        listener = Leaving()
        program = one.start(
            lambda: MultiLogstoreConsumer(
                settings,
                lambda name: lambda: Blocking(one, name, blocks=False, done=[]),
                names,
                listener,
                look_up_interval_s=1.0,
            )
        )
        one.until(lambda: len(about) == 2, "both logstores")
        one.client.delete_logstore("ls-1")
        one.until(lambda: program.has_ended, "the end")
        assert program.error is None
        assert sorted(about) == [("ls-0", "ls-0"), ("ls-1", "ls-1"), ("ls-1", "ls-1")]
