"""Decides what to do about one consumer group, in the cluster and in `loghub up` alike.

`plan` is a pure function of the object, the observed state and the time. It combines the decisions of the
other modules: how many workers run (`loghub_operator.plan.replicas`), what drifted, how far a checkpoint
reset is, and what the status says (`loghub_operator.plan.status.builder`). Once the object is being deleted,
`loghub_operator.plan.deletion` plans instead.

The order of the actions follows one rule: what a later step needs, and what must be remembered after a crash
in between, comes first. While the log service is unavailable, neither the number nor the settings of the
workers change, and running workers continue.
"""

from collections.abc import Iterable
from dataclasses import replace

from loghub_operator.api.conditions import ConditionType, ConditionUpdate, GroupReason, ScalingReason
from loghub_operator.api.v1alpha1 import LogHubConsumerGroup
from loghub_operator.model.actions import (
    Action,
    ApplyWorkers,
    AskLeave,
    CreateGroup,
    EnsureProjectAddress,
    HoldObject,
    RecordGroupOrigin,
    RestartWorker,
    UpdateGroup,
)
from loghub_operator.model.observed import GroupObserved, ObservedState, WorkerPhase
from loghub_operator.model.plan import Plan
from loghub_operator.plan.change_impact import ChangeImpact, Running, change_class
from loghub_operator.plan.deletion import plan_deletion
from loghub_operator.plan.drift_backoff import DriftBackoff, evaluate
from loghub_operator.plan.events import events_of
from loghub_operator.plan.ownership import named, owner_of
from loghub_operator.plan.replicas import ReplicaPlan, plan_replicas
from loghub_operator.plan.reposition import advance
from loghub_operator.plan.scaling.autoscaler import ScalingDecision, decide
from loghub_operator.plan.scaling.report import readings_of
from loghub_operator.plan.status.builder import build_status
from loghub_operator.resources.worker_config import config_hash, worker_config

# Suffixes of drift paths.
_NUMBER = " spec.replicas"
_MARKS = " metadata.annotations"


def plan(resource: LogHubConsumerGroup, observed: ObservedState, now: float) -> Plan:
    """What to do now, and what to report. Pure; ``now`` in unix seconds."""
    if resource.metadata.deletion_timestamp is not None:
        return plan_deletion(resource, observed, now)
    course = decide(resource, observed)
    decided = plan_replicas(resource, observed, course.goal, now)
    wish = _desired_revision(resource, observed, decided)
    group_brake = evaluate(observed.mends, _group_drift(resource, observed), wanted=wish, now=now)
    group = group_finding(resource, observed, waits=bool(group_brake.held))
    moving = advance(resource, observed, decided, now)
    group_actions: list[Action] = []
    if observed.service.trouble is None and owner_of(resource, observed.peers) is None:
        group_actions = _group(resource, observed, waits=bool(group_brake.held))
    actions = [*_prerequisites(resource, observed, group_actions), *group_actions]
    set_back = any(isinstance(action, UpdateGroup) for action in group_actions)
    mends = group_brake.mends if set_back else observed.mends
    brake = evaluate(mends, _drift(resource, observed), wanted=wish, now=now)
    brake = replace(brake, contested=tuple(dict.fromkeys((*group_brake.contested, *brake.contested))))
    if observed.service.trouble is None or decided.reason is ScalingReason.SUSPENDED:
        actions += _workers(resource, observed, decided, brake)
    applied = any(isinstance(action, ApplyWorkers) for action in actions)
    change = _change(resource, observed, decided)
    events = events_of(
        resource, observed, group=group, size=decided, change=change, brake=brake, actions=tuple(actions)
    )
    reshard = _reshard(course, group)
    return Plan(
        (*actions, *moving.actions, *events, *reshard),
        build_status(resource, observed, decided, course, group, moving.status, brake, now),
        readings=readings_of(resource, observed, course, run=decided.run),
        memory=course.memory,
        mends=brake.mends if applied else mends,
    )


def group_finding(resource: LogHubConsumerGroup, observed: ObservedState, *, waits: bool) -> ConditionUpdate:
    """Whether the group at the log service matches the spec; ``waits``: the correction is delayed."""
    status, reason, message = False, "", ""
    owner = owner_of(resource, observed.peers)
    if owner is not None:
        reason = GroupReason.OWNERSHIP_CONFLICT
        message = f"{named(owner, resource)} owns consumer group {resource.group}, because it is older"
    elif observed.site.needs_project_address and not observed.project_address:
        reason = GroupReason.CREATING_PROJECT_SERVICE
        message = f"creating the Service for project {resource.spec.project}"
    elif observed.service.trouble is not None:
        reason, message = observed.service.trouble.reason, observed.service.trouble.message
    elif observed.service.group is None:
        reason, message = GroupReason.CREATING, f"creating consumer group {resource.group}"
    elif observed.service.group != _settings_now(resource, observed):
        reason, message = GroupReason.UPDATING, "updating timeout and order of the consumer group"
        if waits:
            message = "another controller keeps changing timeout and order; backing off between corrections"
    elif observed.service.group != _wanted_group(resource):
        reason = GroupReason.UPDATING
        message = "the shorter timeout is set once every worker runs with it"
    else:
        status, reason, message = (
            True,
            GroupReason.UP_TO_DATE,
            f"consumer group {resource.group} is up to date",
        )
    return ConditionUpdate(
        type=ConditionType.GROUP_SYNCED,
        status="True" if status else "False",
        reason=str(reason),
        message=message,
    )


