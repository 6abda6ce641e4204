"""Reports a failed action in the status."""

from loghub.wire.errors import LogHubError
from loghub_operator.api.conditions import ConditionType, ConditionUpdate, ReadyReason, with_transition_times
from loghub_operator.api.status import Status


def error_message(error: Exception) -> str:
    """The same text at each reconcile: a request ID appears only in the log, because with it the status would
    change every time.
    """
    if isinstance(error, LogHubError):
        return f"{error.code} (HTTP {error.status}): {error.message}"
    return str(error)


def with_failure(status: Status, message: str, now: float, *, before: Status) -> Status:
    """The same status after an action failed: not ready, with the error as the message. ``before`` is the
    status that was reported last: another failure does not change the state, or each attempt would write the
    status.
    """
    finding = ConditionUpdate(
        type=ConditionType.READY, status="False", reason=ReadyReason.RECONCILE_ERROR, message=message
    )
    generation = status.observed_generation or 0
    (failed,) = with_transition_times((finding,), before.conditions, generation=generation, now=now)
    others = tuple(one for one in status.conditions if one.type != ConditionType.READY)
    return status.model_copy(update={"conditions": (failed, *others)})
