"""The status: what people and autoscalers are told about one consumer group.

What for: everything in the status, from what was observed and decided. What it must not
know: how a status is written. Read next: `loghub_operator.conditions` (the reasons).

A status is written only where it says something new (`worth_writing`): at once where a
state, a holder, a number of workers or a condition changed; at a bounded rate where only
the lag, the checkpoints or a message's words moved (somebody else's words may differ each
time); never where only the time of observation did.
"""

import math
from typing import Any

from loghub.wire.errors import LogHubError
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
from loghub_operator.braking import Brake
from loghub_operator.conditions import (
    ConditionType,
    DegradedReason,
    Finding,
    GroupReason,
    LagReason,
    ReadyReason,
    RebalancingReason,
    ScalingReason,
    UnseenReason,
    WorkersReason,
    dated,
    rfc3339,
    unseen,
)
from loghub_operator.health import (
    Situation,
    degraded_finding,
    in_the_way,
    paused_finding,
    phase_of,
    ready_finding,
    workers_finding,
)
from loghub_operator.model import Observed, ServiceObserved, ShardObserved
from loghub_operator.names import selector_text
from loghub_operator.pausing import pause
from loghub_operator.scaling.decide import Course
from loghub_operator.scaling.ledger import active_finding, ledger
from loghub_operator.scaling.look import assignable
from loghub_operator.sizing import Size
from loghub_operator.workers import config_hash, worker_config

LAG_EVERY_S = 10.0
_TIMES = ("observedAt", "checkpointAgeSeconds")
_MOVING = ("lag", "lagSeconds", "lagLogs", "checkpoint", "message", "inputs", "uncappedReplicas", "formula")


def worth_writing(old: Status, new: Status, *, since_last_s: float) -> bool:
    """Does the new status say something that the old one does not, and is it time to say it?"""
    before, after = _without(_TIMES, old.to_dict()), _without(_TIMES, new.to_dict())
    if before == after:
        return False
    return _without(_MOVING, before) != _without(_MOVING, after) or since_last_s >= LAG_EVERY_S


def _without(names: tuple[str, ...], value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without(names, part) for key, part in value.items() if key not in names}
    if isinstance(value, list):
        return [_without(names, part) for part in value]
    return value


def status_of(
    resource: LogHubConsumerGroup,
    observed: Observed,
    size: Size,
    course: Course,
    group: Finding,
    moving: CheckpointResetStatus | None,
    brake: Brake,
    now: float,
) -> Status:
    """The whole status while the object lives; ``moving`` is how far a reposition is by now."""
    ordered = moving if moving is not None and moving.nonce == resource.spec.reset_nonce else None
    paused = pause(resource, observed)
    on = Situation(observed=observed, size=size, pause=paused, reposition=ordered, brake=brake)
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
    scaling = ledger(resource, course, run=size.run, now=now)
    return told.model_copy(update={"checkpoint_reset": moving, "scaling": scaling})


def deleting_status(
    resource: LogHubConsumerGroup, observed: Observed, *, waiting_for: str, fate: str, now: float
) -> Status:
    """The whole status once the deletion was asked for; ``fate`` is the group's at the log service."""
    left = len(observed.workers)
    looked_at = (
        Finding(
            type=ConditionType.READY, status="False", reason=ReadyReason.TERMINATING, message=waiting_for
        ),
        Finding(
            type=ConditionType.GROUP_SYNCED,
            status="False",
            reason=GroupReason.DELETING,
            message=fate,
        ),
        Finding(
            type=ConditionType.WORKERS_AVAILABLE,
            status="False",
            reason=WorkersReason.TERMINATING,
            message=f"{left} workers still exist{in_the_way(observed)}",
        ),
        rebalancing_finding(observed.service),
        lag_finding(observed.service),
    )
    findings = unseen(looked_at, UnseenReason.TERMINATING, "not checked while the object is being deleted")
    replicas = observed.worker_set.replicas if observed.worker_set else 0
    told = _with_numbers(resource, observed, replicas, Phase.TERMINATING, findings, now)
    return told.model_copy(update={"checkpoint_reset": resource.status.checkpoint_reset})


def words_of(error: Exception) -> str:
    """The same at each round: a request's id is for the log alone, or no status would be at rest."""
    if isinstance(error, LogHubError):
        return f"{error.code} (HTTP {error.status}): {error.message}"
    return str(error)


