"""Decides how many workers to run now, and why that is not the desired number.

`loghub_operator.plan.scaling.autoscaler` decides on the desired number; this module reaches it. The operator
asks a surplus worker to drain and waits for it, within a bound; only then does it lower the number, by one.
At most one worker leaves at a time, the one with the highest ordinal, so that the others only ever gain
shards. No step (more workers, or the next drain) begins while a shard is in state transfer. If no worker
should run at all (`loghub_operator.plan.desired`), the workers leave together, and the operator waits only
for them to leave.
"""

from dataclasses import dataclass

from loghub_operator.api.conditions import ScalingReason
from loghub_operator.api.scaling import Scaling
from loghub_operator.model.observed import (
    Available,
    LogServiceObserved,
    Unavailable,
    WorkerObserved,
    WorkerPhase,
)
from loghub_operator.plan.desired import Suspension
from loghub_operator.plan.listing import counted, listed, worker_count
from loghub_operator.plan.scaling.autoscaler import DesiredReplicas
from loghub_operator.plan.subject import Subject

CLOCKS_DIFFER_S = 60.0  # of two operators that lead one after the other, without any harm


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaPlan:
    """The decision: ``run`` workers now, and ``target`` workers once nothing holds the change back."""

    run: int
    target: int
    reason: ScalingReason
    message: str
    drain: tuple[str, ...] = ()  # ask these workers to drain
    timed_out: tuple[str, ...] = ()  # these were asked and did not leave in time


def has_left(worker: WorkerObserved, service: LogServiceObserved) -> bool:
    """Whether no consumer sends heartbeats under the worker's name, as reported by the endpoint or, if it
    cannot report that, by the worker.

    The endpoint takes precedence: a worker that is restarting processes nothing either, but its name may hold
    shards, which it would release at once.
    """
    if isinstance(service, Available) and service.consumers is not None:
        return not _counts(worker.name, service)
    return worker.phase in (WorkerPhase.LEFT, WorkerPhase.PENDING, WorkerPhase.FAILED)


def _counts(consumer: str, service: Available) -> bool:
    holds_shard = any(shard.holder == consumer for shard in service.shards)
    return holds_shard or consumer in (service.consumers or ())


def pending_replacements(subject: Subject) -> tuple[str, ...]:
    """Live consumers of the group whose workers do not exist in this observation, because they are being
    replaced.

    Waiting for them is bounded: the log service removes a consumer that does not come back within the group's
    timeout. There are none if the endpoint cannot report live consumers; consumers cannot leave such an
    endpoint either.
    """
    service = subject.observed.service
    existing = {worker.name for worker in subject.observed.workers}
    if not isinstance(service, Available) or service.consumers is None:
        return ()
    live = {*service.consumers, *(shard.holder for shard in service.shards)} - existing
    return tuple(subject.resource.consumer(ordinal) for ordinal in sorted(subject.ordinals(live)))


def must_be_asked(worker: WorkerObserved, now: float) -> bool:
    """Whether to ask the worker to drain, or to ask it again because the time of the request lies ahead: the
    clock was wrong then, and the wait for the worker would be as much longer. A request without a time, made
    by hand, is made again: the wait for it would never end.
    """
    asked_at = worker.drain_requested_at_unix_s
    return not worker.drain_requested or asked_at is None or asked_at > now + CLOCKS_DIFFER_S


def waited_enough(worker: WorkerObserved, *, bound_s: float, now: float) -> bool:
    """The drain was requested so long ago that the operator continues without an answer."""
    return worker.drain_requested_at_unix_s is not None and now - worker.drain_requested_at_unix_s > bound_s


def plan_replicas(
    subject: Subject, suspension: Suspension | None, decided: DesiredReplicas, now: float
) -> ReplicaPlan:
    """How many workers to run now."""
    observed, current = subject.observed, subject.observed.replicas
    if suspension is not None:
        return _suspended(subject, suspension, now)
    if isinstance(observed.service, Unavailable):
        message = f"the log service is unavailable; the number of workers stays at {current} until it answers"
        return ReplicaPlan(
            run=current, target=current, reason=ScalingReason.LOG_SERVICE_UNAVAILABLE, message=message
        )
    desired = _target(subject.resource.spec.scaling, decided)
    if desired.target == current:
        return desired
    if desired.target > current:
        return _unless_in_transfer(desired, observed.service, current)
    return _shrink(subject, observed.service, desired, now)


