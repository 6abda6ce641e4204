"""Builds the status, which shows users and autoscalers the state of one consumer group.

Everything in it follows from what was observed and decided; `loghub_operator.api.conditions` explains the
reasons. A failed action changes it afterwards (`with_failure`).

A status is written only if it says something new: at once if a state, a consumer, a number of workers or a
condition changed; at a bounded rate if only the lag, the checkpoints or the text of a message changed (the
text of another program's error may differ each time); never if only the time of observation changed.
"""

import math
from typing import Any, Literal

from loghub.wire.errors import LogHubError
from loghub_operator.api.adoption import GroupRecord
from loghub_operator.api.conditions import (
    ConditionType,
    ConditionUpdate,
    DegradedReason,
    GroupReason,
    LagReason,
    ReadyReason,
    RebalancingReason,
    ScalingReason,
    StalledReason,
    UncheckedReason,
    WorkersReason,
    fill_unknown,
    rfc3339,
    with_transition_times,
)
from loghub_operator.api.labels import selector_text
from loghub_operator.api.status import (
    MAX_PARENTS,
    MAX_SHARDS,
    NUMBERS_EVERY_S,
    Condition,
    Lag,
    Phase,
    ShardDeliveryStatus,
    ShardStatus,
    ShardSummary,
    Status,
    SubscriptionReport,
)
from loghub_operator.api.v1alpha1 import LogHubConsumerGroup
from loghub_operator.model.observed import (
    Available,
    LogServiceObserved,
    ObservedState,
    OtherLogstore,
    ShardObserved,
    Unavailable,
)
from loghub_operator.plan.checkpoint_reset import with_executed
from loghub_operator.plan.decisions import Decisions
from loghub_operator.plan.listing import comma_list, counted
from loghub_operator.plan.replicas import ReplicaPlan
from loghub_operator.plan.scaling.load import assignable
from loghub_operator.plan.scaling.report import active_condition, scaling_status
from loghub_operator.plan.status.conditions import (
    degraded_condition,
    dropped_as_late_condition,
    group_was_lost_condition,
    last_progress,
    phase_of,
    ready_condition,
    shard_failing_condition,
    stalled_condition,
    state_incomplete_condition,
    stuck_worker_message,
    suspended_condition,
    workers_condition,
)
from loghub_operator.plan.subject import Subject


def error_message(error: Exception) -> str:
    """The same text at each reconcile: a request ID appears only in the log, because with it the status would
    change every time.
    """
    if isinstance(error, LogHubError):
        return f"{error.code} (HTTP {error.status}): {error.message}"
    return str(error)


def with_failure(status: Status, message: str, now: float, *, before: Status, deadline_s: int) -> Status:
    """The same status after an action failed: not ready, with the error as the message. ``before`` is the
    status that was reported last: another failure does not change the state, or each attempt would write the
    status. ``deadline_s`` is the time without progress after which the group is stalled.
    """
    ready = ConditionUpdate(
        type=ConditionType.READY, status="False", reason=ReadyReason.RECONCILE_ERROR, message=message
    )
    since = last_progress(before, status, ready=ready, now=now)
    stalled = stalled_condition(ready, since, deadline_s=deadline_s, now=now)
    generation = status.observed_generation or 0
    failed = with_transition_times((ready, stalled), before.conditions, generation=generation, now=now)
    news = {one.type: one for one in failed}
    conditions = tuple(news.get(one.type, one) for one in status.conditions)
    return status.model_copy(update={"conditions": conditions, "last_progress_time": since})


_TIMES = frozenset({"observedAt", "checkpointAgeSeconds"})
_MOVING = frozenset(
    {
        "lag",
        "retryLogGroups",
        "deadLetterLogGroups",
        "lagSeconds",
        "lagLogs",
        "backlogLogs",
        "unackedLogs",
        "redeliveredLogs",
        "oldestUnackedSeconds",
        "ackedRanges",
        "checkpoint",
        "message",
        "inputs",
        "uncappedReplicas",
        "formula",
    }
)


