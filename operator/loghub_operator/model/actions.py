"""The actions of a plan. Each action is idempotent, and says what happens if its result already exists.

The result of planning: actions, status, and what the next reconcile needs to remember.
"""

from dataclasses import dataclass
from typing import Literal

from loghub_operator.api.adoption import GroupRecord
from loghub_operator.api.status import Status
from loghub_operator.model.group_metrics import GroupMetrics
from loghub_operator.model.memory import NO_MEMORY, Memory
from loghub_operator.model.observed import CheckpointBackup, Peer, Stored
from loghub_operator.model.revision import WorkerSpec

# Reason of the event about a group that no object refers to any more and no operator will delete.
GROUP_ORPHANED = "ConsumerGroupOrphaned"


@dataclass(frozen=True, slots=True)
class AddFinalizer:
    """Adds the operator's finalizer to the object, so that a deletion waits for it. Local: nothing to do."""


@dataclass(frozen=True, slots=True)
class EnsureProjectService:
    """Makes the project's host name resolve (one Service named like the project). Local: nothing to do."""

    project: str


@dataclass(frozen=True, slots=True)
class RecordGroupOrigin:
    """Records on the object whether this object creates the group or adopts it, and with which shards, and
    adds the finalizer; before `CreateGroup`.
    """

    record: GroupRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateGroup:
    """Creates the consumer group, or the subscription. Already exists: fails, and "Refused" is recorded
    instead, with the same initial shards: another client created it, so ``spec.adoption`` decides.
    """

    settings: Stored
    last_initial_shard: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateGroup:
    """Updates the settings of the consumer group or the subscription."""

    settings: Stored


@dataclass(frozen=True, slots=True)
class DeleteGroup:
    """Deletes the consumer group with its checkpoints, or the subscription with its acknowledgments. Already
    deleted: not an error.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class BackUpCheckpoints:
    """Saves the backup under this name, for undo and for a crash in between. Never overwrites an existing
    one.
    """

    name: str
    backup: CheckpointBackup


@dataclass(frozen=True, slots=True)
class CommitCheckpoints:
    """Commits these checkpoints, regardless of who holds the shards: shard and cursor."""

    cursors: tuple[tuple[int, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyWorkers:
    """Runs exactly the ordinals 0 .. replicas-1 as ``spec`` says.

    Missing workers are started together. A worker of another revision is replaced without leaving the group
    (SIGTERM), one at a time, highest ordinal first, the next one when the previous one is ready. A worker
    with an ordinal >= replicas is stopped (it has left already).
    """

    replicas: int
    spec: WorkerSpec


@dataclass(frozen=True, slots=True)
class DrainWorker:
    """Asks this worker to drain and leave the group (`loghub.contract.worker`); records the time of the
    request.
    """

    consumer: str


@dataclass(frozen=True, slots=True)
class RestartWorker:
    """Stops this worker, which was asked to drain; its backend restarts it as a member of the group."""

    consumer: str


@dataclass(frozen=True, slots=True)
class RemoveWorkers:
    """Stops all workers and deletes what was created for them; the sink's data stays."""


@dataclass(frozen=True, slots=True)
class RemoveFinalizer:
    """Removes the operator's finalizer: nothing is left to do. Local: forgets the object."""


@dataclass(frozen=True, slots=True)
class SplitShard:
    """Splits this shard in the middle of its keys. Already read-only: not an error, it was split before."""

    shard: int


@dataclass(frozen=True, slots=True)
class MergeShards:
    """Merges this shard with its right neighbor by key. Already read-only: not an error."""

    shard: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EmitEvent:
    """Reports something to users once; a backend may aggregate repeats."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str


Action = (
    AddFinalizer
    | EnsureProjectService
    | RecordGroupOrigin
    | CreateGroup
    | UpdateGroup
    | DeleteGroup
    | BackUpCheckpoints
    | CommitCheckpoints
    | ApplyWorkers
    | DrainWorker
    | RestartWorker
    | RemoveWorkers
    | RemoveFinalizer
    | SplitShard
    | MergeShards
    | EmitEvent
)


GroupChange = CreateGroup | UpdateGroup | DeleteGroup
ShardChange = SplitShard | MergeShards


class ActionRefused(Exception):  # noqa: N818 - says what happened
    """An action could not be carried out, for a reason that a user has to remove."""


class ReshardRefused(ActionRefused):
    """The log service rejects a split or merge; the message contains its error."""

    def __init__(self, action: ShardChange, message: str) -> None:
        super().__init__(message)
        self.action = action


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do, in this order, and what to report."""

    actions: tuple[Action, ...]
    status: Status
    metrics: GroupMetrics | None = None  # for Prometheus and autoscalers; None during a deletion
    memory: Memory = NO_MEMORY  # for the next reconcile, if all actions are carried out
    owner: Peer | None = None  # another object that owns the group; for the operator's log, not for users
