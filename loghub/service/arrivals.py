"""Wakes those who wait for the next log group of a shard, such as the long poll of a Kafka consumer, or for a
change of a consumer group.

Waiting costs nothing while nothing arrives: there is no polling, and an append looks up one key.
"""

import asyncio
from collections.abc import Hashable, Iterable, Iterator
from contextlib import contextmanager

NEWS = 1 << 62  # bytes, for those who wait: there is something to say, however many they wait for


class Arriving(asyncio.Event):
    """What one waiter learns: set by each arrival, or once as many bytes have come as it expects."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0  # that have come so far
        self._expected = 0

    def arrived(self, size: int, log: object = None) -> None:  # noqa: ARG002 - see `LogWatch`
        self.bytes += size
        if self.bytes >= self._expected:
            self.set()

    def expect(self, total: int) -> None:
        """Clear the event until ``bytes`` is so much."""
        self.clear()
        self._expected = total
        if self.bytes >= total:
            self.set()


class Arrivals:
    """Who waits for which log, or group. Used on the event loop only; the keys may be any objects."""

    def __init__(self) -> None:
        self._waiting: dict[int, dict[Arriving, None]] = {}

    def arrived(self, log: object, size: int = NEWS) -> None:
        """Tell everyone who waits for this log that so many bytes have come."""
        for waiting in tuple(self._waiting.get(id(log), ())):
            waiting.arrived(size, log)

    @contextmanager
    def watched(self, logs: Iterable[object]) -> Iterator[Arriving]:
        """An event that is set by arrivals in one of the logs, until the block ends."""
        arriving = Arriving()
        keys = {id(log): log for log in logs}  # kept, so that no id is used again meanwhile
        for log in keys.values():
            self.begin(log, arriving)
        try:
            yield arriving
        finally:
            for log in keys.values():
                self.end(log, arriving)

    def watch(self) -> "LogWatch":
        """One whose logs come and go. Close it."""
        return LogWatch(self)

    def begin(self, log: object, arriving: Arriving) -> None:
        self._waiting.setdefault(id(log), {})[arriving] = None

    def end(self, log: object, arriving: Arriving) -> None:
        others = self._waiting[id(log)]
        del others[arriving]
        if not others:
            del self._waiting[id(log)]


class LogWatch(Arriving):
    """Knows in which of its logs something has arrived, by the labels that they have here."""

    def __init__(self, arrivals: Arrivals) -> None:
        super().__init__()
        self._arrivals = arrivals
        self._logs: dict[Hashable, object] = {}
        self._labels: dict[int, dict[Hashable, None]] = {}
        self._marked: dict[Hashable, None] = {}

    def add(self, log: object, label: Hashable) -> None:
        """Watch the log under this label, and no other one that had it."""
        if self._logs.get(label) is log:
            return
        self.remove(label)
        self._logs[label] = log
        labels = self._labels.setdefault(id(log), {})
        labels[label] = None
        if len(labels) == 1:
            self._arrivals.begin(log, self)

    def remove(self, label: Hashable) -> None:
        log = self._logs.pop(label, None)
        if log is None:
            return
        labels = self._labels[id(log)]
        del labels[label]
        if not labels:
            del self._labels[id(log)]
            self._arrivals.end(log, self)

    def arrived(self, size: int, log: object = None) -> None:
        self._marked.update(self._labels.get(id(log), {}))
        super().arrived(size)

    def take_marked(self) -> list[Hashable]:
        """The labels of logs in which something has arrived since the last call."""
        marked, self._marked = list(self._marked), {}
        return marked

    def close(self) -> None:
        for label in list(self._logs):
            self.remove(label)
