"""The status of a `LogHubConsumerGroup`: what we tell.

What for: the one definition; `plan` computes it, both executors show it, the CRD is
generated from it. What it must not know: how anything was observed. Read next:
`loghub_operator.plan`, `loghub_operator.conditions` (the reasons, a paragraph each).

A number that is not known is absent, never zero.
"""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from loghub_operator.api.rules import ApiModel

MAX_SHARDS = 2048
MAX_PARENTS = 2
ShardStateText = Literal["not_alloc", "already_alloc", "wait", "transfer", "over", "unknown"]


class Phase(StrEnum):
    """One word for `kubectl get`; the conditions say why.

    PENDING: no worker is ready yet. RUNNING: a worker is ready, and as many were started as
    should run; the column of workers says how many are ready. PAUSED: no worker should run, on
    purpose, and none does; condition Paused says why. REBALANCING: shards are on
    their way between workers, or the number of workers is being changed. DEGRADED: something
    is wrong that will not pass by waiting, or the log service does not answer; workers that
    run go on. DELETING: the object is being deleted.
    """

    PENDING = "Pending"
    RUNNING = "Running"
    PAUSED = "Paused"
    REBALANCING = "Rebalancing"
    DEGRADED = "Degraded"
    DELETING = "Deleting"


class ShardStatus(ApiModel):
    """One shard, as last written; `observedAt` is the time of the answer that it stands for."""

    id: Annotated[int, Field(ge=0)] = Field(description="Number of the shard.")
    state: ShardStateText = Field(description="State of the shard in this group, as on the wire.")
    holder: str | None = Field(default=None, description="The consumer that holds it.")
    next_holder: str | None = Field(default=None, description="In transfer: who gets it next.")
    checkpoint: str | None = Field(default=None, description="Saved cursor.")
    checkpoint_age_seconds: int | None = Field(
        default=None, description="Age of the checkpoint at observedAt."
    )
    lag_seconds: int | None = Field(
        default=None, description="Age of the oldest log not yet checkpointed; 0: none is left."
    )
    lag_logs: int | None = Field(default=None, description="Logs not yet checkpointed.")
    read_only: bool = Field(default=False, description="Split or merged: nothing more comes in.")
    parents: Annotated[tuple[int, ...], Field(max_length=MAX_PARENTS)] = Field(
        default=(), description="Shards that it came from."
    )
    observed_at: str | None = Field(
        default=None,
        description="When the log service said so. It is looked at more often than this is written: the time "
        "alone is no news, so an old one beside a group at rest means that nothing changed since.",
    )


class Condition(ApiModel):
    """As in every Kubernetes API."""

    type: Annotated[str, Field(max_length=64)]
    status: Literal["True", "False", "Unknown"]
    reason: Annotated[str, Field(max_length=64)] = Field(
        description="One word; docs/reasons.md of the project tells each, and what to do."
    )
    message: Annotated[str, Field(max_length=4096)] = ""
    last_transition_time: str
    observed_generation: int | None = None


class Lag(ApiModel):
    """Over all shards; absent while one of them is not known."""

    seconds: int | None = Field(default=None, description="The largest of the shards' lags.")
    logs: int | None = Field(default=None, description="The sum of the shards' lags.")


class ScalingInputs(ApiModel):
    """What a decision stood on; log groups as cursors count them. Absent: not known."""

    arrival_per_second: float | None = Field(default=None, description="Log groups written, per second.")
    lag_groups: int | None = Field(
        default=None,
        description="Log groups not yet checkpointed; without a shard that waits for its parents and was "
        "never begun.",
    )
    worker_per_second: float | None = Field(
        default=None, description="Log groups that one worker consumes, per second."
    )
    catch_up_seconds: int | None = None
    assignable: int | None = Field(default=None, description="Shards that a worker can hold.")
    ready: int | None = Field(default=None, description="Workers that are ready.")


class ScalingStep(ApiModel):
    """One change of the number of workers, or of shards that take logs."""

    at: str
    of: Literal["workers", "shards"] = "workers"
    before: int
    after: int
    reason: Annotated[str, Field(max_length=64)]


class ScalingStatus(ApiModel):
    """The ledger of decisions on the number of workers: the last one, and the last changes."""

    mode: Literal["Fixed", "Auto", "External", "Recommend"]
    wanted: int | None = Field(default=None, description="By the formula, before bounds; absent: not known.")
    recommended: int | None = Field(default=None, description="Within bounds and steadied.")
    applied: int = Field(description="Workers asked for.")
    held: bool = Field(default=False, description="The number is kept although another is recommended.")
    reason: Annotated[str, Field(max_length=64)] = Field(
        description="Why; the words are those of condition ScalingActive."
    )
    bound: Literal["Minimum", "Maximum", "Shards", "Step"] | None = Field(
        default=None, description="What cut the wanted number, if anything did."
    )
    formula: Annotated[str, Field(max_length=256)] | None = Field(
        default=None, description="With the numbers in it."
    )
    inputs: ScalingInputs = Field(default=ScalingInputs(), description="What it stood on.")
    at: str | None = Field(default=None, description="When this was decided.")
    steps: Annotated[tuple[ScalingStep, ...], Field(max_length=10)] = Field(
        default=(), description="The last changes, newest first."
    )


class RepositionPhase(StrEnum):
    """STOPPING: the workers leave. FORCING: the old checkpoints are kept, the new ones forced.
    RESUMING: the workers start. DONE. FAILED: the message says why; nothing further is tried
    for this nonce, and the workers run again."""

    STOPPING = "Stopping"
    FORCING = "Forcing"
    RESUMING = "Resuming"
    DONE = "Done"
    FAILED = "Failed"


class RepositionStatus(ApiModel):
    """How far the last order to move checkpoints is."""

    nonce: Annotated[str, Field(max_length=64)]
    phase: RepositionPhase = Field(strict=False)
    undo: str | None = Field(default=None, description="ConfigMap with the checkpoints of before.")
    message: Annotated[str, Field(max_length=1024)] = ""
    at: str = Field(description="When this phase began.")


class Status(ApiModel):
    """All that the operator tells about one consumer group."""

    phase: Phase | None = Field(default=None, description="One word; the conditions say why.", strict=False)
    observed_generation: int | None = Field(default=None, description="The generation this status is about.")
    replicas: int = Field(default=0, description="Workers asked for after all bounds.")
    ready_replicas: int = Field(default=0, description="Workers that are ready.")
    workers: str | None = Field(default=None, description="ready/asked for, for people.")
    selector: str | None = Field(default=None, description="Selects the worker pods, for /scale.")
    group_origin: Literal["Created", "Adopted"] | None = Field(
        default=None, description="Whether this object made the consumer group or found it."
    )
    shard_count: int | None = Field(default=None, description="Shards of the logstore.")
    assignable: int | None = Field(default=None, description="Shards that a worker can hold now.")
    waiting: int | None = Field(default=None, description="Shards that wait for their parents.")
    over: int | None = Field(default=None, description="Shards consumed to their end.")
    lag: Lag | None = Field(default=None, description="How far the group is behind.")
    shards: Annotated[
        tuple[ShardStatus, ...],
        Field(
            max_length=MAX_SHARDS,
            json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["id"]},
        ),
    ] = Field(default=(), description="Each shard.")
    scaling: ScalingStatus | None = Field(default=None, description="Decisions on the number of workers.")
    reposition: RepositionStatus | None = Field(
        default=None, description="The last order to move checkpoints."
    )
    conditions: Annotated[
        tuple[Condition, ...],
        Field(
            max_length=32,
            json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
        ),
    ] = Field(default=(), description="What is so, and why.")
