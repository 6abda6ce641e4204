"""Threads that run one at a time, in an order that the simulation chooses, and wait in virtual time.

Production code gets `Threads.module` in place of `threading`. A thread runs until it waits, or until it
is interrupted at a lock, as any thread may be. Each is a greenlet: what waits for something else than the
simulation makes all of them wait.
"""

import asyncio
import sys
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any

from greenlet import getcurrent, greenlet

from tests.simulator.faults import Dice, WorkerCrashed
from tests.simulator.service import VirtualClock

INTERRUPTED = 0.02  # how probable it is at a lock


@dataclass(eq=False)
class Process:
    """The threads of one program. Those of a dead one end at the next thing that they do with others."""

    name: str
    is_dead: bool = False
    paused_until_s: float = 0.0
    threads: list["SimThread"] = field(default_factory=list)


class Threads:
    """`failures` is why threads ended that should not have."""

    def __init__(self, clock: VirtualClock, dice: Dice) -> None:
        self.clock = clock
        self.dice = dice
        self.current: SimThread | None = None
        self.failures: list[str] = []

    def module(self) -> SimpleNamespace:
        return SimpleNamespace(
            Thread=partial(SimThread, self),
            Lock=partial(SimLock, self),
            RLock=partial(SimLock, self, is_reentrant=True),
            Condition=partial(SimCondition, self),
            Event=partial(SimEvent, self),
            current_thread=lambda: self.current,
        )

    # -- the simulation

    def begin(self, process: Process, main: Callable[[], None]) -> None:
        process.threads.append(SimThread(self, main, process=process, name="main"))

    def ready(self, process: Process) -> list["SimThread"]:
        """The threads that do not wait."""
        now = self.clock.now_s
        if now < process.paused_until_s:
            return []
        return [thread for thread in process.threads if thread.until_s <= now or thread.is_over()]

    def run(self, thread: "SimThread") -> None:
        """Until it waits."""
        process = thread.process
        assert process is not None
        assert self.current is None
        self.current = thread
        thread.go_on()
        self.current = None
        if thread.has_ended:
            process.threads.remove(thread)
        if process.is_dead:
            self.kill(process)

    def kill(self, process: Process) -> None:
        process.is_dead = True
        while process.threads:
            if process.threads[0].has_begun:
                self.run(process.threads[0])
            else:
                process.threads.pop(0)

    def end_sleeps(self, process: Process) -> None:
        """Of all threads that wait only for so long."""
        for thread in process.threads:
            if thread.until_s != float("inf"):
                thread.until_s = self.clock.now_s

    # -- the thread that runs

    def wait(self, is_over: Callable[[], bool], timeout_s: float | None = None) -> None:
        """Let others run until this is over."""
        thread = self.current
        assert thread is not None, "the simulation itself cannot wait"
        assert thread.process is not None
        if not thread.process.is_dead:
            thread.is_over = is_over
            thread.until_s = float("inf") if timeout_s is None else self.clock.now_s + timeout_s
            thread.stop()
        if thread.process.is_dead:
            raise WorkerCrashed

    def sleep(self, seconds: float) -> None:
        self.wait(lambda: False, seconds)

    def may_be_interrupted(self) -> None:
        if self.current is not None and self.dice.random.random() < INTERRUPTED:
            self.sleep(0.0)


