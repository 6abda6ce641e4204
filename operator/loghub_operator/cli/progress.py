"""How many logs a long command has read or written, as one line on a terminal."""

from loghub.clock import Clock
from loghub.progress_line import ProgressLine


class Progress:
    """Call `show` as often as you like: few calls write."""

    def __init__(self, clock: Clock, *, enabled: bool | None = None) -> None:
        self._line = ProgressLine(clock, enabled=enabled)

    def show(self, logs: int, size: int, *, total: int | None = None) -> None:
        """``total``: bytes that there will be, if that is known."""
        share = f" of {total / 1e6:.1f}" if total else ""
        self._line.show(
            lambda seconds: (
                f"{logs:,} logs, {size / 1e6:.1f}{share} MB, {logs / max(seconds, 0.001):,.0f} logs/s"
            )
        )

    def clear(self) -> None:
        self._line.clear()
