"""The parts of the spec that say how a worker reads its shards: ``spec.fetch`` and ``spec.checkpoint``."""

from typing import Annotated

from pydantic import Field

from loghub_operator.api.fields import Seconds, seconds_of
from loghub_operator.api.validation import ApiModel


class Fetch(ApiModel):
    """How a worker reads its shards."""

    interval_seconds: Seconds = Field(
        default=1,
        description=(
            "How often a worker asks for new logs of a shard, in seconds. The embedded service tells the"
            " worker of them as soon as they are there."
        ),
    )
    interval_milliseconds: Annotated[int, Field(ge=200, le=60_000)] | None = Field(
        default=None, description="The same in milliseconds. If set, intervalSeconds has no effect."
    )
    max_log_groups: Annotated[int, Field(ge=1, le=10_000_000)] = Field(
        default=1_000_000,
        description=(
            "The most log groups per shard in one micro-batch. A worker reads them in as many requests as it"
            " takes."
        ),
    )
    max_logs: Annotated[int, Field(ge=1, le=100_000_000)] = Field(
        default=500_000,
        description=(
            "Approximate limit of the logs in one micro-batch, over all shards of a worker. One log group of"
            " a shard is always read."
        ),
    )
    max_bytes: Annotated[int, Field(ge=65_536, le=1 << 30)] = Field(
        default=64 << 20,
        description=(
            "Approximate limit of bytes per shard in one micro-batch. One log group is always read, "
            "whatever its size."
        ),
    )

    @property
    def interval_s(self) -> float:
        """The interval that is in effect."""
        return seconds_of(self.interval_seconds, self.interval_milliseconds)


class Checkpoint(ApiModel):
    """When a worker saves the checkpoint of a shard at the log service."""

    interval_seconds: Annotated[int, Field(ge=0, le=600)] = Field(
        default=5,
        description=(
            "The shortest time between two checkpoints of a shard, in seconds; 0 saves one after each "
            "micro-batch. After a crash, what came since the last checkpoint is read again: sinks that "
            "deliver exactly once drop it, others repeat it. A shard that is given up is saved at once, and "
            "a worker that stops saves all of its shards."
        ),
    )
