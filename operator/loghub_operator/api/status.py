"""The status of a `LogHubConsumerGroup`: what the operator reports.

The planner computes it; the cluster and `loghub up` show it; the CRD is generated from it. A number that
is unknown is absent, never zero.
"""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from loghub.domain.subscription import SubscriptionState, SubscriptionType
from loghub_operator.api.fields import Count, Time, described
from loghub_operator.api.scaling import ScalingMode
from loghub_operator.api.validation import ApiModel

# Large lists do not belong in a status; /metrics has every shard.
MAX_SHARDS = 256
# Numbers alone say nothing that people act on, and /metrics has them; with 500 groups whose logs flow, each
# write counts. Conditions, consumers and numbers of workers are written at once.
NUMBERS_EVERY_S = 60.0  # unless the administrator chooses another interval
MAX_PARENTS = 2
NOT_OBSERVED = -1  # `observedGeneration` of an object that no operator has reported on
SUBSCRIPTION_STATES = (
    "NoConsumer: no consumer is connected. WaitsForParent: the shard waits until every log of its parents is"
    " acknowledged. Flowing: logs are delivered. WaitsForRoom: only the logs between acknowledged ones are"
    " delivered, because there are too many of these gaps, or too many logs are at consumers. Unowned: logs"
    " have keys that no consumer has. Finished: the shard is read-only and wholly acknowledged."
)
ShardStateText = Literal["not_alloc", "already_alloc", "wait", "transfer", "over", "unknown"]


class Phase(StrEnum):
    """A summary for `kubectl get`; the conditions say why.

    PENDING: no worker is ready yet. RUNNING: a worker is ready and as many workers were started as should
    run; column READY shows how many are ready. UPDATING: workers are being replaced one at a time, because
    their settings or their pod template changed; column UP-TO-DATE shows how many have been. SUSPENDED: no
    worker should run, on purpose, and none does; condition Suspended says why. REBALANCING: shards are being
    handed over between workers, or the number of workers is changing. DEGRADED: something is wrong that does
    not pass by itself, or the log service does not answer; running workers continue. TERMINATING: the object
    is being deleted.
    """

    PENDING = "Pending"
    RUNNING = "Running"
    UPDATING = "Updating"
    SUSPENDED = "Suspended"
    REBALANCING = "Rebalancing"
    DEGRADED = "Degraded"
    TERMINATING = "Terminating"


class ShardDeliveryStatus(ApiModel):
    """One shard in a subscription, beyond what it has as a shard of a group."""

    state: SubscriptionState = Field(strict=False, description=SUBSCRIPTION_STATES)
    acked_ranges: Count = Field(
        description=(
            "Ranges of acknowledged logs after the checkpoint. At 10,000 only logs before the last of them"
            " are delivered."
        )
    )
    unacked_logs: Count = Field(description="Logs at consumers, without an acknowledgment.")


class ShardStatus(ApiModel):
    """One shard as the log service last reported it, at observedAt."""

    id: Count = Field(description="ID of the shard.")
    state: ShardStateText = Field(
        description=(
            "State of the shard in this group, as on the wire. not_alloc: no consumer has it. already_alloc:"
            " `consumer` reads it. wait: it waits until its parents are consumed. transfer: `consumer`"
            " finishes its batch, then `nextConsumer` gets it. over: it is read-only and consumed to its end."
            " unknown: the log service cannot tell."
        )
    )
    consumer: str | None = Field(default=None, description="The consumer that holds the shard.")
    next_consumer: str | None = Field(
        default=None,
        description=(
            "In state transfer, the consumer that gets the shard next, if the log service reports it."
        ),
    )
    checkpoint: str | None = Field(
        default=None,
        description=(
            "The saved cursor. In a subscription, the mark-delete position: every log before it is"
            " acknowledged."
        ),
    )
    checkpoint_age_seconds: int | None = Field(
        default=None, description="Age of the checkpoint at observedAt, in seconds."
    )
    lag_seconds: int | None = Field(
        default=None,
        description=(
            "Age of the oldest log that is not checkpointed, or not acknowledged, in seconds; 0 if there is"
            " none."
        ),
    )
    lag_logs: int | None = Field(
        default=None, description="Number of logs that are not checkpointed, or not acknowledged."
    )
    subscription: ShardDeliveryStatus | None = Field(
        default=None, description="With spec.subscription, how the logs of the shard are delivered."
    )
    read_only: bool = Field(
        default=False, description="The shard was split or merged and accepts no more logs."
    )
    parents: Annotated[tuple[Count, ...], Field(max_length=MAX_PARENTS)] = Field(
        default=(), description="IDs of the shards that this shard was split or merged from."
    )
    observed_at: Time | None = Field(
        default=None,
        description=(
            "When the log service reported this. Updated only together with another field of this "
            "entry, so an old value on an idle group means that nothing has changed."
        ),
    )


