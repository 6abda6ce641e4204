"""The Events about one object, from what was observed and decided.

An event is emitted once per change: if the status that was written last says the same already, there is none.
Conditions report what holds for longer (`loghub_operator.api.conditions`).
"""

from collections.abc import Iterable, Iterator
from typing import Literal

from loghub_operator.api.conditions import ConditionType, ConditionUpdate, GroupReason, SuspendedReason
from loghub_operator.api.v1alpha1 import LogHubConsumerGroup
from loghub_operator.model.actions import Action, ApplyWorkers, EmitEvent, UpdateGroup
from loghub_operator.model.observed import ObservedState
from loghub_operator.plan.change_impact import ChangeImpact
from loghub_operator.plan.drift_backoff import DriftBackoff
from loghub_operator.plan.replicas import ReplicaPlan
from loghub_operator.plan.suspension import suspension_of

MOST_NAMED = 20
# These states pass before a user could read about them.
_NOT_TOLD = (GroupReason.CREATING_PROJECT_SERVICE, GroupReason.UPDATING)
_FINE = (GroupReason.UP_TO_DATE, GroupReason.CREATING)


def events_of(
    resource: LogHubConsumerGroup,
    observed: ObservedState,
    *,
    group: ConditionUpdate,
    size: ReplicaPlan,
    change: ChangeImpact,
    brake: DriftBackoff,
    actions: tuple[Action, ...],
) -> Iterator[EmitEvent]:
    """In order of importance for the reader; ``actions`` are those of the same reconcile."""
    before = {condition.type: condition.reason for condition in resource.status.conditions}
    if before.get(group.type) != group.reason and group.reason not in _NOT_TOLD:
        yield _event(group.reason, group.message, fine=group.reason in _FINE)
    yield from _suspended(resource, observed, before.get(ConditionType.SUSPENDED))
    yield from _changed(observed, size, change, brake, actions)
    for consumer in size.gave_up_on:
        message = f"{consumer} did not leave the group in time and is stopped; its session has expired"
        yield _event("DrainTimedOut", message, fine=False)


def _event(reason: str, message: str, *, fine: bool) -> EmitEvent:
    kind: Literal["Normal", "Warning"] = "Normal" if fine else "Warning"
    return EmitEvent(type=kind, reason=reason, message=message)


def _suspended(
    resource: LogHubConsumerGroup, observed: ObservedState, before: str | None
) -> Iterator[EmitEvent]:
    """The other reasons for a suspension have events of their own."""
    paused = suspension_of(resource, observed)
    now = SuspendedReason.NOT_SUSPENDED if paused is None else paused.reason
    if now is SuspendedReason.SUSPENDED and before != now:
        yield _event(
            "Suspended", "stopping the workers; the consumer group and its checkpoints stay", fine=True
        )
    if now is SuspendedReason.NOT_SUSPENDED and before == SuspendedReason.SUSPENDED:
        yield _event("Resumed", "starting the workers at the saved checkpoints", fine=True)


def _changed(
    observed: ObservedState,
    size: ReplicaPlan,
    change: ChangeImpact,
    brake: DriftBackoff,
    actions: Iterable[Action],
) -> Iterator[EmitEvent]:
    there = observed.worker_set
    if there is None:
        return
    applied = any(isinstance(action, ApplyWorkers) for action in actions)
    if applied and there.drift and not there.drifted:
        fields = ", ".join(there.drift[:MOST_NAMED])
        later = f"; the next correction waits {brake.again_s:.0f} s" if brake.again_s else ""
        yield _event(
            "DriftCorrected", f"reverted a change made by another client: {fields}{later}", fine=False
        )
    if applied and change is ChangeImpact.ROLL and min(there.replicas, size.run) > 0:
        message = "restarting the workers one at a time with new settings; each keeps its membership"
        yield _event("RollingRestart", message, fine=True)
    if applied and there.replicas != size.run:
        reason = "ScaledUp" if size.run > there.replicas else "ScaledDown"
        yield _event(reason, f"{there.replicas} -> {size.run} workers: {size.message}", fine=True)
    if change is ChangeImpact.RELOAD and any(isinstance(action, UpdateGroup) for action in actions):
        message = "updated the settings of the consumer group; no worker is restarted"
        yield _event("ConsumerGroupUpdated", message, fine=True)
