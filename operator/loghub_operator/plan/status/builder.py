"""Builds the status, which shows users and autoscalers the state of one consumer group.

Everything in it follows from what was observed and decided; `loghub_operator.api.conditions` explains the
reasons. A status is written only if it says something new
(`loghub_operator.plan.status.write_policy.worth_writing`): at once if a state, a consumer, a number of
workers or a condition changed; at a bounded rate if only the lag, the checkpoints or the text of a message
changed (the text of another program's error may differ each time); never if only the time of observation
changed.
"""

import math

from loghub_operator.api.conditions import (
    ConditionType,
    ConditionUpdate,
    DegradedReason,
    GroupReason,
    LagReason,
    ReadyReason,
    RebalancingReason,
    ScalingReason,
    UnseenReason,
    WorkersReason,
    fill_unknown,
    rfc3339,
    with_transition_times,
)
from loghub_operator.api.labels import selector_text
from loghub_operator.api.status import (
    MAX_PARENTS,
    MAX_SHARDS,
    CheckpointResetStatus,
    Lag,
    Phase,
    ShardStatus,
    ShardSummary,
    Status,
)
from loghub_operator.api.v1alpha1 import LogHubConsumerGroup
from loghub_operator.model.observed import ObservedState, ServiceObserved, ShardObserved
from loghub_operator.plan.drift_backoff import DriftBackoff
from loghub_operator.plan.replicas import ReplicaPlan
from loghub_operator.plan.scaling.autoscaler import ScalingDecision
from loghub_operator.plan.scaling.inputs import assignable
from loghub_operator.plan.scaling.report import active_finding, scaling_status
from loghub_operator.plan.status.summary import (
    SummaryInputs,
    degraded_finding,
    in_the_way,
    paused_finding,
    phase_of,
    ready_finding,
    workers_finding,
)
from loghub_operator.plan.suspension import suspension_of
from loghub_operator.resources.worker_config import config_hash, worker_config


def build_status(
    resource: LogHubConsumerGroup,
    observed: ObservedState,
    size: ReplicaPlan,
    course: ScalingDecision,
    group: ConditionUpdate,
    moving: CheckpointResetStatus | None,
    brake: DriftBackoff,
    now: float,
) -> Status:
    """The whole status unless the object is being deleted; ``moving`` is how far a reset is now."""
    ordered = moving if moving is not None and moving.nonce == resource.spec.reset_nonce else None
    paused = suspension_of(resource, observed)
    on = SummaryInputs(observed=observed, size=size, pause=paused, reposition=ordered, brake=brake)
    workers = workers_finding(observed, size)
    rebalancing = rebalancing_finding(observed.service)
    degraded = degraded_finding(on, workers)
    findings = (
        ready_finding(group, workers, paused),
        group,
        workers,
        rebalancing,
        lag_finding(observed.service),
        active_finding(resource, course),
        _scaling(size),
        course.heat.finding,
        paused_finding(paused),
        degraded,
    )
    phase = phase_of(on, group=group, rebalancing=rebalancing, degraded=degraded)
    told = _with_numbers(resource, observed, size.run, phase, findings, now)
    scaling = scaling_status(resource, course, run=size.run, now=now)
    return told.model_copy(update={"checkpoint_reset": moving, "scaling": scaling})


