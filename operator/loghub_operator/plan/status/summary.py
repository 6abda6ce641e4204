"""Summarizes the state of a group: its workers, Ready, Suspended, Degraded, and the phase.

`loghub_operator.api.conditions` explains the reasons, and `loghub_operator.plan.status.builder` builds the
rest of the status.
"""

from loghub.worker_contract import WorkerReason
from loghub_operator.api.conditions import (
    ConditionType,
    ConditionUpdate,
    DegradedReason,
    ReadyReason,
    SuspendedReason,
    WorkersReason,
)
from loghub_operator.api.status import CheckpointResetPhase, CheckpointResetStatus, Phase
from loghub_operator.model.observed import (
    Available,
    ObservedState,
    ShardObserved,
    Unavailable,
    WorkerObserved,
    WorkerPhase,
)
from loghub_operator.plan.decisions import Decisions
from loghub_operator.plan.listing import listed
from loghub_operator.plan.rollout import message_of
from loghub_operator.plan.status.shard_failing import shard_failing_finding, waits
from loghub_operator.plan.suspension import Suspension

# With one of these reasons the workers are ready, or will be without anything else to be done.
_NO_FAILURE = (WorkersReason.ALL_WORKERS_READY, WorkersReason.WORKERS_NOT_READY)
_NOT_OURS = (SuspendedReason.OWNERSHIP_CONFLICT, SuspendedReason.ADOPTION_REFUSED)


def failing(workers: tuple[WorkerObserved, ...]) -> WorkerObserved | None:
    """The first worker that does not become ready by waiting."""
    return next((worker for worker in workers if worker.phase is WorkerPhase.FAILED), None)


def without_sink(workers: tuple[WorkerObserved, ...]) -> WorkerObserved | None:
    """The first worker that waits for the target of its sink. It retries for as long as it takes."""
    waiting = (WorkerPhase.STARTING, WorkerPhase.RUNNING)
    return next(
        (one for one in workers if one.phase in waiting and one.reason == WorkerReason.SINK_UNAVAILABLE), None
    )


def workers_finding(decisions: Decisions) -> ConditionUpdate:
    """Whether every worker that should run is ready; a failing worker's own reason takes precedence."""
    status, reason, message = _workers(decisions)
    return ConditionUpdate(
        type=ConditionType.WORKERS_AVAILABLE,
        status="True" if status else "False",
        reason=reason,
        message=message,
    )


def _workers(decisions: Decisions) -> tuple[bool, str, str]:
    observed, replicas = decisions.observed, decisions.replicas
    no_code = observed.placement.code.error
    if no_code and replicas.target > 0:
        continues = "; running workers continue with the code that they have" if observed.workers else ""
        return False, WorkersReason.PIPELINE_CODE_NOT_FOUND, f"{no_code}{continues}"
    failed = failing(observed.workers)
    if failed is not None:
        message = f"{failed.name}: {failed.message or 'the worker ended without a message; see its log'}"
        return False, failed.reason or WorkersReason.WORKER_FAILING, message
    if replicas.run == 0:
        if isinstance(observed.service, Unavailable) and decisions.desired.suspension is None:
            return (
                False,
                WorkersReason.LOG_SERVICE_UNAVAILABLE,
                "no worker is started while the log service is unavailable",
            )
        return True, WorkersReason.SCALED_TO_ZERO, f"no worker should run{stuck_worker_message(observed)}"
    ready = sum(worker.ready for worker in observed.workers if worker.ordinal < replicas.run)
    if ready < replicas.run:
        waiting = without_sink(tuple(one for one in observed.workers if not one.ready))
        if waiting is not None:
            return False, waiting.reason, f"{waiting.name}: {waiting.message}"
        if refusal := refusal_message(observed):
            return (
                False,
                WorkersReason.PODS_REFUSED,
                f"{ready} of {replicas.run} workers are ready; {refusal}",
            )
        return (
            False,
            WorkersReason.WORKERS_NOT_READY,
            f"{ready} of {replicas.run} workers are ready{stuck_worker_message(observed)}",
        )
    return True, WorkersReason.ALL_WORKERS_READY, f"{ready} of {replicas.run} workers are ready"


