"""The event loop of a simulated service. It runs what is ready, and has no sockets. Timers are called when
the simulation lets time pass."""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextlib import suppress
from contextvars import Context, copy_context
from dataclasses import dataclass
from types import coroutine
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass(eq=False)
class SimTimer:
    at_s: float
    callback: Callable[..., object]
    args: tuple[Any, ...]
    is_cancelled: bool = False

    def cancel(self) -> None:
        self.is_cancelled = True


class SimLoop(asyncio.AbstractEventLoop):
    """As cheap as it can be: most of what a service does here waits for nothing."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._timers: list[SimTimer] = []
        self._ready: deque[tuple[Context, Callable[..., object], tuple[Any, ...]]] = deque()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Until nothing is ready any more. It becomes a task only once it waits for something."""
        asyncio._set_running_loop(self)
        try:
            waits_for = work.send(None)
        except StopIteration as done:
            result: T = done.value
            self._run_ready()
            return result
        else:
            task = asyncio.Task(_resumed(work, waits_for), loop=self)
            self._run_ready()
            return task.result()
        finally:
            asyncio._set_running_loop(None)

    def _run_ready(self) -> None:
        while self._ready:
            context, callback, args = self._ready.popleft()
            context.run(callback, *args)

    # -- what tasks and futures ask of a loop

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Context | None = None) -> Any:
        self._ready.append((context or copy_context(), callback, args))

    def call_later(self, delay: float, callback: Callable[..., object], *args: Any, **_: Any) -> Any:
        timer = SimTimer(self._now() + delay, callback, args)
        self._timers.append(timer)
        return timer

    def call_due(self) -> None:
        """The timers whose time has come, in the order of their times."""
        due = [timer for timer in self._timers if timer.at_s <= self._now()]
        self._timers = [timer for timer in self._timers if timer not in due]
        for timer in sorted(due, key=lambda timer: timer.at_s):
            if not timer.is_cancelled:
                timer.callback(*timer.args)

    def forget_timers(self) -> None:
        """Their process is dead."""
        self._timers.clear()

    def create_future(self) -> "asyncio.Future[Any]":
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, **options: Any) -> "asyncio.Task[Any]":
        return asyncio.Task(coro, loop=self, **options)

    def get_debug(self) -> bool:
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        raise AssertionError(context["message"]) from context.get("exception")


@coroutine
def _resumed(work: Coroutine[Any, Any, T], waits_for: Any) -> Generator[Any, Any, T]:
    """The rest of some work that waits for a future; whatever that raises, ``work`` asks it for."""
    with suppress(Exception):
        yield waits_for
    return (yield from work.__await__())
