"""Decides from when on a failed look, or a failed try, counts.

One request in ten thousand fails past its retries, and with 500 groups that is several a minute. So a group
that was as its spec says stays so in its status until `PATIENCE` looks in a row have failed, a few seconds
apart; only condition LagAvailable says at once that the lag is not current. A group that was not, or whose
spec has changed, has nothing to lose by the truth.
"""

from dataclasses import replace

from loghub_operator.api.conditions import ConditionType, with_transition_times
from loghub_operator.api.status import Status
from loghub_operator.api.v1alpha1 import LogHubConsumerGroup
from loghub_operator.model.actions import Plan
from loghub_operator.model.memory import Memory
from loghub_operator.model.observed import ObservedState, Unavailable
from loghub_operator.plan.status.builder import lag_condition

PATIENCE = 3  # as `loghub_operator.controller.workqueue` counts before it asks with less urgency


def looks_after(observed: ObservedState) -> int:
    """How many looks in a row have failed, this one included."""
    return observed.memory.failed_looks + 1 if isinstance(observed.service, Unavailable) else 0


def is_one_failed_look(resource: LogHubConsumerGroup, observed: ObservedState) -> bool:
    """Whether the log service did not answer now, and has not for so short a time that it says nothing."""
    return 0 < looks_after(observed) < PATIENCE and was_as_it_should(resource, ConditionType.GROUP_SYNCED)


def was_as_it_should(resource: LogHubConsumerGroup, kind: ConditionType) -> bool:
    """Whether the condition was True of the present spec."""
    generation = resource.metadata.generation
    return any(
        (one.type, one.status, one.observed_generation) == (kind, "True", generation)
        for one in resource.status.conditions
    )


def with_patience(resource: LogHubConsumerGroup, observed: ObservedState, planned: Plan, now: float) -> Plan:
    """Nothing is done and nothing said but that the lag is not current."""
    memory: Memory = replace(observed.memory, failed_looks=looks_after(observed))
    return replace(planned, actions=(), status=_not_current(resource, observed, now), memory=memory)


def _not_current(resource: LogHubConsumerGroup, observed: ObservedState, now: float) -> Status:
    before, generation = resource.status.conditions, resource.metadata.generation
    (lag,) = with_transition_times((lag_condition(observed.service),), before, generation=generation, now=now)
    conditions = tuple(lag if one.type == lag.type else one for one in before)
    return resource.status.model_copy(update={"conditions": conditions})
