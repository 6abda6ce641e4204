"""Work that takes long, in turns with all other work: on the event loop with pauses, in a few threads.

Work that a client can make long is done in steps of some microseconds, with a pause after a number of them,
so that other work, such as heartbeats, runs meanwhile. Work that cannot be cut is done in a thread.

Decoded data may take far more memory than its encoded bytes. So the maximum that it will need is taken from a
budget first, and the part that the result needs is given back once the result is durable. Work that finds too
little memory waits: the memory of other work depends on the disk only, never on another client.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from loghub_service.connections.stalled import Budget

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


class InThread(Protocol):
    """Runs work in a thread once it is its turn; it goes on if the request that waits for it is cancelled."""

    def __call__(self, work: Callable[[], T]) -> Awaitable[T]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """What decoding takes at most: bytes of memory; and whether a thread, for its time."""

    memory: int
    thread: bool


class DecodingTurns:
    """The budget of all connections, and who waits for it in turn."""

    def __init__(self, budget: Budget, in_thread: InThread) -> None:
        self._budget = budget
        self._in_thread = in_thread
        self._turn = asyncio.Lock()
        self._freed = asyncio.Event()

    async def run(self, need: Need, work: Callable[[], T], size_of: Callable[[T], int]) -> T:
        """The result of the work. Call `release` with its size once it is stored, or is not going to be.
        Raises what the work raises."""
        await self._take(need.memory)
        held = need.memory
        try:
            result = await self._in_thread(work) if need.thread else work()
            held -= size_of(result)
        finally:
            self.release(held)
        return result

    async def _take(self, size: int) -> None:
        async with self._turn:
            while self._budget.used + size > self._budget.limit:
                self._freed.clear()
                await self._freed.wait()
            self._budget.used += size

    def release(self, size: int) -> None:
        self._budget.used -= size
        self._freed.set()
