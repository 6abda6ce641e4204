"""The parts of the spec that say how a worker reads its shards: ``spec.fetch`` and ``spec.checkpoint``.

The part of the spec that moves the checkpoints of a group: ``spec.resetCheckpoints``.
"""

from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import Field

from loghub_operator.api import fields
from loghub_operator.api.fields import ObjectName, Seconds, Timestamp, described, once, seconds_of
from loghub_operator.api.validation import ApiModel, Rule

# Eight times a logstore's writable shards, as splits leave read-only ones; 25 KB of an object.
MAX_RESET_SHARDS = 2048


class ResetTarget(StrEnum):
    """Where the group continues.

    BEGIN: at the oldest log of each shard. END: after the newest log. TIMESTAMP: at the first log
    received at or after `timestamp`. CONFIG_MAP: at the cursors in the ConfigMap `configMapName`.
    """

    BEGIN = "Begin"
    END = "End"
    TIMESTAMP = "Timestamp"
    CONFIG_MAP = "ConfigMap"


class ResetCheckpoints(ApiModel):
    """Moves checkpoints once for each nonce.

    The operator stops the workers, saves the current checkpoints in a ConfigMap, commits the new ones and
    starts the workers again. A reset that is already in the manifest when the object is created is treated
    as done.
    """

    RULES: ClassVar = (
        Rule(
            cel="(self.to == 'Timestamp') == has(self.timestamp)",
            message="timestamp is required with to: Timestamp and not allowed otherwise",
            holds=lambda self: (self.to == ResetTarget.TIMESTAMP) == (self.timestamp is not None),
        ),
        Rule(
            field="timestamp",
            cel="!has(self.timestamp) || self.timestamp > timestamp('1970-01-01T00:00:00Z')",
            message="timestamp must be after 1970-01-01T00:00:00Z",
            holds=lambda self: self.timestamp is None or fields.unix_s(self.timestamp) > 0,
        ),
        Rule(
            cel="(self.to == 'ConfigMap') == has(self.configMapName)",
            message="configMapName is required with to: ConfigMap and not allowed otherwise",
            holds=lambda self: (self.to == ResetTarget.CONFIG_MAP) == (self.config_map_name is not None),
        ),
    )

    to: ResetTarget = Field(strict=False, description=described(ResetTarget))
    timestamp: Timestamp | None = Field(
        default=None, description="With to: Timestamp, the time at which the log service received the logs."
    )
    config_map_name: ObjectName | None = Field(
        default=None,
        description="With to: ConfigMap, a ConfigMap in this namespace that maps shard IDs to cursors. The "
        "ConfigMap in status.checkpointReset.backupConfigMap undoes that reset.",
    )
    shards: (
        Annotated[
            tuple[Annotated[int, Field(ge=0, le=2**31 - 1)], ...],
            Field(
                min_length=1, max_length=MAX_RESET_SHARDS, json_schema_extra={"x-kubernetes-list-type": "set"}
            ),
            once(),
        ]
        | None
    ) = Field(default=None, description="IDs of the shards to reset. Default: all shards.")
    nonce: Annotated[str, Field(min_length=1, max_length=40, pattern=fields.NONCE)] = Field(
        description="Identifies this reset. Each nonce is executed once; change it to reset the checkpoints "
        "again."
    )


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
