"""Decide what to do about one consumer group.

What for: the one set of decisions for the cluster and for `loghub up`. What it must not
know: how anything is observed or carried out, real time. Read next: `loghub_operator.model`
(the types), `loghub_operator.sizing` (how many workers), `loghub_operator.telling` (the
status), `loghub_operator.deleting` (the end), then the executors.

The rule behind the order of the actions: what a later step needs, and what must be
remembered after a crash in between, comes first. While the log service cannot be asked,
neither the number nor the settings of the workers are touched: what runs goes on.
"""

from typing import Literal

from loghub_operator.api.v1alpha1 import LogHubConsumerGroup
from loghub_operator.conditions import ConditionType, Finding, GroupReason
from loghub_operator.deleting import plan_deletion
from loghub_operator.model import (
    Action,
    ApplyWorkers,
    AskLeave,
    CreateGroup,
    EmitEvent,
    EnsureProjectAddress,
    GroupObserved,
    HoldObject,
    Observed,
    Plan,
    RecordGroupOrigin,
    RestartWorker,
    UpdateGroup,
    WorkerPhase,
)
from loghub_operator.sizing import Size, size
from loghub_operator.telling import status_of
from loghub_operator.workers import config_hash, worker_config

# Over before a person could read of them.
_NOT_TOLD = (GroupReason.BEING_ADDRESSED, GroupReason.BEING_CHANGED)


def plan(resource: LogHubConsumerGroup, observed: Observed, now: float) -> Plan:
    """What to do now, and what to tell. Pure; ``now`` in unix seconds."""
    if resource.metadata.deletion_timestamp is not None:
        return plan_deletion(resource, observed, now)
    decided = size(resource, observed, now)
    group = group_finding(resource, observed)
    actions: list[Action] = [*_footing(resource, observed)]
    if observed.service.trouble is None:
        actions += _group(resource, observed)
        actions += _workers(resource, observed, decided)
    return Plan(
        (*actions, *_events(resource, group, decided)),
        status_of(resource, observed, decided, group, now),
    )


def group_finding(resource: LogHubConsumerGroup, observed: Observed) -> Finding:
    """Is the group at the log service as the spec says?"""
    status, reason, message = False, "", ""
    if observed.site.needs_project_address and not observed.project_address:
        reason = GroupReason.BEING_ADDRESSED
        message = f"the host name of project {resource.spec.project} is being made"
    elif observed.service.trouble is not None:
        reason, message = observed.service.trouble.reason, observed.service.trouble.message
    elif observed.service.group is None:
        reason, message = GroupReason.BEING_MADE, f"consumer group {resource.group} is being made"
    elif observed.service.group != _wanted_group(resource):
        reason, message = GroupReason.BEING_CHANGED, "timeout and order are being set"
    else:
        status, reason, message = True, GroupReason.IN_SYNC, f"consumer group {resource.group} is as asked"
    return Finding(
        type=ConditionType.GROUP_SYNCED,
        status="True" if status else "False",
        reason=str(reason),
        message=message,
    )


def _wanted_group(resource: LogHubConsumerGroup) -> GroupObserved:
    return GroupObserved(timeout_s=resource.spec.timeout_seconds, order=resource.spec.order)


def _footing(resource: LogHubConsumerGroup, observed: Observed) -> list[Action]:
    """What must be there before the log service can be spoken to, or anything be made there."""
    actions: list[Action] = []
    if not observed.held:
        actions.append(HoldObject())
    if observed.site.needs_project_address and not observed.project_address:
        actions.append(EnsureProjectAddress(resource.spec.project))
    return actions


def _group(resource: LogHubConsumerGroup, observed: Observed) -> list[Action]:
    """The origin is recorded before the group is made: a crash in between leaves no orphan."""
    wanted, found = _wanted_group(resource), observed.service.group
    actions: list[Action] = []
    origin = "Created" if found is None else observed.group_origin or "Adopted"
    if observed.group_origin != origin:
        actions.append(RecordGroupOrigin("Created" if origin == "Created" else "Adopted"))
    if found is None:
        actions.append(CreateGroup(timeout_s=wanted.timeout_s, order=wanted.order))
    elif found != wanted:
        actions.append(UpdateGroup(timeout_s=wanted.timeout_s, order=wanted.order))
    return actions


def _workers(resource: LogHubConsumerGroup, observed: Observed, decided: Size) -> list[Action]:
    actions: list[Action] = [
        RestartWorker(worker.name)
        for worker in observed.workers
        if worker.seat_leave and worker.ordinal < decided.target and worker.phase is not WorkerPhase.STOPPING
    ]
    actions += [AskLeave(consumer) for consumer in decided.asks]
    config = worker_config(resource, observed.site)
    wanted, there = config_hash(config), observed.worker_set
    same = there is not None and (there.replicas, there.config_hash) == (decided.run, wanted)
    if not same or (there is not None and there.drifted):
        actions.append(ApplyWorkers(replicas=decided.run, config=config, config_hash=wanted))
    return actions


def _events(resource: LogHubConsumerGroup, group: Finding, decided: Size) -> list[Action]:
    """Once per change: where the status that was written last says the same, nothing is told again."""
    events: list[Action] = []
    before = {condition.type: condition.reason for condition in resource.status.conditions}
    if before.get(group.type) != group.reason and group.reason not in _NOT_TOLD:
        fine = group.reason in (GroupReason.IN_SYNC, GroupReason.BEING_MADE)
        kind: Literal["Normal", "Warning"] = "Normal" if fine else "Warning"
        events.append(EmitEvent(type=kind, reason=group.reason, message=group.message))
    for consumer in decided.gave_up_on:
        message = f"{consumer} did not leave in time and is stopped; its shards are free by now"
        events.append(EmitEvent(type="Warning", reason="LeaveTimedOut", message=message))
    return events
