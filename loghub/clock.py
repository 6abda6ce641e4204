"""The only reader of real time in the project.

What for: everything that needs to know the time takes a `Clock`, so that a test or
a simulator can hand in its own. What it must not know: who asks. Read next: the
callers hand ``clock.monotonic_s()`` to pure functions as ``now``.
"""

import time
from typing import Protocol

# Linux's CLOCK_MONOTONIC stands still while the machine is suspended: a worker that slept through
# its lease would wake and believe in it. macOS's goes on.
_RUNS_ON = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Clock(Protocol):
    """Two readings and a wait. Durations are measured on the monotonic one only."""

    def monotonic_s(self) -> float:
        """Seconds since an arbitrary origin; never goes back, and goes on while the machine is suspended.
        Compare it with nothing but itself: `time.monotonic` is another clock."""

    def unix_s(self) -> float:
        """Seconds since 1970, for what people and the wire see; may jump."""


class SystemClock:
    """The machine's own clock."""

    def monotonic_s(self) -> float:
        return time.clock_gettime(_RUNS_ON)

    def unix_s(self) -> float:
        return time.time()
