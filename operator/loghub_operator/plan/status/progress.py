"""Condition Stalled: whether a group that is not ready makes progress.

As a Deployment has ``progressDeadlineSeconds``, a group that has come no closer to what its spec asks for
within `spec.worker.progressDeadlineSeconds` is reported, and still reconciled. Flux and `helm --wait` read
this condition of any custom resource. When progress was made last is kept in the status, so that the deadline
does not begin again when the operator restarts. ``now`` is in unix seconds.
"""

from loghub_operator.api.conditions import ConditionType, ConditionUpdate, StalledReason, rfc3339
from loghub_operator.api.patterns import unix_s
from loghub_operator.api.status import Status


def last_progress(before: Status, after: Status, *, ready: ConditionUpdate, now: float) -> str:
    """`status.lastProgressTime` of ``after``, whose condition Ready is ``ready``."""
    was_ready = all(one.status != "False" for one in before.conditions if one.type == ConditionType.READY)
    if before.last_progress_time is None or _came_closer(before, after):
        return rfc3339(now)
    return rfc3339(now) if was_ready and ready.status == "False" else before.last_progress_time


def _came_closer(before: Status, after: Status) -> bool:
    """Another order counts too: it has the whole deadline. A worker that is lost is no progress."""
    more = after.updated_replicas > before.updated_replicas or after.ready_replicas > before.ready_replicas
    return more or _order(before) != _order(after)


def _order(status: Status) -> tuple[object, ...]:
    reset = status.checkpoint_reset
    moves = None if reset is None else (reset.nonce, reset.phase)
    return status.observed_generation, status.replicas, moves


def stalled_finding(
    ready: ConditionUpdate, since: str, *, deadline_s: int, waits_for: str = "", now: float
) -> ConditionUpdate:
    """Whether the deadline has passed without progress; ``waits_for`` is the worker that a rollout waits
    for.
    """
    kind = ConditionType.STALLED
    if ready.status != "False" or now - unix_s(since) <= deadline_s:
        message = "the group is ready, or comes closer to it"
        return ConditionUpdate(type=kind, status="False", reason=StalledReason.PROGRESSING, message=message)
    name = "" if waits_for in ready.message else f"; waiting for {waits_for}"
    return ConditionUpdate(
        type=kind,
        status="True",
        reason=StalledReason.PROGRESS_DEADLINE_EXCEEDED,
        message=f"no progress for more than {deadline_s} s: {ready.message}{name}",
    )
