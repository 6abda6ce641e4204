"""Requests that wait for news: bounded in number and memory, and ended when they have no reason to wait.

A long poll ends when there is news, when its time is over, when its client goes away, when the same client
begins another one under the same name, and when the service stops. Its connection may be closed for another
one meanwhile (`loghub_service.connections.listener`), so that polls never keep a heartbeat from being served.

Wakes those who wait for the next log group of a shard, such as the long poll of a Kafka consumer, or for a
change of a consumer group.

Waiting costs nothing while nothing arrives: there is no polling, and an append looks up one key.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager

from loghub.wire.errors import Code
from loghub_service.errors import failure
from loghub_service.messages import MemoryBudget, Request
from loghub_service.settings import Limits

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


_POLL_BYTES = 4096  # a poll with its request and its connection, beyond the body
_WATCHED_BYTES = 512  # each thing that a poll watches


class WaitingPoll:
    """One poll that waits. `wake` lets it look again."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self.is_over = False
        self._wake = wake

    def end(self) -> None:
        """Let it answer at once, with or without news."""
        self.is_over = True
        self._wake()


class Polls:
    """The polls of a service. Used on the event loop only."""

    def __init__(self, limits: Limits) -> None:
        self.budget = MemoryBudget("polls", limit=limits.poll_bytes)
        self._max_of_key = limits.polls_per_key
        self._of_key: Counter[str] = Counter()
        self._open: dict[WaitingPoll, None] = {}
        self._named: dict[tuple[str, str], WaitingPoll] = {}
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._open)

    def close(self) -> None:
        """End all polls, and let no other one wait: the service stops."""
        self._is_closed = True
        for poll in tuple(self._open):
            poll.end()

    @contextmanager
    def place(
        self, request: Request, name: str, *, watched: int, wake: Callable[[], None]
    ) -> Iterator[WaitingPoll]:
        """A place for a poll that watches so many things. It ends the one that its key has under this name.
        Raises LogHubError ServerBusy if there is none."""
        key_id = request.key.key_id
        before = self._named.get((key_id, name))
        if before is not None:
            before.end()
        elif self._of_key[key_id] >= self._max_of_key:
            raise failure(
                Code.SERVER_BUSY, f"access key {key_id!r} has {self._max_of_key} polls, which is the most"
            )
        with self.budget.reservation() as memory:
            memory.take(_POLL_BYTES + len(request.body) + watched * _WATCHED_BYTES)
            request.memory.release()  # the body is counted here while it waits
            poll = WaitingPoll(wake)
            poll.is_over = self._is_closed
            self._open[poll] = None
            self._of_key[key_id] += 1
            self._named[key_id, name] = poll
            try:
                yield poll
            finally:
                del self._open[poll]
                self._of_key -= Counter({key_id: 1})
                if self._named.get((key_id, name)) is poll:  # a later one may be over already
                    del self._named[key_id, name]


async def wait_for_news(
    request: Request, poll: WaitingPoll, woken: asyncio.Event, *, wait_s: float, is_news: Callable[[], bool]
) -> None:
    """Return once there is news or the poll ends. `woken` is set whenever `is_news` may have changed; that
    may raise LogHubError, for what no longer exists. A poll that does not wait asks for no news."""
    if wait_s <= 0:
        return
    gone = asyncio.ensure_future(request.gone())
    gone.add_done_callback(lambda _: woken.set())
    try:
        with request.parked():
            async with asyncio.timeout(wait_s):
                while not (poll.is_over or gone.done() or is_news()):
                    await woken.wait()
                    woken.clear()
    except TimeoutError:
        return  # nothing has happened, and that is the answer
    finally:
        gone.cancel()
