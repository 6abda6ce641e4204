"""Consumers on a log service in memory, with threads and time that a test drives.

`Consumer` is the one of production with all of its threads, which run one at a time
(`tests.simulator.threads`). When all of them wait, the clock moves to the first time that one waits for. So
an hour takes milliseconds, and the same seed gives the same interleaving.
"""

import queue
import random
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import Any, TypeAlias, TypeVar
from unittest.mock import patch

import structlog

from loghub.client.port import Credentials, GroupInfo
from loghub.clock import SystemClock
from loghub.wire import loggroup
from loghub.wire.cursor import decode
from loghub.wire.errors import EndpointUnreachable
from loghub.wire.loggroup import Log, LogGroup, encode
from loghub.wire.subscriptions import Exchange, Exchanged
from loghub_consumer import Consumer, ConsumerSettings, MultiLogstoreConsumer, user_calls
from loghub_consumer.settings import connect
from tests.fakes.fake_log_service import MemoryLogHub, MemoryServer
from tests.simulator.faults import Dice, WorkerCrashed
from tests.simulator.program import InlinePool
from tests.simulator.service import VirtualClock
from tests.simulator.threads import Process, SimQueue, SimThread, Threads

AnyConsumer: TypeAlias = Consumer | MultiLogstoreConsumer
T = TypeVar("T")
PROJECT, GROUP = "demo", "readers"
TIMEOUT_S = 10  # of a group
PADDING = ("text", "x" * 300)  # of each log
MAX_S = 3600.0  # of virtual time; what takes longer has stopped


@dataclass(eq=False)
class Program(Process):
    """A process with a consumer."""

    world: "World" = field(kw_only=True)
    make: Callable[[], AnyConsumer] = field(kw_only=True)
    consumer: Any = None
    has_begun: bool = False
    has_ended: bool = False
    is_suspended: bool = False  # as by SIGSTOP
    error: BaseException | None = None  # of `run`, or of the constructor

    def main(self) -> None:
        try:
            try:
                self.consumer = self.make()
            finally:
                self.has_begun = True
            self.consumer.run()
        except WorkerCrashed:
            raise
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            self.error = error
        self.has_ended = True

    def call(self, what: Callable[[Any], T]) -> T:
        """What it returns for the consumer, in a thread of the process."""
        results: list[T] = []
        self.threads.append(
            SimThread(
                self.world.threads, lambda: results.append(what(self.consumer)), process=self, name="call"
            )
        )
        self.world.until(lambda: bool(results), "a call")
        return results[0]

    def end(self) -> None:
        """Let it end in order. Raises what ended it."""
        if self.consumer is not None:
            self.consumer.wakeup()
        self.world.until(lambda: self.has_ended, "the end")
        self.kill()
        if self.error is not None:
            raise self.error

    def kill(self) -> None:
        self.world.threads.kill(self)
        self.world.programs.remove(self)


class SavedLogHub(MemoryLogHub):
    """Remembers the checkpoints that were saved. ``refuses`` may raise the answer to an exchange, and
    ``loses`` says whether an answer is lost."""

    def __init__(self, server: MemoryServer, project: str, on_save: Callable[["Save"], None]) -> None:
        super().__init__(server, project)
        self._on_save = on_save
        self.refuses: Callable[[Exchange], None] = lambda _: None
        self.loses: Callable[[Exchange], bool] = lambda _: False

    def exchange(self, logstore: str, name: str, exchange: Exchange) -> Exchanged:
        self.refuses(exchange)
        answer = super().exchange(logstore, name, exchange)
        if self.loses(exchange):
            raise EndpointUnreachable("memory", "the answer was lost", definite=False)
        return answer

    def update_checkpoint(
        self, logstore: str, group: str, *, shard: int, cursor: str, consumer: str, force: bool
    ) -> None:
        super().update_checkpoint(logstore, group, shard=shard, cursor=cursor, consumer=consumer, force=force)
        self._on_save(Save((logstore, group, shard), decode(cursor)))


@dataclass(frozen=True, slots=True)
class Save:
    """`of` is a logstore, a group and a shard."""

    of: tuple[str, str, int]
    cursor: int


