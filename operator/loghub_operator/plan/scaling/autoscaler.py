"""Decides how many workers should run, in every mode.

Fixed, External and Recommend run `spec.replicas`; Auto runs what the load needs. Every mode stays within the
bounds and never runs more workers than there are assignable shards. `loghub_operator.plan.replicas` reaches
the number, draining one worker at a time.

In short, Auto adds the arrival rate and the lag divided by the catch-up time, and expresses the sum in
workers. It stabilizes that number over the stabilization windows, limits it by the bounds and by
`maxPodsPerStep`, and does not follow it while a gate blocks the change
(`loghub_operator.plan.scaling.gates`).
"""

from dataclasses import dataclass, replace

from loghub_operator.api.conditions import ActiveReason
from loghub_operator.api.v1alpha1 import LogHubConsumerGroup
from loghub_operator.model.observed import ObservedState
from loghub_operator.model.scaling_state import ScalingState, Window
from loghub_operator.plan.scaling.desired_replicas import (
    Bound,
    LoadInputs,
    ReplicaBounds,
    ReplicaRange,
    need_of,
)
from loghub_operator.plan.scaling.gates import Gate, judged, transfer, warming_too_long, warming_up
from loghub_operator.plan.scaling.hot_shard import HotShardResult, find_hot_shards
from loghub_operator.plan.scaling.inputs import Measurements, collect
from loghub_operator.plan.scaling.stabilization import Spans, stabilize, with_need

LITTLE_LAG_S = 30.0  # of arrival: the lag that a worker that keeps up may have at any moment
LITTLE_LAG_CYCLES = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredReplicas:
    """What to run, before it is reached: ``asked`` limited by ``bound`` is ``workers``."""

    asked: int
    workers: int
    bound: Bound | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """What Auto would run, and why. ``held``: another number is needed, and the current one is kept."""

    workers: int | None
    reason: ActiveReason
    message: str
    held: bool = False
    bound: Bound | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingDecision:
    """The decision of one reconcile, with everything that it is based on."""

    goal: DesiredReplicas
    recommendation: Recommendation
    need: ReplicaRange | None
    seen: Measurements
    hot_shards: HotShardResult
    suspended: bool

    @property
    def inputs(self) -> LoadInputs:
        return self.seen.inputs

    @property
    def memory(self) -> ScalingState:
        return self.hot_shards.memory


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    """What the steps of the decision share."""

    resource: LogHubConsumerGroup
    observed: ObservedState
    seen: Measurements
    current: int
    bounds: ReplicaBounds
    spans: Spans

    @property
    def now(self) -> float:
        return self.observed.at_unix_s


def decide(resource: LogHubConsumerGroup, observed: ObservedState, *, suspended: bool) -> ScalingDecision:
    """Pure; the time is that of the observation. ``suspended``: no worker should run."""
    seen = collect(resource, observed)
    case = _case(resource, observed, seen)
    memory, recommendation, need = _recommended(case, suspended=suspended)
    goal = _goal(case, recommendation)
    settled = not suspended and transfer(observed.service) is None and seen.lag_groups is not None
    hot = find_hot_shards(
        resource.spec.scaling,
        observed.service,
        replace(seen, memory=memory),
        settled=settled,
        least=_least_shards(case, goal, need),
        now=observed.at_unix_s,
    )
    return ScalingDecision(
        goal=goal, recommendation=recommendation, need=need, seen=seen, hot_shards=hot, suspended=suspended
    )


def effective(observed: ObservedState) -> int:
    """Workers that run and were not asked to drain: a drain that has begun counts as done."""
    leaving = [one.ordinal for one in observed.workers if one.drain_requested]
    return min([observed.replicas, *leaving])


def _case(resource: LogHubConsumerGroup, observed: ObservedState, seen: Measurements) -> _Case:
    scaling = resource.spec.scaling
    return _Case(
        resource=resource,
        observed=observed,
        seen=seen,
        current=effective(observed),
        bounds=ReplicaBounds(
            least=_least(resource, seen.memory, observed.at_unix_s),
            most=scaling.max_replicas,
            shards=seen.inputs.assignable,
        ),
        spans=Spans(
            up_s=float(scaling.scale_up.stabilization_window_seconds),
            down_s=float(scaling.scale_down.stabilization_window_seconds),
            gap_s=seen.pace.gap_s,
        ),
    )


def _least(resource: LogHubConsumerGroup, memory: ScalingState, now: float) -> int:
    """The lower bound. If the load decides, it is at least one worker, unless scaling to zero is enabled and
    the group has been idle long enough.
    """
    scaling = resource.spec.scaling
    if scaling.mode not in ("Auto", "Recommend"):
        return scaling.min_replicas
    if scaling.scale_to_zero is None:
        return max(1, scaling.min_replicas)
    quiet_s = now - (memory.busy_unix_s or now)
    return 0 if quiet_s >= scaling.scale_to_zero.idle_seconds else 1


