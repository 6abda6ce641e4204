"""Calls of user code from one thread. The code may be `async`, with one event loop for all calls of a thread.

The loop also runs while the thread waits for its next call, so that tasks that user code has started
continue: producers that collect messages, keep-alives of connections, timers.
"""

import asyncio
import inspect
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")


class UserCalls:
    """Used by one thread at a time."""

    def __init__(self) -> None:
        self._loop: asyncio.Runner | None = None

    @property
    def has_loop(self) -> bool:
        """Whether some of the code is `async`: its tasks may run between its calls."""
        return self._loop is not None

    def call(self, method: Callable[..., Any], *arguments: object) -> Any:
        """The result of the method, awaited if it is awaitable."""
        result = method(*arguments)
        if not inspect.isawaitable(result):
            return result
        if self._loop is None:
            self._loop = asyncio.Runner()
        try:
            return self._loop.run(_await(result))
        except asyncio.CancelledError as error:  # no Exception, and would end the consumer
            raise RuntimeError(f"a task of {method.__name__} was cancelled") from error

    def wait(self, wait: Callable[[], T]) -> T:
        """What `wait` returns, which blocks until there is something to do. With a loop it does so in another
        thread."""
        return wait() if self._loop is None else self._loop.run(_aside(wait))

    def close(self) -> None:
        if self._loop is not None:
            self._loop.close()


async def _await(result: Any) -> Any:
    return await result


async def _aside(wait: Callable[[], T]) -> T:
    waiting = asyncio.get_running_loop().run_in_executor(None, wait)
    while not waiting.done():
        with suppress(asyncio.CancelledError):  # user code may cancel all tasks; this is none of its tasks
            await asyncio.wait([waiting])
    return waiting.result()
