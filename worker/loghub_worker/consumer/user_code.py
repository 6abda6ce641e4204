"""Calls user code that may be `async`, with one event loop for all calls of a thread."""

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

from loghub_worker.failure.skip_limits import Failure


class RemoteError(Exception):
    """User code failed in another process, which has logged it. The message is for the user; `failure` is
    why `process` failed."""

    def __init__(self, message: str, failure: Failure | None = None) -> None:
        super().__init__(message)
        self.failure = failure


class UserCode:
    """Used by one thread."""

    def __init__(self) -> None:
        self._loop: asyncio.Runner | None = None

    def call(self, method: Callable[..., Any], *arguments: object) -> Any:
        """What the method returns, or what it returns when awaited."""
        result = method(*arguments)
        if not inspect.isawaitable(result):
            return result
        if self._loop is None:
            self._loop = asyncio.Runner()
        try:
            return self._loop.run(_await(result))
        except asyncio.CancelledError as error:  # no Exception, and would end the consumer
            raise RuntimeError(f"a task of {method.__name__} was cancelled") from error

    def close(self) -> None:
        if self._loop is not None:
            self._loop.close()


async def _await(result: Any) -> Any:
    return await result
