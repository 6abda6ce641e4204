"""How often a consumer sends heartbeats: more often while the assignment changes, and sooner after a failure.

After a change another one is likely: other consumers give up their shards one by one, at their next
heartbeats, and only an answer tells that one of these is ours.
"""

from collections.abc import Callable

from loghub_worker.backoff import Backoff

CHANGING_INTERVALS = 2
CHANGING_FRACTION, LEAST_CHANGING_S = 0.2, 0.2
FIRST_RETRY_S = 1.0  # after a failed heartbeat; further pauses are longer, up to an interval


class Pace:
    """The pauses between heartbeats, in seconds of a monotonic clock."""

    def __init__(self, interval_s: float, *, random: Callable[[], float]) -> None:
        self._interval_s = interval_s
        self._random = random
        self._failures = 0  # consecutive
        self._assigned: tuple[int, ...] | None = None  # by the last answer
        self._changing_until_s = 0.0

    def is_news(self, assigned: tuple[int, ...]) -> bool:
        """Whether heartbeats are answered, and the last answer had other shards than these."""
        return not self._failures and assigned != self._assigned

    def retimed(self, interval_s: float) -> None:
        """The heartbeats have another interval."""
        self._interval_s = interval_s

    def failed(self, *, now: float) -> float:
        """The time of the next heartbeat, after one that failed now."""
        self._failures += 1
        retries = Backoff(first_s=FIRST_RETRY_S, longest_s=self._interval_s, random=self._random)
        return now + retries.pause_s(self._failures)

    def answered(self, assigned: tuple[int, ...], *, sent_s: float) -> float:
        """The time of the next heartbeat, after one that was answered with these shards."""
        self._failures = 0
        if assigned != self._assigned:
            self._assigned = assigned
            self._changing_until_s = sent_s + CHANGING_INTERVALS * self._interval_s
        if sent_s >= self._changing_until_s:
            return sent_s + self._interval_s
        return sent_s + min(self._interval_s, max(LEAST_CHANGING_S, self._interval_s * CHANGING_FRACTION))
