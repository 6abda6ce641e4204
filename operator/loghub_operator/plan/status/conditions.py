"""The conditions that summarize a group: workers, Ready, Suspended, Degraded, Stalled, and the reports of the
workers.

`loghub_operator.api.conditions` explains the reasons, and `loghub_operator.plan.status.builder` builds the
rest of the status. GroupSynced says whether the consumer group at the log service matches the spec.
ShardFailing, StateIncomplete, LogsDroppedAsLate and GroupWasLost (docs/sinks.md 7) say what the workers
report.

Stalled says whether a group that is not ready makes progress. As a Deployment has
``progressDeadlineSeconds``, a group that has come no closer to what its spec asks for within
`spec.worker.progressDeadlineSeconds` is reported, and still reconciled. Flux and `helm --wait` read this
condition of any custom resource. When progress was made last is kept in the status, so that the deadline does
not begin again when the operator restarts. ``now`` is in unix seconds.
"""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

from loghub.contract.worker import FailingShard, IncompleteState, KeptState, SkippedLogGroups, WorkerReason
from loghub.domain.subscription import SubscriptionState
from loghub_operator.api.conditions import (
    ConditionStatus,
    ConditionType,
    ConditionUpdate,
    DegradedReason,
    GroupReason,
    GroupWasLostReason,
    LateReason,
    ReadyReason,
    ShardFailingReason,
    StalledReason,
    StateIncompleteReason,
    SuspendedReason,
    WorkersReason,
    rfc3339,
)
from loghub_operator.api.fields import unix_s
from loghub_operator.api.status import CheckpointResetPhase, Phase, Status
from loghub_operator.model.observed import (
    Available,
    LogServiceObserved,
    ShardFailures,
    ShardObserved,
    StateReports,
    UnaddressedProject,
    Unavailable,
    WorkerObserved,
    WorkerPhase,
)
from loghub_operator.model.revision import Revision
from loghub_operator.plan.decisions import Decisions, message_of
from loghub_operator.plan.desired import Desired
from loghub_operator.plan.listing import comma_list
from loghub_operator.plan.suspension import Suspension

MAX_WORKERS = 5  # in a message, with the numbers of each
END_OF_TIME_S = 253_402_300_800  # the year 10000, which Python cannot represent


def dropped_as_late_condition(reports: StateReports, *, stateful: bool) -> ConditionUpdate:
    """Whether a worker dropped rows that lay behind the watermark, within the last hour."""
    if not stateful:
        return _late_update("False", LateReason.NOTHING_LATE, "the pipeline keeps no state")
    unreported = f"no report from {comma_list(reports.unreported, MAX_WORKERS)}" if reports.unreported else ""
    if reports.late:
        is_ahead = any(state.is_ahead for _, state in reports.late)
        reason = LateReason.WATERMARK_AHEAD if is_ahead else LateReason.DROPPED_AS_LATE
        dropped = comma_list((_dropped(name, state) for name, state in reports.late), MAX_WORKERS)
        more = len(reports.late) - MAX_WORKERS
        dropped += f" and {more} more workers" if more > 0 else ""
        return _late_update("True", reason, "; ".join(filter(None, (dropped, unreported))))
    if unreported:
        return _late_update("Unknown", LateReason.LATE_NOT_REPORTED, unreported)
    return _late_update("False", LateReason.NOTHING_LATE, "no row was dropped as late within the last hour")


def _dropped(name: str, state: KeptState) -> str:
    return f"{name} dropped {state.late_rows} rows as late (watermark {_time(state.watermark_s)})"


