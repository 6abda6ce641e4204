"""Wakes those who wait for the next log group of a shard, such as the long poll of a Kafka consumer, or for a
change of a consumer group.

Waiting costs nothing while nothing arrives: there is no polling, and an append looks up one key.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

Waker = Callable[[], None]


class Arrivals:
    """Who waits for which log, or group. Used on the event loop only; the keys may be any objects."""

    def __init__(self) -> None:
        self._wakers: dict[int, dict[Waker, None]] = {}

    def arrived(self, log: object) -> None:
        """Wake everyone who waits for this log."""
        for wake in tuple(self._wakers.get(id(log), ())):
            wake()

    @contextmanager
    def watched(self, logs: Iterable[object]) -> Iterator[asyncio.Event]:
        """An event that is set by each arrival in one of the logs, until the block ends."""
        event = asyncio.Event()
        keys = {id(log): log for log in logs}  # kept, so that no id is used again meanwhile
        wake = event.set
        for key in keys:
            self._wakers.setdefault(key, {})[wake] = None
        try:
            yield event
        finally:
            for key in keys:
                wakers = self._wakers[key]
                del wakers[wake]
                if not wakers:
                    del self._wakers[key]
