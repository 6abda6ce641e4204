"""Pauses between retries that grow and differ between workers.

After an outage all workers of all groups retry. If their pauses were equal, they would do so at the same
moment, and again after each refusal; so each draws its own."""

from collections.abc import Callable
from dataclasses import dataclass

MAX_DOUBLINGS = 30  # a float has room for more, but no pause is that long


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """`random` returns values from 0 to 1, like `random.random`."""

    first_s: float
    longest_s: float
    random: Callable[[], float]

    def pause_s(self, failures: int) -> float:
        """The pause after so many consecutive failures, at least one: drawn from the upper half of a span
        that doubles with each failure."""
        span_s = min(self.longest_s, self.first_s * 2.0 ** min(failures - 1, MAX_DOUBLINGS))
        return span_s * (1.0 + self.random()) / 2.0


def without_jitter() -> float:
    """A `Backoff.random` without chance: every pause has its largest value."""
    return 1.0
