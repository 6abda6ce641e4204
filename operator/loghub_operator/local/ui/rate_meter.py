"""Computes rates from counters that restart at zero with their process, such as the rows of a worker."""

from collections import deque
from collections.abc import Mapping

WINDOW_S = 5.0


class Meter:
    """Total and rate per name. A counter's ``life`` changes when the counter restarts at zero."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[object, int]] = {}
        self._totals: dict[str, int] = {}
        self._samples: deque[tuple[float, dict[str, int]]] = deque()

    def update(self, counters: Mapping[str, tuple[object, int]], *, now: float) -> None:
        """Adds a sample of the counters: name -> (life, count); ``now`` is in monotonic seconds."""
        for name, (life, count) in counters.items():
            before_life, before = self._last.get(name, (None, 0))
            base = before if before_life == life else 0
            self._totals[name] = self._totals.get(name, 0) + max(0, count - base)
            self._last[name] = (life, count)
        self._samples.append((now, dict(self._totals)))
        while len(self._samples) > 2 and now - self._samples[1][0] >= WINDOW_S:
            self._samples.popleft()

    def names(self) -> tuple[str, ...]:
        """Every name that was ever sampled."""
        return tuple(self._totals)

    def total(self, name: str) -> int:
        """The total over all restarts of the counter."""
        return self._totals.get(name, 0)

    def rate(self, name: str) -> float | None:
        """The rate per second over the last `WINDOW_S`; None before there are two samples."""
        if len(self._samples) < 2:
            return None
        (since, before), (until, after) = self._samples[0], self._samples[-1]
        if until <= since:
            return None
        return (after.get(name, 0) - before.get(name, 0)) / (until - since)
