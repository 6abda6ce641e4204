"""The only module that reads the real time.

Every component that needs the time gets a `Clock`, so that a test or a simulator can pass its own.
Callers pass ``clock.monotonic_s()`` to pure functions as ``now``.
"""

import time
from typing import Protocol

# Linux's CLOCK_MONOTONIC stops while the machine is suspended: a worker that was suspended past the end
# of its session would resume and still consider the session valid. macOS's clock continues.
_RUNS_ON = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Clock(Protocol):
    """A monotonic and a wall clock. Durations are measured only on the monotonic clock."""

    def monotonic_s(self) -> float:
        """Seconds since an arbitrary origin; never goes back, and continues while the machine is suspended.

        Compare it only with itself: `time.monotonic` is a different clock.
        """

    def unix_s(self) -> float:
        """Seconds since 1970, for values that users or the wire see; may jump."""


class SystemClock:
    """The clock of the machine."""

    def monotonic_s(self) -> float:
        return time.clock_gettime(_RUNS_ON)

    def unix_s(self) -> float:
        return time.time()