def refusal_message(observed: ObservedState) -> str:
    """Why pods are missing; "" if none is, or nothing says why."""
    return "" if observed.worker_set is None else observed.worker_set.refusal


def stuck_worker_message(observed: ObservedState) -> str:
    """The message of the first worker that is stuck, say pending, or terminating on a lost node."""
    stuck = next((one for one in observed.workers if not one.ready and one.message), None)
    return "" if stuck is None else f"; {stuck.name}: {stuck.message}"


def ready_finding(decisions: Decisions, workers: ConditionUpdate) -> ConditionUpdate:
    """Whether everything is as the spec says, which includes that every worker runs with its settings. A
    group that `spec.suspend` has stopped is as the spec says.
    """
    status, reason, message = _ready(decisions, workers)
    return ConditionUpdate(
        type=ConditionType.READY, status="True" if status else "False", reason=reason, message=message
    )


def _ready(decisions: Decisions, workers: ConditionUpdate) -> tuple[bool, str, str]:
    group, replicas, rollout = decisions.group, decisions.replicas, decisions.rollout
    if group.status != "True":
        return False, group.reason, group.message
    suspension = decisions.desired.suspension
    if suspension is not None:
        return _suspended(decisions, suspension)
    if without := without_service_message(decisions.observed):
        return False, ReadyReason.PROJECT_WITHOUT_SERVICE, without
    if rollout.rolling and workers.reason in _NO_FAILURE:
        return False, ReadyReason.ROLLING_UPDATE, _rolling(decisions)
    if workers.status != "True":
        return False, workers.reason, workers.message
    if outdated := outdated_worker_message(decisions):
        return False, ReadyReason.WORKER_OUTDATED, outdated
    if replicas.run != replicas.target:
        return False, replicas.reason, replicas.message
    return True, ReadyReason.RUNNING, "the consumer group is up to date and every worker is ready"


def without_service_message(observed: ObservedState) -> str:
    """The first project that gets no Service yet; "" if there is none."""
    return next(
        (f"project {one.name} has no Service yet: {one.error}" for one in observed.unaddressed if one.error),
        "",
    )


def outdated_worker_message(decisions: Decisions) -> str:
    """The first worker of the present settings whose image does not know all of them; "" if there is none."""
    desired = decisions.desired.revision
    for worker in decisions.observed.workers:
        if worker.ignored_settings and worker.revision.same_workers(desired):
            names = listed(worker.ignored_settings)
            hint = "use a worker image of the operator's release (spec.worker.image)"
            return f"{worker.name} ignores settings that its image does not know: {names}; {hint}"
    return ""


def _suspended(decisions: Decisions, suspension: Suspension) -> tuple[bool, str, str]:
    names = listed(worker.name for worker in decisions.observed.workers)
    if names or decisions.replicas.run > 0:
        return False, suspension.reason, f"{suspension.message}; waiting for the workers to stop: {names}"
    return suspension.by_spec, suspension.reason, suspension.message


def _rolling(decisions: Decisions) -> str:
    rollout, generation = decisions.rollout, decisions.resource.metadata.generation
    run = f"{rollout.current} of {decisions.replicas.run} workers run the settings of generation {generation}"
    if not rollout.waits_for:
        return f"{run}; the StatefulSet's controller has not observed the last change yet"
    worker = message_of(rollout.waits_for, decisions.observed.workers)
    return f"{run} and are ready; the rollout waits for {worker}"


def suspended_finding(suspension: Suspension | None) -> ConditionUpdate:
    """Whether no worker should run, on purpose."""
    kind = ConditionType.SUSPENDED
    if suspension is None:
        reason, message = SuspendedReason.NOT_SUSPENDED, "workers should run"
        return ConditionUpdate(type=kind, status="False", reason=reason, message=message)
    return ConditionUpdate(type=kind, status="True", reason=suspension.reason, message=suspension.message)


