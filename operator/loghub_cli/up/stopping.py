"""Ctrl-C, SIGTERM and SIGHUP for commands that run a group, from their first step to their last.

The first signal ends what the command does, and everything that it started or wrote is ended and removed.
The second one does not wait for the workers.
"""

import asyncio
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(Exception):  # noqa: N818 - says what happened
    """A signal came before anything ran."""


class Stopping:
    """``requested``: once the command must end; ``forced``: once it must not wait any more."""

    def __init__(self) -> None:
        self.requested = asyncio.Event()
        self.forced = asyncio.Event()
        self._on_force: Callable[[], None] | None = None

    def on_force(self, act: Callable[[], None]) -> None:
        """What the second signal does."""
        self._on_force = act

    def on_signal(self) -> None:
        if self.requested.is_set():
            self.forced.set()
            if self._on_force is not None:
                self._on_force()
        self.requested.set()

    async def unless_requested(self, step: Awaitable[T]) -> T:
        """The result of a step that comes before the group runs. Raises `Interrupted` once the step has
        undone what it did, if the command must end before it is done."""
        task = asyncio.ensure_future(step)
        request = asyncio.ensure_future(self.requested.wait())
        try:
            await asyncio.wait((task, request), return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                task.cancel()
                await asyncio.wait((task,))
            if task.cancelled():
                raise Interrupted("interrupted while it started")
            return task.result()
        finally:
            request.cancel()
            task.cancel()


@contextmanager
def stopped_by_signals() -> Iterator[Stopping]:
    """For the running event loop, in the main thread."""
    stopping, loop = Stopping(), asyncio.get_running_loop()
    for number in SIGNALS:
        loop.add_signal_handler(number, stopping.on_signal)
    try:
        yield stopping
    finally:
        for number in SIGNALS:
            loop.remove_signal_handler(number)
