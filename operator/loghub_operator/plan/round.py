"""The part of a reconcile that the cluster and `loghub up` share.

It plans, determines how a failed action changes the status, and keeps what the next reconcile remembers. Both
loops call `plan_round`, carry out the actions in their own way, and call `finish`. A restart of the operator
forgets the memory, so nothing that must survive is kept in it.
"""

from dataclasses import dataclass, replace

from loghub.wire.errors import LogHubException
from loghub_operator.api.conditions import ConditionType
from loghub_operator.api.status import Status
from loghub_operator.api.v1alpha1 import LogHubConsumerGroup
from loghub_operator.model.actions import ReshardRefused
from loghub_operator.model.memory import Memory
from loghub_operator.model.observed import ObservedState
from loghub_operator.model.plan import Plan
from loghub_operator.plan.patience import PATIENCE, was_as_it_should
from loghub_operator.plan.planner import plan
from loghub_operator.plan.scaling.reshard_backoff import with_rejection
from loghub_operator.plan.status.failure import error_message, with_failure


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """A planned reconcile, with everything that the plan is based on."""

    resource: LogHubConsumerGroup
    observed: ObservedState
    plan: Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundOutcome:
    """What to report, what to remember, and the error that ended the reconcile early, if any."""

    status: Status
    memory: Memory
    error: Exception | None


def plan_round(
    resource: LogHubConsumerGroup, observed: ObservedState, memory: Memory | None, now: float
) -> Round:
    """Plans with what the previous reconcile remembered; None: this is the first one. ``now`` in unix
    seconds.
    """
    if memory is not None:
        observed = replace(observed, memory=memory)
    return Round(resource=resource, observed=observed, plan=plan(resource, observed, now))


def finish(done: Round, error: Exception | None, now: float, *, passes: bool = False) -> RoundOutcome:
    """``error`` is what an action raised; None: every action was carried out. ``passes``: it is one that most
    likely passes by itself, such as a conflict; the status of a group that was ready says so only if it does
    not.

    Corrections of drift are remembered only if every action was carried out. A rejected split or merge is
    not a failure of the reconcile: condition HotShard reports it in the next.
    """
    planned = done.plan
    if isinstance(error, ReshardRefused):
        scaling = with_rejection(planned.memory.scaling, error, now)
        return RoundOutcome(
            status=planned.status, memory=replace(planned.memory, scaling=scaling), error=None
        )
    if error is not None:
        message, tries = error_message(error), done.observed.memory.failed_tries + 1
        memory = replace(
            planned.memory,
            drift=done.observed.memory.drift,
            last_error=message,
            service_error=message if isinstance(error, LogHubException) else "",
            committed=0,
            failed_tries=tries,
        )
        if passes and tries < PATIENCE and was_as_it_should(done.resource, ConditionType.READY):
            return RoundOutcome(status=planned.status, memory=memory, error=error)
        deadline_s = done.resource.spec.worker.progress_deadline_seconds
        before = done.resource.status
        status = with_failure(planned.status, message, now, before=before, deadline_s=deadline_s)
        return RoundOutcome(status=status, memory=memory, error=error)
    return RoundOutcome(status=planned.status, memory=planned.memory, error=None)
