"""The stabilization windows: a number of workers changes when the load has needed another one all the time.

Workers are added when the load has needed more for the whole window, as many as it needed all that time; they
are removed when fewer have sufficed for the whole window, down to the number that sufficed all that time. A
window keeps only the numbers that can still become its largest.
"""

from dataclasses import dataclass, replace

from loghub_operator.model.memory import Peak, ScalingState, Window
from loghub_operator.plan.scaling.load import ReplicaRange


def pushed(window: Window, value: int, *, now: float, span_s: float, gap_s: float) -> Window:
    """Adds a number and drops those older than the span; after a gap the window starts over."""
    last = window.peaks[-1].at_unix_s if window.peaks else None
    if window.since_unix_s is None or last is None or not 0.0 <= now - last <= gap_s:
        return Window(since_unix_s=now, peaks=(Peak(value=value, at_unix_s=now),))
    larger = [one for one in window.peaks if one.value > value and now - one.at_unix_s <= span_s]
    return Window(since_unix_s=window.since_unix_s, peaks=(*larger, Peak(value=value, at_unix_s=now)))


def largest(window: Window, *, now: float, span_s: float) -> int | None:
    """The largest number of the span; None: the numbers do not cover the whole span yet."""
    if window.since_unix_s is None or now - window.since_unix_s < span_s:
        return None
    return next((one.value for one in window.peaks if now - one.at_unix_s <= span_s), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spans:
    """How long a need must last; ``gap_s``: how long it may be unknown in between."""

    up_s: float
    down_s: float
    gap_s: float


def with_replica_range(
    state: ScalingState, replica_range: ReplicaRange | None, *, now: float, spans: Spans, up: bool
) -> ScalingState:
    """Remembers this need. An unknown need changes nothing until it lasts long enough to be a gap. Without
    ``up`` the need does not count towards scaling up.
    """
    if replica_range is None:
        return state
    high = pushed(state.high, replica_range.high, now=now, span_s=spans.down_s, gap_s=spans.gap_s)
    if not up:
        return replace(state, high=high)
    low = pushed(state.low, -replica_range.low, now=now, span_s=spans.up_s, gap_s=spans.gap_s)
    target = pushed(state.target, -replica_range.target, now=now, span_s=spans.up_s, gap_s=spans.gap_s)
    return replace(state, high=high, low=low, target=target)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stabilized:
    """The number to run; ``stabilizing``: the current load alone would result in another number."""

    workers: int
    stabilizing: bool


def stabilize(
    state: ScalingState, replica_range: ReplicaRange, *, current: int, now: float, spans: Spans
) -> Stabilized:
    """More, fewer or as many workers as now."""
    if replica_range.low > current:
        min_low = largest(state.low, now=now, span_s=spans.up_s)
        target = largest(state.target, now=now, span_s=spans.up_s)
        if min_low is None or target is None or -min_low <= current:
            return Stabilized(workers=current, stabilizing=True)
        return Stabilized(workers=max(current, -target), stabilizing=False)
    if replica_range.high < current:
        enough = largest(state.high, now=now, span_s=spans.down_s)
        if enough is None or enough >= current:
            return Stabilized(workers=current, stabilizing=True)
        return Stabilized(workers=enough, stabilizing=False)
    return Stabilized(workers=current, stabilizing=False)
