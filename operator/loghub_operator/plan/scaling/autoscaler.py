"""Decides how many workers should run, in every mode.

Fixed, External and Recommend run `spec.replicas`; Auto runs what the load needs. Every mode stays within the
bounds and never runs more workers than there are assignable shards. `loghub_operator.plan.replicas` reaches
the number, draining one worker at a time.

In short, Auto adds the arrival rate and the lag divided by the catch-up time, and expresses the sum in
workers (`loghub_operator.plan.scaling.load`). It stabilizes that number over the stabilization windows
(`loghub_operator.plan.scaling.stabilization`), limits it by the bounds and by `maxPodsPerStep`, and does not
follow it while a gate blocks the change.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from loghub.domain.replica_bounds import Bound, ReplicaBounds
from loghub_operator.api.conditions import ActiveReason
from loghub_operator.api.status import ScalingStatus
from loghub_operator.model.memory import ScalingState, Window
from loghub_operator.model.observed import WorkerObserved, WorkerPhase
from loghub_operator.plan.listing import counted, worker_count
from loghub_operator.plan.scaling.gate import ScalingGate
from loghub_operator.plan.scaling.load import (
    LoadInputs,
    Measurements,
    ReplicaRange,
    ScaledGroup,
    collect,
    judge_trial,
    replica_range_of,
    transfer,
    warming_too_long,
    warming_up,
)
from loghub_operator.plan.scaling.resharding import (
    HotShardResult,
    ShardBounds,
    find_hot_shards,
    no_hot_shard,
)
from loghub_operator.plan.scaling.stabilization import Spans, stabilize, with_replica_range

LITTLE_LAG_S = 30.0  # of arrival: the lag that a worker that keeps up may have at any moment
LITTLE_LAG_CYCLES = 3.0  # of the last checkpoint's age, the running batch and a late sample


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredReplicas:
    """What to run, before it is reached: ``requested`` limited by ``bound`` is ``workers``; ``why`` says who
    requested it, as a message for users."""

    requested: int
    workers: int
    bound: Bound | None
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """What Auto would run, and why. ``blocked``: another number is needed, and the current one is kept."""

    workers: int | None
    reason: ActiveReason
    message: str
    blocked: bool = False
    bound: Bound | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingDecision:
    """The decision of one reconcile, with everything that it is based on."""

    group: ScaledGroup
    desired: DesiredReplicas
    recommendation: Recommendation
    replica_range: ReplicaRange | None
    measured: Measurements
    hot_shards: HotShardResult
    suspended: bool

    @property
    def inputs(self) -> LoadInputs:
        return self.measured.inputs

    @property
    def state(self) -> ScalingState:
        return self.hot_shards.state


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    """What the steps of the decision share."""

    group: ScaledGroup
    measured: Measurements
    current: int
    bounds: ReplicaBounds
    spans: Spans

    @property
    def now(self) -> float:
        return self.group.at_unix_s


def decide(group: ScaledGroup, *, suspended: bool) -> ScalingDecision:
    """Pure; the time is the time of the observation. ``suspended``: no worker should run."""
    measured = collect(group)
    case = _case(group, measured)
    state, recommendation, replica_range = _recommend(case, suspended=suspended)
    desired = _desired_replicas(case, recommendation)
    failing = any(worker.phase is WorkerPhase.FAILED for worker in group.workers)
    moving = group.available is not None and bool(group.available.in_transfer)
    settled = not suspended and not failing and not moving and measured.lag_groups is not None
    measured_now = replace(measured, state=state)
    if group.subscribes:
        hot = no_hot_shard(state, "the workers share the shards of a subscription")
    else:
        bounds = _shard_bounds(group, desired, replica_range)
        hot = find_hot_shards(
            group.scaling, group.service, measured_now, settled=settled, bounds=bounds, now=group.at_unix_s
        )
    return ScalingDecision(
        group=group,
        desired=desired,
        recommendation=recommendation,
        replica_range=replica_range,
        measured=measured,
        hot_shards=hot,
        suspended=suspended,
    )


def effective(workers: Iterable[WorkerObserved], replicas: int, *, minimum: int) -> int:
    """How many of the requested ``replicas`` run: the drain of the highest, with which a step down begins,
    counts as done. Where it would be a step below the ``minimum``, or others were asked too, it is no step: a
    suspension or a checkpoint reset has ended before they left, or a user asked, and they stay.
    """
    highest = replicas - 1
    asked = (worker.ordinal for worker in workers if worker.drain_requested)
    draining = {ordinal for ordinal in asked if ordinal <= highest}
    return highest if draining == {highest} and highest >= minimum else replicas


def _case(group: ScaledGroup, measured: Measurements) -> _Case:
    scaling, minimum = group.scaling, _lower_bound(group, measured)
    return _Case(
        group=group,
        measured=measured,
        current=effective(group.workers, group.replicas, minimum=minimum),
        bounds=ReplicaBounds(
            minimum=minimum,
            maximum=scaling.max_replicas,
            shards=measured.inputs.assignable,
        ),
        spans=Spans(
            up_s=float(scaling.scale_up.stabilization_window_seconds),
            down_s=float(scaling.scale_down.stabilization_window_seconds),
            gap_s=measured.pace.gap_s,
        ),
    )


def _lower_bound(group: ScaledGroup, measured: Measurements) -> int:
    """The lower bound. If the load decides, it is at least one worker, unless scaling to zero is enabled and
    the group has been idle long enough. Others decide with the recommendation: one worker for what waits to
    be retried.
    """
    scaling = group.scaling
    if scaling.mode not in ("Auto", "Recommend"):
        return max(1 if measured.inputs.retry_groups else 0, scaling.min_replicas)
    if scaling.scale_to_zero is None:
        return max(1, scaling.min_replicas)
    quiet_s = group.at_unix_s - (measured.state.busy_unix_s or group.at_unix_s)
    return 0 if quiet_s >= scaling.scale_to_zero.idle_seconds else 1


def _desired_replicas(case: _Case, recommendation: Recommendation) -> DesiredReplicas:
    """Auto runs the recommended number if there is one; the other modes run the requested number."""
    group = case.group
    if group.scaling.mode == "Auto":
        begins = not group.was_applied and not group.workers
        begin = group.requested if begins else case.current
        requested = begin if recommendation.workers is None else recommendation.workers
        return DesiredReplicas(
            requested=requested, workers=requested, bound=recommendation.bound, why=recommendation.message
        )
    requested = group.requested
    minimum = group.scaling.min_replicas  # the lower bound of Auto does not apply
    # Workers beyond the shards of a subscription are stand-bys, or have single logs.
    shards = None if group.subscribes else case.bounds.shards
    workers, bound = replace(case.bounds, minimum=minimum, shards=shards).cut(requested)
    return DesiredReplicas(
        requested=requested, workers=workers, bound=bound, why=f"spec.replicas is {requested}"
    )


def _shard_bounds(
    group: ScaledGroup, desired: DesiredReplicas, replica_range: ReplicaRange | None
) -> ShardBounds:
    """The writable shards to keep: one for each worker that should run, or would if there were enough shards,
    or may run soon, and as many as the spec says or as were found: producers need them. At most as many as
    the spec allows, or twice as many as were found.
    """
    scaling, first = group.scaling, group.first_shards
    wanted = (
        max(desired.workers, replica_range.target if replica_range else 0)
        if scaling.mode == "Auto"
        else desired.requested
    )
    within = max(scaling.min_replicas, min(scaling.max_replicas, wanted))
    maximum = scaling.shards.max_shards or (2 * first if first else None)
    kept = scaling.shards.min_shards or first
    return ShardBounds(minimum=None if kept is None else max(kept, within), maximum=maximum)


def _recommend(case: _Case, *, suspended: bool) -> tuple[ScalingState, Recommendation, ReplicaRange | None]:
    """What Auto would run; no number while it is unknown."""
    state, inputs = case.measured.state, case.measured.inputs
    if suspended:
        unknown = Recommendation(workers=None, reason=ActiveReason.SUSPENDED, message="no worker should run")
        return _without_windows(state), unknown, None
    if case.group.available is None:
        message = "the log service is unavailable"
        return (
            state,
            Recommendation(workers=None, reason=ActiveReason.LAG_UNKNOWN, message=message, blocked=True),
            None,
        )
    # 1. What the load needs now; 2. what it has needed for a while; 3. what follows from that.
    replica_range = replica_range_of(inputs) or _range_without_rate(case)
    gate = _gate(case, state)
    if gate is not None:  # a range that was measured meanwhile says little about scaling up
        state = replace(state, low=Window(), target=Window())
    state = with_replica_range(state, replica_range, now=case.now, spans=case.spans, up=gate is None)
    state, recommendation = _follow(case, state, replica_range, gate)
    return state, _during_scale_down(case, recommendation), replica_range


def _during_scale_down(case: _Case, recommendation: Recommendation) -> Recommendation:
    """If the decision keeps the current number, a scale-down that has begun continues."""
    draining = case.group.replicas > case.current
    if not draining or recommendation.workers != case.current:
        return recommendation
    message = "a worker leaves before it is stopped"
    return replace(recommendation, reason=ActiveReason.SCALING_DOWN, message=message, blocked=False)


def _without_windows(state: ScalingState) -> ScalingState:
    """Nothing is consumed, on purpose, so what was needed before says nothing about the time afterwards."""
    return replace(state, low=Window(), target=Window(), high=Window(), trial=None)


def _gate(case: _Case, state: ScalingState) -> ScalingGate | None:
    return transfer(case.group.service) or warming_up(
        case.group.workers, state, current=case.current, now=case.now
    )


def _range_without_rate(case: _Case) -> ReplicaRange | None:
    """Without any rate: as long as there is almost no lag, the current number is enough, and maybe one fewer.
    Trying one fewer is how a rate becomes known at all.
    """
    inputs = case.measured.inputs
    if inputs.arrival_per_s is None or inputs.lag_groups is None:
        return None
    little_s = max(LITTLE_LAG_S, LITTLE_LAG_CYCLES * case.measured.pace.cycle_s)
    if inputs.lag_groups > inputs.arrival_per_s * little_s:
        return None
    fewer = max(1, case.current - 1)
    return ReplicaRange(wanted=case.current, low=case.current, target=case.current, high=fewer)


def _follow(
    case: _Case, state: ScalingState, replica_range: ReplicaRange | None, gate: ScalingGate | None
) -> tuple[ScalingState, Recommendation]:
    current, inputs = case.current, case.measured.inputs
    # Without a worker nothing is measured, so nothing but the spec and the lag can decide.
    if current == 0:
        return state, _from_zero(case)
    # The bounds hold at once, without waiting for a window: the user has set them.
    inside, bound = case.bounds.cut(current)
    if inside != current:
        running = counted(current, "worker runs", "workers run")
        message = f"{running}, the bounds allow {inside}"
        return state, _recommendation(inside, ActiveReason.OUTSIDE_BOUNDS, message, bound)
    if case.bounds.minimum == 0 and inputs.demand_per_s == 0.0:
        return state, _unless_blocked(
            case, _recommendation(0, ActiveReason.IDLE, "nothing arrives and there is no lag"), gate
        )
    if replica_range is None:
        return state, _blocked(case, _why_unknown(inputs))
    return _stabilized(case, state, replica_range, gate)


def _from_zero(case: _Case) -> Recommendation:
    """Starts with the requested number, or with the number before a suspension: the backlog is largest then.
    After a scale to zero it starts again as soon as there is lag, or logs wait to be retried, or that is
    unknown.
    """
    group, inputs = case.group, case.measured.inputs
    before = _before_suspension(group.reported)
    to_zero = group.scaling.scale_to_zero is not None and group.was_applied
    if not to_zero or (before and inputs.lag_groups != 0):
        workers, bound = case.bounds.cut(before or max(group.requested, 1))
        if workers == 0:
            return _recommendation(0, ActiveReason.OUTSIDE_BOUNDS, "the bounds allow no workers", bound)
        source = "as many as before they were stopped" if before else "from spec.replicas"
        message = f"starting with {worker_count(workers)}, {source}"
        return _recommendation(workers, ActiveReason.SCALING_UP, message, bound)
    if inputs.lag_groups == 0 and inputs.retry_groups == 0:
        return _recommendation(0, ActiveReason.IDLE, "there is no lag")
    workers, bound = replace(case.bounds, minimum=1).cut(1)
    message = "logs wait to be retried" if inputs.lag_groups == 0 else "there is lag to work off"
    return _recommendation(workers, ActiveReason.SCALING_UP, message, bound)


def _before_suspension(reported: ScalingStatus | None) -> int:
    """How many workers ran until a suspension or a checkpoint reset stopped all; 0: nothing of that kind was
    the last step. The status has it, so a restart of the operator forgets nothing.
    """
    steps = [step for step in reported.history if step.target == "Workers"] if reported else []
    stopped = bool(steps) and steps[0].to == 0 and steps[0].reason == ActiveReason.SUSPENDED
    return steps[0].from_ if stopped else 0


def _why_unknown(inputs: LoadInputs) -> ScalingGate:
    if inputs.lag_groups is None:
        return ScalingGate(reason=ActiveReason.LAG_UNKNOWN, message="the lag of some shard is unknown")
    if inputs.arrival_per_s is None:
        message = "the arrival rate is being measured"
    else:
        message = "the rate of one worker is measured once a worker is continuously busy for a while"
    return ScalingGate(reason=ActiveReason.PROCESSING_RATE_UNKNOWN, message=message)


def _stabilized(
    case: _Case, state: ScalingState, replica_range: ReplicaRange, gate: ScalingGate | None
) -> tuple[ScalingState, Recommendation]:
    current = case.current
    (low, over), (high, under) = (
        case.bounds.cut(replica_range.low),
        case.bounds.cut(max(1, replica_range.high)),
    )
    if low <= current <= high:
        bound = over if over in ("Maximum", "Shards") else "Minimum" if under == "Minimum" else None
        return state, _recommendation(
            current, ActiveReason.WITHIN_CAPACITY, "as many workers run as the load needs", bound
        )
    # Another number is needed, also within the bounds. A step down goes on past a gate that does not end: a
    # worker that never becomes ready would keep all of them.
    stabilized = stabilize(state, replica_range, current=current, now=case.now, spans=case.spans)
    workers, cut_by = case.bounds.cut(stabilized.workers)
    if low > current:
        return _scale_up(case, state, gate, workers, cut_by, stabilizing=stabilized.stabilizing)
    if gate is not None and not warming_too_long(state, case.now):
        return state, _blocked(case, gate)
    if stabilized.stabilizing or workers >= current:
        message = f"fewer workers than {current} suffice, but not yet for the whole stabilization window"
        return state, _blocked(case, ScalingGate(reason=ActiveReason.SCALE_DOWN_STABILIZED, message=message))
    reason = ActiveReason.SCALING_DOWN if case.measured.inputs.worker_per_s else ActiveReason.PROBING
    enough = counted(workers, "worker has", "workers have")
    return state, _recommendation(workers, reason, f"{enough} sufficed for the stabilization window", cut_by)


def _scale_up(
    case: _Case,
    state: ScalingState,
    gate: ScalingGate | None,
    workers: int,
    bound: Bound | None,
    *,
    stabilizing: bool,
) -> tuple[ScalingState, Recommendation]:
    if gate is not None:
        return state, _blocked(case, gate)
    # The last step is judged only now that another one is wanted, when all of its workers are warm.
    unit = "logs" if case.group.subscribes else "log groups"
    state, ineffective = judge_trial(state, now=case.now, pace=case.measured.pace, unit=unit)
    if case.group.useless is not None:
        return state, _blocked(case, case.group.useless)
    if ineffective is not None:
        return state, _blocked(case, ineffective)
    if stabilizing or workers <= case.current:
        message = (
            f"more workers than {case.current} are needed, but not yet for the whole stabilization window"
        )
        return state, _blocked(case, ScalingGate(reason=ActiveReason.SCALE_UP_STABILIZED, message=message))
    most = case.group.most_useful
    if most is not None and most <= case.current:
        keys = counted(most, "part of the keys has", "parts of the keys have")
        message = f"{keys} logs at workers, so more workers than {case.current} would have none"
        return state, _blocked(case, ScalingGate(reason=ActiveReason.MORE_CANNOT_HELP, message=message))
    if most is not None and workers > most:
        workers, bound = most, "Keys"
    step = 1 if state.unhelpful else case.group.scaling.scale_up.max_pods_per_step
    maximum = case.current + step
    if workers > maximum:
        workers, bound = maximum, "Step"
    message = f"{counted(workers, 'worker is', 'workers are')} needed"
    return state, _recommendation(workers, ActiveReason.SCALING_UP, message, bound)


def _unless_blocked(case: _Case, recommendation: Recommendation, gate: ScalingGate | None) -> Recommendation:
    if gate is None or warming_too_long(case.measured.state, case.now):
        return recommendation
    return _blocked(case, gate)


def _blocked(case: _Case, gate: ScalingGate) -> Recommendation:
    return Recommendation(workers=case.current, reason=gate.reason, message=gate.message, blocked=True)


def _recommendation(
    workers: int, reason: ActiveReason, message: str, bound: Bound | None = None
) -> Recommendation:
    return Recommendation(workers=workers, reason=reason, message=message, bound=bound)
