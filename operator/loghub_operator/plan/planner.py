"""Decides what to do about one consumer group, in the cluster and in `loghub up` alike.

Both loops do the same in each round: observe, work out what the round is about
(`loghub_operator.plan.subject`), call `plan`, carry out its actions in their own way, and call `finish`,
which says how a failed action changes the status and what the next round remembers. `plan` is a pure
function of the subject and the time. It combines the decisions of the other modules: how many workers run
(`loghub_operator.plan.replicas`), what drifted, how far a checkpoint reset is, and what the status says
(`loghub_operator.plan.status.builder`). Once the object is being deleted, `loghub_operator.plan.deletion`
plans instead.

The order of the actions follows one rule: what a later step needs, and what must be remembered after a crash
in between, comes first. Workers that leave or stop need nothing, so they come before everything that may be
refused again and again. While the log service is unavailable, neither the number nor the settings of the
workers change, and running workers continue. A restart of the operator forgets the memory, so nothing that
must survive is kept in it.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from loghub.wire.errors import LogHubException
from loghub_operator.api.adoption import GroupRecord
from loghub_operator.api.conditions import ConditionType, ConditionUpdate
from loghub_operator.api.status import Status
from loghub_operator.model.actions import (
    Action,
    AddFinalizer,
    ApplyWorkers,
    CreateGroup,
    DrainWorker,
    EnsureProjectService,
    Plan,
    RecordGroupOrigin,
    ReshardRefused,
    RestartWorker,
    UpdateGroup,
)
from loghub_operator.model.memory import DriftHistory, FieldPath, Memory
from loghub_operator.model.observed import (
    Available,
    ObservedState,
    Unavailable,
    WorkerPhase,
)
from loghub_operator.plan.checkpoint_reset import advance
from loghub_operator.plan.decisions import Decisions, impact_of, rollout_of
from loghub_operator.plan.deletion import plan_deletion
from loghub_operator.plan.desired import Desired
from loghub_operator.plan.drift import DriftBackoff, drift_of_group, drift_of_objects, evaluate
from loghub_operator.plan.events import events_of, left_behind
from loghub_operator.plan.patience import PATIENCE, failed_looks, was_as_it_should, with_stale_lag
from loghub_operator.plan.replicas import drains_of, plan_replicas
from loghub_operator.plan.scaling.autoscaler import ScalingDecision, decide
from loghub_operator.plan.scaling.load import scaled_group
from loghub_operator.plan.scaling.report import group_metrics
from loghub_operator.plan.scaling.resharding import with_rejection
from loghub_operator.plan.status.builder import build_status, error_message, with_failure
from loghub_operator.plan.status.conditions import group_condition
from loghub_operator.plan.subject import Subject


def plan(subject: Subject, now: float) -> Plan:
    """What to do now, and what to report. Pure; ``now`` in unix seconds."""
    if subject.desired is None:
        return plan_deletion(subject, now)
    observed, status = subject.observed, subject.resource.status
    if subject.must_store_proof:
        return _store_proof(subject)
    planned = _plan(subject, subject.desired, now)
    looks, generation = planned.memory.failed_looks, subject.resource.metadata.generation
    if 0 < looks < PATIENCE and was_as_it_should(status, ConditionType.GROUP_SYNCED, generation=generation):
        # The log service has not answered for so short a time that it says nothing: nothing is done.
        stale = with_stale_lag(status, observed.service, generation=generation, now=now)
        memory = replace(observed.memory, failed_looks=looks)
        return replace(planned, actions=(), status=stale, memory=memory)
    return planned


def _plan(subject: Subject, desired: Desired, now: float) -> Plan:
    resource, observed = subject.resource, subject.observed
    # 1. How many workers: the number that the load or the spec asks for, and the number to run now.
    scaled = scaled_group(resource, observed, subject.ownership)
    scaling = decide(scaled, suspended=desired.suspension is not None)
    drains = drains_of(observed, subject.names, subject.drain_bound_s, now)
    replicas = plan_replicas(drains, resource.spec.scaling, desired.suspension, scaling.desired)
    # 2. How far a checkpoint reset is: it waits for the workers to stop, or to start again.
    reset = advance(subject, desired, replicas, now)

    # 3. What others have changed. A correction of the group counts before the workers are compared with the
    # same history, since both may be corrected in one round.
    def backoff(history: DriftHistory, drift: Iterable[FieldPath]) -> DriftBackoff:
        return evaluate(history, drift, revision=desired.revision, replicas=replicas.target, now=now)

    history = observed.memory.drift
    group_drift = backoff(history, drift_of_group(resource.group, observed.stored, desired.stored_now))
    delayed = bool(group_drift.delayed)
    group_actions = _group(observed, desired, delayed=delayed)
    if any(isinstance(action, UpdateGroup) for action in group_actions):
        history = group_drift.history
    name, existing = resource.metadata.name, observed.worker_set
    drift = backoff(history, drift_of_objects(name, existing, desired.revision, subject.drift))
    contested = tuple(dict.fromkeys((*group_drift.contested, *drift.contested)))
    # 4. The decisions are complete; everything below follows from them.
    decisions = Decisions(
        subject=subject,
        desired=desired,
        scaling=scaling,
        replicas=replicas,
        rollout=rollout_of(existing, observed.workers, subject.names, desired.revision, run=replicas.run),
        impact=impact_of(existing, observed.stored, desired, run=replicas.run),
        drift=replace(drift, contested=contested),
        group=group_condition(resource.consumed, observed.service, desired, delayed=delayed),
        reset=reset.status,
    )
    # 5. The actions in their order. A reset that commits has no workers, so it does not wait for their
    # objects.
    before_workers = (*_prerequisites(observed, group_actions), *group_actions, *reset.actions)
    asked, applied = _workers(decisions)
    stopped, started = (applied, []) if _only_stops(decisions) else ([], applied)
    actions = (*asked, *stopped, *before_workers, *started)
    if any(isinstance(action, ApplyWorkers) for action in actions):
        history = drift.history
    return Plan(
        (*actions, *reset.events, *events_of(decisions, actions), *_reshard(scaling, decisions.group)),
        build_status(decisions, now),
        metrics=group_metrics(resource.metadata, scaling, run=replicas.run),
        memory=Memory(
            scaling=scaling.state,
            drift=history,
            committed=reset.committed,
            failed_looks=failed_looks(observed.memory.failed_looks, observed.service),
        ),
        owner=desired.owner,
    )


def _store_proof(subject: Subject) -> Plan:
    """Nothing but the proof is stored; running workers continue."""
    resource = subject.resource
    status = resource.status.model_copy(update={"ownership": subject.proven})
    return Plan(tuple(left_behind(resource, subject.left_behind)), status, memory=subject.observed.memory)


def _reshard(scaling: ScalingDecision, group: ConditionUpdate) -> list[Action]:
    """The event follows the split or merge: if the event is lost in a crash, the list of shards still shows
    the change.
    """
    result = scaling.hot_shards
    if result.change is None or result.event is None or group.status != "True":
        return []
    return [result.change, result.event]


def _prerequisites(observed: ObservedState, then: Iterable[Action]) -> list[Action]:
    """What must exist before the operator creates anything at the log service, or a worker starts; recording
    the origin adds the finalizer too.
    """
    actions: list[Action] = []
    if not observed.has_finalizer and not any(isinstance(action, RecordGroupOrigin) for action in then):
        actions.append(AddFinalizer())
    actions += [EnsureProjectService(project.name) for project in observed.unaddressed if not project.error]
    return actions


def _group(observed: ObservedState, desired: Desired, *, delayed: bool) -> list[Action]:
    """The origin is recorded before the group is created, so that a crash in between leaves no orphan. Once
    the creation was refused, it is recorded afterwards: nothing is claimed that another client may create.
    """
    if not desired.may_change_group or not isinstance(observed.service, Available):
        return []
    settings, existing = desired.stored_now, observed.service.stored
    actions: list[Action] = []
    recorded, last = observed.group_record, observed.last_initial_shard
    refused = recorded is not None and not recorded.is_about_ours
    create = CreateGroup(settings=settings, last_initial_shard=last)
    if existing is None and refused:
        return [create, RecordGroupOrigin(GroupRecord("Created", last))]
    origin = "Adopted" if recorded is None or refused else recorded.origin
    record = GroupRecord("Created" if existing is None else origin, last)
    if recorded != record or not observed.record_annotated:
        actions.append(RecordGroupOrigin(record))
    if existing is None:
        actions.append(create)
    elif existing != settings and not delayed:
        actions.append(UpdateGroup(settings=settings))
    return actions


def _workers(decisions: Decisions) -> tuple[list[Action], list[ApplyWorkers]]:
    """What single workers must do, and how many must run with which settings. Without their code,
    workers are not touched, except that all of them may stop. Nor are they touched while another controller
    keeps setting their number, or the annotations that show what was applied.
    """
    observed, desired, replicas = decisions.subject.observed, decisions.desired, decisions.replicas
    if isinstance(observed.service, Unavailable) and desired.suspension is None:
        return [], []
    no_code = bool(observed.placement.code.error)
    if (no_code and replicas.target > 0) or _must_not_be_applied(decisions.drift):
        return [], []
    asked: list[Action] = [
        RestartWorker(worker.name)
        for worker in observed.workers
        if worker.drain_requested
        and worker.ordinal < replicas.target
        and worker.phase is not WorkerPhase.STOPPING
    ]
    asked += [DrainWorker(consumer) for consumer in replicas.drain]
    if _must_apply(decisions) and not (no_code and replicas.run > 0):
        return asked, [ApplyWorkers(replicas=replicas.run, spec=desired.workers)]
    return asked, []


def _only_stops(decisions: Decisions) -> bool:
    """Whether applying the workers now stops some, and neither starts one nor gives one other settings. Then
    nothing that is refused may keep them: neither a change of the group nor the Service of a project.
    """
    existing, run = decisions.subject.observed.worker_set, decisions.replicas.run
    if existing is None or existing.replicas <= run:
        return False
    return run == 0 or existing.revision.same_workers(decisions.desired.revision)


def _must_not_be_applied(drift: DriftBackoff) -> bool:
    """An apply would set the number or the annotations that another controller keeps changing."""
    fields = (FieldPath.REPLICAS, FieldPath.ANNOTATIONS)
    return not drift.corrects and any(
        field.object.kind == "StatefulSet" and field.path in fields for field in drift.delayed
    )


def _must_apply(decisions: Decisions) -> bool:
    existing, run = decisions.subject.observed.worker_set, decisions.replicas.run
    if existing is None:
        orphans_left = bool(decisions.subject.observed.workers) and run == 0
        return decisions.desired.suspension is None or orphans_left
    differs = existing.revision != decisions.desired.revision
    corrects = bool(decisions.subject.drift) and decisions.drift.corrects
    if decisions.desired.suspension is None:
        return differs or corrects or existing.replicas != run
    # Workers that leave are not replaced meanwhile.
    return existing.replicas > run or (existing.replicas == 0 and (differs or corrects))


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundOutcome:
    """What to report, what to remember, and the error that ended the reconcile early, if any."""

    status: Status
    memory: Memory
    error: Exception | None


def finish(
    subject: Subject, planned: Plan, error: Exception | None, now: float, *, passes: bool = False
) -> RoundOutcome:
    """``error`` is what an action raised; None: every action was carried out. ``passes``: it is one that most
    likely passes by itself, such as a conflict; the status of a group that was ready says so only if it does
    not.

    Corrections of drift are remembered only if every action was carried out. A rejected split or merge is
    not a failure of the reconcile: condition HotShard reports it in the next.
    """
    if isinstance(error, ReshardRefused):
        scaling = with_rejection(planned.memory.scaling, error, now)
        return RoundOutcome(
            status=planned.status, memory=replace(planned.memory, scaling=scaling), error=None
        )
    if error is None:
        return RoundOutcome(status=planned.status, memory=planned.memory, error=None)
    resource, before = subject.resource, subject.observed.memory
    message, tries = error_message(error), before.failed_tries + 1
    memory = replace(
        planned.memory,
        drift=before.drift,
        last_error=message,
        service_error=message if isinstance(error, LogHubException) else "",
        committed=0,
        failed_tries=tries,
    )
    was_ready = was_as_it_should(
        resource.status, ConditionType.READY, generation=resource.metadata.generation
    )
    if passes and tries < PATIENCE and was_ready:
        return RoundOutcome(status=planned.status, memory=memory, error=error)
    deadline_s = resource.spec.worker.progress_deadline_seconds
    status = with_failure(planned.status, message, now, before=resource.status, deadline_s=deadline_s)
    return RoundOutcome(status=status, memory=memory, error=error)