def worth_writing(
    old: Status, new: Status, *, since_last_s: float, numbers_every_s: float = NUMBERS_EVERY_S
) -> bool:
    """Whether the new status says something that the old one does not, and whether it is time to write it."""
    before, after = old.to_dict(), new.to_dict()
    if _same(before, after, without=_TIMES):
        return False
    return since_last_s >= numbers_every_s or not _same(before, after, without=_TIMES | _MOVING)


def _same(first: Any, second: Any, *, without: frozenset[str]) -> bool:
    if first == second:
        return True
    if isinstance(first, dict) and isinstance(second, dict):
        names = first.keys() - without
        return names == second.keys() - without and all(
            _same(first[name], second[name], without=without) for name in names
        )
    if isinstance(first, list) and isinstance(second, list) and len(first) == len(second):
        return all(_same(a, b, without=without) for a, b in zip(first, second, strict=True))
    return False


def build_status(decisions: Decisions, now: float) -> Status:
    """The whole status unless the object is being deleted."""
    resource, observed = decisions.subject.resource, decisions.subject.observed
    suspension, scaling = decisions.desired.suspension, decisions.scaling
    run, rollout = decisions.replicas.run, decisions.rollout
    # The conditions build on each other: Ready on the workers, Stalled on Ready and on when progress was made
    # last, Degraded on both, and the phase on Degraded.
    workers = workers_condition(decisions)
    ready = ready_condition(decisions, workers)
    numbers = _numbers(decisions.subject, replicas=run, updated=rollout.updated)
    nonces = with_executed(decisions.subject.executed, decisions.reset)
    status = numbers.model_copy(update={"checkpoint_reset": decisions.reset, "reset_nonces": nonces})
    since = last_progress(resource.status, status, ready=ready, now=now)
    deadline_s = resource.spec.worker.progress_deadline_seconds
    waits_for = rollout.waits_for if suspension is None else ""
    stalled = stalled_condition(ready, since, deadline_s=deadline_s, waits_for=waits_for, now=now)
    rebalancing = rebalancing_condition(observed.service)
    degraded = degraded_condition(decisions, workers, stalled)
    conditions = (
        ready,
        decisions.group,
        workers,
        rebalancing,
        lag_condition(observed.service),
        active_condition(scaling),
        _scaling_limited(decisions.replicas),
        scaling.hot_shards.condition,
        shard_failing_condition(observed.failures),
        group_was_lost_condition(observed.states),
        state_incomplete_condition(observed.states, stateful=resource.spec.pipeline.stateful),
        dropped_as_late_condition(observed.states, stateful=resource.spec.pipeline.stateful),
        suspended_condition(suspension, observed.service, resource.status),
        stalled,
        degraded,
    )
    return status.model_copy(
        update={
            "phase": phase_of(decisions, rebalancing=rebalancing, degraded=degraded),
            "last_progress_time": since,
            "scaling": scaling_status(resource.status, scaling, run=run, now=now),
            "conditions": _dated(resource, conditions, now),
        }
    )


def deleting_status(subject: Subject, *, waiting_for: str, fate: str, now: float) -> Status:
    """The whole status once the deletion was requested; ``fate`` is what happens to the group at the log
    service.
    """
    resource, observed = subject.resource, subject.observed
    remaining = counted(len(observed.workers), "worker still exists", "workers still exist")
    checked = (
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
            message=f"{remaining}{stuck_worker_message(observed.workers)}",
        ),
        rebalancing_condition(observed.service),
        lag_condition(observed.service),
    )
    conditions = fill_unknown(
        checked, UncheckedReason.TERMINATING, "not checked while the object is being deleted"
    )
    run = 0 if observed.worker_set is None else observed.worker_set.replicas
    # What was applied last counts: a deletion does not work out what would be applied now.
    applied = None if observed.worker_set is None else observed.worker_set.revision
    updated = sum(
        applied is not None and worker.revision.same_workers(applied) for worker in observed.workers
    )
    status = _numbers(subject, replicas=run, updated=updated)
    return status.model_copy(
        update={
            "phase": Phase.TERMINATING,
            "checkpoint_reset": resource.status.checkpoint_reset,
            "reset_nonces": resource.status.reset_nonces,
            "conditions": _dated(resource, conditions, now),
        }
    )


