"""Decides how many workers to run now, and why that is not the desired number.

`loghub_operator.plan.scaling.autoscaler` decides on the desired number; this module reaches it. The operator
asks a surplus worker to drain and waits for it, within a bound; only then does it lower the number, by one.
At most one worker leaves at a time, the worker with the highest ordinal, so that the others only ever gain
shards. No step (more workers, or the next drain) begins while a shard is in state transfer. If no worker
should run at all (`loghub_operator.plan.suspension`), the workers leave together, and the operator waits only
for them to leave.
"""

from dataclasses import dataclass

from loghub_operator.api.conditions import ScalingReason
from loghub_operator.api.scaling import Scaling
from loghub_operator.model.observed import (
    Available,
    LogServiceObserved,
    ObservedState,
    Unavailable,
    WorkerNames,
    WorkerObserved,
    WorkerPhase,
)
from loghub_operator.plan.listing import comma_list, counted, worker_count
from loghub_operator.plan.scaling.autoscaler import DesiredReplicas
from loghub_operator.plan.suspension import Suspension

CLOCKS_DIFFER_S = 60.0  # of two operators that lead one after the other, without any harm


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaPlan:
    """The decision: ``run`` workers now, and ``target`` workers once nothing holds the change back.

    Invariant: ``run`` lies between the present number and ``target``.
    """

    run: int
    target: int
    reason: ScalingReason
    message: str
    drain: tuple[str, ...] = ()  # ask these workers to drain
    timed_out: tuple[str, ...] = ()  # these were asked and did not leave in time


@dataclass(frozen=True, slots=True, kw_only=True)
class Drains:
    """How far the workers are with leaving the group: who must be asked, who has left, who took too long.

    ``workers`` exist, and ``names`` says which workers should. A worker that was asked to drain is waited for
    at most ``bound_s``; ``now`` is in unix seconds.
    """

    workers: tuple[WorkerObserved, ...]
    names: WorkerNames
    service: LogServiceObserved
    bound_s: float
    now: float

    def has_left(self, worker: WorkerObserved) -> bool:
        """Whether no consumer sends heartbeats under the worker's name, as reported by the endpoint or, if it
        cannot report that, by the worker.

        The endpoint takes precedence: a worker that is restarting processes nothing either, but its name may
        hold shards, which it would release at once.
        """
        live = self._live_consumers()
        if live is not None:
            return worker.name not in live
        return worker.phase in (WorkerPhase.LEFT, WorkerPhase.PENDING, WorkerPhase.FAILED)

    def must_be_asked(self, worker: WorkerObserved) -> bool:
        """Whether to ask the worker to drain, or to ask it again because the time of the request lies ahead:
        the clock was wrong then, and the wait for the worker would be as much longer. A request without a
        time, made by hand, is made again: the wait for it would never end.
        """
        asked_at = worker.drain_requested_at_unix_s
        return not worker.drain_requested or asked_at is None or asked_at > self.now + CLOCKS_DIFFER_S

    def waited_enough(self, worker: WorkerObserved) -> bool:
        """The drain was requested so long ago that the operator continues without an answer."""
        asked_at = worker.drain_requested_at_unix_s
        return asked_at is not None and self.now - asked_at > self.bound_s

    def pending_replacements(self) -> tuple[int, ...]:
        """The ordinals of live consumers whose workers do not exist in this observation, because they are
        being replaced.

        Waiting for them is bounded: the log service removes a consumer that does not come back within the
        group's timeout. There are none if the endpoint cannot report live consumers; consumers cannot leave
        such an endpoint either.
        """
        existing = {worker.name for worker in self.workers}
        return self.names.ordinals((self._live_consumers() or frozenset()) - existing)

    def _live_consumers(self) -> frozenset[str] | None:
        """The consumers that are live or hold a shard; None: the endpoint cannot report them."""
        service = self.service
        if not isinstance(service, Available) or service.consumers is None:
            return None
        return frozenset((*service.consumers, *(shard.holder for shard in service.shards)))


