"""Reports a scaling decision: ``status.scaling``, condition ScalingActive, and the metrics of the group.

The status shows the inputs, the formula, the bound, what was applied or why it was blocked, and the last
changes. Numbers have three significant digits, and a decision keeps its time while it stays the same, so the
report of an idle group is the same at each reconcile and is not written.
"""

from loghub_operator.api.conditions import ActiveReason, ConditionType, ConditionUpdate, rfc3339
from loghub_operator.api.status import (
    MAX_SHARDS,
    ScalingInputs,
    ScalingLimit,
    ScalingStatus,
    ScalingStep,
    Status,
)
from loghub_operator.api.v1alpha1 import Metadata
from loghub_operator.model.group_metrics import GroupMetrics, ShardMetrics, SubscriptionMetrics
from loghub_operator.model.observed import Available, ShardObserved
from loghub_operator.plan.listing import worker_count
from loghub_operator.plan.scaling.autoscaler import ScalingDecision
from loghub_operator.plan.scaling.load import ShardRates, formula, rounded
from loghub_operator.plan.scaling.subscription import WITHHELD

MAX_STEPS = 10  # the bound of the field in the CRD
_BLIND = (ActiveReason.LAG_UNKNOWN, ActiveReason.PROCESSING_RATE_UNKNOWN, ActiveReason.SUSPENDED)
_NOT_BY_LOAD = {
    "Fixed": (ActiveReason.SCALING_DISABLED, "spec.replicas decides"),
    "External": (
        ActiveReason.MANAGED_EXTERNALLY,
        "an autoscaler decides through the scale subresource; spec.replicas is its number",
    ),
}


def scaling_status(reported: Status, decision: ScalingDecision, *, run: int, now: float) -> ScalingStatus:
    """The decision of this reconcile; ``run`` workers run now. ``reported`` is the status until now."""
    before, mode, reason = reported.scaling, decision.group.scaling.mode, reason_of(decision)
    recommendation, auto = decision.recommendation, mode == "Auto"
    status = ScalingStatus(
        mode=mode,
        uncapped_replicas=None if decision.replica_range is None else decision.replica_range.wanted,
        recommended_replicas=recommendation.workers if mode in ("Auto", "Recommend") else None,
        desired_replicas=run,
        blocked=recommendation.blocked and auto,
        reason=reason,
        limited_by=decision.desired.bound and ScalingLimit(decision.desired.bound),
        formula=formula(decision.inputs, decision.replica_range),
        inputs=_inputs(decision),
        history=_history(reported, decision, run=run, now=now, reason=reason),
    )
    same = before is not None and _decided(before) == _decided(status)
    time = before.last_decision_time if before is not None and same else rfc3339(now)
    return status.model_copy(update={"last_decision_time": time})


def reason_of(decision: ScalingDecision) -> str:
    """The reason, or, if the load does not decide, what decides instead."""
    instead = _NOT_BY_LOAD.get(decision.group.scaling.mode)
    return str(decision.recommendation.reason if instead is None or decision.suspended else instead[0])


def active_condition(decision: ScalingDecision) -> ConditionUpdate:
    """Whether the number of workers follows the load."""
    kind, mode = ConditionType.SCALING_ACTIVE, decision.group.scaling.mode
    recommendation = decision.recommendation
    if mode in _NOT_BY_LOAD and not decision.suspended:
        reason, message = _NOT_BY_LOAD[mode]
        return ConditionUpdate(type=kind, status="False", reason=reason, message=message)
    if mode == "Recommend" and not decision.suspended:
        number = "no number" if recommendation.workers is None else worker_count(recommendation.workers)
        why = f"{recommendation.reason}: {recommendation.message}"
        message = f"recommended: {number} ({why}); spec.replicas decides"
        return ConditionUpdate(type=kind, status="False", reason=ActiveReason.RECOMMEND_ONLY, message=message)
    blind = recommendation.reason in _BLIND
    return ConditionUpdate(
        type=kind,
        status="False" if blind else "True",
        reason=recommendation.reason,
        message=recommendation.message,
    )


