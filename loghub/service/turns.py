"""Work in threads, of which only so much is done at the same time."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


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
            task.add_done_callback(lambda done: done.cancelled() or done.exception())  # nobody asks for it
        else:
            task.cancel()
        raise
