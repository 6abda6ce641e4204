"""Reports a scaling decision: ``status.scaling``, condition ScalingActive, and the metrics of the group.

The status shows the inputs, the formula, the bound, what was applied or why it was blocked, and the last
changes. Numbers have three significant digits, and a decision keeps its time while it stays the same, so the
report of an idle group is the same at each reconcile and is not written.
"""

from loghub_operator.api.conditions import ActiveReason, ConditionType, ConditionUpdate, rfc3339
from loghub_operator.api.status import MAX_SHARDS, ScalingInputs, ScalingLimit, ScalingStatus, ScalingStep
from loghub_operator.api.v1alpha1 import LogHubConsumerGroup
from loghub_operator.model.group_metrics import GroupMetrics, ShardMetrics
from loghub_operator.model.observed import ObservedState, ShardObserved
from loghub_operator.plan.scaling.autoscaler import ScalingDecision
from loghub_operator.plan.scaling.desired_replicas import Inputs, formula, rounded
from loghub_operator.plan.scaling.inputs import ShardRates

MOST_STEPS = 10
_BLIND = (ActiveReason.LAG_UNKNOWN, ActiveReason.PROCESSING_RATE_UNKNOWN, ActiveReason.SUSPENDED)
_NOT_BY_LOAD = {
    "Fixed": (ActiveReason.SCALING_DISABLED, "spec.replicas decides"),
    "External": (
        ActiveReason.MANAGED_EXTERNALLY,
        "an autoscaler decides through the scale subresource; spec.replicas is its number",
    ),
}


def scaling_status(
    resource: LogHubConsumerGroup, course: ScalingDecision, *, run: int, now: float
) -> ScalingStatus:
    """The decision of this reconcile; ``run`` workers run now."""
    before, mode = resource.status.scaling, resource.spec.scaling.mode
    advice, auto = course.advice, mode == "Auto"
    made = ScalingStatus(
        mode=mode,
        uncapped_replicas=None if course.need is None else course.need.wanted,
        recommended_replicas=advice.workers if mode in ("Auto", "Recommend") else None,
        desired_replicas=run,
        blocked=advice.held and auto,
        reason=reason_of(resource, course),
        limited_by=course.goal.bound and ScalingLimit(course.goal.bound),
        formula=formula(course.inputs, course.need),
        inputs=_told(course.inputs),
        history=_history(resource, course, run=run, now=now, reason=reason_of(resource, course)),
    )
    same = before is not None and _decided(before) == _decided(made)
    time = before.last_decision_time if before is not None and same else rfc3339(now)
    return made.model_copy(update={"last_decision_time": time})


def reason_of(resource: LogHubConsumerGroup, course: ScalingDecision) -> str:
    """The reason, or, if the load does not decide, what decides instead."""
    told = _NOT_BY_LOAD.get(resource.spec.scaling.mode)
    return str(course.advice.reason if told is None or course.paused else told[0])


def active_finding(resource: LogHubConsumerGroup, course: ScalingDecision) -> ConditionUpdate:
    """Whether the number of workers follows the load."""
    kind, mode, advice = ConditionType.SCALING_ACTIVE, resource.spec.scaling.mode, course.advice
    if mode in _NOT_BY_LOAD and not course.paused:
        reason, message = _NOT_BY_LOAD[mode]
        return ConditionUpdate(type=kind, status="False", reason=reason, message=message)
    if mode == "Recommend" and not course.paused:
        number = "no number" if advice.workers is None else f"{advice.workers} workers"
        message = f"recommended: {number} ({advice.reason}: {advice.message}); spec.replicas decides"
        return ConditionUpdate(type=kind, status="False", reason=ActiveReason.RECOMMEND_ONLY, message=message)
    blind = advice.reason in _BLIND
    return ConditionUpdate(
        type=kind, status="False" if blind else "True", reason=advice.reason, message=advice.message
    )


