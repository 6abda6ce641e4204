"""The conditions of the status: their types, their reasons, a paragraph each.

What for: one place to look up what a reason means and what to do. What it must not know:
how it was found out. Read next: `loghub_operator.telling`, which sets them.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Literal

from loghub_operator.api.status import Condition

ConditionStatus = Literal["True", "False", "Unknown"]
LONGEST_MESSAGE = 1024


class ConditionType(StrEnum):
    """READY: all that was asked for is so. GROUP_SYNCED: the group at the log service is as the spec says.
    WORKERS_AVAILABLE: every worker that should run is ready. REBALANCING: a shard is on its
    way from one worker to another. LAG_KNOWN: the lag in the status is of now.
    SCALING_LIMITED: another number of workers runs than was asked for. SCALING_ACTIVE: the number
    of workers follows the load. HOT_SHARD: a shard is too busy for one worker. PAUSED: no worker should
    run, on purpose. DEGRADED: something is wrong that will not pass by waiting.
    """

    READY = "Ready"
    GROUP_SYNCED = "GroupSynced"
    WORKERS_AVAILABLE = "WorkersAvailable"
    REBALANCING = "Rebalancing"
    LAG_KNOWN = "LagKnown"
    SCALING_LIMITED = "ScalingLimited"
    SCALING_ACTIVE = "ScalingActive"
    HOT_SHARD = "HotShard"
    PAUSED = "Paused"
    DEGRADED = "Degraded"


class ReadyReason(StrEnum):
    """RUNNING: the group is in step and every worker is ready. Otherwise the reason of the
    condition that is in the way; while Paused is true, that one's. DELETING: the object is being
    deleted. ACTION_FAILED: what was decided could not be carried out; the message has the words
    of who refused.
    NOT_UNDERSTOOD: the object was stored under another version of the schema; correct it, and
    until then its workers stay as they are. LOOK_REFUSED: the operator has no right to look at what
    belongs to the object, its pods, say, and until it has, all stays as it is; the message has the
    apiserver's words."""

    RUNNING = "Running"
    DELETING = "Deleting"
    ACTION_FAILED = "ActionFailed"
    NOT_UNDERSTOOD = "NotUnderstood"
    LOOK_REFUSED = "LookRefused"


class UnseenReason(StrEnum):
    """Why a condition is Unknown: nothing was looked at. DELETING: the object is being deleted, and this
    plays no part in it. NOT_UNDERSTOOD: what the object asks for cannot be read, see Ready. LOOK_REFUSED: the
    operator may not look at what belongs to it, see Ready."""

    DELETING = "Deleting"
    NOT_UNDERSTOOD = "NotUnderstood"
    LOOK_REFUSED = "LookRefused"


class GroupReason(StrEnum):
    """Why the group is, or is not, in step; the other reasons say why the log
    service could not be asked (`ServiceTrouble`).

    BEING_ADDRESSED: the project's host name is being made. IN_SYNC: it exists with the
    spec's timeout and order. BEING_MADE: it did not exist, and is made now. BEING_CHANGED: it
    had other settings. BEING_DELETED: as the deletion policy says. OWNED_BY_ANOTHER: an older
    object names the same group, so this one leaves it alone until that one is gone.
    """

    BEING_ADDRESSED = "BeingAddressed"
    IN_SYNC = "InSync"
    BEING_MADE = "BeingMade"
    BEING_CHANGED = "BeingChanged"
    BEING_DELETED = "BeingDeleted"
    OWNED_BY_ANOTHER = "OwnedByAnother"


class WorkersReason(StrEnum):
    """Why workers are, or are not, available.

    ALL_READY: as many are ready as should run. NONE_WANTED: none should run. NOT_STARTED:
    none runs, and none is started while the log service cannot be asked. STARTING:
    some are on their way. STOPPING: the object is being deleted. CODE_NOT_FOUND: the ConfigMap of
    the pipeline's code, or the module in it, is not there; what runs goes on with the code that it
    has. WORKER_FAILED: a worker fails and left no word of its own; otherwise the first failing
    worker's word stands, such as PipelineInvalid (the SQL does not parse; the message has
    Spark's words), ImagePullBackOff, OOMKilled. A pod
    that finds no node is still starting; the message has the scheduler's words.
    """

    ALL_READY = "AllReady"
    NONE_WANTED = "NoneWanted"
    NOT_STARTED = "NotStarted"
    STARTING = "Starting"
    STOPPING = "Stopping"
    CODE_NOT_FOUND = "CodeNotFound"
    WORKER_FAILED = "WorkerFailed"


