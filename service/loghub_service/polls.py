"""Requests that wait for a change: bounded in number and memory, and ended when they have no reason to wait.

A long poll ends when its subject has changed, when its time is over, when its client disconnects, when the
same client begins another poll under the same name, and when the service stops. Its connection may be closed
in favour of another one meanwhile (`loghub_service.connections.listener`), so polls never keep a heartbeat
from being served.

A `Notifier` wakes the waiters of a key, which is the log of a shard or a consumer group. Kafka's Fetch waits
for logs by the same means. Nothing runs while nothing happens, and an append looks up a single key.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager

from loghub.wire.errors import Code
from loghub_service.errors import failure
from loghub_service.messages import MemoryBudget, Request
from loghub_service.settings import Limits

ENOUGH_BYTES = 1 << 62  # wakes every waiter, however many bytes it waits for


class Waiter(asyncio.Event):
    """Set by each notification, or once as many bytes have been appended as `expect` says."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0  # appended since the waiter began
        self._expected = 0

    def notify(self, size: int, key: object = None) -> None:  # noqa: ARG002 - see `LogWatch`
        self.bytes += size
        if self.bytes >= self._expected:
            self.set()

    def expect(self, total: int) -> None:
        """Clear the event until ``bytes`` reaches this total."""
        self.clear()
        self._expected = total
        if self.bytes >= total:
            self.set()


class Notifier:
    """Wakes the waiters of a key, such as a log or a group. Used on the event loop only.

    Keys are compared by identity, since a log that replaces a deleted one of the same name is another key.
    """

    def __init__(self) -> None:
        self._waiting: dict[int, dict[Waiter, None]] = {}

    def notify(self, key: object, size: int = ENOUGH_BYTES) -> None:
        """Wake the waiters of a key: ``size`` bytes were appended, or without a size, it has changed."""
        for waiter in tuple(self._waiting.get(id(key), ())):
            waiter.notify(size, key)

    @contextmanager
    def watched(self, keys: Iterable[object]) -> Iterator[Waiter]:
        """A waiter that is notified of each of the keys, until the block ends."""
        waiter = Waiter()
        by_id = {id(key): key for key in keys}  # holds the keys, so that no id is used again meanwhile
        for key in by_id.values():
            self.begin(key, waiter)
        try:
            yield waiter
        finally:
            for key in by_id.values():
                self.end(key, waiter)

    def watch(self) -> "LogWatch":
        """A waiter whose logs change while it exists. The caller closes it."""
        return LogWatch(self)

    def begin(self, key: object, waiter: Waiter) -> None:
        self._waiting.setdefault(id(key), {})[waiter] = None

    def end(self, key: object, waiter: Waiter) -> None:
        waiters = self._waiting[id(key)]
        del waiters[waiter]
        if not waiters:
            del self._waiting[id(key)]


class LogWatch(Waiter):
    """A waiter for several logs, each under a label, that knows which of them have changed."""

    def __init__(self, notifier: Notifier) -> None:
        super().__init__()
        self._notifier = notifier
        self._logs: dict[Hashable, object] = {}
        self._labels: dict[int, dict[Hashable, None]] = {}
        self._marked: dict[Hashable, None] = {}

    def add(self, log: object, label: Hashable) -> None:
        """Watch the log under this label, in place of another log that had the label."""
        if self._logs.get(label) is log:
            return
        self.remove(label)
        self._logs[label] = log
        labels = self._labels.setdefault(id(log), {})
        labels[label] = None
        if len(labels) == 1:
            self._notifier.begin(log, self)

    def remove(self, label: Hashable) -> None:
        log = self._logs.pop(label, None)
        if log is None:
            return
        labels = self._labels[id(log)]
        del labels[label]
        if not labels:
            del self._labels[id(log)]
            self._notifier.end(log, self)

    def notify(self, size: int, key: object = None) -> None:
        self._marked.update(self._labels.get(id(key), {}))
        super().notify(size)

    def take_marked(self) -> list[Hashable]:
        """The labels of the logs that have changed since the last call."""
        marked, self._marked = list(self._marked), {}
        return marked

    def close(self) -> None:
        for label in list(self._logs):
            self.remove(label)


# What a waiting poll costs, rounded up: the budget bounds memory by these, since Python cannot measure it.
_POLL_BYTES = 4096  # the poll with its request and its connection, without the body
_WATCHED_BYTES = 512  # each key that the poll watches: its name, and its entries in two dictionaries


class WaitingPoll:
    """A poll that waits. `wake` makes it check again whether its subject has changed."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self.is_over = False
        self._wake = wake

    def end(self) -> None:
        """Let the poll answer at once, whether or not its subject has changed."""
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
        """End all polls, and let no further poll wait, because the service stops."""
        self._is_closed = True
        for poll in tuple(self._open):
            poll.end()

    @contextmanager
    def place(
        self, request: Request, name: str, *, watched: int, wake: Callable[[], None]
    ) -> Iterator[WaitingPoll]:
        """A place for a poll that watches this many keys. It ends the poll that the same access key has under
        this name. Raises LogHubError ServerBusy if no place is free."""
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


async def wait_for_change(
    request: Request,
    poll: WaitingPoll,
    woken: asyncio.Event,
    *,
    wait_s: float,
    has_changed: Callable[[], bool],
) -> None:
    """Return once the subject has changed or the poll ends; at once if ``wait_s`` is 0.

    ``woken`` is set whenever the result of ``has_changed`` may be another. ``has_changed`` may raise
    LogHubError, for a subject that no longer exists.
    """
    if wait_s <= 0:
        return
    gone = asyncio.ensure_future(request.gone())
    gone.add_done_callback(lambda _: woken.set())
    try:
        with request.parked():
            async with asyncio.timeout(wait_s):
                while not (poll.is_over or gone.done() or has_changed()):
                    await woken.wait()
                    woken.clear()
    except TimeoutError:
        return  # nothing has happened, and that is the answer
    finally:
        gone.cancel()
