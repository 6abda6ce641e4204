"""The parts of a program that its consumers share: a bound on memory, threads and connections.

A consumer by itself has all of them for itself, with a thread for each of its parts. The consumers of several
logstores share them, so that hundreds need fewer than a hundred threads (docs/processor.md 8).
"""

import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Protocol

from loghub.client.port import LogHub
from loghub.clock import Clock
from loghub_consumer.membership.shard_manager import STEP_S, ParallelTasks, TasksOfOne
from loghub_consumer.membership.shared_membership import ShardTasks
from loghub_consumer.membership.turns import Crew, OwnThreads, Turns
from loghub_consumer.settings import ConsumerSettings, connect
from loghub_consumer.shared_buffers import SharedBuffers

# Together with the thread of `run` fewer than a hundred. A heartbeat takes milliseconds, so one thread sends
# the heartbeats of hundreds of logstores; the others are for requests that the service answers late.
HEARTBEATS = 8
LIVES = 8  # starts, listeners, ends; listeners are called once at a time, and one may never return
CONTROL = 4  # the due work in the shards of a group
REQUESTS = 16  # pulls above all
PROCESSORS = 40  # some processors may never return
SHARED_STEP_S = 0.5  # hundreds of groups, at 0.1 s each, would cost a quarter of a core
PULLS_EACH_S = 50  # pulls of all shards at their ends together; each takes a millisecond


class ConsumerConnections(Protocol):
    """Connections to the log service."""

    def open(self, settings: ConsumerSettings, *, timeout_s: float | None = None) -> LogHub:
        """Open a connection, see `loghub_consumer.settings.connect`. The caller gives it back."""

    def give_back(self, client: LogHub) -> None:
        """Return a connection that is not used any more."""


class OwnConnections:
    """Connections of which each belongs to its opener."""

    def open(self, settings: ConsumerSettings, *, timeout_s: float | None = None) -> LogHub:
        return connect(settings, timeout_s=timeout_s)

    def give_back(self, client: LogHub) -> None:
        client.close()


class SharedConnections:
    """One connection for all openers with equal settings. They stay open until `close`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._clients: dict[Hashable, LogHub] = {}

    def open(self, settings: ConsumerSettings, *, timeout_s: float | None = None) -> LogHub:
        target = (settings.client, settings.endpoint, settings.project, settings.credentials)
        key = (*target, settings.consumer_group, settings.consumer, timeout_s)
        with self._lock:
            if key not in self._clients:
                self._clients[key] = connect(settings, timeout_s=timeout_s)
            return self._clients[key]

    def give_back(self, client: LogHub) -> None:
        """Does nothing, because other consumers may use the connection."""

    def close(self) -> None:
        for client in self._clients.values():
            client.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramParts:
    """The parts for one consumer. `polls`: whether it may have requests that wait for a change, each of which
    holds a thread. `least_interval_s` is the least pause between two pulls of a shard at its end."""

    buffers: SharedBuffers
    connections: ConsumerConnections
    heartbeats: Turns
    control: Turns
    requests: Turns  # the service may answer some of them late
    processors: Turns
    tasks: ShardTasks
    polls: bool
    step_s: float  # how often to look for due work in a group
    min_interval_s: Callable[[], float]


def own_parts(max_buffered_bytes: int) -> ProgramParts:
    """The parts for a consumer by itself."""
    own = OwnThreads()
    return ProgramParts(
        buffers=SharedBuffers(max_buffered_bytes),
        connections=OwnConnections(),
        heartbeats=own,
        control=own,
        requests=own,
        processors=own,
        tasks=ParallelTasks(),
        polls=True,
        step_s=STEP_S,
        min_interval_s=lambda: 0.0,
    )


class SharedParts:
    """The parts of all consumers of a program."""

    def __init__(self, max_buffered_bytes: int, clock: Clock) -> None:
        self._buffers = SharedBuffers(max_buffered_bytes)
        self._connections = SharedConnections()
        self._heartbeats = Crew("heartbeats", HEARTBEATS, clock)
        self.lives = Crew("consumers", LIVES, clock)
        self._control = Crew("control", CONTROL, clock)
        self._requests = Crew("requests", REQUESTS, clock)
        self._processors = Crew("processors", PROCESSORS, clock)
        self._tasks = ParallelTasks()

    def of(self, logstore: str) -> ProgramParts:
        """The parts for the consumer of this logstore."""
        return ProgramParts(
            buffers=self._buffers,
            connections=self._connections,
            heartbeats=self._heartbeats,
            control=self._control,
            requests=self._requests,
            processors=self._processors,
            tasks=TasksOfOne(self._tasks, logstore),
            polls=False,
            step_s=SHARED_STEP_S,
            min_interval_s=lambda: self._buffers.shard_count / PULLS_EACH_S,
        )

    def close(self) -> None:
        """Once all consumers have ended."""
        for crew in (self._heartbeats, self.lives, self._control, self._requests, self._processors):
            crew.close()
        self._tasks.stop(0.0)
        self._connections.close()
