"""One line on a terminal that says how much of a folder was read; nothing where standard error is none."""

import sys

from loghub.clock import Clock

_INTERVAL_S = 0.2


class Progress:
    """Call `shard` and `read` as often as you like: they write at most five times a second."""

    def __init__(self, clock: Clock, *, enabled: bool | None = None) -> None:
        self._clock = clock
        self._enabled = sys.stderr.isatty() if enabled is None else enabled
        self._shown_s = clock.monotonic_s()
        self._is_on_screen = False
        self._read, self._total = 0, 0  # bytes

    def shard(self, number: int, count: int) -> None:
        """The ends of a shard's segments are read, as at a start."""
        self._show(f"shard {number} of {count}")

    def expect(self, size: int) -> None:
        """So many bytes of records will be read."""
        self._read, self._total = 0, size

    def read(self, size: int) -> None:
        """So many bytes of records were read."""
        self._read += size
        self._show(f"{self._read / 1e6:,.1f} of {self._total / 1e6:,.1f} MB of records")

    def clear(self) -> None:
        if self._is_on_screen:
            self._write("\r\x1b[K")
            self._is_on_screen = False

    def _show(self, text: str) -> None:
        now = self._clock.monotonic_s()
        if not self._enabled or now - self._shown_s < _INTERVAL_S:
            return
        self._shown_s = now
        self._write(f"\r{text}\x1b[K")
        self._is_on_screen = True

    def _write(self, text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()