class Condition(ApiModel):
    """A condition as in every Kubernetes API."""

    type: Annotated[str, Field(max_length=64)] = Field(description="Type of the condition.")
    status: Literal["True", "False", "Unknown"] = Field(description="True, False or Unknown.")
    reason: Annotated[str, Field(max_length=64)] = Field(
        description=(
            "One CamelCase word. docs/reasons.md in the project's repository explains each reason and "
            "what to do."
        )
    )
    message: Annotated[str, Field(max_length=4096)] = Field(
        default="", description="The particulars, for people."
    )
    last_transition_time: Time = Field(description="When the status last changed.")
    observed_generation: int | None = Field(
        default=None, description="The generation that this condition is about."
    )


class ShardSummary(ApiModel):
    """Numbers of shards of the logstore."""

    total: Count = Field(description="All shards.")
    assignable: Count = Field(description="Shards that a worker can hold now.")
    waiting: Count = Field(description="Shards that wait until their parents are consumed (state wait).")
    completed: Count = Field(description="Shards consumed to their end (state over).")


class Lag(ApiModel):
    """Lag over all shards. A number is absent while it is unknown for one of them."""

    seconds: int | None = Field(default=None, description="The largest lag of a shard, in seconds.")
    logs: int | None = Field(default=None, description="The sum of the shards' lags, in logs.")


class SubscriptionReport(ApiModel):
    """The subscription over all shards. A number is absent while it is unknown."""

    type: SubscriptionType = Field(
        strict=False,
        description="Type of the subscription: Exclusive, Failover, Shared or KeyShared.",
    )
    consumers: Count = Field(description="Consumers that are connected, of all objects and clients.")
    backlog_logs: int | None = Field(
        default=None, description="Logs that are not acknowledged, over all shards."
    )
    unacked_logs: int | None = Field(
        default=None, description="Logs at consumers, without an acknowledgment."
    )
    redelivered_logs: int | None = Field(
        default=None, description="Deliveries of logs after the first one, since the log service started."
    )
    oldest_unacked_seconds: int | None = Field(
        default=None,
        description="Age of the oldest log that is not acknowledged, in seconds; 0 if there is none.",
    )
    state: SubscriptionState = Field(
        strict=False,
        description=f"The state of the shard that needs most attention. {SUBSCRIPTION_STATES}",
    )


class ScalingInputs(ApiModel):
    """What the last decision is based on. Absent: unknown. With spec.subscription, rates count logs."""

    arrival_per_second: float | None = Field(
        default=None, description="Log groups written, per second; with spec.subscription, logs."
    )
    lag_log_groups: int | None = Field(
        default=None,
        description=(
            "Log groups that are not checkpointed, without shards that wait for their parents and were "
            "never started."
        ),
    )
    backlog_logs: int | None = Field(
        default=None, description="With spec.subscription, the logs that are not acknowledged."
    )
    worker_per_second: float | None = Field(
        default=None,
        description="Log groups that one worker consumes, per second; with spec.subscription, logs.",
    )
    catch_up_seconds: Count | None = Field(
        default=None, description="spec.scaling.catchUpSeconds at the time of the decision."
    )
    assignable_shards: Count | None = Field(default=None, description="Shards that a worker can hold.")
    ready_workers: Count | None = Field(default=None, description="Workers that are ready.")


class ScalingStep(ApiModel):
    """One change of the number of workers or of writable shards."""

    target: Literal["Workers", "Shards"] = Field(
        default="Workers",
        description="What changed. Workers: the number of workers. Shards: the number of writable shards.",
    )
    time: Time = Field(description="When it changed.")
    from_: Count = Field(description="The number before.")
    to: Count = Field(description="The number after.")
    reason: Annotated[str, Field(max_length=64)] = Field(
        description="Why; a reason of condition ScalingActive, or an event's."
    )