def _reshard(course: ScalingDecision, group: ConditionUpdate) -> list[Action]:
    """The event follows the split or merge: if the event is lost in a crash, the list of shards still shows
    the change.
    """
    if course.heat.change is None or course.heat.event is None or group.status != "True":
        return []
    return [course.heat.change, course.heat.event]


def _wanted_group(resource: LogHubConsumerGroup) -> GroupObserved:
    return GroupObserved(timeout_s=resource.spec.timeout_seconds, order=resource.spec.in_order)


def _settings_now(resource: LogHubConsumerGroup, observed: ObservedState) -> GroupObserved:
    """A timeout is shortened only once every worker runs with it. A worker with the longer timeout would
    continue with shards that the log service has already reassigned, and its heartbeats would come too late
    for the shorter timeout.
    """
    wanted, found = _wanted_group(resource), observed.service.group
    if found is None or wanted.timeout_s >= found.timeout_s:
        return wanted
    config = config_hash(worker_config(resource, observed.site))
    if all(worker.config_hash == config for worker in observed.workers):
        return wanted
    return GroupObserved(timeout_s=found.timeout_s, order=wanted.order)


def _prerequisites(
    resource: LogHubConsumerGroup, observed: ObservedState, then: Iterable[Action]
) -> list[Action]:
    """What must exist before the operator can call the log service or create anything there; recording the
    origin adds the finalizer too.
    """
    actions: list[Action] = []
    if not observed.held and not any(isinstance(one, RecordGroupOrigin) for one in then):
        actions.append(HoldObject())
    if observed.site.needs_project_address and not observed.project_address:
        actions.append(EnsureProjectAddress(resource.spec.project))
    return actions


def _group(resource: LogHubConsumerGroup, observed: ObservedState, *, waits: bool) -> list[Action]:
    """The origin is recorded before the group is created, so that a crash in between leaves no orphan."""
    wanted, found = _settings_now(resource, observed), observed.service.group
    actions: list[Action] = []
    origin = "Created" if found is None else observed.group_origin or "Adopted"
    if observed.group_origin != origin:
        actions.append(RecordGroupOrigin("Created" if origin == "Created" else "Adopted"))
    if found is None:
        actions.append(CreateGroup(timeout_s=wanted.timeout_s, order=wanted.order))
    elif found != wanted and not waits:
        actions.append(UpdateGroup(timeout_s=wanted.timeout_s, order=wanted.order))
    return actions


def _group_drift(resource: LogHubConsumerGroup, observed: ObservedState) -> tuple[str, ...]:
    """The operator of another cluster may want other settings for the group."""
    found = observed.service.group
    if found is None or found == _settings_now(resource, observed):
        return ()
    return (f"ConsumerGroup {resource.group} settings",)


def _drift(resource: LogHubConsumerGroup, observed: ObservedState) -> tuple[str, ...]:
    """Drift of the objects in the cluster."""
    there = observed.worker_set
    if there is not None and there.drifted:
        return (f"StatefulSet {resource.metadata.name}{_MARKS}",)
    return () if there is None else there.drift


def _desired_revision(resource: LogHubConsumerGroup, observed: ObservedState, decided: ReplicaPlan) -> str:
    """Identifies the desired state, so that a change by the operator itself does not count as drift."""
    config = config_hash(worker_config(resource, observed.site))
    return f"{resource.metadata.generation}/{config}/{decided.target}"


def _workers(
    resource: LogHubConsumerGroup, observed: ObservedState, decided: ReplicaPlan, brake: DriftBackoff
) -> list[Action]:
    """Without their code, workers are not touched, except that all of them may stop. Nor are they touched
    while another controller keeps setting their number, or the annotations that show what was applied.
    """
    no_code = bool(observed.site.code.trouble)
    if no_code and decided.target > 0:
        return []
    held = (path for path in brake.held if path.startswith("StatefulSet "))
    if not brake.mends_now and any(path.endswith((_NUMBER, _MARKS)) for path in held):
        return []
    actions: list[Action] = [
        RestartWorker(worker.name)
        for worker in observed.workers
        if worker.drain_requested
        and worker.ordinal < decided.target
        and worker.phase is not WorkerPhase.STOPPING
    ]
    actions += [AskLeave(consumer) for consumer in decided.asks]
    there = observed.worker_set
    drifts = there is not None and bool(there.drift) and brake.mends_now
    if decided.reason is ScalingReason.SUSPENDED:
        # Workers that leave are not replaced meanwhile, and a missing StatefulSet is not created.
        stands = there is not None and there.replicas == 0
        due = there is not None and (there.replicas > decided.run or (stands and drifts))
    else:
        due = (
            there is None
            or there.drifted
            or drifts
            or there.replicas != decided.run
            or _change(resource, observed, decided) is ChangeImpact.ROLL
        )
    if due and not (no_code and decided.run > 0):
        config = worker_config(resource, observed.site)
        actions.append(ApplyWorkers(replicas=decided.run, config=config, config_hash=config_hash(config)))
    return actions


def _change(resource: LogHubConsumerGroup, observed: ObservedState, decided: ReplicaPlan) -> ChangeImpact:
    """The impact of getting from what runs to what should run."""
    there, wanted = observed.worker_set, config_hash(worker_config(resource, observed.site))
    if there is None:
        return ChangeImpact.NONE
    group = observed.service.group
    old = Running(replicas=there.replicas, group=group, pods="" if there.rolls else there.config_hash)
    group_then = _wanted_group(resource) if group is not None else None
    return change_class(old, Running(replicas=decided.run, group=group_then, pods=wanted))
