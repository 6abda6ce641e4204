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

from loghub_operator.api.conditions import ConditionType, ConditionUpdate, GroupReason
from loghub_operator.api.v1alpha1 import LogHubConsumerGroup
from loghub_operator.model.actions import (
    Action,
    AddFinalizer,
    ApplyWorkers,
    CreateGroup,
    DrainWorker,
    EnsureProjectService,
    RecordGroupOrigin,
    RestartWorker,
    UpdateGroup,
)
from loghub_operator.model.drift_state import DriftHistory, FieldPath, ObjectName
from loghub_operator.model.memory import Memory
from loghub_operator.model.observed import Available, ObservedState, Unavailable, WorkerPhase
from loghub_operator.model.plan import Plan
from loghub_operator.plan.change_impact import ChangeImpact, Running, change_impact
from loghub_operator.plan.checkpoint_reset import advance
from loghub_operator.plan.decisions import Decisions
from loghub_operator.plan.deletion import plan_deletion
from loghub_operator.plan.desired import Desired, desired_state
from loghub_operator.plan.drift_backoff import DriftBackoff, evaluate
from loghub_operator.plan.events import events_of
from loghub_operator.plan.ownership import named
from loghub_operator.plan.replicas import ReplicaPlan, plan_replicas
from loghub_operator.plan.scaling.autoscaler import ScalingDecision, decide
from loghub_operator.plan.scaling.report import group_metrics
from loghub_operator.plan.status.builder import build_status


def plan(resource: LogHubConsumerGroup, observed: ObservedState, now: float) -> Plan:
    """What to do now, and what to report. Pure; ``now`` in unix seconds."""
    if resource.metadata.deletion_timestamp is not None:
        return plan_deletion(resource, observed, now)
    desired = desired_state(resource, observed)
    scaling = decide(resource, observed, suspended=desired.suspension is not None)
    replicas = plan_replicas(resource, observed, desired.suspension, scaling.goal, now)
    reset = advance(resource, observed, desired, replicas, now)

    def backoff(history: DriftHistory, drift: Iterable[FieldPath]) -> DriftBackoff:
        return evaluate(history, drift, revision=desired.revision, replicas=replicas.target, now=now)

    history = observed.memory.drift
    group_drift = backoff(history, _group_drift(resource, observed, desired))
    group_actions = _group(observed, desired, delayed=bool(group_drift.delayed))
    if any(isinstance(action, UpdateGroup) for action in group_actions):
        history = group_drift.history
    drift = backoff(history, _drift(resource, observed, desired))
    contested = tuple(dict.fromkeys((*group_drift.contested, *drift.contested)))
    decisions = Decisions(
        resource=resource,
        observed=observed,
        desired=desired,
        scaling=scaling,
        replicas=replicas,
        impact=_impact(observed, desired, replicas),
        drift=replace(drift, contested=contested),
        group=group_finding(resource, observed, desired, delayed=bool(group_drift.delayed)),
        reset=reset.status,
    )
    # A reset that commits has no workers, so it does not wait for their objects.
    before_workers = (*_prerequisites(resource, observed, group_actions), *group_actions, *reset.actions)
    actions = (*before_workers, *_workers(decisions))
    if any(isinstance(action, ApplyWorkers) for action in actions):
        history = drift.history
    return Plan(
        (*actions, *reset.events, *events_of(decisions, actions), *_reshard(scaling, decisions.group)),
        build_status(decisions, now),
        metrics=group_metrics(resource, observed, scaling, run=replicas.run),
        memory=Memory(scaling=scaling.memory, drift=history),
    )


def group_finding(
    resource: LogHubConsumerGroup, observed: ObservedState, desired: Desired, *, delayed: bool
) -> ConditionUpdate:
    """Whether the group at the log service matches the spec; ``delayed``: its correction has to wait."""
    reason, message = _group_state(resource, observed, desired, delayed=delayed)
    return ConditionUpdate(
        type=ConditionType.GROUP_SYNCED,
        status="True" if reason is GroupReason.UP_TO_DATE else "False",
        reason=reason,
        message=message,
    )


def _group_state(
    resource: LogHubConsumerGroup, observed: ObservedState, desired: Desired, *, delayed: bool
) -> tuple[str, str]:
    service = observed.service
    if desired.owner is not None:
        message = (
            f"{named(desired.owner, resource)} owns consumer group {resource.group}, because it is older"
        )
        return GroupReason.OWNERSHIP_CONFLICT, message
    if observed.placement.needs_project_address and not observed.project_address:
        return (
            GroupReason.CREATING_PROJECT_SERVICE,
            f"creating the Service for project {resource.spec.project}",
        )
    if isinstance(service, Unavailable):
        return service.reason, service.message
    if service.group is None:
        return GroupReason.CREATING, f"creating consumer group {resource.group}"
    if service.group != desired.group_now:
        if delayed:
            message = "another controller keeps changing timeout and order; backing off between corrections"
            return GroupReason.UPDATING, message
        return GroupReason.UPDATING, "updating timeout and order of the consumer group"
    if service.group != desired.group:
        return GroupReason.UPDATING, "the shorter timeout is set once every worker runs with it"
    return GroupReason.UP_TO_DATE, f"consumer group {resource.group} is up to date"


