"""One line on a terminal that says how far a long command is; nothing where standard error is no terminal."""

import sys
from collections.abc import Callable

from loghub.clock import Clock

_INTERVAL_S = 0.2  # five lines a second look steady, and a slow terminal over SSH can follow


class ProgressLine:
    """A line that replaces itself. `show` may be called as often as the caller likes, since it writes at most
    five times a second."""

    def __init__(self, clock: Clock, *, enabled: bool | None = None) -> None:
        self._clock = clock
        self._enabled = sys.stderr.isatty() if enabled is None else enabled
        self._began_s = clock.monotonic_s()
        self._shown_s = self._began_s
        self._is_on_screen = False

    def show(self, text: Callable[[float], str]) -> None:
        """``text`` gets the seconds since the begin, and is called only if it is time to write."""
        now = self._clock.monotonic_s()
        if not self._enabled or now - self._shown_s < _INTERVAL_S:
            return
        self._shown_s = now
        self._write(f"\r{text(now - self._began_s)}\x1b[K")
        self._is_on_screen = True

    def clear(self) -> None:
        if self._is_on_screen:
            self._write("\r\x1b[K")
            self._is_on_screen = False

    def _write(self, text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()
