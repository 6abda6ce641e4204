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
    SCALING_LIMITED: another number of workers runs than was asked for.
    """

    READY = "Ready"
    GROUP_SYNCED = "GroupSynced"
    WORKERS_AVAILABLE = "WorkersAvailable"
    REBALANCING = "Rebalancing"
    LAG_KNOWN = "LagKnown"
    SCALING_LIMITED = "ScalingLimited"


class ReadyReason(StrEnum):
    """RUNNING: the group is in step and every worker is ready. Otherwise the reason of the
    condition that is in the way. DELETING: the object is being deleted. ACTION_FAILED: what
    was decided could not be carried out; the message has the words of who refused.
    NOT_UNDERSTOOD: the object was stored under another version of the schema; correct it, and
    until then its workers stay as they are."""

    RUNNING = "Running"
    DELETING = "Deleting"
    ACTION_FAILED = "ActionFailed"
    NOT_UNDERSTOOD = "NotUnderstood"


class GroupReason(StrEnum):
    """Why the group is, or is not, in step; the other reasons are those of `ServiceTrouble`.

    BEING_ADDRESSED: the project's host name is being made. IN_SYNC: it exists with the
    spec's timeout and order. BEING_MADE: it did not exist, and is made now. BEING_CHANGED: it
    had other settings. BEING_DELETED: as the deletion policy says.
    """

    BEING_ADDRESSED = "BeingAddressed"
    IN_SYNC = "InSync"
    BEING_MADE = "BeingMade"
    BEING_CHANGED = "BeingChanged"
    BEING_DELETED = "BeingDeleted"


class WorkersReason(StrEnum):
    """Why workers are, or are not, available.

    ALL_READY: as many are ready as should run. NONE_WANTED: none should run. NOT_STARTED:
    none runs, and none is started while the log service cannot be asked. STARTING:
    some are on their way. STOPPING: the object is being deleted. Otherwise the first failing
    worker's own word, such as PipelineInvalid (the SQL does not parse; the message has
    Spark's words), ImagePullBackOff, OOMKilled. WORKER_FAILED stands where it left none. A pod
    that finds no node is still starting; the message has the scheduler's words.
    """

    ALL_READY = "AllReady"
    NONE_WANTED = "NoneWanted"
    NOT_STARTED = "NotStarted"
    STARTING = "Starting"
    STOPPING = "Stopping"
    WORKER_FAILED = "WorkerFailed"


class RebalancingReason(StrEnum):
    """SHARDS_IN_TRANSFER: their holders finish the running batch, then give up. SETTLED: no
    shard is on its way. UNKNOWN: the log service could not be asked."""

    SHARDS_IN_TRANSFER = "ShardsInTransfer"
    SETTLED = "Settled"
    UNKNOWN = "Unknown"


class LagReason(StrEnum):
    """KNOWN: of every shard. NOT_TOLD: the endpoint answers, and does not say it for some
    shard. SERVICE_NOT_ASKED: see the reason of GroupSynced."""

    KNOWN = "Known"
    NOT_TOLD = "NotTold"
    SERVICE_NOT_ASKED = "ServiceNotAsked"


class ScalingReason(StrEnum):
    """Why so many workers run.

    AS_ASKED: spec.replicas. ABOVE_MAXIMUM, BELOW_MINIMUM: the bounds in spec.scaling hold.
    TOO_FEW_SHARDS: a shard has one holder, so more workers than assignable shards would
    stand by; split shards to use more. REBALANCE_IN_PROGRESS: nothing is changed until no
    shard is in transfer. DRAINING: a worker finishes and leaves before it is stopped.
    SHARDS_UNKNOWN: the log service could not be asked, so the number stays as it is.
    PAUSED: none should run; condition Paused says why.
    """

    AS_ASKED = "AsAsked"
    ABOVE_MAXIMUM = "AboveMaximum"
    BELOW_MINIMUM = "BelowMinimum"
    TOO_FEW_SHARDS = "TooFewShards"
    REBALANCE_IN_PROGRESS = "RebalanceInProgress"
    DRAINING = "Draining"
    SHARDS_UNKNOWN = "ShardsUnknown"
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A condition without its times."""

    type: ConditionType
    status: ConditionStatus
    reason: str
    message: str


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
