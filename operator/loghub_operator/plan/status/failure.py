"""Reports a failed action in the status."""

from loghub.wire.errors import LogHubError
from loghub_operator.api.conditions import ConditionType, ConditionUpdate, ReadyReason, with_transition_times
from loghub_operator.api.status import Status
from loghub_operator.plan.status.progress import last_progress, stalled_finding


def error_message(error: Exception) -> str:
    """The same text at each reconcile: a request ID appears only in the log, because with it the status would
    change every time.
    """
    if isinstance(error, LogHubError):
        return f"{error.code} (HTTP {error.status}): {error.message}"
    return str(error)


def with_failure(status: Status, message: str, now: float, *, before: Status, deadline_s: int) -> Status:
    """The same status after an action failed: not ready, with the error as the message. ``before`` is the
    status that was reported last: another failure does not change the state, or each attempt would write the
    status. ``deadline_s`` is the time without progress after which the group is stalled.
    """
    ready = ConditionUpdate(
        type=ConditionType.READY, status="False", reason=ReadyReason.RECONCILE_ERROR, message=message
    )
    since = last_progress(before, status, ready=ready, now=now)
    stalled = stalled_finding(ready, since, deadline_s=deadline_s, now=now)
    generation = status.observed_generation or 0
    failed = with_transition_times((ready, stalled), before.conditions, generation=generation, now=now)
    news = {one.type: one for one in failed}
    conditions = tuple(news.get(one.type, one) for one in status.conditions)
    return status.model_copy(update={"conditions": conditions, "last_progress_time": since})
