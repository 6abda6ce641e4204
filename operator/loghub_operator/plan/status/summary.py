"""Summarizes the state of a group: its workers, Ready, Suspended, Degraded, and the phase.

`loghub_operator.api.conditions` explains the reasons, and `loghub_operator.plan.status.builder` builds the
rest of the status.
"""

from dataclasses import dataclass

from loghub_operator.api.conditions import (
    ConditionType,
    ConditionUpdate,
    DegradedReason,
    ReadyReason,
    ScalingReason,
    SuspendedReason,
    WorkersReason,
)
from loghub_operator.api.status import CheckpointResetPhase, CheckpointResetStatus, Phase
from loghub_operator.model.observed import ObservedState, WorkerObserved, WorkerPhase
from loghub_operator.plan.drift_backoff import DriftBackoff
from loghub_operator.plan.replicas import ReplicaPlan
from loghub_operator.plan.suspension import Suspension


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryInputs:
    """What the summary is based on."""

    observed: ObservedState
    size: ReplicaPlan
    pause: Suspension | None
    reposition: CheckpointResetStatus | None  # of the reset that is in the spec
    brake: DriftBackoff


def failing(workers: tuple[WorkerObserved, ...]) -> WorkerObserved | None:
    """The first worker that does not become ready by waiting."""
    return next((worker for worker in workers if worker.phase is WorkerPhase.FAILED), None)


def workers_finding(observed: ObservedState, size: ReplicaPlan) -> ConditionUpdate:
    """Whether every worker that should run is ready; a failing worker's own reason takes precedence."""
    status, reason, message = _workers(observed, size)
    return ConditionUpdate(
        type=ConditionType.WORKERS_AVAILABLE,
        status="True" if status else "False",
        reason=reason,
        message=message,
    )


def _workers(observed: ObservedState, size: ReplicaPlan) -> tuple[bool, str, str]:
    no_code = observed.site.code.trouble
    if no_code and size.target > 0:
        goes_on = "; running workers continue with the code that they have" if observed.workers else ""
        return False, WorkersReason.PIPELINE_CODE_NOT_FOUND, f"{no_code}{goes_on}"
    failed = failing(observed.workers)
    if failed is not None:
        words = f"{failed.name}: {failed.message or 'the worker ended without a message; see its log'}"
        return False, failed.reason or WorkersReason.WORKER_FAILING, words
    if size.run == 0:
        if observed.service.trouble is not None and size.reason is not ScalingReason.SUSPENDED:
            return (
                False,
                WorkersReason.LOG_SERVICE_UNAVAILABLE,
                "no worker is started while the log service is unavailable",
            )
        return True, WorkersReason.SCALED_TO_ZERO, f"no worker should run{in_the_way(observed)}"
    ready = sum(worker.ready for worker in observed.workers if worker.ordinal < size.run)
    if ready < size.run:
        return (
            False,
            WorkersReason.WORKERS_NOT_READY,
            f"{ready} of {size.run} workers are ready{in_the_way(observed)}",
        )
    return True, WorkersReason.ALL_WORKERS_READY, f"{ready} of {size.run} workers are ready"


def in_the_way(observed: ObservedState) -> str:
    """The message of the first worker that is stuck, say pending, or terminating on a lost node."""
    told = (one for one in observed.workers if not one.ready and one.message)
    first = next(told, None)
    return "" if first is None else f"; {first.name}: {first.message}"


def ready_finding(
    group: ConditionUpdate, workers: ConditionUpdate, pause: Suspension | None
) -> ConditionUpdate:
    """Whether everything is as the spec says; a suspended group does not consume, so it is not ready."""
    for finding in (group, workers):
        if finding.status != "True":
            return ConditionUpdate(
                type=ConditionType.READY, status="False", reason=finding.reason, message=finding.message
            )
    if pause is not None:
        return ConditionUpdate(
            type=ConditionType.READY, status="False", reason=pause.reason, message=pause.message
        )
    message = "the consumer group is up to date and every worker is ready"
    return ConditionUpdate(
        type=ConditionType.READY, status="True", reason=ReadyReason.RUNNING, message=message
    )


def paused_finding(pause: Suspension | None) -> ConditionUpdate:
    """Whether no worker should run, on purpose."""
    kind = ConditionType.SUSPENDED
    if pause is None:
        reason, message = SuspendedReason.NOT_SUSPENDED, "workers should run"
        return ConditionUpdate(type=kind, status="False", reason=reason, message=message)
    return ConditionUpdate(type=kind, status="True", reason=pause.reason, message=pause.message)


def degraded_finding(on: SummaryInputs, workers: ConditionUpdate) -> ConditionUpdate:
    """Whether something is wrong that does not pass by itself; the phase follows it."""
    reason, message = _degraded(on, workers)
    status = reason is not DegradedReason.AS_EXPECTED
    return ConditionUpdate(
        type=ConditionType.DEGRADED, status="True" if status else "False", reason=reason, message=message
    )


def _degraded(on: SummaryInputs, workers: ConditionUpdate) -> tuple[DegradedReason, str]:
    trouble = on.observed.service.trouble
    if failing(on.observed.workers) is not None:
        return DegradedReason.WORKER_FAILING, workers.message
    if on.pause is not None and on.pause.reason is SuspendedReason.OWNERSHIP_CONFLICT:
        return DegradedReason.OWNERSHIP_CONFLICT, on.pause.message
    if trouble is not None and on.size.run > 0:
        return DegradedReason.LOG_SERVICE_UNAVAILABLE, trouble.message
    if on.reposition is not None and on.reposition.phase is CheckpointResetPhase.FAILED:
        return DegradedReason.CHECKPOINT_RESET_FAILED, on.reposition.message
    if on.brake.contested:
        names = ", ".join(on.brake.contested)
        message = f"another controller keeps changing {names}; backing off between corrections"
        return DegradedReason.CONFLICTING_CONTROLLER, message
    return DegradedReason.AS_EXPECTED, "nothing is wrong"


def phase_of(
    on: SummaryInputs, *, group: ConditionUpdate, rebalancing: ConditionUpdate, degraded: ConditionUpdate
) -> Phase:
    """The summary in one word."""
    observed, size = on.observed, on.size
    if degraded.status == "True":
        return Phase.DEGRADED
    if on.pause is not None:
        return Phase.SUSPENDED if size.run == 0 and not observed.workers else Phase.REBALANCING
    if observed.service.trouble is not None:
        return Phase.PENDING
    ready = any(worker.ready for worker in observed.workers)
    if not ready and (size.target > 0 or group.status != "True"):
        return Phase.PENDING
    in_step = observed.worker_set is not None and observed.worker_set.replicas == size.target
    if rebalancing.status == "True" or not in_step:
        return Phase.REBALANCING
    return Phase.RUNNING