class ScalingLimit(StrEnum):
    """What limits the number of workers below or above what the load needs.

    MINIMUM: spec.scaling.minReplicas. MAXIMUM: spec.scaling.maxReplicas. SHARDS: the number of assignable
    shards. STEP: spec.scaling.scaleUp.maxPodsPerStep. KEYS: in a subscription of type KeyShared, the number
    of parts of the keys that have logs at workers: more workers would have none.
    """

    MINIMUM = "Minimum"
    MAXIMUM = "Maximum"
    SHARDS = "Shards"
    STEP = "Step"
    KEYS = "Keys"


class ScalingStatus(ApiModel):
    """The last decision on the number of workers, and the last changes."""

    mode: ScalingMode = Field(
        strict=False, description=described(ScalingMode, "spec.scaling.mode at the time of the decision.")
    )
    uncapped_replicas: Count | None = Field(
        default=None, description="Workers that the formula asks for, before bounds and stabilization."
    )
    recommended_replicas: Count | None = Field(
        default=None, description="The same within the bounds and after stabilization."
    )
    desired_replicas: Count = Field(description="Workers that the operator runs now.")
    blocked: bool = Field(
        default=False,
        description="The current number is kept although another one is needed; reason says why.",
    )
    reason: Annotated[str, Field(max_length=64)] = Field(
        description="Why; the same reason as in condition ScalingActive."
    )
    limited_by: ScalingLimit | None = Field(default=None, strict=False, description=described(ScalingLimit))
    formula: Annotated[str, Field(max_length=256)] | None = Field(
        default=None, description="The formula with its numbers."
    )
    inputs: ScalingInputs = Field(
        default=ScalingInputs(), description="What the decision is based on. Absent numbers are unknown."
    )
    last_decision_time: Time | None = Field(default=None, description="When this was decided.")
    history: Annotated[tuple[ScalingStep, ...], Field(max_length=10)] = Field(
        default=(), description="The last changes, newest first."
    )


Nonce = Annotated[str, Field(max_length=64)]
MAX_NONCES = 256  # at most 16 KB of an object, and more resets than a history in git goes back to


class CheckpointResetPhase(StrEnum):
    """How far the reset is.

    STOPPING_WORKERS: the workers finish their batches and leave the group. COMMITTING: the old checkpoints
    are saved, and the new ones are being committed. RESUMING: the workers start again. SUCCEEDED: the reset
    is complete. FAILED: message says why; this nonce is not tried again, and the workers run.
    """

    STOPPING_WORKERS = "StoppingWorkers"
    COMMITTING = "Committing"
    RESUMING = "Resuming"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


class CheckpointResetStatus(ApiModel):
    """How far the last reset of checkpoints is."""

    nonce: Annotated[str, Field(max_length=64)] = Field(
        description="spec.resetCheckpoints.nonce of the reset."
    )
    # As text: a phase of another release must be neither lost nor taken for one of these.
    phase: Annotated[
        str, Field(json_schema_extra={"enum": [phase.value for phase in CheckpointResetPhase]})
    ] = Field(description=described(CheckpointResetPhase))
    backup_config_map: str | None = Field(
        default=None, description="The ConfigMap with the checkpoints from before the reset."
    )
    message: Annotated[str, Field(max_length=1024)] = Field(
        default="", description="The particulars, for people."
    )
    # As text: a reset must not be lost for a time that cannot be read.
    last_transition_time: Annotated[str, Field(json_schema_extra={"format": "date-time"})] = Field(
        description="When this phase began."
    )


def executed_nonces(status: "Status") -> tuple[str, ...]:
    """The nonces of the resets that changed checkpoints, oldest first. An earlier release kept the last reset
    only, and gave stateful workers its nonce even if it had failed.
    """
    if status.reset_nonces is not None:
        return status.reset_nonces
    return () if status.checkpoint_reset is None else (status.checkpoint_reset.nonce,)