def _suspended(subject: Subject, why: Suspension, now: float) -> ReplicaPlan:
    """No workers at all: all drain together, and all stop together once the last one has left."""
    observed, current = subject.observed, subject.observed.replicas
    existing = [worker for worker in observed.workers if worker.ordinal < current]
    late = [one for one in existing if waited_enough(one, bound_s=subject.drain_bound_s, now=now)]
    staying = [one for one in existing if not (one.drain_requested and has_left(one, observed.service))]
    waited_for = [one for one in staying if one not in late]
    return ReplicaPlan(
        run=current if waited_for or pending_replacements(subject) else 0,
        target=0,
        reason=ScalingReason.SUSPENDED,
        message=why.message,
        drain=tuple(one.name for one in waited_for if must_be_asked(one, now)),
        timed_out=() if waited_for else tuple(one.name for one in staying),
    )


def _target(scaling: Scaling, desired: DesiredReplicas) -> ReplicaPlan:
    """The number within the bounds, and which bound limited it."""
    reason, message = _limit(scaling, desired)
    return ReplicaPlan(run=desired.workers, target=desired.workers, reason=reason, message=message)


def _limit(scaling: Scaling, desired: DesiredReplicas) -> tuple[ScalingReason, str]:
    auto = scaling.mode == "Auto"
    needed = "more workers are needed" if auto else desired.why
    match desired.bound:
        case "Maximum":
            return ScalingReason.TOO_MANY_REPLICAS, f"{needed}, but scaling.maxReplicas is {desired.workers}"
        case "Minimum":
            fewer = "fewer workers suffice" if auto else needed
            return ScalingReason.TOO_FEW_REPLICAS, f"{fewer}, but scaling.minReplicas is {desired.workers}"
        case "Shards":
            shards = counted(desired.workers, "shard", "shards")
            return ScalingReason.TOO_FEW_SHARDS, (
                f"{needed}, but only {shards} can be assigned; more workers would be idle. "
                "Split shards to use them."
            )
        case "Step":
            step = scaling.scale_up.max_pods_per_step
            return ScalingReason.SCALE_UP_LIMIT, f"{needed}, but scaling.scaleUp.maxPodsPerStep is {step}"
        case None:
            return ScalingReason.DESIRED_WITHIN_RANGE, desired.why


def _unless_in_transfer(desired: ReplicaPlan, service: Available, current: int) -> ReplicaPlan:
    if not service.in_transfer:
        return desired
    numbers = listed(shard.shard for shard in service.in_transfer)
    message = f"{worker_count(desired.target)} desired; waiting while shards are in state transfer: {numbers}"
    return ReplicaPlan(
        run=current, target=desired.target, reason=ScalingReason.REBALANCE_IN_PROGRESS, message=message
    )


def _shrink(subject: Subject, service: Available, desired: ReplicaPlan, now: float) -> ReplicaPlan:
    observed, current = subject.observed, subject.observed.replicas
    top = subject.resource.consumer(current - 1)
    worker = next((one for one in observed.workers if one.name == top), None)
    if worker is None:
        back = pending_replacements(subject)
        if top in back:
            return _draining(desired, current, top)
        # All that do not exist are given up at once: as many could be made meanwhile as are removed.
        left = [one.ordinal for one in observed.workers if one.ordinal < current]
        left += subject.ordinals(back)
        return _lowered(desired, max(desired.target, max(left, default=-1) + 1) + 1)
    if not worker.drain_requested:
        waiting = _unless_in_transfer(desired, service, current)
        return waiting if waiting is not desired else _draining(desired, current, top, drain=(top,))
    if has_left(worker, service):
        return _lowered(desired, current)
    if waited_enough(worker, bound_s=subject.drain_bound_s, now=now):
        return _lowered(desired, current, timed_out=(top,))
    return _draining(desired, current, top, drain=(top,) if must_be_asked(worker, now) else ())


def _lowered(desired: ReplicaPlan, current: int, timed_out: tuple[str, ...] = ()) -> ReplicaPlan:
    if desired.target == current - 1:
        return ReplicaPlan(
            run=current - 1,
            target=desired.target,
            reason=desired.reason,
            message=desired.message,
            timed_out=timed_out,
        )
    message = f"{worker_count(desired.target)} desired; the workers leave one at a time, {current - 1} remain"
    reason = ScalingReason.DRAINING
    return ReplicaPlan(
        run=current - 1, target=desired.target, reason=reason, message=message, timed_out=timed_out
    )


def _draining(desired: ReplicaPlan, current: int, leaver: str, drain: tuple[str, ...] = ()) -> ReplicaPlan:
    message = (
        f"{worker_count(desired.target)} desired; {leaver} first finishes its batch and leaves the group"
    )
    return ReplicaPlan(
        run=current, target=desired.target, reason=ScalingReason.DRAINING, message=message, drain=drain
    )
