"""Until when another question of the same round may be put to a log service.

What for: a round of many calls, one after the other, ends before liveness takes the process for stuck
(`loghub_operator.controller.liveness`), however many shards there are and however slow the endpoint is. What
it must not know: what is asked. Read next: `loghub_operator.logservice.shard_cursors`,
`loghub_operator.logservice.checkpoints`."""

from loghub.clock import Clock


class Deadline:
    """So many seconds from now; a call that was begun before goes on by its own bound."""

    def __init__(self, clock: Clock, within_s: float) -> None:
        self._clock = clock
        self._until_s = clock.monotonic_s() + within_s

    def is_over(self) -> bool:
        return self._clock.monotonic_s() >= self._until_s
