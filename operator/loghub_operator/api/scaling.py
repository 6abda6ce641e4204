"""The part of the spec that says how many workers run: ``spec.scaling``.

What for: one module for the bounds and the modes. What it must not know: how a number is
decided. Read next: `loghub_operator.api.v1alpha1`, `loghub_operator.sizing`.
"""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from loghub_operator.api.fields import MAX_REPLICAS, Replicas
from loghub_operator.api.rules import ApiModel, Rule

MOST_SHARDS = 256
ScalingMode = Literal["Fixed", "Auto", "External", "Recommend"]


class ScaleUp(ApiModel):
    """How fast more workers come."""

    stabilization_seconds: Annotated[int, Field(ge=0, le=3600)] = Field(
        default=30,
        description="The need must have lasted so long; the smallest number wanted meanwhile counts.",
    )
    max_step: Annotated[int, Field(ge=1, le=MAX_REPLICAS)] = Field(
        default=MAX_REPLICAS, description="Most workers added at once."
    )


class ScaleDown(ApiModel):
    """How fast workers go; each leaves the group before it is stopped."""

    stabilization_seconds: Annotated[int, Field(ge=0, le=86_400)] = Field(
        default=300, description="The largest number wanted within this time counts."
    )


class ToZero(ApiModel):
    """No worker while there is nothing to do; one comes back as soon as a log waits."""

    after_seconds: Annotated[int, Field(ge=10, le=86_400)] = Field(
        default=300, description="Nothing arrived and nothing was left for so long."
    )


class Shards(ApiModel):
    """What may be done where more workers cannot help: a shard has one holder."""

    RULES: ClassVar = (
        Rule(
            cel="self.minShards <= self.maxShards",
            message="minShards must not be more than maxShards",
            holds=lambda self: self.min_shards <= self.max_shards,
        ),
    )

    auto_split: bool = Field(
        default=False,
        description="Split a shard that is too busy for one worker; merge neighbours that are cold, where "
        "no other consumer group reads the logstore. What the log service refuses is told in condition "
        "HotShard and tried again after one minute, later each time, at last once an hour.",
    )
    min_shards: Annotated[int, Field(ge=1, le=MOST_SHARDS)] = Field(
        default=1,
        description="Merging stops at so many shards that take logs; never are fewer left than workers "
        "should run.",
    )
    max_shards: Annotated[int, Field(ge=1, le=MOST_SHARDS)] = Field(
        default=64, description="Splitting stops at so many shards that take logs."
    )
    cooldown_seconds: Annotated[int, Field(ge=10, le=86_400)] = Field(
        default=600, description="Between two splits or merges."
    )


class Scaling(ApiModel):
    """How many workers run, within bounds and never more than there are assignable shards.

    Fixed: `replicas`. External: `replicas` too, which an autoscaler sets on /scale. Auto: the
    operator decides by arrival rate and lag, `replicas` is where it begins. Recommend: `replicas`,
    and the status says what Auto would do.
    """

    RULES: ClassVar = (
        Rule(
            cel="self.minReplicas <= self.maxReplicas",
            message="minReplicas must not be more than maxReplicas",
            holds=lambda self: self.min_replicas <= self.max_replicas,
        ),
        Rule(
            cel="!has(self.toZero) || (self.mode == 'Auto' && self.minReplicas == 0)",
            message="toZero needs mode Auto and minReplicas 0",
            holds=lambda self: self.to_zero is None or (self.mode == "Auto" and self.min_replicas == 0),
        ),
        # Not a minimum of the schema: the apiserver cuts that to 0 where the value is written as 0.
        Rule(
            cel="!has(self.workerRate) || self.workerRate >= 0.001",
            message="workerRate must be at least 0.001",
            holds=lambda self: self.worker_rate is None or self.worker_rate >= 0.001,
            field="workerRate",
        ),
    )

    mode: ScalingMode = Field(default="Fixed", description="Who decides how many workers run.")
    min_replicas: Replicas = Field(
        default=0, description="Fewest workers; in mode Auto 1 even at 0, but for toZero."
    )
    max_replicas: Replicas = Field(default=MAX_REPLICAS, description="Most workers.")
    catch_up_seconds: Annotated[int, Field(ge=10, le=86_400)] = Field(
        default=300, description="Within so long a lag should be worked off."
    )
    worker_rate: Annotated[float, Field(le=1_000_000)] | None = Field(
        default=None, description="Log groups per second that one worker consumes; default: measured."
    )
    scale_up: ScaleUp = Field(default=ScaleUp(), description="How fast more workers come.")
    scale_down: ScaleDown = Field(default=ScaleDown(), description="How fast workers go.")
    to_zero: ToZero | None = None
    shards: Shards = Field(default=Shards(), description="What may be done about a hot shard.")