def readings_of(
    resource: LogHubConsumerGroup, observed: ObservedState, course: ScalingDecision, *, run: int
) -> GroupMetrics:
    """For metrics and for other autoscalers."""
    service, inputs = observed.service, course.inputs
    logs = [shard.lag_logs for shard in service.shards]
    ages = [shard.lag_s for shard in service.shards]
    asked = course.seen.asked
    return GroupMetrics(
        namespace=resource.metadata.namespace,
        name=resource.metadata.name,
        mode=resource.spec.scaling.mode,
        lag_groups=course.seen.lag_groups,
        lag_logs=None if None in logs or not asked else sum(one or 0 for one in logs),
        lag_seconds=None if None in ages or not asked else max((one or 0.0 for one in ages), default=0.0),
        arrival_per_s=inputs.arrival_per_s,
        consumed_per_s=course.seen.consumed_per_s,
        worker_per_s=inputs.worker_per_s,
        wanted=None if course.need is None else course.need.wanted,
        recommended=course.advice.workers,
        applied=run,
        ready=inputs.ready,
        assignable=inputs.assignable,
        paused=course.paused,
        shards=tuple(_shard(one, course) for one in service.shards),
        at_unix_s=observed.at_unix_s,
    )


def _shard(shard: ShardObserved, course: ScalingDecision) -> ShardMetrics:
    rates = course.seen.shards.get(shard.shard, ShardRates(arrival_per_s=None, consumed_per_s=None))
    return ShardMetrics(
        shard=shard.shard,
        state=shard.state,
        holder=shard.holder,
        lag_groups=shard.lag_groups,
        lag_logs=shard.lag_logs,
        lag_seconds=shard.lag_s,
        arrival_per_s=rates.arrival_per_s,
        consumed_per_s=rates.consumed_per_s,
        hot=shard.shard in course.heat.hot,
    )


def _told(inputs: Inputs) -> ScalingInputs:
    arrival, rate = inputs.arrival_per_s, inputs.worker_per_s
    return ScalingInputs(
        arrival_per_second=None if arrival is None else rounded(arrival),
        lag_log_groups=inputs.lag_groups,
        worker_per_second=None if rate is None else rounded(rate),
        catch_up_seconds=inputs.catch_up_s,
        assignable_shards=inputs.assignable,
        ready_workers=inputs.ready,
    )


def _decided(told: ScalingStatus) -> tuple[object, ...]:
    return (
        told.mode,
        told.recommended_replicas,
        told.desired_replicas,
        told.blocked,
        told.reason,
        told.limited_by,
    )


def _history(
    resource: LogHubConsumerGroup, course: ScalingDecision, *, run: int, now: float, reason: str
) -> tuple[ScalingStep, ...]:
    """Compares with the status that was reported last, so that a crash in between loses no step."""
    before, made = resource.status.scaling, []
    resharded = _resharded(resource, course, now)
    if resharded is not None:
        made.append(resharded)
    if before is not None and before.desired_replicas != run:
        made.append(ScalingStep(time=rfc3339(now), from_=before.desired_replicas, to=run, reason=reason))
    return (*made, *(before.history if before is not None else ()))[:MOST_STEPS]


def _resharded(resource: LogHubConsumerGroup, course: ScalingDecision, now: float) -> ScalingStep | None:
    """Other shards are writable than were reported last: an observed change, not merely a requested one,
    regardless of who made it.
    """
    marks = course.memory.samples[-1].marks if course.memory.samples else ()
    old = {one.id for one in resource.status.shards if not one.read_only}
    new = {one.shard for one in marks if not one.read_only}
    listed = resource.status.shard_summary
    if listed is None or listed.total - listed.completed > MAX_SHARDS:
        return None  # the status does not list every writable shard
    if not course.seen.asked or course.seen.moved or not old or old == new:
        return None
    word = "ShardSplit" if len(new) > len(old) else "ShardsMerged"
    return ScalingStep(time=rfc3339(now), target="Shards", from_=len(old), to=len(new), reason=word)