class SimThread:
    """`threading.Thread`. It belongs to the process of the thread that starts it."""

    def __init__(
        self,
        threads: Threads,
        target: Callable[..., None],
        *,
        args: tuple[Any, ...] = (),
        name: str,
        daemon: bool = True,
        process: Process | None = None,
    ) -> None:
        self.name = name
        self.process = process
        self.has_begun = self.has_ended = False
        self.until_s = float("-inf")
        self.is_over: Callable[[], bool] = lambda: True
        self._threads = threads
        self._target = partial(target, *args)
        self._stack = greenlet(self._run)

    def start(self) -> None:
        starter = self._threads.current
        assert starter is not None
        assert starter.process is not None
        if starter.process.is_dead:
            raise WorkerCrashed
        self.process = starter.process
        self.process.threads.append(self)

    def join(self, timeout: float | None = None) -> None:
        if self.process is not None and not self.has_ended:
            self._threads.wait(lambda: self.has_ended, timeout)

    def is_alive(self) -> bool:
        return self.process is not None and not self.has_ended

    def go_on(self) -> None:
        """Until it stops."""
        self.has_begun = True
        self._stack.parent = getcurrent()
        self._stack.switch()

    def stop(self) -> None:
        """A loop that runs in this thread is none of the others'."""
        loop, hooks = asyncio._get_running_loop(), sys.get_asyncgen_hooks()
        asyncio._set_running_loop(None)
        sys.set_asyncgen_hooks(None, None)
        self._stack.parent.switch()
        asyncio._set_running_loop(loop)
        sys.set_asyncgen_hooks(*hooks)

    def _run(self) -> None:
        assert self.process is not None
        try:
            self._target()
        except WorkerCrashed:
            self.process.is_dead = True
        except BaseException as error:  # noqa: BLE001 - the simulation raises it
            if not self.process.is_dead:
                self._threads.failures.append(f"{self.name} of {self.process.name} ended: {error!r}")
        finally:
            self.has_ended = True


class SimLock:
    """`threading.Lock`, or `threading.RLock` with `is_reentrant`."""

    def __init__(self, threads: Threads, *, is_reentrant: bool = False) -> None:
        self._threads = threads
        self._is_reentrant = is_reentrant
        self._owner: SimThread | None = None
        self._depth = 0

    def acquire(self, depth: int = 1) -> None:
        me = self._threads.current
        assert me is not None, "the simulation itself takes no lock"
        if self._owner is not me or not self._is_reentrant:
            self._threads.may_be_interrupted()
            while self._owner is not None:
                self._threads.wait(lambda: self._owner is None)
            self._owner = me
        self._depth += depth

    def release(self, depth: int = 1) -> None:
        me = self._threads.current
        if self._owner is not me:
            assert me is not None
            assert me.process is not None
            assert me.process.is_dead, "only the owner of a lock releases it"
            return
        self._depth -= depth
        if not self._depth:
            self._owner = None

    @property
    def depth(self) -> int:
        return self._depth

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class SimCondition:
    """`threading.Condition`."""

    def __init__(self, threads: Threads, lock: SimLock | None = None) -> None:
        self._threads = threads
        self._lock = lock or SimLock(threads, is_reentrant=True)
        self._waiting: deque[SimEvent] = deque()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def wait(self, timeout: float | None = None) -> bool:
        notified = SimEvent(self._threads)
        self._waiting.append(notified)
        depth = self._lock.depth
        self._lock.release(depth)
        notified.wait(timeout)
        if not notified.is_set():
            self._waiting.remove(notified)
        self._lock.acquire(depth)
        return notified.is_set()

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        end_s = None if timeout is None else self._threads.clock.now_s + timeout
        while not (result := predicate()):
            left_s = None if end_s is None else end_s - self._threads.clock.now_s
            if left_s is not None and left_s <= 0:
                break
            self.wait(left_s)
        return result

    def notify(self, n: int = 1) -> None:
        for _ in range(min(n, len(self._waiting))):
            self._waiting.popleft().set()

    def notify_all(self) -> None:
        self.notify(len(self._waiting))


class SimQueue:
    """`queue.SimpleQueue`."""

    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        self._items: deque[Any] = deque()

    def put(self, item: Any) -> None:
        self._items.append(item)

    def get(self) -> Any:
        while not self._items:
            self._threads.wait(lambda: bool(self._items))
        return self._items.popleft()


class SimEvent:
    """`threading.Event`."""

    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        self._is_set = False

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True

    def clear(self) -> None:
        self._is_set = False

    def wait(self, timeout: float | None = None) -> bool:
        if not self._is_set:
            self._threads.wait(self.is_set, timeout)
        return self._is_set