def group_metrics(metadata: Metadata, decision: ScalingDecision, *, run: int) -> GroupMetrics:
    """For metrics and for other autoscalers."""
    inputs, service = decision.inputs, decision.group.available
    shards = () if service is None else service.shards
    dead_letter = None if service is None else service.dead_letter
    logs = [shard.lag_logs for shard in shards]
    ages = [shard.lag_s for shard in shards]
    unknown = service is None
    subscribes = decision.group.subscribes
    return GroupMetrics(
        namespace=metadata.namespace,
        name=metadata.name,
        mode=decision.group.scaling.mode,
        lag_groups=None if subscribes else decision.measured.lag_groups,
        lag_logs=None if None in logs or unknown else sum(number or 0 for number in logs),
        retry_groups=inputs.retry_groups,
        dead_letter_groups=None if dead_letter is None else dead_letter.log_groups,
        lag_seconds=None if None in ages or unknown else max((age or 0.0 for age in ages), default=0.0),
        arrival_per_s=None if subscribes else inputs.arrival_per_s,
        consumed_per_s=None if subscribes else decision.measured.consumed_per_s,
        worker_per_s=None if subscribes else inputs.worker_per_s,
        wanted=None if decision.replica_range is None else decision.replica_range.wanted,
        recommended=decision.recommendation.workers,
        applied=run,
        ready=inputs.ready,
        assignable=inputs.assignable,
        paused=decision.suspended,
        shards=tuple(_shard(shard, decision) for shard in shards),
        subscription=None if service is None else _subscription(service, decision),
        at_unix_s=decision.group.at_unix_s,
    )


def _subscription(service: Available, decision: ScalingDecision) -> SubscriptionMetrics | None:
    seen, inputs = service.subscription, decision.inputs
    if seen is None:
        return None
    return SubscriptionMetrics(
        backlog_logs=seen.backlog_logs,
        unacked_logs=seen.unacked_logs,
        redelivered_logs=seen.redelivered_logs,
        consumers=len(service.consumers or ()),
        withheld=seen.state in WITHHELD,
        arrival_per_s=inputs.arrival_per_s,
        acknowledged_per_s=decision.measured.consumed_per_s,
        worker_per_s=inputs.worker_per_s,
    )


def _shard(shard: ShardObserved, decision: ScalingDecision) -> ShardMetrics:
    unknown = ShardRates(arrival_per_s=None, consumed_per_s=None)
    measured = {} if decision.group.subscribes else decision.measured.shards
    rates = measured.get(shard.shard, unknown)
    return ShardMetrics(
        shard=shard.shard,
        state=shard.state,
        holder=shard.holder,
        lag_groups=shard.lag_groups,
        lag_logs=shard.lag_logs,
        lag_seconds=shard.lag_s,
        arrival_per_s=rates.arrival_per_s,
        consumed_per_s=rates.consumed_per_s,
        hot=shard.shard in decision.hot_shards.hot,
    )


def _inputs(decision: ScalingDecision) -> ScalingInputs:
    inputs, subscribes = decision.inputs, decision.group.subscribes
    arrival, rate = inputs.arrival_per_s, inputs.worker_per_s
    return ScalingInputs(
        arrival_per_second=None if arrival is None else rounded(arrival),
        lag_log_groups=None if subscribes else inputs.lag_groups,
        backlog_logs=inputs.lag_groups if subscribes else None,
        worker_per_second=None if rate is None else rounded(rate),
        catch_up_seconds=inputs.catch_up_s,
        assignable_shards=inputs.assignable,
        ready_workers=inputs.ready,
    )


def _decided(status: ScalingStatus) -> tuple[object, ...]:
    return (
        status.mode,
        status.recommended_replicas,
        status.desired_replicas,
        status.blocked,
        status.reason,
        status.limited_by,
    )


def _history(
    reported: Status, decision: ScalingDecision, *, run: int, now: float, reason: str
) -> tuple[ScalingStep, ...]:
    """Compares with the status that was reported last, so that a crash in between loses no step."""
    before, steps = reported.scaling, []
    resharded = _resharded(reported, decision, now)
    if resharded is not None:
        steps.append(resharded)
    if before is not None and before.desired_replicas != run:
        steps.append(ScalingStep(time=rfc3339(now), from_=before.desired_replicas, to=run, reason=reason))
    return (*steps, *(before.history if before is not None else ()))[:MAX_STEPS]


def _resharded(reported: Status, decision: ScalingDecision, now: float) -> ScalingStep | None:
    """Other shards are writable than were reported last: an observed change, not merely a requested one,
    regardless of who made it.
    """
    marks = decision.state.samples[-1].marks if decision.state.samples else ()
    old = {shard.id for shard in reported.shards if not shard.read_only}
    new = {mark.shard for mark in marks if not mark.read_only}
    summary = reported.shard_summary
    if summary is None or summary.total - summary.completed > MAX_SHARDS:
        return None  # the status does not list every writable shard
    group = decision.group
    if group.subscribes or group.available is None or group.has_moved or not old or old == new:
        return None
    reason = "ShardSplit" if len(new) > len(old) else "ShardsMerged"
    return ScalingStep(time=rfc3339(now), target="Shards", from_=len(old), to=len(new), reason=reason)
