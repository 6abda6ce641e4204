"""Work that takes long, in turns with all other work: on the event loop with pauses, in a few threads.

Work that a client can make long is done in steps of some microseconds, with a pause after a number of them,
so that other work, such as heartbeats, runs meanwhile. Work that cannot be cut is done in a thread.
"""

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class Pauses:
    """Call `step` after each step: it lets other work run after every ``every`` steps."""

    def __init__(self, every: int) -> None:
        self._every = every
        self._done = 0

    async def step(self) -> None:
        self._done += 1
        if self._done % self._every == 0:
            await asyncio.sleep(0)


async def in_turn(turns: asyncio.Semaphore, work: Callable[[], T]) -> T:
    """Run the work in a thread.

    Nothing ends a thread: if the request that waits for the work is cancelled, since its client has left, the
    turn lasts until the work is done. Otherwise clients that leave would have all threads, and more memory
    than their turns.
    """
    begun = False

    async def run() -> T:
        nonlocal begun
        async with turns:
            begun = True
            return await asyncio.to_thread(work)

    task = asyncio.get_running_loop().create_task(run())
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        if begun:
            # The result is not used.
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
        else:
            task.cancel()
        raise