def degraded_finding(
    decisions: Decisions, workers: ConditionUpdate, stalled: ConditionUpdate
) -> ConditionUpdate:
    """Whether something is wrong that does not pass by itself; the phase follows it."""
    reason, message = _degraded(decisions, workers, stalled)
    status = reason is not DegradedReason.AS_EXPECTED
    return ConditionUpdate(
        type=ConditionType.DEGRADED, status="True" if status else "False", reason=reason, message=message
    )


def _degraded(
    decisions: Decisions, workers: ConditionUpdate, stalled: ConditionUpdate
) -> tuple[DegradedReason, str]:
    service, suspension = decisions.observed.service, decisions.desired.suspension
    reset = decisions.reset
    if failing(decisions.observed.workers) is not None:
        return DegradedReason.WORKER_FAILING, workers.message
    if workers.reason == WorkersReason.PODS_REFUSED:
        return DegradedReason.PODS_REFUSED, workers.message
    if (waiting := without_sink(decisions.observed.workers)) is not None:
        return DegradedReason.SINK_UNAVAILABLE, f"{waiting.name}: {waiting.message}"
    if suspension is not None and suspension.reason in _NOT_OURS:
        return DegradedReason(suspension.reason), suspension.message
    if outdated := outdated_worker_message(decisions):
        return DegradedReason.WORKER_OUTDATED, outdated
    if isinstance(service, Unavailable) and decisions.replicas.run > 0:
        return DegradedReason.LOG_SERVICE_UNAVAILABLE, service.message
    if reset is not None and _is_in_spec(reset, decisions) and reset.phase == CheckpointResetPhase.FAILED:
        return DegradedReason.CHECKPOINT_RESET_FAILED, reset.message
    if isinstance(service, Available) and service.beyond_end:
        return DegradedReason.POSITION_BEYOND_END, _beyond_end_message(service.beyond_end)
    if waits(decisions.observed.failures):
        return DegradedReason.SHARD_FAILING, shard_failing_finding(decisions.observed.failures).message
    if decisions.drift.contested:
        names = listed(decisions.drift.contested)
        message = f"another controller keeps changing {names}; backing off between corrections"
        return DegradedReason.CONFLICTING_CONTROLLER, message
    if stalled.status == "True":
        return DegradedReason.PROGRESS_DEADLINE_EXCEEDED, stalled.message
    return DegradedReason.AS_EXPECTED, "nothing is wrong"


def _beyond_end_message(shards: tuple[ShardObserved, ...]) -> str:
    cursors = (f"{one.shard} (position {one.checkpoint}, end {one.end_cursor})" for one in shards)
    return (
        f"the log service has lost logs that were consumed, or was restored: shards {listed(cursors)} end"
        " before the position of the group, and log groups that are written before it are not read; restore"
        " the log service or set spec.resetCheckpoints"
    )


def _is_in_spec(reset: CheckpointResetStatus, decisions: Decisions) -> bool:
    return reset.nonce == decisions.resource.spec.reset_nonce


def phase_of(decisions: Decisions, *, rebalancing: ConditionUpdate, degraded: ConditionUpdate) -> Phase:
    """The summary in one word."""
    observed, replicas = decisions.observed, decisions.replicas
    if degraded.status == "True":
        return Phase.DEGRADED
    if decisions.desired.suspension is not None:
        return Phase.SUSPENDED if replicas.run == 0 and not observed.workers else Phase.REBALANCING
    if isinstance(observed.service, Unavailable):
        return Phase.PENDING
    if decisions.rollout.rolling:
        return Phase.UPDATING
    if not observed.ready_workers and (replicas.target > 0 or decisions.group.status != "True"):
        return Phase.PENDING
    in_step = observed.worker_set is not None and observed.worker_set.replicas == replicas.target
    if rebalancing.status == "True" or not in_step:
        return Phase.REBALANCING
    return Phase.RUNNING
