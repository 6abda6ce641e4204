"""What a commit thread has to do and how long it takes, for metrics and for ``/healthz``."""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate

from loghub.clock import Clock

_LATENCY_BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Latencies:
    """A histogram of seconds; `loghub.service.http.metrics` exposes it."""

    def __init__(self, bounds_s: Sequence[float] = _LATENCY_BOUNDS_S) -> None:
        self.total_s = 0.0
        self._bounds_s = bounds_s
        self._counts = [0] * (len(bounds_s) + 1)

    @property
    def count(self) -> int:
        return sum(self._counts)

    def add(self, seconds: float) -> None:
        self._counts[bisect_left(self._bounds_s, seconds)] += 1
        self.total_s += seconds

    def cumulative(self) -> list[tuple[float, int]]:
        """Each bound in seconds, infinity last, with the number of values up to it."""
        return list(zip((*self._bounds_s, float("inf")), accumulate(self._counts), strict=True))


class CommitMonitor:
    """One commit thread as its submitters see it; on the event loop only."""

    def __init__(self, clock: Clock) -> None:
        self.waiting = 0
        self.waiting_size = 0
        self.latencies = Latencies()
        self._clock = clock
        self._progress_s = 0.0

    def submitted(self, size: int) -> float:
        """Returns the time, which `committed` requires."""
        now = self._clock.monotonic_s()
        if self.waiting == 0:
            self._progress_s = now
        self.waiting += 1
        self.waiting_size += size
        return now

    def committed(self, *, size: int, submitted_s: float) -> None:
        now = self._clock.monotonic_s()
        self.waiting -= 1
        self.waiting_size -= size
        self.latencies.add(now - submitted_s)
        self._progress_s = now

    def stalled_s(self) -> float:
        """For how long nothing was committed although something waits; 0 if nothing waits."""
        return self._clock.monotonic_s() - self._progress_s if self.waiting else 0.0
