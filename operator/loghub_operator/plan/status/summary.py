"""Summarizes the state of a group: its workers, Ready, Suspended, Degraded, and the phase.

`loghub_operator.api.conditions` explains the reasons, and `loghub_operator.plan.status.builder` builds the
rest of the status.
"""

from loghub_operator.api.conditions import (
    ConditionType,
    ConditionUpdate,
    DegradedReason,
    ReadyReason,
    SuspendedReason,
    WorkersReason,
)
from loghub_operator.api.status import CheckpointResetPhase, CheckpointResetStatus, Phase
from loghub_operator.model.observed import ObservedState, Unavailable, WorkerObserved, WorkerPhase
from loghub_operator.plan.decisions import Decisions
from loghub_operator.plan.listing import listed
from loghub_operator.plan.suspension import Suspension


def failing(workers: tuple[WorkerObserved, ...]) -> WorkerObserved | None:
    """The first worker that does not become ready by waiting."""
    return next((worker for worker in workers if worker.phase is WorkerPhase.FAILED), None)


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
        return (
            False,
            WorkersReason.WORKERS_NOT_READY,
            f"{ready} of {replicas.run} workers are ready{stuck_worker_message(observed)}",
        )
    return True, WorkersReason.ALL_WORKERS_READY, f"{ready} of {replicas.run} workers are ready"


def stuck_worker_message(observed: ObservedState) -> str:
    """The message of the first worker that is stuck, say pending, or terminating on a lost node."""
    stuck = next((one for one in observed.workers if not one.ready and one.message), None)
    return "" if stuck is None else f"; {stuck.name}: {stuck.message}"


def ready_finding(
    group: ConditionUpdate, workers: ConditionUpdate, suspension: Suspension | None
) -> ConditionUpdate:
    """Whether everything is as the spec says; a suspended group does not consume, so it is not ready."""
    for finding in (group, workers):
        if finding.status != "True":
            return ConditionUpdate(
                type=ConditionType.READY, status="False", reason=finding.reason, message=finding.message
            )
    if suspension is not None:
        return ConditionUpdate(
            type=ConditionType.READY, status="False", reason=suspension.reason, message=suspension.message
        )
    message = "the consumer group is up to date and every worker is ready"
    return ConditionUpdate(
        type=ConditionType.READY, status="True", reason=ReadyReason.RUNNING, message=message
    )


def suspended_finding(suspension: Suspension | None) -> ConditionUpdate:
    """Whether no worker should run, on purpose."""
    kind = ConditionType.SUSPENDED
    if suspension is None:
        reason, message = SuspendedReason.NOT_SUSPENDED, "workers should run"
        return ConditionUpdate(type=kind, status="False", reason=reason, message=message)
    return ConditionUpdate(type=kind, status="True", reason=suspension.reason, message=suspension.message)


def degraded_finding(decisions: Decisions, workers: ConditionUpdate) -> ConditionUpdate:
    """Whether something is wrong that does not pass by itself; the phase follows it."""
    reason, message = _degraded(decisions, workers)
    status = reason is not DegradedReason.AS_EXPECTED
    return ConditionUpdate(
        type=ConditionType.DEGRADED, status="True" if status else "False", reason=reason, message=message
    )


def _degraded(decisions: Decisions, workers: ConditionUpdate) -> tuple[DegradedReason, str]:
    service, suspension = decisions.observed.service, decisions.desired.suspension
    reset = decisions.reset
    if failing(decisions.observed.workers) is not None:
        return DegradedReason.WORKER_FAILING, workers.message
    if suspension is not None and suspension.reason is SuspendedReason.OWNERSHIP_CONFLICT:
        return DegradedReason.OWNERSHIP_CONFLICT, suspension.message
    if isinstance(service, Unavailable) and decisions.replicas.run > 0:
        return DegradedReason.LOG_SERVICE_UNAVAILABLE, service.message
    if reset is not None and _is_in_spec(reset, decisions) and reset.phase is CheckpointResetPhase.FAILED:
        return DegradedReason.CHECKPOINT_RESET_FAILED, reset.message
    if decisions.drift.contested:
        names = listed(decisions.drift.contested)
        message = f"another controller keeps changing {names}; backing off between corrections"
        return DegradedReason.CONFLICTING_CONTROLLER, message
    return DegradedReason.AS_EXPECTED, "nothing is wrong"


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
    if not observed.ready_workers and (replicas.target > 0 or decisions.group.status != "True"):
        return Phase.PENDING
    in_step = observed.worker_set is not None and observed.worker_set.replicas == replicas.target
    if rebalancing.status == "True" or not in_step:
        return Phase.REBALANCING
    return Phase.RUNNING