def unchecked_status(
    status: Status, why: UncheckedReason, message: str, *, generation: int, now: float
) -> Status:
    """The status of an object that cannot be parsed, or whose surroundings the operator may not read; shards
    and workers stay as they were last observed.
    """
    ready = ConditionUpdate(
        type=ConditionType.READY, status="False", reason=ReadyReason(why), message=message
    )
    degraded = ConditionUpdate(
        type=ConditionType.DEGRADED, status="True", reason=DegradedReason(why), message=message
    )
    stalled = ConditionUpdate(
        type=ConditionType.STALLED, status="True", reason=StalledReason(why), message=message
    )
    unchecked = fill_unknown((ready, stalled, degraded), why, "not checked, see condition Ready")
    conditions = with_transition_times(unchecked, status.conditions, generation=generation, now=now)
    news = {"conditions": conditions, "phase": Phase.DEGRADED, "observed_generation": generation}
    return status.model_copy(update=news)


def _dated(
    resource: LogHubConsumerGroup, conditions: tuple[ConditionUpdate, ...], now: float
) -> tuple[Condition, ...]:
    generation = resource.metadata.generation
    return with_transition_times(conditions, resource.status.conditions, generation=generation, now=now)


def _numbers(subject: Subject, *, replicas: int, updated: int) -> Status:
    """A status without phase and conditions."""
    resource, observed = subject.resource, subject.observed
    service = observed.service if isinstance(observed.service, Available) else None
    ready = observed.ready_workers
    return Status(
        observed_generation=resource.metadata.generation,
        replicas=replicas,
        ready_replicas=ready,
        updated_replicas=updated,
        consumer_group=resource.group,
        workers=f"{ready}/{replicas}",
        selector=selector_text(resource.metadata.name),
        group_origin=_origin(observed.group_record),
        ownership=subject.proven,
        shard_summary=_summary(service) if service else None,
        lag=_lag(service) if service else None,
        subscription=_subscription(service) if service else None,
        retry_log_groups=None if service is None else _log_groups(service.retries),
        dead_letter_log_groups=None if service is None else _log_groups(service.dead_letter),
        shards=_shards(resource, observed),
    )


def _origin(record: GroupRecord | None) -> Literal["Created", "Adopted"] | None:
    return None if record is None or record.origin == "Refused" else record.origin


def _summary(service: Available) -> ShardSummary:
    return ShardSummary(
        total=len(service.shards),
        assignable=assignable(service),
        waiting=_in_state(service, "wait"),
        completed=_in_state(service, "over"),
    )


def _in_state(service: Available, state: str) -> int:
    return sum(shard.state == state for shard in service.shards)


def _shards(resource: LogHubConsumerGroup, observed: ObservedState) -> tuple[ShardStatus, ...]:
    if isinstance(observed.service, Available):
        return tuple(_shard(shard, observed.at_unix_s) for shard in truncate_shards(observed.service.shards))
    return tuple(_last_known(shard) for shard in resource.status.shards)


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
        subscription=_delivery(shard),
        read_only=shard.read_only,
        # More than these are ancestors in place of a parent that no longer exists (`infer_parents`).
        parents=shard.parents if len(shard.parents) <= MAX_PARENTS else (),
        observed_at=rfc3339(at_unix_s),
    )


def _delivery(shard: ShardObserved) -> ShardDeliveryStatus | None:
    seen = shard.delivery
    if seen is None:
        return None
    return ShardDeliveryStatus(
        state=seen.state, acked_ranges=seen.acked_ranges, unacked_logs=seen.unacked_logs
    )


def _last_known(shard: ShardStatus) -> ShardStatus:
    """What may have changed since is unknown; ``observedAt`` still says when the shard was observed."""
    return ShardStatus(
        id=shard.id,
        state="unknown",
        read_only=shard.read_only,
        parents=shard.parents,
        observed_at=shard.observed_at,
    )


