"""How often a consumer sends heartbeats: more often while the assignment changes.

After a change another one is likely: other consumers give up their shards one by one, at their next
heartbeats, and only an answer tells that one of these is ours.
"""

CHANGING_INTERVALS = 2
CHANGING_FRACTION, LEAST_CHANGING_S = 0.2, 0.2


class Pace:
    """The pauses between heartbeats, in seconds of a monotonic clock."""

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._assigned: tuple[int, ...] | None = None  # by the last answer
        self._changing_until_s = 0.0

    def is_last(self, assigned: tuple[int, ...]) -> bool:
        """Whether the last answer had these shards."""
        return assigned == self._assigned

    def answered(self, assigned: tuple[int, ...], *, sent_s: float) -> float:
        """The time of the next heartbeat, after one that was answered with these shards."""
        if assigned != self._assigned:
            self._assigned = assigned
            self._changing_until_s = sent_s + CHANGING_INTERVALS * self._interval_s
        if sent_s >= self._changing_until_s:
            return sent_s + self._interval_s
        return sent_s + min(self._interval_s, max(LEAST_CHANGING_S, self._interval_s * CHANGING_FRACTION))