def _goal(case: _Case, recommendation: Recommendation) -> DesiredReplicas:
    """Auto runs the recommended number if there is one; the other modes run the requested number."""
    if case.resource.spec.scaling.mode == "Auto":
        begin = case.resource.spec.replicas if case.observed.worker_set is None else case.current
        asked = begin if recommendation.workers is None else recommendation.workers
        return DesiredReplicas(asked=asked, workers=asked, bound=recommendation.bound)
    asked = case.resource.spec.replicas
    least = case.resource.spec.scaling.min_replicas  # the lower bound of Auto does not apply
    workers, bound = replace(case.bounds, least=least).cut(asked)
    return DesiredReplicas(asked=asked, workers=workers, bound=bound)


def _least_shards(case: _Case, goal: DesiredReplicas, need: ReplicaRange | None) -> int:
    """The writable shards to keep: one for each worker that should run, or would if there were enough shards,
    or may run soon.
    """
    scaling = case.resource.spec.scaling
    wanted = max(goal.workers, need.goal if need else 0) if scaling.mode == "Auto" else goal.asked
    within = max(scaling.min_replicas, min(scaling.max_replicas, wanted))
    return max(1, scaling.shards.min_shards, within)


def _recommended(case: _Case, *, suspended: bool) -> tuple[ScalingState, Recommendation, ReplicaRange | None]:
    """What Auto would run; no number while it is unknown."""
    memory, inputs = case.seen.memory, case.seen.inputs
    if suspended:
        unknown = Recommendation(workers=None, reason=ActiveReason.SUSPENDED, message="no worker should run")
        return _forgetting(memory), unknown, None
    if not case.seen.available:
        message = "the log service is unavailable"
        return (
            memory,
            Recommendation(workers=None, reason=ActiveReason.LAG_UNKNOWN, message=message, held=True),
            None,
        )
    need = need_of(inputs) or _present_suffices(case)
    unsettled = _unsettled(case, memory)
    if unsettled is not None:  # the need while others settle says little about scaling up
        memory = replace(memory, low=Window(), goal=Window())
    memory = with_need(memory, need, now=case.now, spans=case.spans, up=unsettled is None)
    memory, recommendation = _follow(case, memory, need, unsettled)
    return memory, _while_leaving(case, recommendation), need


def _while_leaving(case: _Case, recommendation: Recommendation) -> Recommendation:
    """If the decision keeps the current number, a scale-down that has begun continues."""
    leaving = case.observed.replicas > case.current
    if not leaving or recommendation.workers != case.current:
        return recommendation
    words = "a worker leaves the group before it is stopped"
    return replace(recommendation, reason=ActiveReason.SCALING_DOWN, message=words, held=False)


def _forgetting(memory: ScalingState) -> ScalingState:
    """Nothing is consumed, on purpose, so what was needed before says nothing about the time afterwards."""
    return replace(memory, low=Window(), goal=Window(), high=Window(), trial=None)


def _unsettled(case: _Case, memory: ScalingState) -> Gate | None:
    return transfer(case.observed.service) or warming_up(
        case.observed.workers, memory, current=case.current, now=case.now
    )


def _present_suffices(case: _Case) -> ReplicaRange | None:
    """Without any rate: as long as there is almost no lag, the current number is enough, and maybe one fewer.
    Trying one fewer is how a rate becomes known at all.
    """
    inputs = case.seen.inputs
    if inputs.arrival_per_s is None or inputs.lag_groups is None:
        return None
    little_s = max(LITTLE_LAG_S, LITTLE_LAG_CYCLES * case.seen.pace.cycle_s)
    if inputs.lag_groups > inputs.arrival_per_s * little_s:
        return None
    fewer = max(1, case.current - 1)
    return ReplicaRange(wanted=case.current, low=case.current, goal=case.current, high=fewer)


def _follow(
    case: _Case, memory: ScalingState, need: ReplicaRange | None, unsettled: Gate | None
) -> tuple[ScalingState, Recommendation]:
    current, inputs = case.current, case.seen.inputs
    if current == 0:
        return memory, _from_zero(case)
    inside, bound = case.bounds.cut(current)
    if inside != current:
        words = f"{current} workers run, the bounds allow {inside}"
        return memory, _recommend(inside, ActiveReason.OUTSIDE_BOUNDS, words, bound)
    if case.bounds.least == 0 and inputs.demand_per_s == 0.0:
        return memory, _or_held(
            case, _recommend(0, ActiveReason.IDLE, "nothing arrives and there is no lag"), unsettled
        )
    if need is None:
        return memory, _kept(case, _why_unknown(inputs))
    return _steadied(case, memory, need, unsettled)


