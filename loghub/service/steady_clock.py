"""The wall clock, without jumps that are taken back.

A wall clock may be wrong for a while: after a reboot until it is synchronized, or because it was set by
mistake. What is stamped or deleted by a wrong time cannot be corrected later. The wall clock is therefore
compared with the monotonic one: small differences are followed at once, a jump only once it has lasted.
"""

from loghub.clock import Clock
from loghub.service.facts import ExpiryReached

TOLERANCE_S = 60.0  # a difference up to this is followed at once
# What is deleted by a wrong time is gone, so what deletes believes a jump after a day.
BELIEVED_S = 86_400.0


class SteadyClock:
    """Unix seconds that continue on the monotonic clock until a jump of the wall clock has lasted a while.

    A jump counts after ``settle_s``. The first time is ``begin_s``, or that of the wall clock. Ask it at
    least every few hours, so that the drift of the clocks stays below the tolerance.
    """

    def __init__(self, clock: Clock, *, settle_s: float, begin_s: float | None = None) -> None:
        self._clock = clock
        self._settle_s = settle_s
        self._offset_s = (clock.unix_s() if begin_s is None else begin_s) - clock.monotonic_s()
        self._jumped: tuple[float, float] | None = None  # the offset after a jump, and when it was noticed

    def unix_s(self) -> float:
        now_s = self._clock.monotonic_s()
        offset_s = self._clock.unix_s() - now_s
        if abs(offset_s - self._offset_s) <= TOLERANCE_S:
            self._offset_s, self._jumped = offset_s, None
        elif self._jumped is None or abs(offset_s - self._jumped[0]) > TOLERANCE_S:
            self._jumped = (offset_s, now_s)
        elif now_s - self._jumped[1] >= self._settle_s:
            self._offset_s, self._jumped = offset_s, None
        return now_s + self._offset_s


def goes_on_from(last: ExpiryReached | None, *, wall_s: float) -> float:
    """The time at which a run of the service begins, in unix seconds, if what deletes came to ``last`` before
    it: by at most a day later, and not later than the wall clock. One that has gone back is believed a day
    after it was found to be behind, also if the service starts again meanwhile."""
    if last is None:
        return wall_s
    last_s = last.unix_us / 1_000_000
    if wall_s < last_s - TOLERANCE_S:
        is_believed = last.behind_us and wall_s - last.behind_us / 1_000_000 >= BELIEVED_S
        return wall_s if is_believed else last_s
    passed_s = min(max(wall_s - last.wall_us / 1_000_000, 0.0), BELIEVED_S)
    return min(last_s + passed_s, wall_s)
