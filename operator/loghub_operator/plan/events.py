"""The Events about one object, from what was observed and decided.

An event is emitted once per change: if the status that was written last says the same already, there is none.
Conditions report what holds for longer (`loghub_operator.api.conditions`).
"""

from collections.abc import Iterable, Iterator
from typing import Literal

from loghub_operator.api.conditions import ConditionType, GroupReason, SuspendedReason
from loghub_operator.api.v1alpha1 import LogHubConsumerGroup
from loghub_operator.model.actions import GROUP_ORPHANED, Action, ApplyWorkers, EmitEvent, UpdateGroup
from loghub_operator.plan.decisions import ChangeImpact, Decisions
from loghub_operator.plan.listing import comma_list, worker_count

MAX_NAMED = 20  # fields in one event, whose note has at most 1,024 bytes
_NORMAL = (GroupReason.UP_TO_DATE, GroupReason.CREATING)
_EXISTED = (GroupReason.UP_TO_DATE, GroupReason.FOREIGN_CONSUMERS)


def events_of(decisions: Decisions, actions: tuple[Action, ...]) -> Iterator[EmitEvent]:
    """In order of importance for the reader; ``actions`` are the actions of the same reconcile."""
    before = {condition.type: condition.reason for condition in decisions.subject.resource.status.conditions}
    group = decisions.group
    if group.reason == GroupReason.CREATING and before.get(group.type) in _EXISTED:
        yield from _gone(decisions)
    # An update passes before a user could read about it.
    if before.get(group.type) != group.reason and group.reason != GroupReason.UPDATING:
        yield _event(group.reason, group.message, normal=group.reason in _NORMAL)
    yield from left_behind(decisions.subject.resource, decisions.subject.left_behind)
    yield from _adopted(decisions)
    yield from _suspended(decisions, before.get(ConditionType.SUSPENDED))
    yield from _changed(decisions, actions)
    for consumer in decisions.replicas.timed_out:
        message = f"{consumer} did not leave in time and is stopped; its session has expired"
        yield _event("DrainTimedOut", message, normal=False)


def _gone(decisions: Decisions) -> Iterator[EmitEvent]:
    """The workers of a group have checkpoints of their own sinks; of a subscription nothing is left."""
    resource = decisions.subject.resource
    if resource.spec.subscription is not None:
        message = (
            f"{resource.consumed} was deleted with its acknowledgments and is created again; every shard"
            " begins at spec.startPosition. To begin elsewhere, set spec.suspend and use `loghub subscription"
            " seek`"
        )
        yield _event("SubscriptionGone", message, normal=False)


def kept_off(operator: str) -> EmitEvent:
    """Another operator manages the object; of this one only the event can say so, for the status is the
    other's."""
    message = (
        f"operator {operator} manages the objects of this namespace, so this operator keeps off: two "
        "operators watch it. Give each its own watchNamespaces. If the other one is gone, this one takes "
        "over by itself"
    )
    return _event("ManagedByAnotherOperator", message, normal=False)


def left_behind(resource: LogHubConsumerGroup, endpoint: str | None) -> Iterator[EmitEvent]:
    """The group at the former ``endpoint``, which this object no longer refers to; the status is about the
    new one after this reconcile. None: there is no such group.
    """
    if endpoint is not None:
        message = (
            f"{resource.consumed} and its {resource.positions} are left behind at endpoint {endpoint}, "
            "because spec.endpoint changed; delete them there if they are not needed"
        )
        yield _event(GROUP_ORPHANED, message, normal=False)


def _adopted(decisions: Decisions) -> Iterator[EmitEvent]:
    record, before = decisions.subject.observed.group_record, decisions.subject.resource.status.group_origin
    if record is not None and record.origin == "Adopted" and before != "Adopted":
        consumed = decisions.subject.resource.consumed
        message = f"{consumed} existed before; it is kept when this object is deleted"
        yield _event("Adopted", message, normal=True)


def _event(reason: str, message: str, *, normal: bool) -> EmitEvent:
    kind: Literal["Normal", "Warning"] = "Normal" if normal else "Warning"
    return EmitEvent(type=kind, reason=reason, message=message)


def _suspended(decisions: Decisions, before: str | None) -> Iterator[EmitEvent]:
    """The other reasons for a suspension have events of their own."""
    suspension, resource = decisions.desired.suspension, decisions.subject.resource
    now = SuspendedReason.NOT_SUSPENDED if suspension is None else suspension.reason
    if now is SuspendedReason.SUSPENDED and before != now:
        message = f"stopping the workers; the {resource.consumed_kind} and its {resource.positions} stay"
        yield _event("Suspended", message, normal=True)
    if now is SuspendedReason.NOT_SUSPENDED and before == SuspendedReason.SUSPENDED:
        yield _event("Resumed", f"starting the workers at the saved {resource.positions}", normal=True)
    if now is SuspendedReason.SUBSCRIPTION_CHANGES and before != now and suspension is not None:
        yield _event("SubscriptionChanges", f"stopping the workers: {suspension.message}", normal=True)


def _changed(decisions: Decisions, actions: Iterable[Action]) -> Iterator[EmitEvent]:
    subject, plan, impact = decisions.subject, decisions.replicas, decisions.impact
    existing = subject.observed.worker_set
    if existing is None:
        return
    applied = any(isinstance(action, ApplyWorkers) for action in actions)
    if applied and subject.drift:
        fields = comma_list(subject.drift, MAX_NAMED)
        pause_s = decisions.drift.pause_s
        later = f"; the next correction waits {pause_s:.0f} s" if pause_s else ""
        yield _event(
            "DriftCorrected", f"reverted a change made by another client: {fields}{later}", normal=False
        )
    if applied and impact is ChangeImpact.ROLL and min(existing.replicas, plan.run) > 0:
        meanwhile = "each keeps its membership"
        if subject.own.subscription is not None:
            meanwhile = "the others get its logs meanwhile"
        message = f"restarting the workers one at a time with new settings; {meanwhile}"
        yield _event("RollingRestart", message, normal=True)
    if applied and existing.replicas != plan.run:
        reason = "ScaledUp" if plan.run > existing.replicas else "ScaledDown"
        yield _event(reason, f"{existing.replicas} -> {worker_count(plan.run)}: {plan.message}", normal=True)
    updated = any(isinstance(action, UpdateGroup) for action in actions)
    # All workers of a subscription have left before, which has an event of its own.
    if updated and impact is ChangeImpact.RELOAD and subject.own.subscription is None:
        message = "updated the settings of the consumer group; no worker is restarted"
        yield _event("ConsumerGroupUpdated", message, normal=True)