def _time(unix_s: float | None) -> str:
    if unix_s is None or not 0 <= unix_s < END_OF_TIME_S:
        return "unknown" if unix_s is None else f"{unix_s:.0f} unix seconds"
    return datetime.fromtimestamp(unix_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _late_update(status: ConditionStatus, reason: LateReason, message: str) -> ConditionUpdate:
    kind = ConditionType.LOGS_DROPPED_AS_LATE
    return ConditionUpdate(type=kind, status=status, reason=reason, message=message)


def group_condition(
    consumed: str, service: LogServiceObserved, desired: Desired, *, delayed: bool
) -> ConditionUpdate:
    """Whether what is ``consumed``, such as "consumer group a", matches the spec at the log service;
    ``delayed``: its correction has to wait.
    """
    reason, message = _group_state(consumed, service, desired, delayed=delayed)
    return ConditionUpdate(
        type=ConditionType.GROUP_SYNCED,
        status="True" if reason in (GroupReason.UP_TO_DATE, GroupReason.FOREIGN_CONSUMERS) else "False",
        reason=reason,
        message=message,
    )


def _group_state(
    consumed: str, service: LogServiceObserved, desired: Desired, *, delayed: bool
) -> tuple[str, str]:
    if desired.conflict and desired.suspension is not None:
        return desired.suspension.reason, desired.conflict
    if isinstance(service, Unavailable):
        return service.reason, service.message
    if service.stored is None:
        return GroupReason.CREATING, f"creating {consumed}"
    if desired.refusal is not None:
        return GroupReason.ADOPTION_REFUSED, desired.refusal
    if service.stored != desired.stored:
        return GroupReason.UPDATING, _updating(service, desired, delayed=delayed)
    if desired.foreign:
        message = f"shares its shards with consumers of others: {comma_list(desired.foreign)}"
        return GroupReason.FOREIGN_CONSUMERS, f"{consumed} is up to date and {message}"
    return GroupReason.UP_TO_DATE, f"{consumed} is up to date"


def _updating(service: Available, desired: Desired, *, delayed: bool) -> str:
    """Why what is stored is not what the spec asks for."""
    is_group = service.subscription is None
    what = "timeout and order" if is_group else "type, key and order"
    if service.stored != desired.stored_now:
        if delayed:
            return f"another controller keeps changing {what}; backing off between corrections"
        return f"updating {what} of the {'consumer group' if is_group else 'subscription'}"
    if is_group or desired.suspension is None:
        return "the shorter timeout is set once every worker runs with it"
    return desired.suspension.message


MAX_SHARDS = 5  # in a message, with cursor, reason and attempts of each


def group_was_lost_condition(reports: StateReports) -> ConditionUpdate:
    """Whether the group had no checkpoint of a held shard that the sink has logs of."""
    unreported = f"no report from {comma_list(reports.unreported, MAX_SHARDS)}" if reports.unreported else ""
    if reports.continued:
        shards = comma_list((f"shard {shard} at {cursor}" for shard, cursor in reports.continued), MAX_SHARDS)
        rest = len(reports.continued) - MAX_SHARDS
        more = f" and {rest} more shards" if rest > 0 else ""
        message = (
            f"the group had no checkpoint, and the sink has logs: {shards}{more} continued after them, so"
            " none comes twice; to have them again, set spec.resetCheckpoints"
        )
        message = "; ".join(filter(None, (message, unreported)))
        return _lost_update("True", GroupWasLostReason.CONTINUED_FROM_SINK, message)
    if unreported:
        return _lost_update("Unknown", GroupWasLostReason.LOSS_NOT_REPORTED, unreported)
    none = "each shard began at its checkpoint, or is new to the sink"
    return _lost_update("False", GroupWasLostReason.HAS_CHECKPOINTS, none)


def _lost_update(status: ConditionStatus, reason: GroupWasLostReason, message: str) -> ConditionUpdate:
    return ConditionUpdate(type=ConditionType.GROUP_WAS_LOST, status=status, reason=reason, message=message)


def last_progress(before: Status, after: Status, *, ready: ConditionUpdate, now: float) -> str:
    """`status.lastProgressTime` of ``after``, whose condition Ready is ``ready``."""
    was_ready = all(one.status != "False" for one in before.conditions if one.type == ConditionType.READY)
    if before.last_progress_time is None or _came_closer(before, after):
        return rfc3339(now)
    return rfc3339(now) if was_ready and ready.status == "False" else before.last_progress_time


def _came_closer(before: Status, after: Status) -> bool:
    """Another order counts too: it has the whole deadline. A worker that is lost is no progress."""
    more = after.updated_replicas > before.updated_replicas or after.ready_replicas > before.ready_replicas
    return more or _order(before) != _order(after)


def _order(status: Status) -> tuple[object, ...]:
    reset = status.checkpoint_reset
    moves = None if reset is None else (reset.nonce, reset.phase)
    return status.observed_generation, status.replicas, moves


def stalled_condition(
    ready: ConditionUpdate, since: str, *, deadline_s: int, waits_for: str = "", now: float
) -> ConditionUpdate:
    """Whether the deadline has passed without progress; ``waits_for`` is the worker that a rollout waits
    for.
    """
    kind = ConditionType.STALLED
    if ready.status != "False" or now - unix_s(since) <= deadline_s:
        message = "the group is ready, or comes closer to it"
        return ConditionUpdate(type=kind, status="False", reason=StalledReason.PROGRESSING, message=message)
    name = "" if waits_for in ready.message else f"; waiting for {waits_for}"
    return ConditionUpdate(
        type=kind,
        status="True",
        reason=StalledReason.PROGRESS_DEADLINE_EXCEEDED,
        message=f"no progress for more than {deadline_s} s: {ready.message}{name}",
    )


# By what a shard waits for (`loghub.contract.worker`); the first that applies to any shard is the reason.
_WAITING = (
    ("stopped", ShardFailingReason.SHARD_STOPPED),
    ("limited", ShardFailingReason.FAILURE_LIMIT_REACHED),
    ("settling", ShardFailingReason.DEAD_LETTER_PENDING),
    ("retrying", ShardFailingReason.RETRYING_LOG_GROUP),
)


def shard_failing_condition(failures: ShardFailures) -> ConditionUpdate:
    """Whether a shard waits at a log group that cannot be delivered, or one was skipped within an hour."""
    return ConditionUpdate(
        type=ConditionType.SHARD_FAILING,
        status=_status(failures),
        reason=_failing_reason(failures),
        message="; ".join(_sentences(failures)) or "every shard is read",
    )


def _status(failures: ShardFailures) -> ConditionStatus:
    if failures.failing or failures.skipped:
        return "True"
    return "Unknown" if failures.unreported else "False"


def _failing_reason(failures: ShardFailures) -> ShardFailingReason:
    states = {one.state for one in failures.failing}
    if states:
        reasons = (reason for state, reason in _WAITING if state in states)
        return next(reasons, ShardFailingReason.RETRYING_LOG_GROUP)  # a newer worker may have other states
    if failures.skipped:
        kept = all(one.dead_lettered for one in failures.skipped)
        return ShardFailingReason.DATA_DEAD_LETTERED if kept else ShardFailingReason.DATA_SKIPPED
    return ShardFailingReason.NOT_REPORTED if failures.unreported else ShardFailingReason.NO_SHARD_FAILING


def _sentences(failures: ShardFailures) -> Iterator[str]:
    if failures.failing:
        yield f"waiting: {_listed(map(_waiting, failures.failing), len(failures.failing))}"
    if failures.skipped:
        yield f"in the last hour: {_listed(map(_skipped, failures.skipped), len(failures.skipped))}"
    if failures.unreported:
        yield f"no report from {comma_list(failures.unreported, MAX_SHARDS)}"


def _listed(texts: Iterable[str], count: int) -> str:
    more = f" and {count - MAX_SHARDS} more shards" if count > MAX_SHARDS else ""
    return f"{comma_list(texts, MAX_SHARDS)}{more}"


def _waiting(shard: FailingShard) -> str:
    why = f"{shard.reason}, {shard.error}" if shard.error else shard.reason
    return f"shard {shard.shard} at cursor {shard.cursor} ({why}, {shard.attempts} attempts)"


def _skipped(skipped: SkippedLogGroups) -> str:
    done = "dead-lettered" if skipped.dead_lettered else "skipped"
    groups = f"{skipped.log_groups} log groups of shard {skipped.shard}"
    return f"{groups} {done}, the last at cursor {skipped.last_cursor}"


# By what the workers report (`loghub.contract.worker`); the first that applies to any shard is the reason.
_REASONS = (
    ("Unusable", StateIncompleteReason.STATE_UNUSABLE),
    ("Changed", StateIncompleteReason.PIPELINE_CHANGED),
    ("Reset", StateIncompleteReason.CHECKPOINTS_RESET),
    ("Elsewhere", StateIncompleteReason.SHARD_MOVED),
)


def state_incomplete_condition(reports: StateReports, *, stateful: bool) -> ConditionUpdate:
    """Whether the state of a held shard lacks logs that were read before."""
    if not stateful:
        return _incomplete_update("False", StateIncompleteReason.NO_STATE, "the pipeline keeps no state")
    unreported = f"no report from {comma_list(reports.unreported, MAX_SHARDS)}" if reports.unreported else ""
    if reports.incomplete:
        message = f"the state has the logs of {_shards(reports.incomplete)} only"
        reason = _incomplete_reason(reports.incomplete)
        return _incomplete_update("True", reason, "; ".join(filter(None, (message, unreported))))
    if unreported:
        return _incomplete_update("Unknown", StateIncompleteReason.STATE_NOT_REPORTED, unreported)
    complete = StateIncompleteReason.STATE_COMPLETE
    return _incomplete_update("False", complete, "the state has the logs of each shard")


def _incomplete_update(
    status: ConditionStatus, reason: StateIncompleteReason, message: str
) -> ConditionUpdate:
    return ConditionUpdate(type=ConditionType.STATE_INCOMPLETE, status=status, reason=reason, message=message)


def _incomplete_reason(incomplete: Iterable[IncompleteState]) -> StateIncompleteReason:
    reported = {one.why for one in incomplete}
    reasons = (reason for why, reason in _REASONS if why in reported)
    return next(reasons, StateIncompleteReason.SHARD_MOVED)  # a newer worker may have other causes


def _shards(incomplete: tuple[IncompleteState, ...]) -> str:
    texts = (f"shard {one.shard} from cursor {one.cursor}" for one in incomplete)
    more = f" and {len(incomplete) - MAX_SHARDS} more shards" if len(incomplete) > MAX_SHARDS else ""
    return f"{comma_list(texts, MAX_SHARDS)}{more}"


# With one of these reasons the workers are ready, or will be without anything else to be done.
_NO_FAILURE = (WorkersReason.ALL_WORKERS_READY, WorkersReason.WORKERS_NOT_READY)
_NOT_OURS = (
    SuspendedReason.OWNERSHIP_CONFLICT,
    SuspendedReason.SUBSCRIPTION_CONFLICT,
    SuspendedReason.ADOPTION_REFUSED,
)
_BLOCKED = {
    SubscriptionState.WAITS_FOR_ROOM: DegradedReason.WAITS_FOR_ROOM,
    SubscriptionState.UNOWNED: DegradedReason.KEYS_UNOWNED,
}


def failing(workers: tuple[WorkerObserved, ...]) -> WorkerObserved | None:
    """The first worker that does not become ready by waiting."""
    return next((worker for worker in workers if worker.phase is WorkerPhase.FAILED), None)


def without_sink(workers: tuple[WorkerObserved, ...]) -> WorkerObserved | None:
    """The first worker that waits for the target of its sink. It retries for as long as it takes."""
    waiting = (WorkerPhase.STARTING, WorkerPhase.RUNNING)
    return next(
        (one for one in workers if one.phase in waiting and one.reason == WorkerReason.SINK_UNAVAILABLE), None
    )


def workers_condition(decisions: Decisions) -> ConditionUpdate:
    """Whether every worker that should run is ready; a failing worker's own reason takes precedence."""
    status, reason, message = _workers(decisions)
    return ConditionUpdate(
        type=ConditionType.WORKERS_AVAILABLE,
        status="True" if status else "False",
        reason=reason,
        message=message,
    )


def _workers(decisions: Decisions) -> tuple[bool, str, str]:
    observed, replicas = decisions.subject.observed, decisions.replicas
    no_code = observed.placement.code.error
    if no_code and replicas.target > 0:
        continues = "; running workers continue with the code that they have" if observed.workers else ""
        return False, WorkersReason.PIPELINE_CODE_NOT_FOUND, f"{no_code}{continues}"
    failed = failing(observed.workers)
    if failed is not None:
        message = f"{failed.name}: {failed.message or 'the worker ended without a message; see its log'}"
        return False, failed.reason or WorkersReason.WORKER_FAILING, message
    if replicas.run == 0:
        if isinstance(observed.service, Unavailable) and decisions.desired.suspension is None:
            return (
                False,
                WorkersReason.LOG_SERVICE_UNAVAILABLE,
                "no worker is started while the log service is unavailable",
            )
        return (
            True,
            WorkersReason.SCALED_TO_ZERO,
            f"no worker should run{stuck_worker_message(observed.workers)}",
        )
    ready = sum(worker.ready for worker in observed.workers if worker.ordinal < replicas.run)
    if ready < replicas.run:
        waiting = without_sink(tuple(one for one in observed.workers if not one.ready))
        if waiting is not None:
            return False, waiting.reason, f"{waiting.name}: {waiting.message}"
        refusal = "" if observed.worker_set is None else observed.worker_set.refusal
        if refusal:  # why pods are missing
            return (
                False,
                WorkersReason.PODS_REFUSED,
                f"{ready} of {replicas.run} workers are ready; {refusal}",
            )
        return (
            False,
            WorkersReason.WORKERS_NOT_READY,
            f"{ready} of {replicas.run} workers are ready{stuck_worker_message(observed.workers)}",
        )
    return True, WorkersReason.ALL_WORKERS_READY, f"{ready} of {replicas.run} workers are ready"


def stuck_worker_message(workers: tuple[WorkerObserved, ...]) -> str:
    """The message of the first worker that is stuck, say pending, or terminating on a lost node."""
    stuck = next((worker for worker in workers if not worker.ready and worker.message), None)
    return "" if stuck is None else f"; {stuck.name}: {stuck.message}"


def ready_condition(decisions: Decisions, workers: ConditionUpdate) -> ConditionUpdate:
    """Whether everything is as the spec says, which includes that every worker runs with its settings. A
    group that `spec.suspend` has stopped is as the spec says.
    """
    status, reason, message = _ready(decisions, workers)
    return ConditionUpdate(
        type=ConditionType.READY, status="True" if status else "False", reason=reason, message=message
    )


def _ready(decisions: Decisions, workers: ConditionUpdate) -> tuple[bool, str, str]:
    group, replicas, rollout = decisions.group, decisions.replicas, decisions.rollout
    if group.status != "True":
        return False, group.reason, group.message
    suspension = decisions.desired.suspension
    if suspension is not None:
        return _suspended(decisions, suspension)
    if without := without_service_message(decisions.subject.observed.unaddressed):
        return False, ReadyReason.PROJECT_WITHOUT_SERVICE, without
    if rollout.rolling and workers.reason in _NO_FAILURE:
        return False, ReadyReason.ROLLING_UPDATE, _rolling(decisions)
    if workers.status != "True":
        return False, workers.reason, workers.message
    if outdated := outdated_worker_message(decisions.subject.observed.workers, decisions.desired.revision):
        return False, ReadyReason.WORKER_OUTDATED, outdated
    if replicas.run != replicas.target:
        return False, replicas.reason, replicas.message
    consumed = decisions.subject.resource.consumed_kind
    return True, ReadyReason.RUNNING, f"the {consumed} is up to date and every worker is ready"


def without_service_message(projects: tuple[UnaddressedProject, ...]) -> str:
    """The first project that gets no Service yet; "" if there is none."""
    return next(
        (
            f"project {project.name} has no Service yet: {project.error}"
            for project in projects
            if project.error
        ),
        "",
    )


def outdated_worker_message(workers: tuple[WorkerObserved, ...], desired: Revision) -> str:
    """The first worker of the present settings whose image does not know all of them; "" if there is none."""
    for worker in workers:
        if worker.ignored_settings and worker.revision.same_workers(desired):
            names = comma_list(worker.ignored_settings)
            hint = "use a worker image of the operator's release (spec.worker.image)"
            return f"{worker.name} ignores settings that its image does not know: {names}; {hint}"
    return ""


def _suspended(decisions: Decisions, suspension: Suspension) -> tuple[bool, str, str]:
    names = comma_list(worker.name for worker in decisions.subject.observed.workers)
    if names or decisions.replicas.run > 0:
        return False, suspension.reason, f"{suspension.message}; waiting for the workers to stop: {names}"
    return suspension.by_spec, suspension.reason, suspension.message


def _rolling(decisions: Decisions) -> str:
    rollout, generation = decisions.rollout, decisions.subject.resource.metadata.generation
    run = f"{rollout.current} of {decisions.replicas.run} workers run the settings of generation {generation}"
    if not rollout.waits_for:
        return f"{run}; the StatefulSet's controller has not observed the last change yet"
    worker = message_of(rollout.waits_for, decisions.subject.observed.workers)
    return f"{run} and are ready; the rollout waits for {worker}"


def suspended_condition(
    suspension: Suspension | None, service: LogServiceObserved, earlier: Status
) -> ConditionUpdate:
    """Whether no worker should run, on purpose. The workers that a change of a subscription has stopped stay
    away while the log service does, which alone knows how far the change is."""
    kind = ConditionType.SUSPENDED
    changes = SuspendedReason.SUBSCRIPTION_CHANGES
    before = {condition.type: condition.reason for condition in earlier.conditions}
    if suspension is None and isinstance(service, Unavailable) and before.get(kind) == changes:
        message = "the subscription changes, and its workers start again once the log service answers"
        return ConditionUpdate(type=kind, status="True", reason=changes, message=message)
    if suspension is None:
        reason, message = SuspendedReason.NOT_SUSPENDED, "workers should run"
        return ConditionUpdate(type=kind, status="False", reason=reason, message=message)
    return ConditionUpdate(type=kind, status="True", reason=suspension.reason, message=suspension.message)


def degraded_condition(
    decisions: Decisions, workers: ConditionUpdate, stalled: ConditionUpdate
) -> ConditionUpdate:
    """Whether something is wrong that does not pass by itself; the phase follows it."""
    reason, message = _degraded(decisions, workers, stalled)
    status = reason is not DegradedReason.AS_EXPECTED
    return ConditionUpdate(
        type=ConditionType.DEGRADED, status="True" if status else "False", reason=reason, message=message
    )


def _degraded(
    decisions: Decisions, workers: ConditionUpdate, stalled: ConditionUpdate
) -> tuple[DegradedReason, str]:
    observed, suspension = decisions.subject.observed, decisions.desired.suspension
    service = observed.service
    reset = decisions.reset
    if failing(observed.workers) is not None:
        return DegradedReason.WORKER_FAILING, workers.message
    if workers.reason == WorkersReason.PODS_REFUSED:
        return DegradedReason.PODS_REFUSED, workers.message
    if (waiting := without_sink(observed.workers)) is not None:
        return DegradedReason.SINK_UNAVAILABLE, f"{waiting.name}: {waiting.message}"
    if suspension is not None and suspension.reason in _NOT_OURS:
        return DegradedReason(suspension.reason), suspension.message
    if outdated := outdated_worker_message(decisions.subject.observed.workers, decisions.desired.revision):
        return DegradedReason.WORKER_OUTDATED, outdated
    if isinstance(service, Unavailable) and decisions.replicas.run > 0:
        return DegradedReason.LOG_SERVICE_UNAVAILABLE, service.message
    is_present = reset is not None and reset.nonce == decisions.subject.resource.spec.reset_nonce
    if reset is not None and is_present and reset.phase == CheckpointResetPhase.FAILED:
        return DegradedReason.CHECKPOINT_RESET_FAILED, reset.message
    if isinstance(service, Available) and service.beyond_end:
        return DegradedReason.POSITION_BEYOND_END, _beyond_end_message(service.beyond_end)
    if (blocked := _blocked_delivery(service)) is not None:
        return blocked
    if observed.failures.failing:  # a shard that waits does not go on by itself
        return DegradedReason.SHARD_FAILING, shard_failing_condition(observed.failures).message
    if decisions.drift.contested:
        names = comma_list(decisions.drift.contested)
        message = f"another controller keeps changing {names}; backing off between corrections"
        return DegradedReason.CONFLICTING_CONTROLLER, message
    if stalled.status == "True":
        return DegradedReason.PROGRESS_DEADLINE_EXCEEDED, stalled.message
    return DegradedReason.AS_EXPECTED, "nothing is wrong"


def _blocked_delivery(service: LogServiceObserved) -> tuple[DegradedReason, str] | None:
    """Why the log service withholds logs of the subscription from every consumer; None if it does not."""
    if not isinstance(service, Available) or service.subscription is None:
        return None
    state = service.subscription.state
    if state not in _BLOCKED:
        return None
    waiting = (
        one.shard for one in service.shards if one.delivery is not None and one.delivery.state is state
    )
    return _BLOCKED[state], _BLOCKED_WHY[state].format(shards=comma_list(waiting))


_BLOCKED_WHY = {
    SubscriptionState.WAITS_FOR_ROOM: (
        "too many logs wait for an acknowledgment in shards {shards}, with acknowledged ones between them, so"
        " only these are delivered; acknowledge or refuse the oldest, or pass over them by `loghub"
        " subscription skip`"
    ),
    SubscriptionState.UNOWNED: (
        "no consumer has some of the keys in shards {shards}: consumers with fixed ranges leave a gap;"
        " connect one for it, or leave the ranges to the log service"
    ),
}


def _beyond_end_message(shards: tuple[ShardObserved, ...]) -> str:
    cursors = (f"{one.shard} (position {one.checkpoint}, end {one.end_cursor})" for one in shards)
    return (
        f"the log service has lost logs that were consumed, or was restored: shards {comma_list(cursors)} end"
        " before the position of the group, and log groups that are written before it are not read; restore"
        " the log service or set spec.resetCheckpoints"
    )


def phase_of(decisions: Decisions, *, rebalancing: ConditionUpdate, degraded: ConditionUpdate) -> Phase:
    """The summary in one word."""
    observed, replicas = decisions.subject.observed, decisions.replicas
    if degraded.status == "True":
        return Phase.DEGRADED
    if decisions.desired.suspension is not None:
        return Phase.SUSPENDED if replicas.run == 0 and not observed.workers else Phase.REBALANCING
    if isinstance(observed.service, Unavailable):
        return Phase.PENDING
    if decisions.rollout.rolling:
        return Phase.UPDATING
    if not observed.ready_workers and (replicas.target > 0 or decisions.group.status != "True"):
        return Phase.PENDING
    in_step = observed.worker_set is not None and observed.worker_set.replicas == replicas.target
    if rebalancing.status == "True" or not in_step:
        return Phase.REBALANCING
    return Phase.RUNNING
