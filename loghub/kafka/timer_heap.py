"""One timer for many deadlines: a heap with at most a few entries for each key.

A deadline that moves to a later time keeps its entry, and is looked at when that fires: sessions are
prolonged by every heartbeat, and hardly ever end.
"""

import asyncio
import heapq
from collections.abc import Hashable
from contextlib import suppress
from itertools import count
from typing import Generic, TypeVar

from loghub.clock import Clock

K = TypeVar("K", bound=Hashable)


class TimerHeap(Generic[K]):
    """Used on the event loop only. Times are monotonic seconds of the clock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._heap: list[tuple[float, int, K]] = []
        self._number = count()  # keys need no order
        self._next: dict[K, float] = {}  # the entry of each key that counts
        self._earlier = asyncio.Event()  # an entry is earlier than the one that is awaited

    def __len__(self) -> int:
        """The number of entries, those included that no longer count."""
        return len(self._heap)

    def set(self, key: K, deadline_s: float | None) -> None:
        """Let the timer fire for this key at the deadline, unless it does so earlier anyway."""
        known_s = self._next.get(key)
        if deadline_s is None or (known_s is not None and known_s <= deadline_s):
            return
        self._next[key] = deadline_s
        heapq.heappush(self._heap, (deadline_s, next(self._number), key))
        if self._heap[0][0] == deadline_s:
            self._earlier.set()

    def due(self, now: float) -> list[K]:
        """The keys for which the timer has fired, each once; set the timer again for those that go on."""
        keys = []
        while self._heap and self._heap[0][0] <= now:
            deadline_s, _, key = heapq.heappop(self._heap)
            if self._next.get(key) == deadline_s:
                del self._next[key]
                keys.append(key)
        return keys

    async def wait(self, *, at_most_s: float) -> None:
        """Return when a deadline is reached, and after ``at_most_s`` seconds at the latest."""
        while True:
            self._earlier.clear()
            wait_s = self._heap[0][0] - self._clock.monotonic_s() if self._heap else at_most_s
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, min(wait_s, at_most_s))):
                    await self._earlier.wait()
                    continue
            return
