"""The conditions of the status: their types and reasons, each with its explanation.

``docs/reasons.md`` is generated from the texts here and from the texts of four more enumerations of reasons:
`ServiceErrorReason` (`loghub_operator.model.observed`), `PodReason` (`loghub_operator.observe.pods`),
`LocalReason` (`loghub_cli.up.worker_process`) and `WorkerReason` (`loghub.contract.worker`). One cause has
one reason, in whichever condition it appears. The messages are in `loghub_operator.plan.status`,
`loghub_operator.plan.scaling` and next to what they report.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Literal

from loghub_operator.api.status import Condition


class GroupWasLostReason(StrEnum):
    """Whether workers found that the consumer group has no checkpoint of a shard of which the sink has logs,
    as after the group was deleted and created again. The shard then continues where the sink has it, wherever
    startPosition points, so that nothing comes twice and nothing is left out. The message names shards and
    cursors. Nothing needs to be done; to have the logs again, set spec.resetCheckpoints. The condition stays
    until the workers that found it start again or give up these shards.

    HAS_CHECKPOINTS: each shard began at its checkpoint, or is new to the sink. CONTINUED_FROM_SINK: some
    shards had none, and continued where the sink has them. LOSS_NOT_REPORTED: the operator cannot read the
    status of a ready worker."""

    HAS_CHECKPOINTS = "HasCheckpoints"
    CONTINUED_FROM_SINK = "ContinuedFromSink"
    LOSS_NOT_REPORTED = "LossNotReported"


class StateIncompleteReason(StrEnum):
    """Whether the state of a stateful pipeline has all logs that its results are about. The message names
    shards, and the cursor from which the state has their logs. Results about logs before it may be missing
    or divided: a repetition of such a log is not recognized, and a window that had begun before gives a row
    at each worker that read a part of it. The condition stays until the shard gets a new state.

    STATE_COMPLETE: the state has the logs of each shard from the group's beginning. NO_STATE: the pipeline
    keeps no state. SHARD_MOVED: another worker has read the shard before, or the shard was split or merged,
    or the volume was lost, and the state stayed there. CHECKPOINTS_RESET: the checkpoints were moved, and the
    state is empty before them. PIPELINE_CHANGED: the query or the function changed, and the state began
    empty. STATE_UNUSABLE: Spark cannot read the state, for example after a change of code in an image, and it
    began empty. STATE_NOT_REPORTED: the operator cannot read the status of a ready worker."""

    STATE_COMPLETE = "StateComplete"
    NO_STATE = "NoState"
    SHARD_MOVED = "ShardMoved"
    CHECKPOINTS_RESET = "CheckpointsReset"
    PIPELINE_CHANGED = "PipelineChanged"
    STATE_UNUSABLE = "StateUnusable"
    STATE_NOT_REPORTED = "StateNotReported"


class LateReason(StrEnum):
    """Whether a stateful pipeline dropped rows because they lay behind its watermark, which is the latest
    time that a worker has seen, less the delay of the pipeline. The message names the workers, the rows since
    the state was first kept, and the watermark. These rows are in no result. The condition stays for an hour
    after the last of them.

    NOTHING_LATE: no row was dropped within the last hour, or the pipeline keeps no state. DROPPED_AS_LATE:
    logs came later than the delay allows, for example of a device that sends seldom, or of a shard that had
    waited at another worker; raise the delay if their results matter. WATERMARK_AHEAD: the watermark lies
    after the receipt of the logs, so that every log is late until then: the state is of an earlier release,
    which did not bound it; begin with an empty one (spec.resetCheckpoints). LATE_NOT_REPORTED: the operator
    cannot read the status of a ready worker."""

    NOTHING_LATE = "NothingLate"
    DROPPED_AS_LATE = "DroppedAsLate"
    WATERMARK_AHEAD = "WatermarkAhead"
    LATE_NOT_REPORTED = "LateNotReported"


class LocalReason(StrEnum):
    """A worker's process, with `loghub up`.

    WORKER_UNRESPONSIVE: the process runs but has not reported its status for too long. START_FAILED: the
    process cannot be started; the message contains the error. TRIAL_TIMED_OUT: changed settings are tried in
    a process of its own, which has taken ten minutes; perhaps code of the pipeline hangs where it is
    imported. The workers run on with the settings from before.
    """

    WORKER_UNRESPONSIVE = "WorkerUnresponsive"
    START_FAILED = "StartFailed"
    TRIAL_TIMED_OUT = "TrialTimedOut"


ConditionStatus = Literal["True", "False", "Unknown"]
MAX_MESSAGE = 1024  # the limit of an Event's note: condition and Event can say the same


class ConditionType(StrEnum):
    """READY: the group and its workers are as the spec says. GROUP_SYNCED: the consumer group at the log
    service is as the spec says. WORKERS_AVAILABLE: every worker that should run is ready. REBALANCING:
    a shard is being handed over from one worker to another. LAG_AVAILABLE: the lag in the status is
    current. SCALING_ACTIVE: the load decides the number of workers. SCALING_LIMITED: the number of workers
    differs from the requested one. HOT_SHARD: a shard is too busy for one worker. SHARD_FAILING: some logs
    cannot be delivered. GROUP_WAS_LOST: the group had no checkpoint of shards that the sink has logs of.
    STATE_INCOMPLETE: the state of a stateful pipeline lacks earlier logs of some
    shards. LOGS_DROPPED_AS_LATE: a stateful pipeline dropped rows behind its watermark within the last hour.
    SUSPENDED: no worker should run, on purpose. STALLED: the group is not ready and
    makes no progress. DEGRADED: something is wrong that does not pass by itself.
    """

    READY = "Ready"
    GROUP_SYNCED = "GroupSynced"
    WORKERS_AVAILABLE = "WorkersAvailable"
    REBALANCING = "Rebalancing"
    LAG_AVAILABLE = "LagAvailable"
    SCALING_ACTIVE = "ScalingActive"
    SCALING_LIMITED = "ScalingLimited"
    HOT_SHARD = "HotShard"
    SHARD_FAILING = "ShardFailing"
    GROUP_WAS_LOST = "GroupWasLost"
    STATE_INCOMPLETE = "StateIncomplete"
    LOGS_DROPPED_AS_LATE = "LogsDroppedAsLate"
    SUSPENDED = "Suspended"
    STALLED = "Stalled"
    DEGRADED = "Degraded"


class ReadyReason(StrEnum):
    """If Ready is False, its reason is the reason of the condition that prevents it: GroupSynced,
    WorkersAvailable, ScalingLimited or Suspended, or one of these.

    RUNNING: the consumer group is up to date, and as many workers as should run are ready and run with the
    settings of the generation in observedGeneration. SUSPENDED: with status True, spec.suspend is true and no
    worker is left; with status False, workers still leave. ROLLING_UPDATE: some workers still run with
    earlier settings or an earlier pod template; they are replaced one at a time. The message says how many
    have been replaced, and which worker is next. WORKER_OUTDATED: a worker is ready, and its image, of an
    older release, ignores a setting that the spec uses; use a worker image of the operator's release.
    PROJECT_WITHOUT_SERVICE: workers cannot reach the project that the sink or the dead letter names, because
    it has no Service yet. It gets one once the embedded service answers that the project exists; create the
    project, or give the access key rights in it.
    TERMINATING: the object is being deleted. RECONCILE_ERROR: the operator could not carry out an action and
    retries; the message contains the error. INVALID_SPEC: the spec has a value that this release of the
    operator cannot carry out, stored under the schema of another release; correct it, or run that release.
    Until then its workers stay as they are. Fields that this release does not know are ignored. FORBIDDEN:
    the operator lacks RBAC permission to read something it needs, for example pods. Nothing changes until it
    is granted. The message contains the API server's error. INTERNAL_ERROR: a fault of the operator; the
    message names its type. Nothing changes until it is gone; the operator tries again every 30 s, and ends a
    deletion when its bound has passed. Its log has the place: report it.
    """

    RUNNING = "Running"
    SUSPENDED = "Suspended"
    ROLLING_UPDATE = "RollingUpdate"
    WORKER_OUTDATED = "WorkerOutdated"
    PROJECT_WITHOUT_SERVICE = "ProjectWithoutService"
    TERMINATING = "Terminating"
    RECONCILE_ERROR = "ReconcileError"
    INVALID_SPEC = "InvalidSpec"
    FORBIDDEN = "Forbidden"
    INTERNAL_ERROR = "InternalError"


class UncheckedReason(StrEnum):
    """The operator did not check. TERMINATING: the object is being deleted, and this condition plays no part
    in that. INVALID_SPEC: the spec cannot be parsed, see Ready. FORBIDDEN: the operator lacks a permission,
    see Ready. INTERNAL_ERROR: a fault of the operator, see Ready."""

    TERMINATING = "Terminating"
    INVALID_SPEC = "InvalidSpec"
    FORBIDDEN = "Forbidden"
    INTERNAL_ERROR = "InternalError"


class GroupReason(StrEnum):
    """Whether the consumer group at the log service is as the spec says. The reasons in the second table say
    why the log service cannot be used.

    UP_TO_DATE: the group exists with the timeout and order of the spec, or the subscription with its type,
    key and order. CREATING: it did not exist and is being created. UPDATING: it has other settings and is
    being updated; a subscription is once no consumer is connected. DELETING: the group is
    handled as the deletion policy says. OWNERSHIP_CONFLICT: another object owns the same consumer group,
    because the log service accepted its access key first; this one does nothing until that one is deleted, or
    until its key has been missing or rejected for ten minutes. ADOPTION_REFUSED: the group existed before
    this object, and spec.adoption does not allow to adopt it; the message names the consumers that are live
    in it. Nothing is changed and no worker runs. SUBSCRIPTION_CONFLICT: another object consumes the same
    subscription with another type, key or inOrder, or has the name of this object in another namespace, and
    the log service accepted its access key first; make the two agree, or rename one. FOREIGN_CONSUMERS: the
    group is up to date, and consumers that are not workers of this object share its shards; stop them unless
    that is intended.
    """

    UP_TO_DATE = "UpToDate"
    CREATING = "Creating"
    UPDATING = "Updating"
    DELETING = "Deleting"
    OWNERSHIP_CONFLICT = "OwnershipConflict"
    ADOPTION_REFUSED = "AdoptionRefused"
    SUBSCRIPTION_CONFLICT = "SubscriptionConflict"
    FOREIGN_CONSUMERS = "ForeignConsumers"


class WorkersReason(StrEnum):
    """Whether every worker that should run is ready. If a worker reported a reason, that reason is shown: one
    of the tables below, or Kubernetes' own, such as ImagePullBackOff or OOMKilled.

    ALL_WORKERS_READY: as many workers are ready as should run. SCALED_TO_ZERO: no worker should run.
    LOG_SERVICE_UNAVAILABLE: no worker runs, and none is started while the log service cannot be used, see
    GroupSynced. WORKERS_NOT_READY: some workers are starting, or wait for a node; the message contains what
    the scheduler says. TERMINATING: the object is being deleted. PIPELINE_CODE_NOT_FOUND: the ConfigMap with
    the pipeline's code, or the module in it, does not exist; running workers continue with the code that they
    have. PODS_REFUSED: the API server refuses pods, for example because of a quota or Pod Security; the
    message has its words. WORKER_FAILING: a worker is failing without having reported a reason. If it
    reported one, that reason is shown instead.
    """

    ALL_WORKERS_READY = "AllWorkersReady"
    SCALED_TO_ZERO = "ScaledToZero"
    LOG_SERVICE_UNAVAILABLE = "LogServiceUnavailable"
    WORKERS_NOT_READY = "WorkersNotReady"
    TERMINATING = "Terminating"
    PIPELINE_CODE_NOT_FOUND = "PipelineCodeNotFound"
    PODS_REFUSED = "PodsRefused"
    WORKER_FAILING = "WorkerFailing"


class StalledReason(StrEnum):
    """Whether the group is not ready and makes no progress. Flux and `helm --wait` give up then; the operator
    continues to try.

    PROGRESSING: the group is ready, or came closer to it within spec.worker.progressDeadlineSeconds.
    PROGRESS_DEADLINE_EXCEEDED: it did not; the message names the worker that a rollout waits for, or what
    else keeps the group from being ready. INVALID_SPEC, FORBIDDEN, INTERNAL_ERROR: see Ready."""

    PROGRESSING = "Progressing"
    PROGRESS_DEADLINE_EXCEEDED = "ProgressDeadlineExceeded"
    INVALID_SPEC = "InvalidSpec"
    FORBIDDEN = "Forbidden"
    INTERNAL_ERROR = "InternalError"


class DegradedReason(StrEnum):
    """What is wrong and does not pass by itself.

    AS_EXPECTED: nothing is wrong. WORKER_FAILING: a worker is failing, see WorkersAvailable.
    PODS_REFUSED: see WorkersAvailable. SINK_UNAVAILABLE: a worker cannot write to the target of its sink;
    the message has the worker's words. It keeps its shards and retries for as long as it takes; nothing
    is skipped. WORKER_OUTDATED: see Ready.
    LOG_SERVICE_UNAVAILABLE: the log service cannot be used, see GroupSynced; running workers
    continue. OWNERSHIP_CONFLICT: another object owns the consumer group; delete one of the two.
    ADOPTION_REFUSED: the group existed before this object and is not adopted, see GroupSynced.
    SUBSCRIPTION_CONFLICT: another object consumes the subscription otherwise, see GroupSynced.
    WAITS_FOR_ROOM: so many logs of a shard of the subscription are not acknowledged, with acknowledged ones
    between them, that the log service delivers only what fills these holes; acknowledge or refuse the oldest
    logs, see status.subscription.oldestUnackedSeconds, or pass over them by `loghub subscription skip`.
    KEYS_UNOWNED: consumers with fixed ranges of keys leave a gap, whose logs no consumer gets; connect one
    for it, or leave the ranges to the log service.
    CHECKPOINT_RESET_FAILED: the last reset of checkpoints was not carried out, see status.checkpointReset;
    the workers run. POSITION_BEYOND_END: a shard ends before the position of the group, because the log
    service has lost logs that were consumed or was restored from an older copy; the message names shard and
    cursor. The worker reads its other shards. Log groups that are written before the position are not read:
    restore the log service, or set spec.resetCheckpoints. SHARD_FAILING: a shard waits at a log group that
    cannot be delivered, see ShardFailing. CONFLICTING_CONTROLLER: another controller (an HPA on the
    StatefulSet, a policy engine, or another cluster's operator for the settings of the group) keeps
    reverting the operator's changes, so the operator backs off, up to five minutes. DriftCorrected events
    list the fields. Remove the other writer, or change the spec; a changed spec is applied at once.
    PROGRESS_DEADLINE_EXCEEDED: the group is not ready and makes no progress, see Stalled. INVALID_SPEC,
    FORBIDDEN, INTERNAL_ERROR: see Ready.
    """

    AS_EXPECTED = "AsExpected"
    WORKER_FAILING = "WorkerFailing"
    PODS_REFUSED = "PodsRefused"
    SINK_UNAVAILABLE = "SinkUnavailable"
    WORKER_OUTDATED = "WorkerOutdated"
    LOG_SERVICE_UNAVAILABLE = "LogServiceUnavailable"
    OWNERSHIP_CONFLICT = "OwnershipConflict"
    ADOPTION_REFUSED = "AdoptionRefused"
    SUBSCRIPTION_CONFLICT = "SubscriptionConflict"
    WAITS_FOR_ROOM = "WaitsForRoom"
    KEYS_UNOWNED = "KeysUnowned"
    CHECKPOINT_RESET_FAILED = "CheckpointResetFailed"
    POSITION_BEYOND_END = "PositionBeyondEnd"
    SHARD_FAILING = "ShardFailing"
    CONFLICTING_CONTROLLER = "ConflictingController"
    PROGRESS_DEADLINE_EXCEEDED = "ProgressDeadlineExceeded"
    INVALID_SPEC = "InvalidSpec"
    FORBIDDEN = "Forbidden"
    INTERNAL_ERROR = "InternalError"


class RebalancingReason(StrEnum):
    """REBALANCE_IN_PROGRESS: a shard is in state transfer: its consumer finishes the running batch and then
    releases it. BALANCED: no shard is being handed over. LOG_SERVICE_UNAVAILABLE: the log service cannot be
    used, see GroupSynced."""

    REBALANCE_IN_PROGRESS = "RebalanceInProgress"
    BALANCED = "Balanced"
    LOG_SERVICE_UNAVAILABLE = "LogServiceUnavailable"


class LagReason(StrEnum):
    """AVAILABLE: the lag of every shard is known. NOT_REPORTED: the endpoint answers but does not report the
    lag of some shard. TIMED_OUT: the endpoint answers too slowly, or there are too many shards, to read all
    of them; the last values are shown. POSITION_BEYOND_END: a shard ends before the position of the group, so
    what is left to read is not known, see Degraded. OTHER_LOGSTORE_UNKNOWN: what waits in the retry logstore,
    or lies in the logstore of the dead letter, cannot be read: the logstore does not exist, or the access key
    has no rights there. While the retry logstore cannot be read, the group is not scaled to zero.
    LOG_SERVICE_UNAVAILABLE: the log service cannot be used, see GroupSynced."""

    AVAILABLE = "Available"
    NOT_REPORTED = "NotReported"
    TIMED_OUT = "TimedOut"
    POSITION_BEYOND_END = "PositionBeyondEnd"
    OTHER_LOGSTORE_UNKNOWN = "OtherLogstoreUnknown"
    LOG_SERVICE_UNAVAILABLE = "LogServiceUnavailable"


class ScalingReason(StrEnum):
    """Why the number of workers is, or is not, the requested one.

    DESIRED_WITHIN_RANGE: the requested number runs. TOO_MANY_REPLICAS, TOO_FEW_REPLICAS: scaling.maxReplicas
    or scaling.minReplicas limits the number. TOO_FEW_SHARDS: a shard has one consumer, so workers beyond the
    number of assignable shards would be idle; split shards to use more. TOO_FEW_KEYS: in a subscription of
    type KeyShared, the logs that wait have so few keys that more workers would be idle.
    REBALANCE_IN_PROGRESS: the number does not change while a shard is in state transfer. DRAINING: a worker
    finishes its batch and leaves the group before it is stopped. LOG_SERVICE_UNAVAILABLE: the log service
    cannot be used, so the number stays as it is. SCALE_UP_LIMIT: scaling.scaleUp.maxPodsPerStep limits this
    step; more steps follow. SUSPENDED: no worker should run, see condition Suspended."""

    DESIRED_WITHIN_RANGE = "DesiredWithinRange"
    TOO_MANY_REPLICAS = "TooManyReplicas"
    TOO_FEW_REPLICAS = "TooFewReplicas"
    TOO_FEW_SHARDS = "TooFewShards"
    TOO_FEW_KEYS = "TooFewKeys"
    REBALANCE_IN_PROGRESS = "RebalanceInProgress"
    DRAINING = "Draining"
    LOG_SERVICE_UNAVAILABLE = "LogServiceUnavailable"
    SCALE_UP_LIMIT = "ScaleUpLimit"
    SUSPENDED = "Suspended"


class SuspendedReason(StrEnum):
    """Why no worker should run, on purpose.

    NOT_SUSPENDED: workers should run. SUSPENDED: spec.suspend is true. RESETTING_CHECKPOINTS: checkpoints are
    being reset, for which every worker has to leave the group. OWNERSHIP_CONFLICT: another object owns the
    same consumer group; the message names it if it is in this namespace. ADOPTION_REFUSED: the group existed
    before this object and is not adopted, see GroupSynced. SUBSCRIPTION_CONFLICT: another object consumes the
    subscription otherwise, see GroupSynced. SUBSCRIPTION_CHANGES: the type, key or inOrder of the
    subscription changes, for which every consumer has to leave it; the message names those that are not
    workers of this object. The workers then start again, and no acknowledgment is lost.
    """

    NOT_SUSPENDED = "NotSuspended"
    SUSPENDED = "Suspended"
    RESETTING_CHECKPOINTS = "ResettingCheckpoints"
    OWNERSHIP_CONFLICT = "OwnershipConflict"
    ADOPTION_REFUSED = "AdoptionRefused"
    SUBSCRIPTION_CONFLICT = "SubscriptionConflict"
    SUBSCRIPTION_CHANGES = "SubscriptionChanges"


class ActiveReason(StrEnum):
    """Why the number of workers is what it is in mode Auto, or would be in mode Recommend; also
    `status.scaling.reason`.

    WITHIN_CAPACITY: as many workers run as the load needs. SCALING_UP, SCALING_DOWN: the load has needed
    more, or fewer, for the stabilization window. PROBING: there is no lag and no worker was ever busy enough
    to be measured, so the operator tries one fewer. IDLE: nothing arrived and no lag remained for
    scaleToZero.idleSeconds. OUTSIDE_BOUNDS: the running number is outside the current bounds.
    REBALANCE_IN_PROGRESS: the number is kept while a shard is in state transfer. WARMING_UP: the number is
    kept while workers become ready and the effect of the last step is measured. SCALE_UP_STABILIZED,
    SCALE_DOWN_STABILIZED: the number is kept until the load has needed another one for the whole
    stabilization window. INEFFECTIVE_SCALING: the last scale-up did not increase what is consumed, so the
    number is kept; check the sink, condition HotShard and the CPU of the nodes. The operator tries one more
    worker after ten minutes, backing off, or when another shard becomes assignable or the arrival rate rises
    considerably. MORE_CANNOT_HELP: the backlog of the subscription needs more workers, which would have
    nothing to do: logs are withheld (see Degraded), or wait for the retry logstore or the dead letter, or
    have too few keys. LAG_UNKNOWN: the lag of some shard is unknown; shards that wait for their parents and
    were never started do not count. PROCESSING_RATE_UNKNOWN: the arrival rate, or what one worker consumes,
    is not known yet. SUSPENDED: no worker should run. SCALING_DISABLED: spec.replicas decides (mode Fixed).
    MANAGED_EXTERNALLY: spec.replicas decides, which an autoscaler sets through the scale subresource (mode
    External). RECOMMEND_ONLY: spec.replicas decides, and the message says what Auto would run (mode
    Recommend)."""

    WITHIN_CAPACITY = "WithinCapacity"
    SCALING_UP = "ScalingUp"
    SCALING_DOWN = "ScalingDown"
    PROBING = "Probing"
    IDLE = "Idle"
    OUTSIDE_BOUNDS = "OutsideBounds"
    REBALANCE_IN_PROGRESS = "RebalanceInProgress"
    WARMING_UP = "WarmingUp"
    SCALE_UP_STABILIZED = "ScaleUpStabilized"
    SCALE_DOWN_STABILIZED = "ScaleDownStabilized"
    INEFFECTIVE_SCALING = "IneffectiveScaling"
    MORE_CANNOT_HELP = "MoreCannotHelp"
    LAG_UNKNOWN = "LagUnknown"
    PROCESSING_RATE_UNKNOWN = "ProcessingRateUnknown"
    SUSPENDED = "Suspended"
    SCALING_DISABLED = "ScalingDisabled"
    MANAGED_EXTERNALLY = "ManagedExternally"
    RECOMMEND_ONLY = "RecommendOnly"


class HotReason(StrEnum):
    """Whether a shard is too busy for one worker.

    NO_HOT_SHARD: no shard is. SHARD_OVERLOADED: more arrives in a shard than one worker consumes, or its lag
    is too large for the worker that reads nothing else, so more workers cannot help; split it, or set
    scaling.shards.autoSplit. PROCESSING_RATE_UNKNOWN: what one worker consumes is not known yet.
    SPLIT_REJECTED: a shard is too busy, and the log service rejected the split; the message contains the
    error (such as a limit of shards, or a missing permission) and when the operator retries. MERGE_REJECTED:
    no shard is too busy, and the log service rejected a merge. INEFFECTIVE_SPLIT: a shard is too busy, and it
    is not split, because the last split or the last added workers did not raise what is consumed, or because
    most shards are too busy; check the sink and the resources of the workers."""

    NO_HOT_SHARD = "NoHotShard"
    SHARD_OVERLOADED = "ShardOverloaded"
    PROCESSING_RATE_UNKNOWN = "ProcessingRateUnknown"
    SPLIT_REJECTED = "SplitRejected"
    MERGE_REJECTED = "MergeRejected"
    INEFFECTIVE_SPLIT = "IneffectiveSplit"


class ShardFailingReason(StrEnum):
    """Whether the pipeline and the sink take the logs of every shard. The message names shards, cursors and
    the class of the error, such as CAST_INVALID_INPUT; the worker's own log has its text, which may quote a
    log. All other shards are read. pipeline.onFailure says what happens to a log group that fails alone.

    NO_SHARD_FAILING: every shard is read. RETRYING_LOG_GROUP: a log group fails alone and is retried; correct
    the pipeline, or set another policy. SHARD_STOPPED: policy Stop; nothing more of the shard is read until
    you change the spec or reset the shard's checkpoint. FAILURE_LIMIT_REACHED: so many log groups failed that
    the pipeline counts as broken (maxConsecutive, maxPerHour); no more are skipped, and the shard is retried.
    DEAD_LETTER_PENDING: the dead letter cannot be written, and the shard waits for it. DATA_SKIPPED: no shard
    waits, and log groups were skipped in the last hour. DATA_DEAD_LETTERED: log groups were skipped in the
    last hour, and they are in the dead letter. NOT_REPORTED: the operator cannot read the status of a ready
    worker at port 9404 of its pod; check NetworkPolicies."""

    NO_SHARD_FAILING = "NoShardFailing"
    RETRYING_LOG_GROUP = "RetryingLogGroup"
    SHARD_STOPPED = "ShardStopped"
    FAILURE_LIMIT_REACHED = "FailureLimitReached"
    DEAD_LETTER_PENDING = "DeadLetterPending"
    DATA_SKIPPED = "DataSkipped"
    DATA_DEAD_LETTERED = "DataDeadLettered"
    NOT_REPORTED = "NotReported"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionUpdate:
    """A condition without its times."""

    type: ConditionType
    status: ConditionStatus
    reason: str
    message: str


def fill_unknown(
    conditions: tuple[ConditionUpdate, ...], reason: UncheckedReason, message: str
) -> tuple[ConditionUpdate, ...]:
    """All types in their order; types that were not checked are Unknown."""
    checked = {condition.type: condition for condition in conditions}
    return tuple(
        checked.get(kind) or ConditionUpdate(type=kind, status="Unknown", reason=reason, message=message)
        for kind in ConditionType
    )


def rfc3339(unix_s: float) -> str:
    """Whole seconds, UTC."""
    return datetime.fromtimestamp(int(unix_s), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def with_transition_times(
    conditions: tuple[ConditionUpdate, ...], before: tuple[Condition, ...], *, generation: int, now: float
) -> tuple[Condition, ...]:
    """Adds the time of the last change of status to each condition: the old time if it did not change."""
    reported = {condition.type: condition for condition in before}
    return tuple(_dated(condition, reported.get(condition.type), generation, now) for condition in conditions)


def _dated(condition: ConditionUpdate, before: Condition | None, generation: int, now: float) -> Condition:
    same = before is not None and before.status == condition.status
    return Condition(
        type=condition.type.value,
        status=condition.status,
        reason=condition.reason,
        message=condition.message[:MAX_MESSAGE],
        last_transition_time=before.last_transition_time if before and same else rfc3339(now),
        observed_generation=generation,
    )
