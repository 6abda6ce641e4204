"""Limits how often the operator reverts what another controller keeps changing.

If another controller undoes each correction, neither of the two would ever settle, and events would have no
end. The operator corrects each of its objects at once a few times, then after a delay that doubles up to a
bound. The count starts over if the desired state changes, or if the object stays unchanged for a while.
`loghub_operator.observe.drift_detector` finds the drift, and `loghub_operator.plan.planner` corrects it. The
history is passed from one reconcile to the next; a restart of the operator clears it. ``now`` and all
``*_unix_s`` are unix seconds.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from loghub_operator.model.drift_state import NO_DRIFT_HISTORY, DriftCorrection, DriftHistory

AT_ONCE = 3
FIRST_PAUSE_S = 20.0
LONGEST_PAUSE_S = 300.0
FORGOTTEN_S = 2 * LONGEST_PAUSE_S
CALM_S = 60.0  # a conflicting controller usually undoes a correction within this time


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftBackoff:
    """What earlier corrections mean for the current drift.

    ``held`` are the fields whose correction has to wait; ``mends_now``: some field does not have to wait, so
    all of them are corrected together. ``contested`` are the objects that another controller changes again
    after each correction. ``mends`` is the history to keep if everything is corrected now, and ``again_s`` is
    the delay before the correction after that.
    """

    held: tuple[str, ...] = ()
    mends_now: bool = False
    contested: tuple[str, ...] = ()
    mends: DriftHistory = NO_DRIFT_HISTORY
    again_s: float = 0.0


def pause_s(times: int) -> float:
    """The delay after this many corrections in a row."""
    if times < AT_ONCE:
        return 0.0
    return min(FIRST_PAUSE_S * 2.0 ** min(times - AT_ONCE, 10), LONGEST_PAUSE_S)


def evaluate(mends: DriftHistory, drift: Iterable[str], *, wanted: str, now: float) -> DriftBackoff:
    """``drift`` has the operator's fields that differ now, such as "Service x spec.ports"; ``wanted``
    identifies the desired state.
    """
    paths = tuple(drift)
    known = _remembered(mends, wanted, now)
    changed = dict.fromkeys(map(_object_of, paths))
    held = tuple(path for path in paths if _waits(known.get(_object_of(path)), now))
    done = {
        name: DriftCorrection(times=known[name].times + 1 if name in known else 1, at_unix_s=now)
        for name in changed
    }
    return DriftBackoff(
        held=held,
        mends_now=len(held) < len(paths),
        contested=tuple(name for name, mend in known.items() if _contested(mend, name in changed, now)),
        mends=DriftHistory(wanted=wanted, done={**known, **done}),
        again_s=max((pause_s(mend.times) for mend in done.values()), default=0.0),
    )


def _remembered(mends: DriftHistory, wanted: str, now: float) -> dict[str, DriftCorrection]:
    """Drops corrections in the future as well, in case the clock was set back."""
    if mends.wanted != wanted:
        return {}
    return {name: mend for name, mend in mends.done.items() if 0.0 <= now - mend.at_unix_s < FORGOTTEN_S}


def _object_of(path: str) -> str:
    return " ".join(path.split()[:2])


def _waits(mend: DriftCorrection | None, now: float) -> bool:
    return mend is not None and now - mend.at_unix_s < pause_s(mend.times)


def _contested(mend: DriftCorrection, drifts: bool, now: float) -> bool:
    """Corrected at once `AT_ONCE` times and changed again; or corrected once more just now."""
    if drifts:
        return mend.times >= AT_ONCE
    return mend.times > AT_ONCE and now - mend.at_unix_s < CALM_S