def _reshard(scaling: ScalingDecision, group: ConditionUpdate) -> list[Action]:
    """The event follows the split or merge: if the event is lost in a crash, the list of shards still shows
    the change.
    """
    found = scaling.hot_shards
    if found.change is None or found.event is None or group.status != "True":
        return []
    return [found.change, found.event]


def _prerequisites(
    resource: LogHubConsumerGroup, observed: ObservedState, then: Iterable[Action]
) -> list[Action]:
    """What must exist before the operator can call the log service or create anything there; recording the
    origin adds the finalizer too.
    """
    actions: list[Action] = []
    if not observed.has_finalizer and not any(isinstance(one, RecordGroupOrigin) for one in then):
        actions.append(AddFinalizer())
    if observed.placement.needs_project_address and not observed.project_address:
        actions.append(EnsureProjectService(resource.spec.project))
    return actions


def _group(observed: ObservedState, desired: Desired, *, delayed: bool) -> list[Action]:
    """The origin is recorded before the group is created, so that a crash in between leaves no orphan."""
    if desired.owner is not None or not isinstance(observed.service, Available):
        return []
    wanted, existing = desired.group_now, observed.service.group
    actions: list[Action] = []
    origin = "Created" if existing is None else observed.group_origin or "Adopted"
    if observed.group_origin != origin:
        actions.append(RecordGroupOrigin("Created" if origin == "Created" else "Adopted"))
    if existing is None:
        actions.append(CreateGroup(timeout_s=wanted.timeout_s, order=wanted.order))
    elif existing != wanted and not delayed:
        actions.append(UpdateGroup(timeout_s=wanted.timeout_s, order=wanted.order))
    return actions


def _group_drift(
    resource: LogHubConsumerGroup, observed: ObservedState, desired: Desired
) -> tuple[FieldPath, ...]:
    """The operator of another cluster may want other settings for the group."""
    existing = observed.service.group if isinstance(observed.service, Available) else None
    if existing is None or existing == desired.group_now:
        return ()
    return (FieldPath(object=ObjectName(kind="ConsumerGroup", name=resource.group), path="settings"),)


def _drift(resource: LogHubConsumerGroup, observed: ObservedState, desired: Desired) -> tuple[FieldPath, ...]:
    """Drift of the objects in the cluster. The revision differs if it is a new one, or if another controller
    keeps removing the annotation.
    """
    existing = observed.worker_set
    if existing is None:
        return ()
    if existing.revision == desired.revision:
        return existing.drift
    name = ObjectName(kind="StatefulSet", name=resource.metadata.name)
    return (FieldPath(object=name, path=FieldPath.ANNOTATIONS),)


def _workers(decisions: Decisions) -> list[Action]:
    """Without their code, workers are not touched, except that all of them may stop. Nor are they touched
    while another controller keeps setting their number, or the annotations that show what was applied.
    """
    observed, desired, replicas = decisions.observed, decisions.desired, decisions.replicas
    if isinstance(observed.service, Unavailable) and desired.suspension is None:
        return []
    no_code = bool(observed.placement.code.error)
    if (no_code and replicas.target > 0) or _must_not_be_applied(decisions.drift):
        return []
    actions: list[Action] = [
        RestartWorker(worker.name)
        for worker in observed.workers
        if worker.drain_requested
        and worker.ordinal < replicas.target
        and worker.phase is not WorkerPhase.STOPPING
    ]
    actions += [DrainWorker(consumer) for consumer in replicas.drain]
    if _must_apply(decisions) and not (no_code and replicas.run > 0):
        actions.append(ApplyWorkers(replicas=replicas.run, spec=desired.workers))
    return actions


def _must_not_be_applied(drift: DriftBackoff) -> bool:
    """An apply would set the number or the annotations that another controller keeps changing."""
    fields = (FieldPath.REPLICAS, FieldPath.ANNOTATIONS)
    return not drift.corrects and any(
        field.object.kind == "StatefulSet" and field.path in fields for field in drift.delayed
    )


def _must_apply(decisions: Decisions) -> bool:
    existing, run = decisions.observed.worker_set, decisions.replicas.run
    if existing is None:
        return decisions.desired.suspension is None
    differs = existing.revision != decisions.desired.revision
    corrects = bool(existing.drift) and decisions.drift.corrects
    if decisions.desired.suspension is None:
        return differs or corrects or existing.replicas != run
    # Workers that leave are not replaced meanwhile.
    return existing.replicas > run or (existing.replicas == 0 and (differs or corrects))


def _impact(observed: ObservedState, desired: Desired, replicas: ReplicaPlan) -> ChangeImpact:
    """The impact of getting from what runs to what should run."""
    existing = observed.worker_set
    if existing is None:
        return ChangeImpact.NONE
    group = observed.service.group if isinstance(observed.service, Available) else None
    return change_impact(
        Running(replicas=existing.replicas, group=group, revision=existing.revision),
        Running(
            replicas=replicas.run,
            group=desired.group if group is not None else None,
            revision=desired.revision,
        ),
    )
