"""Decides from when on a failed look, or a failed try, counts.

One request in ten thousand fails past its retries, and with 500 groups that is several a minute. So a group
that was as its spec says stays so in its status until `PATIENCE` looks in a row have failed, a few seconds
apart; only condition LagAvailable says at once that the lag is not current. A group that was not, or whose
spec has changed, has nothing to lose by the truth.
"""

from loghub_operator.api.conditions import ConditionType, with_transition_times
from loghub_operator.api.status import Status
from loghub_operator.model.observed import LogServiceObserved, Unavailable
from loghub_operator.plan.status.builder import lag_condition

PATIENCE = 3  # as many as make `loghub_operator.controller.workqueue` ask with less urgency


def failed_looks(before: int, service: LogServiceObserved) -> int:
    """How many looks in a row have failed, this one included; ``before`` of them until now."""
    return before + 1 if isinstance(service, Unavailable) else 0


def was_as_it_should(status: Status, kind: ConditionType, *, generation: int) -> bool:
    """Whether the condition was True of the present spec, which has this ``generation``."""
    return any(
        (condition.type, condition.status, condition.observed_generation) == (kind, "True", generation)
        for condition in status.conditions
    )


def with_stale_lag(status: Status, service: LogServiceObserved, *, generation: int, now: float) -> Status:
    """The status from before a failed look, which says in addition only that the lag is not current."""
    before = status.conditions
    (lag,) = with_transition_times((lag_condition(service),), before, generation=generation, now=now)
    conditions = tuple(lag if condition.type == lag.type else condition for condition in before)
    return status.model_copy(update={"conditions": conditions})