class DegradedReason(StrEnum):
    """What is wrong and does not pass by waiting.

    AS_EXPECTED: nothing of the kind. WORKER_FAILING: see WorkersAvailable. SERVICE_NOT_ASKED: the
    log service cannot be asked, see GroupSynced; workers that run go on. OWNED_BY_ANOTHER: an
    older object has the consumer group; delete one of the two. REPOSITION_FAILED: the last order
    to move checkpoints was not carried out, see status.reposition; workers run. CONTESTED: somebody
    else (an HPA on the StatefulSet, a policy engine, for a group's settings another cluster's
    operator) undoes what the operator writes, so it is written ever later, every five minutes in the
    end; events DriftMended name the fields.
    End the other's writing, or change the spec, which is carried out at once. NOT_UNDERSTOOD,
    LOOK_REFUSED: see Ready.
    """

    AS_EXPECTED = "AsExpected"
    WORKER_FAILING = "WorkerFailing"
    SERVICE_NOT_ASKED = "ServiceNotAsked"
    OWNED_BY_ANOTHER = "OwnedByAnother"
    REPOSITION_FAILED = "RepositionFailed"
    CONTESTED = "Contested"
    NOT_UNDERSTOOD = "NotUnderstood"
    LOOK_REFUSED = "LookRefused"


class RebalancingReason(StrEnum):
    """SHARDS_IN_TRANSFER: their holders finish the running batch, then give up. SETTLED: no
    shard is on its way. UNKNOWN: the log service could not be asked."""

    SHARDS_IN_TRANSFER = "ShardsInTransfer"
    SETTLED = "Settled"
    UNKNOWN = "Unknown"


class LagReason(StrEnum):
    """KNOWN: of every shard. NOT_TOLD: the endpoint answers, and does not say it for some
    shard. NOT_IN_TIME: it answers so slowly, or for so many shards, that not all were asked; what
    was told stands. SERVICE_NOT_ASKED: see the reason of GroupSynced."""

    KNOWN = "Known"
    NOT_TOLD = "NotTold"
    NOT_IN_TIME = "NotInTime"
    SERVICE_NOT_ASKED = "ServiceNotAsked"


class ScalingReason(StrEnum):
    """Why so many workers run.

    AS_ASKED: spec.replicas. ABOVE_MAXIMUM, BELOW_MINIMUM: the bounds in spec.scaling hold.
    TOO_FEW_SHARDS: a shard has one holder, so more workers than assignable shards would
    stand by; split shards to use more. REBALANCE_IN_PROGRESS: nothing is changed until no
    shard is in transfer. DRAINING: a worker finishes and leaves before it is stopped.
    SHARDS_UNKNOWN: the log service could not be asked, so the number stays as it is.
    STEP_LIMITED: scaling.scaleUp.maxStep holds; the rest follows.
    PAUSED: none should run; condition Paused says why.
    """

    AS_ASKED = "AsAsked"
    ABOVE_MAXIMUM = "AboveMaximum"
    BELOW_MINIMUM = "BelowMinimum"
    TOO_FEW_SHARDS = "TooFewShards"
    REBALANCE_IN_PROGRESS = "RebalanceInProgress"
    DRAINING = "Draining"
    SHARDS_UNKNOWN = "ShardsUnknown"
    STEP_LIMITED = "StepLimited"
    PAUSED = "Paused"


class PausedReason(StrEnum):
    """Why no worker should run on purpose.

    ACTIVE: workers should run. SUSPENDED: spec.suspend. REPOSITIONING: checkpoints are being
    moved, which needs everybody gone. OWNED_BY_ANOTHER: an older object names the same consumer
    group; the message names it.
    """

    ACTIVE = "Active"
    SUSPENDED = "Suspended"
    REPOSITIONING = "Repositioning"
    OWNED_BY_ANOTHER = "OwnedByAnother"