def deleting_status(
    resource: LogHubConsumerGroup, observed: ObservedState, *, waiting_for: str, fate: str, now: float
) -> Status:
    """The whole status once the deletion was requested; ``fate`` is what happens to the group at the log
    service.
    """
    left = len(observed.workers)
    looked_at = (
        ConditionUpdate(
            type=ConditionType.READY, status="False", reason=ReadyReason.TERMINATING, message=waiting_for
        ),
        ConditionUpdate(
            type=ConditionType.GROUP_SYNCED,
            status="False",
            reason=GroupReason.DELETING,
            message=fate,
        ),
        ConditionUpdate(
            type=ConditionType.WORKERS_AVAILABLE,
            status="False",
            reason=WorkersReason.TERMINATING,
            message=f"{left} workers still exist{in_the_way(observed)}",
        ),
        rebalancing_finding(observed.service),
        lag_finding(observed.service),
    )
    findings = fill_unknown(
        looked_at, UnseenReason.TERMINATING, "not checked while the object is being deleted"
    )
    replicas = observed.worker_set.replicas if observed.worker_set else 0
    told = _with_numbers(resource, observed, replicas, Phase.TERMINATING, findings, now)
    return told.model_copy(update={"checkpoint_reset": resource.status.checkpoint_reset})


def unseen_status(status: Status, why: UnseenReason, message: str, *, generation: int, now: float) -> Status:
    """The status of an object that cannot be parsed, or whose surroundings the operator may not read; shards
    and workers stay as they were last observed.
    """
    ready = ConditionUpdate(
        type=ConditionType.READY, status="False", reason=ReadyReason(why), message=message
    )
    degraded = ConditionUpdate(
        type=ConditionType.DEGRADED, status="True", reason=DegradedReason(why), message=message
    )
    findings = fill_unknown((ready, degraded), why, "not checked, see condition Ready")
    conditions = with_transition_times(findings, status.conditions, generation=generation, now=now)
    news = {"conditions": conditions, "phase": Phase.DEGRADED, "observed_generation": generation}
    return status.model_copy(update=news)


def _with_numbers(
    resource: LogHubConsumerGroup,
    observed: ObservedState,
    replicas: int,
    phase: Phase,
    findings: tuple[ConditionUpdate, ...],
    now: float,
) -> Status:
    service, known = observed.service, observed.service.trouble is None
    ready = sum(worker.ready for worker in observed.workers)
    updated = _updated(resource, observed)
    generation = resource.metadata.generation
    return Status(
        phase=phase,
        observed_generation=generation,
        replicas=replicas,
        ready_replicas=ready,
        updated_replicas=updated,
        consumer_group=resource.group,
        workers=f"{ready}/{replicas}",
        selector=selector_text(resource.metadata.name),
        group_origin=observed.group_origin,
        shard_summary=_summary(service) if known else None,
        lag=_lag(service) if known else None,
        shards=_shards(resource, observed),
        conditions=with_transition_times(
            findings, resource.status.conditions, generation=generation, now=now
        ),
    )


def _updated(resource: LogHubConsumerGroup, observed: ObservedState) -> int:
    """Workers that need no replacement: their settings and pods are those that the spec describes."""
    if observed.worker_set is not None and observed.worker_set.rolls:
        return 0
    current = config_hash(worker_config(resource, observed.site))
    return sum(worker.config_hash == current for worker in observed.workers)


def _summary(service: ServiceObserved) -> ShardSummary:
    return ShardSummary(
        total=len(service.shards),
        assignable=assignable(service),
        waiting=_in_state(service, "wait"),
        completed=_in_state(service, "over"),
    )


def _in_state(service: ServiceObserved, state: str) -> int:
    return sum(shard.state == state for shard in service.shards)


def _shards(resource: LogHubConsumerGroup, observed: ObservedState) -> tuple[ShardStatus, ...]:
    if observed.service.trouble is None:
        return tuple(_shard(shard, observed.at_unix_s) for shard in truncate_shards(observed.service.shards))
    return tuple(_forgotten(shard) for shard in resource.status.shards)


def truncate_shards(shards: tuple[ShardObserved, ...]) -> tuple[ShardObserved, ...]:
    """At most `MAX_SHARDS`; completed shards are left out first. ``shardSummary`` counts all."""
    if len(shards) <= MAX_SHARDS:
        return shards
    first = sorted(shards, key=lambda one: (one.state == "over", one.shard))[:MAX_SHARDS]
    return tuple(sorted(first, key=lambda one: one.shard))


