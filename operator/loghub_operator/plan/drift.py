"""What another controller has changed, and how often the operator reverts it.

If another controller undoes each correction, neither of the two would ever settle, and events would have no
end. The operator corrects each of its objects at once a few times, then after a delay that doubles up to a
bound. The count starts over if the desired state changes, or if the object stays unchanged for a while.
`loghub_operator.observe.drift_detector` finds the drift of objects, and `loghub_operator.plan.planner`
corrects it. The history is passed from one reconcile to the next; a restart of the operator clears it.
``now`` and all ``*_unix_s`` are unix seconds.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from loghub.backoff import backoff_s
from loghub_operator.model.memory import (
    NO_DRIFT_HISTORY,
    DriftCorrection,
    DriftHistory,
    FieldPath,
    ObjectName,
)
from loghub_operator.model.observed import ObservedStatefulSet, Stored
from loghub_operator.model.revision import Revision

# A person or a script changes a field once or twice. A controller does so each time, and two of them at full
# speed cost the API server more than a wrong field costs the group.
AT_ONCE = 3
FIRST_PAUSE_S = 20.0
MAX_PAUSE_S = 300.0
# Longer than the longest pause: else a controller that goes on would be corrected at once again.
FORGOTTEN_S = 2 * MAX_PAUSE_S
CALM_S = 60.0  # a conflicting controller usually undoes a correction within this time


def drift_of_group(name: str, existing: Stored | None, wanted: Stored) -> tuple[FieldPath, ...]:
    """The operator of another cluster may want other settings for the group."""
    if existing is None or existing == wanted:
        return ()
    return (FieldPath(object=ObjectName(kind="ConsumerGroup", name=name), path="settings"),)


def drift_of_objects(
    name: str, existing: ObservedStatefulSet | None, desired: Revision, found: tuple[FieldPath, ...]
) -> tuple[FieldPath, ...]:
    """What was ``found`` in the objects of StatefulSet ``name`` at the desired revision. If its revision is
    another one, it is new, or another controller keeps removing the annotation.
    """
    if existing is None or existing.revision == desired:
        return found
    return (FieldPath(object=ObjectName(kind="StatefulSet", name=name), path=FieldPath.ANNOTATIONS),)


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftBackoff:
    """What earlier corrections mean for the current drift.

    ``delayed`` are the fields whose correction has to wait; ``corrects``: some field does not have to wait,
    so all of them are corrected together. Without drift nothing is delayed and nothing is corrected.
    ``contested`` are the objects that another controller changes again after each correction. ``history`` is
    what to keep if everything is corrected now, and ``pause_s`` is the delay before the correction after
    that.
    """

    delayed: tuple[FieldPath, ...] = ()
    corrects: bool = False
    contested: tuple[ObjectName, ...] = ()
    history: DriftHistory = NO_DRIFT_HISTORY
    pause_s: float = 0.0


def pause_s(times: int) -> float:
    """The delay after this many corrections in a row."""
    if times < AT_ONCE:
        return 0.0
    return backoff_s(times - AT_ONCE + 1, first_s=FIRST_PAUSE_S, max_s=MAX_PAUSE_S)


def evaluate(
    history: DriftHistory, drift: Iterable[FieldPath], *, revision: Revision, replicas: int, now: float
) -> DriftBackoff:
    """``drift`` has the operator's fields that differ now. The count starts over when the spec, the desired
    ``revision`` or the number of ``replicas`` changes, so that a change of ours does not count as drift.
    """
    fields = tuple(drift)
    recent = _recent(history, revision, replicas, now)
    changed = dict.fromkeys(field.object for field in fields)
    delayed = tuple(field for field in fields if _waits(recent.get(field.object), now))
    corrected = {
        name: DriftCorrection(times=recent[name].times + 1 if name in recent else 1, at_unix_s=now)
        for name in changed
    }
    return DriftBackoff(
        delayed=delayed,
        corrects=len(delayed) < len(fields),
        contested=tuple(name for name, last in recent.items() if _contested(last, name in changed, now)),
        history=DriftHistory(revision=revision, replicas=replicas, corrections={**recent, **corrected}),
        pause_s=max((pause_s(one.times) for one in corrected.values()), default=0.0),
    )


def _recent(
    history: DriftHistory, revision: Revision, replicas: int, now: float
) -> dict[ObjectName, DriftCorrection]:
    """Drops corrections in the future as well, in case the clock was set back."""
    before = history.revision, history.revision.generation, history.replicas
    if before != (revision, revision.generation, replicas):
        return {}
    corrections = history.corrections.items()
    return {name: last for name, last in corrections if 0.0 <= now - last.at_unix_s < FORGOTTEN_S}


def _waits(last: DriftCorrection | None, now: float) -> bool:
    return last is not None and now - last.at_unix_s < pause_s(last.times)


def _contested(last: DriftCorrection, drifts: bool, now: float) -> bool:
    """Corrected at once `AT_ONCE` times and changed again; or corrected once more just now."""
    if drifts:
        return last.times >= AT_ONCE
    return last.times > AT_ONCE and now - last.at_unix_s < CALM_S
