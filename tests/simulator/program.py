"""The program around a `loghub_consumer.Consumer`, with virtual time, threads and network."""

import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from loghub.client.transport import HttpAnswer, HttpCall
from loghub_consumer import Consumer, ConsumerSettings, consumer, program_parts, shard_runner
from loghub_consumer.assignment import GroupAssignment
from loghub_consumer.membership.membership import Membership, MemberState
from tests.simulator.faults import Fault, WorkerCrashed
from tests.simulator.network import Network, connect
from tests.simulator.threads import Process, Threads

MAX_POLL_S = 5.0


class ThreadedNetwork(Network):
    """A request waits in the thread that sends it, while others act."""

    threads: Threads

    def send(self, sender: str, call: HttpCall) -> HttpAnswer:
        thread = self.threads.current
        if thread is None or thread.process is None:
            return super().send(sender, call)
        if thread.process.is_dead:
            raise WorkerCrashed
        if "wait_ms" in call.query:
            # As long as the service may wait for news: it is answered at the end of that.
            self.threads.sleep(self.dice.random.uniform(0.0, MAX_POLL_S))
            call = replace(call, query={**call.query, "wait_ms": "0"})
        try:
            return super().send(sender, call)
        except WorkerCrashed:
            thread.process.is_dead = True  # also for code that handles whatever was raised
            raise

    def _wait(self) -> None:
        if self.threads.current is None:
            super()._wait()
        elif self.dice.happens(Fault.DELAYED):
            self.threads.sleep(self.dice.random.uniform(0.5, 12.0))
        else:
            self.service.advance(self.dice.random.uniform(0.001, 0.05))


class InlinePool:
    """`ThreadPoolExecutor`, in the thread that waits for it."""

    def __init__(self, *_: object, **__: object) -> None:
        self.map = map

    def shutdown(self, **_: object) -> None:
        """Nothing runs."""

    def __enter__(self) -> "InlinePool":
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()


@dataclass(eq=False)
class Program(Process):
    """One consumer. Its assignments up to ``fenced_epoch`` may have been given to others; ``asked_s`` is when
    it was asked to stop."""

    settings: ConsumerSettings = field(kw_only=True)
    consumer: Consumer | None = None
    fenced_epoch: int = 0
    asked_s: float | None = None

    def ask_to_stop(self, now: float) -> None:
        if self.consumer is not None and self.asked_s is None:
            self.asked_s = now
            self.consumer.wakeup()

    def has_abandoned(self, now: float) -> bool:
        return self.asked_s is not None and now >= self.asked_s + self.settings.drain_timeout_s

    @property
    def membership(self) -> Membership | None:
        assignment = None if self.consumer is None else self.consumer._assignment
        has_parts = isinstance(assignment, GroupAssignment) and assignment._parts is not None
        return assignment._parts[0]._membership if has_parts else None  # type: ignore[union-attr,index]

    def has_fenced_itself(self, now: float) -> bool:
        """Its own session ends earlier than the service's, and it reports no shard from then on."""
        own = self.membership
        return own is not None and own.state is MemberState.FENCED and own.session_left_s(now) <= 0

    def fence(self) -> None:
        """All of its assignments so far."""
        if self.membership is not None:
            self.fenced_epoch = self.membership._last_epoch


@contextmanager
def replaced(network: ThreadedNetwork) -> Iterator[None]:
    """What consumers use of the machine."""

    def connect_as(settings: ConsumerSettings, **_: object) -> Any:
        return connect(network, settings.consumer)

    own_threads = network.threads.module()
    own_random = SimpleNamespace(SystemRandom=lambda: network.dice.random)
    with ExitStack() as stack:
        for name, module in sorted(sys.modules.items()):
            if name.startswith("loghub_consumer.") and vars(module).get("threading") is threading:
                stack.enter_context(patch.object(module, "threading", own_threads))
        stack.enter_context(patch.object(program_parts, "connect", connect_as))
        for module in (consumer, shard_runner):
            stack.enter_context(patch.object(module, "ThreadPoolExecutor", InlinePool))
        stack.enter_context(patch.object(consumer, "random", own_random))
        stack.enter_context(patch.object(consumer, "SystemClock", lambda: network.threads.clock))
        yield