def _shard(shard: ShardObserved, at_unix_s: float) -> ShardStatus:
    age = None if shard.checkpoint_unix_s is None else max(0, int(at_unix_s - shard.checkpoint_unix_s))
    return ShardStatus(
        id=shard.shard,
        state=shard.state,
        consumer=shard.holder or None,
        next_consumer=shard.next_holder or None,
        checkpoint=shard.checkpoint or None,
        checkpoint_age_seconds=age,
        lag_seconds=None if shard.lag_s is None else math.ceil(shard.lag_s),
        lag_logs=shard.lag_logs,
        read_only=shard.read_only,
        # More than these are ancestors in place of a parent that no longer exists (`infer_parents`).
        parents=shard.parents if len(shard.parents) <= MAX_PARENTS else (),
        observed_at=rfc3339(at_unix_s),
    )


def _forgotten(shard: ShardStatus) -> ShardStatus:
    """What may have changed since is unknown; ``observedAt`` still says when the shard was observed."""
    return ShardStatus(
        id=shard.id,
        state="unknown",
        read_only=shard.read_only,
        parents=shard.parents,
        observed_at=shard.observed_at,
    )


def _lag(service: ServiceObserved) -> Lag | None:
    seconds = [shard.lag_s for shard in service.shards]
    logs = [shard.lag_logs for shard in service.shards]
    largest = None if None in seconds else max((s for s in seconds if s is not None), default=0.0)
    total = None if None in logs else sum(n for n in logs if n is not None)
    if largest is None and total is None:
        return None
    return Lag(seconds=None if largest is None else math.ceil(largest), logs=total)


def lag_finding(service: ServiceObserved) -> ConditionUpdate:
    """Whether the lag in the status is current."""
    kind = ConditionType.LAG_AVAILABLE
    if service.trouble is not None:
        message = "the log service is unavailable"
        return ConditionUpdate(
            type=kind, status="False", reason=LagReason.LOG_SERVICE_UNAVAILABLE, message=message
        )
    unknown = [shard.shard for shard in service.shards if shard.lag_s is None and shard.lag_logs is None]
    if unknown:
        message = f"unknown for shards {', '.join(map(str, unknown[:10]))}"
        if service.lag_trouble:
            message = f"{service.lag_trouble}; {message}"
            return ConditionUpdate(type=kind, status="False", reason=LagReason.TIMED_OUT, message=message)
        return ConditionUpdate(type=kind, status="False", reason=LagReason.NOT_REPORTED, message=message)
    return ConditionUpdate(
        type=kind, status="True", reason=LagReason.AVAILABLE, message="the lag of every shard is known"
    )


def rebalancing_finding(service: ServiceObserved) -> ConditionUpdate:
    """Whether a shard is being handed over."""
    kind = ConditionType.REBALANCING
    if service.trouble is not None:
        message = "the log service is unavailable"
        return ConditionUpdate(
            type=kind, status="Unknown", reason=RebalancingReason.LOG_SERVICE_UNAVAILABLE, message=message
        )
    moving = [shard for shard in service.shards if shard.state == "transfer"]
    if not moving:
        message = "no shard is in transfer"
        return ConditionUpdate(type=kind, status="False", reason=RebalancingReason.BALANCED, message=message)
    # An endpoint that does not report the states does not report the next consumer either.
    moves = (f"{one.shard}: {one.holder} -> {one.next_holder or 'not known'}" for one in moving[:10])
    message = "in transfer: " + ", ".join(moves)
    return ConditionUpdate(
        type=kind, status="True", reason=RebalancingReason.REBALANCE_IN_PROGRESS, message=message
    )


def _scaling(size: ReplicaPlan) -> ConditionUpdate:
    limited = size.reason is not ScalingReason.DESIRED_WITHIN_RANGE
    return ConditionUpdate(
        type=ConditionType.SCALING_LIMITED,
        status="True" if limited else "False",
        reason=size.reason,
        message=size.message,
    )