class OwnershipStatus(ApiModel):
    """What the operator relies on from one reconcile to the next. It is kept in the status because users
    who may edit the object may edit its annotations, but not its status.
    """

    uid: Annotated[str, Field(max_length=128)] = Field(description="UID of the object that this is about.")
    endpoint: Annotated[str, Field(max_length=512)] = Field(
        description="spec.endpoint of the group that this is about."
    )
    group: Annotated[str, Field(max_length=512)] = Field(
        description=("project/logstore/group that this is about, or project/logstore/subscription/name.")
    )
    last_initial_shard: Count | None = Field(
        default=None,
        description="The highest shard that existed when the group was created or adopted.",
    )
    writable_shards: Count | None = Field(
        default=None, description="Writable shards of the logstore when it was first observed."
    )
    access_since: Time | None = Field(
        default=None,
        description=(
            "Since when the log service has accepted the access key of this object. Of several objects that "
            "refer to one group, the first one owns it."
        ),
    )
    refused_since: Time | None = Field(
        default=None, description="Since when the access key has been missing or rejected."
    )


class Status(ApiModel):
    """What the operator reports about one consumer group."""

    phase: Phase | None = Field(default=None, strict=False, description=described(Phase))
    observed_generation: int | None = Field(
        default=None,
        description=(
            "The generation of the object that this status is about; "
            f"{NOT_OBSERVED} before the operator has seen the object."
        ),
    )
    consumer_group: str | None = Field(
        default=None, description="Name of the consumer group at the log service."
    )
    replicas: Count = Field(default=0, description="Workers that the operator runs, after all bounds.")
    ready_replicas: Count = Field(default=0, description="Workers that are ready.")
    updated_replicas: Count = Field(
        default=0, description="Workers that run with the settings of the current spec."
    )
    last_progress_time: Time | None = Field(
        default=None,
        description="While the group is not ready, when it last came closer to it, or when it began not to "
        "be. See spec.worker.progressDeadlineSeconds.",
    )
    workers: str | None = Field(
        default=None, description="readyReplicas/replicas, for the column READY of `kubectl get`."
    )
    selector: str | None = Field(
        default=None, description="Label selector of the worker pods, for the scale subresource."
    )
    group_origin: Literal["Created", "Adopted"] | None = Field(
        default=None,
        description="Created: this object created the consumer group. Adopted: the group existed before.",
    )
    ownership: OwnershipStatus | None = Field(
        default=None,
        description=(
            "Which object and group groupOrigin is about, and since when this object has access to the group."
        ),
    )
    shard_summary: ShardSummary | None = Field(
        default=None, description="Numbers of shards of the logstore. Absent while unknown."
    )
    lag: Lag | None = Field(
        default=None,
        description="Lag over all shards. A number is absent while it is unknown for one of them.",
    )
    subscription: SubscriptionReport | None = Field(
        default=None,
        description="With spec.subscription, how much of it is acknowledged. Absent while unknown.",
    )
    retry_log_groups: Count | None = Field(
        default=None,
        description=(
            "Log groups that wait in the retry logstore, also for other consumer groups that use it. Absent "
            "without one, and while unknown."
        ),
    )
    dead_letter_log_groups: Count | None = Field(
        default=None,
        description=(
            "Log groups that the logstore of the dead letter holds, of all writers. Absent without one, "
            "and while unknown."
        ),
    )
    shards: Annotated[
        tuple[ShardStatus, ...],
        Field(
            max_length=MAX_SHARDS,
            json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["id"]},
        ),
    ] = Field(
        default=(),
        description=(
            f"The shards, at most {MAX_SHARDS}; those that are not completed come first. "
            "shardSummary counts all of them."
        ),
    )
    scaling: ScalingStatus | None = Field(
        default=None, description="The last decision on the number of workers, and the last changes."
    )
    checkpoint_reset: CheckpointResetStatus | None = Field(
        default=None, description="How far the last reset of checkpoints is (spec.resetCheckpoints)."
    )
    reset_nonces: Annotated[tuple[Nonce, ...], Field(max_length=MAX_NONCES)] | None = Field(
        default=None,
        description="The nonces of the resets that were executed, oldest first: none is executed again.",
    )
    conditions: Annotated[
        tuple[Condition, ...],
        Field(
            max_length=32,
            json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
        ),
    ] = Field(default=(), description="The state of the group; docs/reasons.md explains types and reasons.")
