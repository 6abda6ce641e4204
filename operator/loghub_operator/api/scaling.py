"""The part of the spec that says how many workers run: ``spec.scaling``."""

from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import Field

from loghub_operator.api import fields
from loghub_operator.api.fields import MAX_REPLICAS, Replicas, described
from loghub_operator.api.validation import ApiModel, Rule

MAX_SHARDS = 256  # the maximum of SLS's own automatic split
MIN_CAPACITY = 0.001  # the smallest step of a Kubernetes quantity
# Log groups a second, far above what a worker reads: the lag over it stays a finite number.
MAX_CAPACITY = 1_000_000
Capacity = (
    Annotated[int, Field(ge=1, le=MAX_CAPACITY)]
    | Annotated[str, Field(max_length=32, pattern=fields.QUANTITY)]
)


class ScalingMode(StrEnum):
    """Who decides how many workers run.

    FIXED: `replicas`. AUTO: the operator, from the arrival rate and the lag; `replicas` is the number
    it starts with. EXTERNAL: `replicas`, which an autoscaler such as an HPA or KEDA sets through the scale
    subresource. RECOMMEND: `replicas`; status.scaling shows what Auto would run.
    """

    FIXED = "Fixed"
    AUTO = "Auto"
    EXTERNAL = "External"
    RECOMMEND = "Recommend"


class ScaleUp(ApiModel):
    """How fast workers are added."""

    stabilization_window_seconds: Annotated[int, Field(ge=0, le=3600)] = Field(
        default=30,
        description=(
            "How long more workers must be needed before scaling up; the lowest recommendation within "
            "the window is used. In seconds."
        ),
    )
    max_pods_per_step: Annotated[int, Field(ge=1, le=MAX_REPLICAS)] = Field(
        default=MAX_REPLICAS, description="The most workers added in one step."
    )


class ScaleDown(ApiModel):
    """How fast workers are removed. Each worker leaves the consumer group before it is stopped."""

    stabilization_window_seconds: Annotated[int, Field(ge=0, le=86_400)] = Field(
        default=300,
        description=(
            "How long fewer workers must suffice before scaling down; the highest recommendation "
            "within the window is used. In seconds."
        ),
    )


class ScaleToZero(ApiModel):
    """Stops all workers while there is nothing to consume. One starts again as soon as a log arrives."""

    idle_seconds: Annotated[int, Field(ge=10, le=86_400)] = Field(
        default=300,
        description=(
            "How long nothing must have arrived, and neither lag nor logs that wait to be retried remained, "
            "before the last worker stops."
        ),
    )


class Shards(ApiModel):
    """What the operator may do about a hot shard. More workers do not help: a shard has one consumer."""

    RULES: ClassVar = (
        Rule(
            cel="!has(self.maxShards) || !has(self.minShards) || self.minShards <= self.maxShards",
            message="minShards must not be greater than maxShards",
            holds=lambda self: (
                self.max_shards is None or self.min_shards is None or self.min_shards <= self.max_shards
            ),
        ),
    )

    auto_split: bool = Field(
        default=False,
        description=(
            "Split a shard that is too busy for one worker. Condition HotShard reports what the log "
            "service rejects; the operator retries after one minute, backing off to once an hour. After a "
            "split that did not raise what is consumed no shard is split for two hours, backing off to a day."
        ),
    )
    auto_merge: bool = Field(
        default=False,
        description=(
            "Merge neighbouring shards with little traffic, if no other consumer group and no subscription "
            "reads the logstore. "
            "Fewer shards take fewer writes: set minShards to what your producers need."
        ),
    )
    min_shards: Annotated[int, Field(ge=1, le=MAX_SHARDS)] | None = Field(
        default=None,
        description=(
            "Merging keeps at least this many writable shards, and never fewer than there are workers. "
            "Default: as many as the logstore had when the operator first observed it."
        ),
    )
    max_shards: Annotated[int, Field(ge=1, le=MAX_SHARDS)] | None = Field(
        default=None,
        description=(
            "Splitting stops at this many writable shards. Default: twice as many as the logstore had when "
            "the operator first observed it. The log service may charge for each shard."
        ),
    )
    cooldown_seconds: Annotated[int, Field(ge=10, le=86_400)] = Field(
        default=600, description="Time between two splits or merges, in seconds."
    )


class Scaling(ApiModel):
    """How many workers run. A consumer group never has more workers than assignable shards."""

    RULES: ClassVar = (
        Rule(
            cel="self.minReplicas <= self.maxReplicas",
            message="minReplicas must not be greater than maxReplicas",
            holds=lambda self: self.min_replicas <= self.max_replicas,
        ),
        Rule(
            cel="!has(self.scaleToZero) || (self.mode == 'Auto' && self.minReplicas == 0)",
            message="scaleToZero requires mode Auto and minReplicas 0",
            holds=lambda self: (
                self.scale_to_zero is None or (self.mode == ScalingMode.AUTO and self.min_replicas == 0)
            ),
        ),
        Rule(
            field="workerCapacity",
            cel="!has(self.workerCapacity) || type(self.workerCapacity) == int "
            "|| isQuantity(self.workerCapacity) "
            "&& quantity(self.workerCapacity).compareTo(quantity('1m')) >= 0 "
            "&& quantity(self.workerCapacity).compareTo(quantity('1M')) <= 0",
            message="workerCapacity must be from 1m to 1M",
            holds=lambda self: (
                self.worker_capacity is None
                or MIN_CAPACITY <= fields.amount(self.worker_capacity) <= MAX_CAPACITY
            ),
        ),
    )

    mode: ScalingMode = Field(default=ScalingMode.FIXED, strict=False, description=described(ScalingMode))
    min_replicas: Replicas = Field(
        default=0,
        description=(
            "Lower bound. In Auto mode at least one worker runs even if this is 0, unless scaleToZero is set."
        ),
    )
    max_replicas: Replicas = Field(default=MAX_REPLICAS, description="Upper bound.")
    catch_up_seconds: Annotated[int, Field(ge=10, le=86_400)] = Field(
        default=300, description="Time in which Auto plans to work off the lag, in seconds."
    )
    worker_capacity: Capacity | None = Field(
        default=None,
        description=(
            "Log groups per second that one worker consumes, or logs of a subscription: 250, '1.5' or 500m. "
            "Default: measured."
        ),
    )
    scale_up: ScaleUp = Field(default=ScaleUp(), description="How fast workers are added.")
    scale_down: ScaleDown = Field(default=ScaleDown(), description="How fast workers are removed.")
    scale_to_zero: ScaleToZero | None = None
    shards: Shards = Field(default=Shards(), description="What the operator may do about a hot shard.")

    @property
    def moves_shards(self) -> bool:
        """Whether shards change their workers without an edit of the spec."""
        by_load = self.mode in (ScalingMode.AUTO, ScalingMode.EXTERNAL)
        return by_load or self.shards.auto_split or self.shards.auto_merge

    @property
    def capacity_per_s(self) -> float | None:
        """`worker_capacity` as a number of log groups per second."""
        return None if self.worker_capacity is None else fields.amount(self.worker_capacity)