def _lag(service: Available) -> Lag | None:
    seconds = [shard.lag_s for shard in service.shards]
    logs = [shard.lag_logs for shard in service.shards]
    largest = None if None in seconds else max((s for s in seconds if s is not None), default=0.0)
    total = None if None in logs else sum(n for n in logs if n is not None)
    if largest is None and total is None:
        return None
    return Lag(seconds=None if largest is None else math.ceil(largest), logs=total)


def _subscription(service: Available) -> SubscriptionReport | None:
    seen = service.subscription
    if seen is None:
        return None
    age_s = 0.0 if seen.backlog_logs == 0 else seen.oldest_unacked_s
    return SubscriptionReport(
        type=seen.settings.type,
        consumers=len(service.consumers or ()),
        backlog_logs=seen.backlog_logs,
        unacked_logs=seen.unacked_logs,
        redelivered_logs=seen.redelivered_logs,
        oldest_unacked_seconds=None if age_s is None else math.ceil(age_s),
        state=seen.state,
    )


def _log_groups(held: OtherLogstore | None) -> int | None:
    return None if held is None else held.log_groups


def lag_condition(service: LogServiceObserved) -> ConditionUpdate:
    """Whether the lag in the status is current."""
    kind = ConditionType.LAG_AVAILABLE
    if isinstance(service, Unavailable):
        message = "the log service is unavailable"
        return ConditionUpdate(
            type=kind, status="False", reason=LagReason.LOG_SERVICE_UNAVAILABLE, message=message
        )
    unknown = [shard.shard for shard in service.shards if shard.lag_s is None and shard.lag_logs is None]
    if unknown:
        message = f"unknown for shards {comma_list(unknown)}"
        if service.beyond_end:
            return ConditionUpdate(
                type=kind, status="False", reason=LagReason.POSITION_BEYOND_END, message=message
            )
        if service.lag_error:
            message = f"{service.lag_error}; {message}"
            return ConditionUpdate(type=kind, status="False", reason=LagReason.TIMED_OUT, message=message)
        return ConditionUpdate(type=kind, status="False", reason=LagReason.NOT_REPORTED, message=message)
    errors = [one.error for one in (service.retries, service.dead_letter) if one is not None and one.error]
    if errors:
        return ConditionUpdate(
            type=kind, status="False", reason=LagReason.OTHER_LOGSTORE_UNKNOWN, message="; ".join(errors)
        )
    return ConditionUpdate(
        type=kind, status="True", reason=LagReason.AVAILABLE, message="the lag of every shard is known"
    )


def rebalancing_condition(service: LogServiceObserved) -> ConditionUpdate:
    """Whether a shard is being handed over."""
    kind = ConditionType.REBALANCING
    if isinstance(service, Unavailable):
        message = "the log service is unavailable"
        return ConditionUpdate(
            type=kind, status="Unknown", reason=RebalancingReason.LOG_SERVICE_UNAVAILABLE, message=message
        )
    if not service.in_transfer:
        message = "no shard is in transfer"
        return ConditionUpdate(type=kind, status="False", reason=RebalancingReason.BALANCED, message=message)
    # An endpoint that does not report the states does not report the next consumer either.
    moves = (
        f"{shard.shard}: {shard.holder} -> {shard.next_holder or 'not known'}"
        for shard in service.in_transfer
    )
    message = f"in transfer: {comma_list(moves)}"
    return ConditionUpdate(
        type=kind, status="True", reason=RebalancingReason.REBALANCE_IN_PROGRESS, message=message
    )


def _scaling_limited(replicas: ReplicaPlan) -> ConditionUpdate:
    limited = replicas.reason is not ScalingReason.DESIRED_WITHIN_RANGE
    return ConditionUpdate(
        type=ConditionType.SCALING_LIMITED,
        status="True" if limited else "False",
        reason=replicas.reason,
        message=replicas.message,
    )
