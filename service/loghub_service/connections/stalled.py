"""Clients that hold memory that others need, while the service waits for them or in a long poll.

Each client may take a minute as long as there is enough memory. When an answer finds no memory, the client
that has read nothing for longest is disconnected, and when a request finds none, the client that has held its
part for longest. So a few clients that stall do not stop all others.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from loghub.clock import Clock


class Budget(Protocol):
    """A bound on memory that the connections of one port share with the rest of the service; in bytes."""

    limit: int
    used: int


Abort = Callable[[], None]


class StalledClients:
    """The connections that hold memory of one budget, in the order in which they stalled."""

    def __init__(self, clock: Clock, *, grace_s: float) -> None:
        self._clock = clock
        self._grace_s = grace_s
        self._since_s: dict[Abort, float] = {}

    def add(self, abort: Abort) -> None:
        """The connection that ``abort`` ends has stalled, now or before."""
        self._since_s.setdefault(abort, self._clock.monotonic_s())

    def remove(self, abort: Abort) -> None:
        """The connection continues, or is closed."""
        self._since_s.pop(abort, None)

    def end_oldest(self) -> None:
        """End the connection that has stalled for longest, unless its grace period is not over."""
        abort = next(iter(self._since_s), None)
        if abort is not None and self._clock.monotonic_s() - self._since_s[abort] >= self._grace_s:
            self.remove(abort)
            abort()


class RequestMemory:
    """The memory that the large requests of one connection have taken from the shared budget.

    The connection may be ended for others while it has some and is in the middle of a request, or waits in a
    long poll or for its client to read. Meanwhile the service does nothing for it, and requests behind a
    waiting request hold memory, too.
    """

    def __init__(self, budget: Budget, holders: StalledClients, abort: Abort) -> None:
        self._budget = budget
        self._holders = holders
        self._abort = abort
        self._held = 0
        self._waits = 0  # requests that wait now, for any reason
        self._arriving = False
        self._closed = False

    def take(self, size: int) -> bool:
        """Take memory for a request that begins to arrive. If there is too little, another connection may be
        ended."""
        if self._budget.used + size > self._budget.limit:
            self._holders.end_oldest()
            return False
        self._add(size)
        self._arriving = True
        self._note()
        return True

    def arrived(self) -> None:
        """The request is complete."""
        self._arriving = False
        self._note()

    def release(self, size: int) -> None:
        self._add(-size)
        self._note()

    def begin_waiting(self) -> None:
        self._waits += 1
        self._note()

    def end_waiting(self) -> None:
        self._waits -= 1
        self._note()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        self.begin_waiting()
        try:
            yield
        finally:
            self.end_waiting()

    def close(self) -> None:
        """The connection has ended; what requests in progress have is released with them."""
        self._closed = True
        self._note()

    def _add(self, size: int) -> None:
        self._held += size
        self._budget.used += size

    def _note(self) -> None:
        if self._held and (self._arriving or self._waits) and not self._closed:
            self._holders.add(self._abort)
        else:
            self._holders.remove(self._abort)
