"""Long loops on an event loop that let others run meanwhile, heartbeats among them.

What a client can make long is done in steps of some microseconds, with a pause after a number of them.
"""

import asyncio


class Pauses:
    """Call `step` after each step: it lets others run after every ``every`` of them."""

    def __init__(self, every: int) -> None:
        self._every = every
        self._done = 0

    async def step(self) -> None:
        self._done += 1
        if self._done % self._every == 0:
            await asyncio.sleep(0)
