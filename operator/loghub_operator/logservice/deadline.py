"""Deadline for further requests to a log service within one reconcile.

With it, a reconcile that makes many calls one after the other ends before
`loghub_operator.controller.liveness` considers the process stuck, no matter how many shards there are or how
slow the endpoint is."""

from loghub.clock import Clock


class Deadline:
    """``within_s`` seconds from now; a call that has already begun continues within its own time limit."""

    def __init__(self, clock: Clock, within_s: float) -> None:
        self._clock = clock
        self._until_s = clock.monotonic_s() + within_s

    def is_over(self) -> bool:
        return self._clock.monotonic_s() >= self._until_s
