"""The part of a reconcile that the cluster and `loghub up` share.

It plans, determines how a failed action changes the status, and keeps what the next reconcile remembers. Both
loops call `plan_round`, carry out the actions in their own way, and call `finish`. A restart of the operator
forgets the memory, so nothing that must survive is kept in it.
"""

from dataclasses import dataclass, replace

from loghub_operator.api.status import Status
from loghub_operator.api.v1alpha1 import LogHubConsumerGroup
from loghub_operator.model.actions import ReshardRefused
from loghub_operator.model.drift_state import DriftHistory
from loghub_operator.model.observed import ObservedState
from loghub_operator.model.plan import Plan
from loghub_operator.model.scaling_state import ScalingState
from loghub_operator.plan.planner import plan
from loghub_operator.plan.scaling.reshard_backoff import with_refusal
from loghub_operator.plan.status.last_failure import with_failure, words_of


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundMemory:
    """What one reconcile leaves for the next; None: use what the observation contains."""

    scaling: ScalingState | None = None
    drift: DriftHistory | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """A planned reconcile, with everything that the plan is based on."""

    resource: LogHubConsumerGroup
    observed: ObservedState
    plan: Plan
    memory: RoundMemory  # of the previous reconcile


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What to report, what to remember, and the error that ended the reconcile early, if any."""

    status: Status
    memory: RoundMemory
    error: Exception | None


def plan_round(
    resource: LogHubConsumerGroup, observed: ObservedState, memory: RoundMemory, now: float
) -> Round:
    """Plans with what the previous reconcile remembered; ``now`` in unix seconds."""
    if memory.scaling is not None:
        observed = replace(observed, memory=memory.scaling)
    if memory.drift is not None:
        observed = replace(observed, mends=memory.drift)
    return Round(resource=resource, observed=observed, plan=plan(resource, observed, now), memory=memory)


def finish(done: Round, error: Exception | None, now: float) -> Outcome:
    """``error`` is what an action raised; None: every action was carried out.

    Corrections of drift are remembered only if every action was carried out. A rejected split or merge is
    not a failure of the reconcile: condition HotShard reports it in the next.
    """
    planned = done.plan
    if error is not None and not isinstance(error, ReshardRefused):
        status = with_failure(planned.status, words_of(error), now, before=done.resource.status)
        memory = RoundMemory(scaling=planned.memory, drift=done.memory.drift)
        return Outcome(status=status, memory=memory, error=error)
    scaling = planned.memory if error is None else with_refusal(planned.memory, error, now)
    memory = RoundMemory(scaling=scaling, drift=planned.mends)
    return Outcome(status=planned.status, memory=memory, error=None)