class ActiveReason(StrEnum):
    """Why the number of workers is what it is, where the load decides (mode Auto), or what would be
    done (mode Recommend); also `status.scaling.reason`.

    STEADY: as many run as the load needs. SCALING_UP, SCALING_DOWN: the load has needed more, or
    fewer, for long enough. PROBING: nothing waits and no worker was ever busy enough to be
    measured, so one fewer is tried. IDLE: nothing arrived and nothing was left for
    toZero.afterSeconds. OUT_OF_BOUNDS: what runs is outside of the bounds of now.
    Held, which means that another number is wanted and the present one is kept. TRANSFER: a shard
    is on its way. WARMING_UP: workers are not ready, or just were, or what the last step brought
    is still being measured. STABILIZING: the need has not lasted long enough. NO_HELP: the last
    step up did not raise what is consumed; look at the sink, at HotShard, at the nodes' CPU. It is
    tried again with one worker more after ten minutes, later each time, or when a shard more can be
    assigned, or much more arrives.
    LAG_UNKNOWN: some shard's lag is not known; one that waits for its parents and was never begun
    does not count. RATE_UNKNOWN: it is not known yet how much arrives, or how much one worker
    consumes. PAUSED: none should run. FIXED, EXTERNAL: spec.replicas decides; in the latter an
    autoscaler sets it on /scale. RECOMMENDING: spec.replicas decides, and the message says what
    Auto would run.
    """

    STEADY = "Steady"
    SCALING_UP = "ScalingUp"
    SCALING_DOWN = "ScalingDown"
    PROBING = "Probing"
    IDLE = "Idle"
    OUT_OF_BOUNDS = "OutOfBounds"
    TRANSFER = "Transfer"
    WARMING_UP = "WarmingUp"
    STABILIZING = "Stabilizing"
    NO_HELP = "NoHelp"
    LAG_UNKNOWN = "LagUnknown"
    RATE_UNKNOWN = "RateUnknown"
    PAUSED = "Paused"
    FIXED = "Fixed"
    EXTERNAL = "External"
    RECOMMENDING = "Recommending"


class HotReason(StrEnum):
    """Is a shard too busy for one worker?

    NONE_HOT: none. TOO_BUSY: more comes into it than one worker consumes, or is left where it has
    one to itself, so more workers cannot help; split it, or allow scaling.shards.autoSplit.
    RATE_UNKNOWN: what one worker consumes is not known (yet). SPLIT_REFUSED: one is, and the log
    service refused to split it; the message has its words (a limit of shards, a right that is not
    given) and when it is tried again. MERGE_REFUSED: none is, and the same of a merge.
    """

    NONE_HOT = "NoneHot"
    TOO_BUSY = "TooBusy"
    RATE_UNKNOWN = "RateUnknown"
    SPLIT_REFUSED = "SplitRefused"
    MERGE_REFUSED = "MergeRefused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A condition without its times."""

    type: ConditionType
    status: ConditionStatus
    reason: str
    message: str


def unseen(found: tuple[Finding, ...], reason: UnseenReason, message: str) -> tuple[Finding, ...]:
    """All types in their order; those that nobody looked at are Unknown."""
    known = {finding.type: finding for finding in found}
    return tuple(
        known.get(kind) or Finding(type=kind, status="Unknown", reason=reason, message=message)
        for kind in ConditionType
    )


def rfc3339(unix_s: float) -> str:
    """Whole seconds, UTC."""
    return datetime.fromtimestamp(int(unix_s), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def dated(
    findings: tuple[Finding, ...], before: tuple[Condition, ...], *, generation: int, now: float
) -> tuple[Condition, ...]:
    """Give each finding its time: of the change of its status, so the old time where it did not change."""
    known = {condition.type: condition for condition in before}
    return tuple(_dated(finding, known.get(finding.type), generation, now) for finding in findings)


def _dated(finding: Finding, before: Condition | None, generation: int, now: float) -> Condition:
    same = before is not None and before.status == finding.status
    return Condition(
        type=finding.type.value,
        status=finding.status,
        reason=finding.reason,
        message=finding.message[:LONGEST_MESSAGE],
        last_transition_time=before.last_transition_time if before and same else rfc3339(now),
        observed_generation=generation,
    )
