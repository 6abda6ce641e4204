"""A deadline that moves with each request: one timer for the whole connection, which is set again if it fires
early. Starting and ending a timer for each request would take a tenth of the time of a small one."""

import asyncio
from collections.abc import Callable

_EARLY_S = 0.001  # a timer of uvloop counts milliseconds, and may fire within one before its time


class MovingDeadline:
    """Calls ``on_expired`` once after the time of the last `expect`, unless `end` or `close` comes before."""

    def __init__(self, loop: asyncio.AbstractEventLoop, on_expired: Callable[[], object]) -> None:
        self._loop = loop
        self._on_expired = on_expired
        self._at_s: float | None = None  # as of the loop's clock
        self._timer: asyncio.TimerHandle | None = None
        self._fires_s = 0.0

    def expect(self, seconds: float) -> None:
        self._at_s = at_s = self._loop.time() + seconds
        if self._timer is not None and self._fires_s > at_s:
            self._timer.cancel()
            self._timer = None
        if self._timer is None:
            self._start(at_s)

    def end(self) -> None:
        self._at_s = None

    def close(self) -> None:
        """End, so that the loop does not refer to this object any more."""
        self._at_s = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _start(self, at_s: float) -> None:
        self._fires_s = at_s
        self._timer = self._loop.call_at(at_s, self._fire)

    def _fire(self) -> None:
        self._timer = None
        if self._at_s is None:
            return
        if self._at_s - self._loop.time() > _EARLY_S:
            self._start(self._at_s)
            return
        self._at_s = None
        self._on_expired()