def drains_of(observed: ObservedState, names: WorkerNames, bound_s: float, now: float) -> Drains:
    """The drains of the observed workers; the fields of `Drains` explain the rest."""
    return Drains(workers=observed.workers, names=names, service=observed.service, bound_s=bound_s, now=now)


def plan_replicas(
    drains: Drains, scaling: Scaling, suspension: Suspension | None, decided: DesiredReplicas
) -> ReplicaPlan:
    """How many workers to run now. ``scaling`` has the bounds that a message names."""
    current = drains.names.replicas
    if suspension is not None:
        return _suspended(drains, suspension)
    if isinstance(drains.service, Unavailable):
        message = f"the log service is unavailable; the number of workers stays at {current} until it answers"
        return ReplicaPlan(
            run=current, target=current, reason=ScalingReason.LOG_SERVICE_UNAVAILABLE, message=message
        )
    reason, message = _limit(scaling, decided)
    desired = ReplicaPlan(run=decided.workers, target=decided.workers, reason=reason, message=message)
    if desired.target == current:
        return desired
    if desired.target > current:
        return _unless_in_transfer(desired, drains.service, current)
    return _shrink(drains, drains.service, desired)


def _suspended(drains: Drains, why: Suspension) -> ReplicaPlan:
    """No workers at all: all drain together, and all stop together once the last one has left."""
    current = drains.names.replicas
    existing = [worker for worker in drains.workers if worker.ordinal < current]
    staying = [worker for worker in existing if not (worker.drain_requested and drains.has_left(worker))]
    waited_for = [worker for worker in staying if not drains.waited_enough(worker)]
    return ReplicaPlan(
        run=current if waited_for or drains.pending_replacements() else 0,
        target=0,
        reason=ScalingReason.SUSPENDED,
        message=why.message,
        drain=tuple(worker.name for worker in waited_for if drains.must_be_asked(worker)),
        timed_out=() if waited_for else tuple(worker.name for worker in staying),
    )


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
        case "Keys":
            keys = counted(desired.workers, "part of the keys has", "parts of the keys have")
            message = f"{needed}, but {keys} logs at workers; more workers would have none"
            return ScalingReason.TOO_FEW_KEYS, message
        case None:
            return ScalingReason.DESIRED_WITHIN_RANGE, desired.why


def _unless_in_transfer(desired: ReplicaPlan, service: Available, current: int) -> ReplicaPlan:
    if not service.in_transfer:
        return desired
    numbers = comma_list(shard.shard for shard in service.in_transfer)
    message = f"{worker_count(desired.target)} desired; waiting while shards are in state transfer: {numbers}"
    return ReplicaPlan(
        run=current, target=desired.target, reason=ScalingReason.REBALANCE_IN_PROGRESS, message=message
    )


def _shrink(drains: Drains, service: Available, desired: ReplicaPlan) -> ReplicaPlan:
    current = drains.names.replicas
    highest = current - 1
    name = drains.names.of(highest)
    worker = next((worker for worker in drains.workers if worker.name == name), None)
    if worker is None:
        back = drains.pending_replacements()
        if highest in back:
            return _draining(desired, current, name)
        # All that do not exist are given up at once: as many could be made meanwhile as are removed.
        left = [worker.ordinal for worker in drains.workers if worker.ordinal < current]
        return _lowered(desired, max(desired.target, max((*left, *back), default=-1) + 1) + 1)
    if not worker.drain_requested:
        waiting = _unless_in_transfer(desired, service, current)
        return waiting if waiting is not desired else _draining(desired, current, name, drain=(name,))
    if drains.has_left(worker):
        return _lowered(desired, current)
    if drains.waited_enough(worker):
        return _lowered(desired, current, timed_out=(name,))
    return _draining(desired, current, name, drain=(name,) if drains.must_be_asked(worker) else ())


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
    message = f"{worker_count(desired.target)} desired; {leaver} first finishes its batch and leaves"
    return ReplicaPlan(
        run=current, target=desired.target, reason=ScalingReason.DRAINING, message=message, drain=drain
    )
