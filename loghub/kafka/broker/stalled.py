"""Clients that do not read their answers, or do not complete a request, and hold memory that others need.

Each may take a minute as long as there is enough. When an answer finds no memory, the client that has read
nothing for longest is disconnected, and when a request finds none, the one that began its own first. So a few
that stall do not stop everybody else.
"""

from collections.abc import Callable

from loghub.clock import Clock

Abort = Callable[[], None]


class StalledClients:
    """The connections that hold memory of one budget, in the order in which they stalled; one that sends is
    among them from the first byte of its request to the last."""

    def __init__(self, clock: Clock, *, grace_s: float) -> None:
        self._clock = clock
        self._grace_s = grace_s
        self._since_s: dict[Abort, float] = {}

    def add(self, abort: Abort) -> None:
        """The connection that ``abort`` ends has stalled."""
        self._since_s[abort] = self._clock.monotonic_s()

    def remove(self, abort: Abort) -> None:
        """It goes on, or is gone."""
        self._since_s.pop(abort, None)

    def end_oldest(self) -> None:
        """End the one that has stalled for longest, unless that is not long."""
        abort = next(iter(self._since_s), None)
        if abort is not None and self._clock.monotonic_s() - self._since_s[abort] >= self._grace_s:
            self.remove(abort)
            abort()
