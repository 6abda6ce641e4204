"""Wakes those who wait for the next log group of a shard, such as the long poll of a Kafka consumer, or for a
change of a consumer group.

Waiting costs nothing while nothing arrives: there is no polling, and an append looks up one key.
"""

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

NEWS = 1 << 62  # bytes, for those who wait: there is something to say, however many they wait for


class Arriving(asyncio.Event):
    """What one waiter is told: set by each arrival, or once as many bytes have come as it expects."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0  # that have come so far
        self._expected = 0

    def arrived(self, size: int) -> None:
        self.bytes += size
        if self.bytes >= self._expected:
            self.set()

    def expect(self, total: int) -> None:
        """Clear the event until ``bytes`` is so much."""
        self.clear()
        self._expected = total
        self.arrived(0)


class Arrivals:
    """Who waits for which log, or group. Used on the event loop only; the keys may be any objects."""

    def __init__(self) -> None:
        self._waiting: dict[int, dict[Arriving, None]] = {}

    def arrived(self, log: object, size: int = NEWS) -> None:
        """Tell everyone who waits for this log that so many bytes have come."""
        for waiting in tuple(self._waiting.get(id(log), ())):
            waiting.arrived(size)

    @contextmanager
    def watched(self, logs: Iterable[object]) -> Iterator[Arriving]:
        """An event that is set by arrivals in one of the logs, until the block ends."""
        arriving = Arriving()
        keys = {id(log): log for log in logs}  # kept, so that no id is used again meanwhile
        for key in keys:
            self._waiting.setdefault(key, {})[arriving] = None
        try:
            yield arriving
        finally:
            for key in keys:
                others = self._waiting[key]
                del others[arriving]
                if not others:
                    del self._waiting[key]