def with_failure(status: Status, message: str, now: float, *, before: Status) -> Status:
    """The same status after an action was refused: not ready, and in whose words. ``before`` is what was
    told last: refused again is no other state, or it would be written at each try."""
    finding = Finding(
        type=ConditionType.READY, status="False", reason=ReadyReason.RECONCILE_ERROR, message=message
    )
    generation = status.observed_generation or 0
    (failed,) = dated((finding,), before.conditions, generation=generation, now=now)
    others = tuple(one for one in status.conditions if one.type != ConditionType.READY)
    return status.model_copy(update={"conditions": (failed, *others)})


def refusal(resource: LogHubConsumerGroup) -> str:
    """Why the round before could not carry out its actions; "" if it could."""
    refused = (
        one.message
        for one in resource.status.conditions
        if (one.type, one.reason) == (ConditionType.READY, ReadyReason.RECONCILE_ERROR)
    )
    return next(refused, "")


def unseen_status(status: Status, why: UnseenReason, message: str, *, generation: int, now: float) -> Status:
    """Of an object that cannot be read, or around which nobody may look; what was told of its shards and
    workers stays as it was seen last."""
    ready = Finding(type=ConditionType.READY, status="False", reason=ReadyReason(why), message=message)
    degraded = Finding(
        type=ConditionType.DEGRADED, status="True", reason=DegradedReason(why), message=message
    )
    findings = unseen((ready, degraded), why, "not checked, see condition Ready")
    conditions = dated(findings, status.conditions, generation=generation, now=now)
    news = {"conditions": conditions, "phase": Phase.DEGRADED, "observed_generation": generation}
    return status.model_copy(update=news)


def _with_numbers(
    resource: LogHubConsumerGroup,
    observed: Observed,
    replicas: int,
    phase: Phase,
    findings: tuple[Finding, ...],
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
        conditions=dated(findings, resource.status.conditions, generation=generation, now=now),
    )


def _updated(resource: LogHubConsumerGroup, observed: Observed) -> int:
    """Workers that need not be replaced: they run with the settings, in pods, that the spec stands for."""
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


def _shards(resource: LogHubConsumerGroup, observed: Observed) -> tuple[ShardStatus, ...]:
    if observed.service.trouble is None:
        return tuple(_shard(shard, observed.at_unix_s) for shard in shown(observed.service.shards))
    return tuple(_forgotten(shard) for shard in resource.status.shards)


def shown(shards: tuple[ShardObserved, ...]) -> tuple[ShardObserved, ...]:
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
        # More are ancestors that stand for a parent that is gone (`infer_parents`).
        parents=shard.parents if len(shard.parents) <= MAX_PARENTS else (),
        observed_at=rfc3339(at_unix_s),
    )


def _forgotten(shard: ShardStatus) -> ShardStatus:
    """What may have changed since is unknown; ``observedAt`` still says when it was seen."""
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


def lag_finding(service: ServiceObserved) -> Finding:
    """Is the lag in the status of now?"""
    kind = ConditionType.LAG_AVAILABLE
    if service.trouble is not None:
        message = "the log service is unavailable"
        return Finding(type=kind, status="False", reason=LagReason.LOG_SERVICE_UNAVAILABLE, message=message)
    unknown = [shard.shard for shard in service.shards if shard.lag_s is None and shard.lag_logs is None]
    if unknown:
        message = f"unknown for shards {', '.join(map(str, unknown[:10]))}"
        if service.lag_trouble:
            message = f"{service.lag_trouble}; {message}"
            return Finding(type=kind, status="False", reason=LagReason.TIMED_OUT, message=message)
        return Finding(type=kind, status="False", reason=LagReason.NOT_REPORTED, message=message)
    return Finding(
        type=kind, status="True", reason=LagReason.AVAILABLE, message="the lag of every shard is known"
    )


def rebalancing_finding(service: ServiceObserved) -> Finding:
    """Is a shard on its way?"""
    kind = ConditionType.REBALANCING
    if service.trouble is not None:
        message = "the log service is unavailable"
        return Finding(
            type=kind, status="Unknown", reason=RebalancingReason.LOG_SERVICE_UNAVAILABLE, message=message
        )
    moving = [shard for shard in service.shards if shard.state == "transfer"]
    if not moving:
        message = "no shard is in transfer"
        return Finding(type=kind, status="False", reason=RebalancingReason.BALANCED, message=message)
    moves = (f"{shard.shard}: {shard.holder} -> {shard.next_holder}" for shard in moving[:10])
    message = "in transfer: " + ", ".join(moves)
    return Finding(type=kind, status="True", reason=RebalancingReason.REBALANCE_IN_PROGRESS, message=message)


def _scaling(size: Size) -> Finding:
    limited = size.reason is not ScalingReason.DESIRED_WITHIN_RANGE
    return Finding(
        type=ConditionType.SCALING_LIMITED,
        status="True" if limited else "False",
        reason=size.reason,
        message=size.message,
    )
