"""The part of the spec that moves the checkpoints of a group: ``spec.resetCheckpoints``."""

from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import Field

from loghub_operator.api import patterns
from loghub_operator.api.explain import described
from loghub_operator.api.fields import ObjectName, Timestamp, once
from loghub_operator.api.validation import ApiModel, Rule

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
            holds=lambda self: self.timestamp is None or patterns.unix_s(self.timestamp) > 0,
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
    nonce: Annotated[str, Field(min_length=1, max_length=40, pattern=patterns.NONCE)] = Field(
        description="Identifies this reset. Each nonce is executed once; change it to reset the checkpoints "
        "again."
    )
