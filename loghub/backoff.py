"""Pauses between retries, which grow with each failure.

`backoff_s` is for decisions, which must be the same for the same input, and for a process that retries alone.
`Backoff` is for many processes that retry the same thing, as all workers of all groups do after an outage.
With equal pauses they would retry at the same moment, and again after each refusal, so each process draws its
own pauses.
"""

from collections.abc import Callable
from dataclasses import dataclass

MAX_DOUBLINGS = 30  # 2**30 seconds are 34 years: no pause is that long, and the float does not overflow


def backoff_s(failures: int, *, first_s: float, max_s: float) -> float:
    """The pause after this many consecutive failures: ``first_s`` after the first (or none), doubled by each
    further one up to ``max_s``."""
    return min(max_s, first_s * 2.0 ** min(max(failures - 1, 0), MAX_DOUBLINGS))


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Pauses of one process among many. `random` returns values from 0 to 1, like `random.random`."""

    first_s: float
    max_s: float
    random: Callable[[], float]

    def pause_s(self, failures: int) -> float:
        """The pause after ``failures`` consecutive failures, at least one: drawn from the upper half of a
        span that doubles with each failure."""
        span_s = backoff_s(failures, first_s=self.first_s, max_s=self.max_s)
        return span_s * (1.0 + self.random()) / 2.0


def without_jitter() -> float:
    """A `Backoff.random` without chance: every pause has its largest value."""
    return 1.0