def _from_zero(case: _Case) -> Recommendation:
    """Starts with the requested number. After a scale to zero it starts again as soon as there is lag, or the
    lag is unknown.
    """
    scaling, inputs = case.resource.spec.scaling, case.seen.inputs
    if scaling.scale_to_zero is None or case.observed.worker_set is None:
        workers, bound = case.bounds.cut(max(case.resource.spec.replicas, 1))
        if workers == 0:
            return _recommend(0, ActiveReason.OUTSIDE_BOUNDS, "the bounds allow no workers", bound)
        return _recommend(workers, ActiveReason.SCALING_UP, f"starting with {workers} workers", bound)
    if inputs.lag_groups == 0:
        return _recommend(0, ActiveReason.IDLE, "there is no lag")
    workers, bound = replace(case.bounds, least=1).cut(1)
    return _recommend(workers, ActiveReason.SCALING_UP, "there is lag to work off", bound)


def _why_unknown(inputs: LoadInputs) -> Gate:
    if inputs.lag_groups is None:
        return Gate(reason=ActiveReason.LAG_UNKNOWN, message="the lag of some shard is unknown")
    if inputs.arrival_per_s is None:
        message = "the arrival rate is being measured"
    else:
        message = "the rate of one worker is measured once a worker is continuously busy for a while"
    return Gate(reason=ActiveReason.PROCESSING_RATE_UNKNOWN, message=message)


def _steadied(
    case: _Case, memory: ScalingState, need: ReplicaRange, unsettled: Gate | None
) -> tuple[ScalingState, Recommendation]:
    current = case.current
    (low, over), (high, under) = case.bounds.cut(need.low), case.bounds.cut(max(1, need.high))
    if low <= current <= high:
        bound = over if over in ("Maximum", "Shards") else "Minimum" if under == "Minimum" else None
        return memory, _recommend(
            current, ActiveReason.WITHIN_CAPACITY, "as many workers run as the load needs", bound
        )
    calm = stabilize(memory, need, current=current, now=case.now, spans=case.spans)
    workers, cut_by = case.bounds.cut(calm.workers)
    if low > current:
        return _up(case, memory, unsettled, workers, cut_by, stabilizing=calm.stabilizing)
    if unsettled is not None and not warming_too_long(memory, case.now):
        return memory, _kept(case, unsettled)
    if calm.stabilizing or workers >= current:
        message = f"fewer than {current} workers suffice, but not yet for the whole stabilization window"
        return memory, _kept(case, Gate(reason=ActiveReason.SCALE_DOWN_STABILIZED, message=message))
    reason = ActiveReason.SCALING_DOWN if case.seen.inputs.worker_per_s else ActiveReason.PROBING
    return memory, _recommend(
        workers, reason, f"{workers} workers have sufficed for the stabilization window", cut_by
    )


def _up(
    case: _Case,
    memory: ScalingState,
    unsettled: Gate | None,
    workers: int,
    bound: Bound | None,
    *,
    stabilizing: bool,
) -> tuple[ScalingState, Recommendation]:
    if unsettled is not None:
        return memory, _kept(case, unsettled)
    memory, no_help = judged(memory, now=case.now, pace=case.seen.pace)
    if no_help is not None:
        return memory, _kept(case, no_help)
    if stabilizing or workers <= case.current:
        message = (
            f"more than {case.current} workers are needed, but not yet for the whole stabilization window"
        )
        return memory, _kept(case, Gate(reason=ActiveReason.SCALE_UP_STABILIZED, message=message))
    step = 1 if memory.unhelpful else case.resource.spec.scaling.scale_up.max_pods_per_step
    most = case.current + step
    if workers > most:
        workers, bound = most, "Step"
    return memory, _recommend(workers, ActiveReason.SCALING_UP, f"{workers} workers are needed", bound)


def _or_held(case: _Case, recommendation: Recommendation, unsettled: Gate | None) -> Recommendation:
    if unsettled is None or warming_too_long(case.seen.memory, case.now):
        return recommendation
    return _kept(case, unsettled)


def _kept(case: _Case, hold: Gate) -> Recommendation:
    return Recommendation(workers=case.current, reason=hold.reason, message=hold.message, held=True)


def _recommend(
    workers: int, reason: ActiveReason, message: str, bound: Bound | None = None
) -> Recommendation:
    return Recommendation(workers=workers, reason=reason, message=message, bound=bound)