class World:
    """A log service, and the programs that use it. `saves` are the checkpoints in the order in which they
    were saved."""

    def __init__(self, seed: int = 0) -> None:
        self.clock = VirtualClock()
        self.dice = Dice(seed, active=False)
        self.threads = Threads(self.clock, self.dice)
        self.server = MemoryServer(self.clock, subscriptions=True)
        self.server.sleep = self.threads.sleep
        self.saves: list[Save] = []
        self.on_save: Callable[[Save], None] = lambda _: None
        self.refuses: Callable[[Exchange], None] = lambda _: None
        self.loses: Callable[[Exchange], bool] = lambda _: False
        self.client = self.connect(PROJECT)
        self.client.create_project()
        self.programs: list[Program] = []

    def connect(self, project: str) -> MemoryLogHub:
        client = SavedLogHub(self.server, project, self._saved)
        client.refuses = lambda exchange: self.refuses(exchange)
        client.loses = lambda exchange: self.loses(exchange)
        return client

    def _saved(self, save: Save) -> None:
        self.saves.append(save)
        self.on_save(save)

    def make_logstore(self, name: str, *, shards: int = 1, has_group: bool = True) -> None:
        self.client.create_logstore(name, shards=shards)
        if has_group:
            self.client.create_group(name, GroupInfo(name=GROUP, timeout_s=TIMEOUT_S, order=False))

    def put(self, logstore: str, ids: list[str], *, shard: int = 0) -> int:
        """Write a log group with a log for each id; its cursor."""
        key = next(one.begin_key for one in self.client.list_shards(logstore) if one.shard == shard)
        logs = tuple(Log(time=1_700_000_000, contents=(("id", name), PADDING)) for name in ids)
        cursor = decode(self.client.get_cursor(logstore, shard, "end"))
        self.client.put_logs(logstore, encode(LogGroup(logs=logs)), hash_key=key)
        return cursor

    def ids(self, logstore: str) -> list[str]:
        """Those of all logs in shard 0."""
        begin = self.client.get_cursor(logstore, 0, "begin")
        body = self.client.pull_logs(logstore, 0, cursor=begin, count=1000).body
        logs = [log for group in loggroup.split(body) for log in loggroup.decode(group).logs]
        return [
            bytes(value).decode() if isinstance(value, bytes) else str(value)
            for log in logs
            for name, value in log.contents
            if name in ("id", b"id")
        ]

    def saved(self, logstore: str, group: str = GROUP) -> dict[int, int]:
        found = self.client.get_checkpoints(logstore, group)
        return {one.shard: decode(one.cursor) for one in found if one.cursor}

    def is_saved(self, logstore: str, group: str = GROUP) -> bool:
        """Whether the checkpoints are at the ends of the shards."""
        shards = [one.shard for one in self.client.list_shards(logstore)]
        ends = {shard: decode(self.client.get_cursor(logstore, shard, "end")) for shard in shards}
        return self.saved(logstore, group) == ends

    def settings(self, logstore: str, **changes: Any) -> ConsumerSettings:
        settings: dict[str, Any] = {
            "endpoint": "http://127.0.0.1:1",
            "project": PROJECT,
            "logstore": logstore,
            "consumer_group": GROUP,
            "consumer": "c-0",
            "credentials": Credentials(access_key_id="id", access_key_secret="secret"),
            "heartbeat_interval_s": 1.0,
            "fetch_interval_s": 1.0,
            "checkpoint_interval_s": 0.0,
        }
        return ConsumerSettings(**settings | changes)

    def moved_back(self) -> list[Save]:
        """The checkpoints that were saved after a later one."""
        furthest: dict[tuple[str, str, int], int] = {}
        found = []
        for one in self.saves:
            if one.cursor < furthest.get(one.of, 0):
                found.append(one)
            furthest[one.of] = max(one.cursor, furthest.get(one.of, 0))
        return found

    # -- programs

    def start(self, make: Callable[[], AnyConsumer], name: str = "program") -> "Program":
        """Make a consumer in a process of its own, and run it there."""
        program = Program(name, world=self, make=make)
        self.programs.append(program)
        self.threads.begin(program, program.main)
        self.until(lambda: program.has_begun, "the consumer to be made")
        return program

    def check(self, holds: bool, message: str) -> None:
        """In a thread of a program, whose code must not see the error."""
        if not holds:
            self.threads.failures.append(message)

    def sleep(self, seconds: float) -> None:
        """In the thread of a program."""
        self.threads.sleep(seconds)

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Let the programs run until it holds."""
        give_up_s = self.clock.now_s + MAX_S
        while not condition():
            assert self.clock.now_s < give_up_s, f"waited an hour for {what}"
            self._turn()
            assert not self.threads.failures, self.threads.failures[0]

    def pass_time(self, seconds: float) -> None:
        end_s = self.clock.now_s + seconds
        self.until(lambda: self.clock.now_s >= end_s, f"{seconds} s")

    def _turn(self) -> None:
        running = [one for one in self.programs if not one.is_suspended]
        ready = [one for process in running for one in self.threads.ready(process)]
        if ready:
            self.threads.run(self.dice.random.choice(ready))
            return
        waiting = [one.until_s for process in running for one in process.threads]
        assert waiting, "no program runs any more"
        next_s = min(waiting)
        assert next_s != float("inf"), "every thread waits for another one"
        self.clock.now_s = max(self.clock.now_s, next_s)

    @contextmanager
    def replaced(self) -> Iterator[None]:
        """What consumers use of the machine."""
        own_queue = SimpleNamespace(SimpleQueue=partial(SimQueue, self.threads))
        own_random = SimpleNamespace(SystemRandom=lambda: self.dice.random)
        replacements: dict[str, tuple[object, object]] = {
            "threading": (threading, self.threads.module()),
            "queue": (queue, own_queue),
            "random": (random, own_random),
            "ThreadPoolExecutor": (ThreadPoolExecutor, InlinePool),
            "SystemClock": (SystemClock, lambda: self.clock),
            "_aside": (user_calls._aside, here),
            "connect": (
                connect,
                lambda settings, project=None, **_: self.connect(project or settings.project),
            ),
        }
        modules: list[ModuleType] = [
            module
            for name, module in sorted(sys.modules.items())
            if name.startswith("loghub_consumer")
            or name.startswith("loghub_consumer.membership")
            or name.startswith("loghub_consumer.reading")
        ]
        with ExitStack() as stack:
            for module in modules:
                for name, (given, own) in replacements.items():
                    if vars(module).get(name) is given:
                        stack.enter_context(patch.object(module, name, own))
            yield


async def here(wait: Callable[[], T]) -> T:
    """`wait` in the thread of the loop; user code has no other tasks."""
    return wait()


@contextmanager
def world(seed: int = 0) -> Iterator[World]:
    """Programs that still run at the end are killed."""
    one = World(seed)
    with one.replaced():
        try:
            yield one
        finally:
            for process in list(one.programs):
                process.kill()
            structlog.reset_defaults()  # a consumer configures it for the program, which other tests are not
