"""How often what somebody else changes is set back.

What for: where another controller undoes each of our mends, neither of the two would ever rest, and
events would have no end. What it must not know: how drift is found, and how it is mended. Read next:
`loghub_operator.observe.drift_detector` (finds it), `loghub_operator.plan.planner` (mends it).

Each object of ours is set back at once a few times, then after a pause that doubles, up to a bound.
Where we want something else than then, or nobody changed it for a while, it begins anew. Remembered
from round to round; a restart of the operator forgets it. ``now`` and all ``*_unix_s`` are unix seconds.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from loghub_operator.model.drift_state import NO_DRIFT_HISTORY, DriftCorrection, DriftHistory

AT_ONCE = 3
FIRST_PAUSE_S = 20.0
LONGEST_PAUSE_S = 300.0
FORGOTTEN_S = 2 * LONGEST_PAUSE_S
CALM_S = 60.0  # whoever undoes mends does so within this, as a rule


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftBackoff:
    """What the mends of before mean for what drifted now.

    ``held`` are the fields that wait; ``mends_now``: others do not, and all is set back with them.
    ``contested`` are the objects that somebody changes again each time. ``mends`` is to be remembered
    if all is set back now, and ``again_s`` is the pause after that.
    """

    held: tuple[str, ...] = ()
    mends_now: bool = False
    contested: tuple[str, ...] = ()
    mends: DriftHistory = NO_DRIFT_HISTORY
    again_s: float = 0.0


def pause_s(times: int) -> float:
    """After so many mends in a row."""
    if times < AT_ONCE:
        return 0.0
    return min(FIRST_PAUSE_S * 2.0 ** min(times - AT_ONCE, 10), LONGEST_PAUSE_S)


def evaluate(mends: DriftHistory, drift: Iterable[str], *, wanted: str, now: float) -> DriftBackoff:
    """``changed_fields`` has the fields of ours that differ now, such as "Service x spec.ports"."""
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
    """A clock that was set back forgets, too."""
    if mends.wanted != wanted:
        return {}
    return {name: mend for name, mend in mends.done.items() if 0.0 <= now - mend.at_unix_s < FORGOTTEN_S}


def _object_of(path: str) -> str:
    return " ".join(path.split()[:2])


def _waits(mend: DriftCorrection | None, now: float) -> bool:
    return mend is not None and now - mend.at_unix_s < pause_s(mend.times)


def _contested(mend: DriftCorrection, drifts: bool, now: float) -> bool:
    """Set back at once so often, and changed again; also just after it was set back once more."""
    if drifts:
        return mend.times >= AT_ONCE
    return mend.times > AT_ONCE and now - mend.at_unix_s < CALM_S
