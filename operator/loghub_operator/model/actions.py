"""The actions of a plan. Each one is idempotent and says what "already there" means."""

from dataclasses import dataclass
from typing import Literal

from loghub.worker_contract import WorkerConfig
from loghub_operator.api.adoption import GroupOrigin
from loghub_operator.model.reposition import MoveRecord


@dataclass(frozen=True, slots=True)
class HoldObject:
    """Put our finalizer on the object, so that a deletion waits for us. Local: nothing to do."""


@dataclass(frozen=True, slots=True)
class EnsureProjectAddress:
    """Make the project's host name resolve (one Service named like the project). Local: nothing to do."""

    project: str


@dataclass(frozen=True, slots=True)
class RecordGroupOrigin:
    """Write onto the object whether we make the group or found it, and hold it; before `CreateGroup`."""

    origin: GroupOrigin


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateGroup:
    """Make the consumer group. Exists already: not an error, but record "Adopted" instead."""

    timeout_s: int
    order: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateGroup:
    """Give the consumer group these settings."""

    timeout_s: int
    order: bool


@dataclass(frozen=True, slots=True)
class DeleteGroup:
    """Delete the consumer group with its checkpoints. Gone already: not an error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepCheckpoints:
    """Write this down under this name, for undo and for a crash in between. Never over one that is there."""

    name: str
    record: MoveRecord


@dataclass(frozen=True, slots=True)
class MoveCheckpoints:
    """Force these checkpoints: shard and cursor."""

    moves: tuple[tuple[int, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyWorkers:
    """Run exactly the ordinals 0 .. replicas-1 with these settings.

    Missing workers are started together. A worker with another ``config_hash`` is replaced
    without leaving the group (SIGTERM), one at a time, highest ordinal first, the
    next one when the former is ready. A worker of an ordinal >= replicas is stopped (it has
    left already).
    """

    replicas: int
    config: WorkerConfig
    config_hash: str


@dataclass(frozen=True, slots=True)
class AskLeave:
    """Ask this worker to drain and leave the group (`loghub.worker_contract`); note the time of the first
    request."""

    consumer: str


@dataclass(frozen=True, slots=True)
class RestartWorker:
    """Stop this worker, which was asked to drain; its executor restarts it as a member of the group."""

    consumer: str


@dataclass(frozen=True, slots=True)
class RemoveWorkers:
    """Stop all workers and remove what was made for them; the sink's data stays."""


@dataclass(frozen=True, slots=True)
class ReleaseObject:
    """Take our finalizer off: nothing is left to be done. Local: forget the object."""


@dataclass(frozen=True, slots=True)
class SplitShard:
    """Cut this shard in the middle of its keys. Read-only already: not an error, it was split before."""

    shard: int


@dataclass(frozen=True, slots=True)
class MergeShards:
    """Make one of this shard and its right neighbour by key. Read-only already: not an error."""

    shard: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EmitEvent:
    """Tell a person once; executors may fold repeats."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str


Action = (
    HoldObject
    | EnsureProjectAddress
    | RecordGroupOrigin
    | CreateGroup
    | UpdateGroup
    | DeleteGroup
    | KeepCheckpoints
    | MoveCheckpoints
    | ApplyWorkers
    | AskLeave
    | RestartWorker
    | RemoveWorkers
    | ReleaseObject
    | SplitShard
    | MergeShards
    | EmitEvent
)


GroupChange = CreateGroup | UpdateGroup | DeleteGroup
ShardChange = SplitShard | MergeShards


class ActionRefused(Exception):  # noqa: N818 - says what happened
    """An action could not be carried out, for a reason that a person has to cure."""


class ReshardRefused(ActionRefused):
    """The log service says no to a split or merge; the message has its words."""

    def __init__(self, action: ShardChange, words: str) -> None:
        super().__init__(words)
        self.action = action
