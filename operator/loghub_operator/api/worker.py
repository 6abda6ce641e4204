"""The part of the spec that describes the worker pods, ``spec.worker``, with what and where they log, and
``spec.pipeline.state``: where a stateful pipeline keeps its state.
"""

from enum import StrEnum
from typing import Annotated, Any, ClassVar

from pydantic import Field

from loghub_operator.api import fields
from loghub_operator.api.fields import ObjectName, Quantity, RelativePath, Seconds, described, once
from loghub_operator.api.on_failure import FailurePolicy
from loghub_operator.api.validation import ApiModel, Rule

DIVIDING = (FailurePolicy.DEAD_LETTER, FailurePolicy.SKIP)


class StateVolume(ApiModel):
    """The volume of each worker of a stateful pipeline, which outlives its pod. It is deleted with this
    object, and kept while the group has fewer workers."""

    size: Annotated[str, Field(max_length=11, pattern=fields.STORAGE)] = Field(
        default="10Gi",
        description="Size of the volume, which has Spark's temporary files too.",
    )
    storage_class_name: ObjectName | None = Field(
        default=None, description="The storage class. Default: the class of the cluster."
    )


STATE_RULES = (
    Rule(
        field="stateful",
        cel="!self.stateful || has(self.sql) || has(self.python)",
        message="stateful is for sql and python: a processor, or a sink that copies, keeps no state in Spark",
        holds=lambda self: not self.stateful or self.sql is not None or self.python is not None,
    ),
    Rule(
        field="stateful",
        cel="!self.stateful || !self.perBatch",
        message="stateful and perBatch exclude each other: results are of all logs, or of each micro-batch",
        holds=lambda self: not self.stateful or not self.per_batch,
    ),
    Rule(
        field="onFailure.policy",
        cel=f"!self.stateful || !(self.onFailure.policy in {[one.value for one in DIVIDING]})",
        message=(
            "a micro-batch with state cannot be divided to find the log group that fails: with stateful, use"
            " Retry or Stop"
        ),
        holds=lambda self: not self.stateful or self.on_failure.policy not in DIVIDING,
    ),
    Rule(
        field="state",
        cel="!has(self.state) || self.stateful",
        message="state is the volume of a stateful pipeline: set stateful: true, or leave it out",
        holds=lambda self: self.state is None or self.stateful,
    ),
)


MAX_MIB_ON_STATE = 1024  # of the state volume, whose limit Spark needs


class LogLevel(StrEnum):
    """The least severe messages that are logged.

    DEBUG: each heartbeat, batch and checkpoint. INFO: what changes, such as the shards that a worker holds.
    WARN: what fails and is retried. ERROR: what ends the worker.
    """

    DEBUG = "Debug"
    INFO = "Info"
    WARN = "Warn"
    ERROR = "Error"


class LogFormat(StrEnum):
    """The format of a message.

    TEXT: for human readers. JSON: one JSON object in each line, with event, level and timestamp; an exception
    is one text.
    """

    TEXT = "Text"
    JSON = "JSON"


class LogFile(ApiModel):
    """A file of the worker's own messages, in addition to standard error.

    Each worker writes POD.log. Where the file cannot be written, that is logged, and the worker continues.
    """

    RULES: ClassVar = (
        Rule(
            field="path",
            cel="!has(self.path) || has(self.volumeClaim)",
            message="path is a folder inside a volume; set volumeClaim, too",
            holds=lambda self: self.path is None or self.volume_claim is not None,
        ),
        Rule(
            field="maxSizeMiB",
            cel=f"has(self.volumeClaim) || self.maxSizeMiB * (self.maxBackups + 1) <= {MAX_MIB_ON_STATE}",
            message=(
                f"without volumeClaim, maxSizeMiB * (maxBackups + 1) must be at most {MAX_MIB_ON_STATE}, "
                "because the file shares the worker's own volume with Spark"
            ),
            holds=lambda self: (
                self.volume_claim is not None
                or self.max_size_mib * (self.max_backups + 1) <= MAX_MIB_ON_STATE
            ),
        ),
    )

    volume_claim: ObjectName | None = Field(
        default=None,
        description=(
            "Name of a PersistentVolumeClaim in this namespace; every worker mounts it. Default: the folder "
            "log of the worker's own state volume, which is removed with the pod."
        ),
    )
    path: RelativePath | None = Field(
        default=None, description="Folder inside the volume of volumeClaim. Default: its root."
    )
    max_size_mib: Annotated[int, Field(ge=1, le=1024)] = Field(
        default=10,
        alias="maxSizeMiB",
        description="The file is rotated before it exceeds this size in MiB.",
    )
    max_backups: Annotated[int, Field(ge=1, le=100)] = Field(
        default=10, description="The most rotated files that are kept, POD.log.1 being the latest."
    )
    compress: bool = Field(default=False, description="Compress rotated files by gzip, as POD.log.1.gz.")


class WorkerLog(ApiModel):
    """The log of the worker itself. What the pipeline's code prints or logs, and Spark's own log, stay as
    they are; spark.conf sets spark.log.level."""

    level: LogLevel = Field(default=LogLevel.INFO, strict=False, description=described(LogLevel))
    format: LogFormat = Field(default=LogFormat.TEXT, strict=False, description=described(LogFormat))
    file: LogFile | None = None


class Resources(ApiModel):
    """Requests and limits of the worker container, as in a pod. A key that is not set keeps its default."""

    requests: Annotated[dict[str, Quantity], Field(max_length=16)] = Field(
        default={}, description="Requested amount of each resource, such as cpu and memory."
    )
    limits: Annotated[dict[str, Quantity], Field(max_length=16)] = Field(
        default={}, description="Limit of each resource, such as cpu and memory."
    )


class KeyRef(ApiModel):
    """One key of a Secret or a ConfigMap in this namespace."""

    name: ObjectName = Field(description="Name of the Secret or ConfigMap.")
    key: Annotated[str, Field(min_length=1, max_length=253, pattern=fields.DATA_KEY)] = Field(
        description="The key whose value is used."
    )


class EnvSource(ApiModel):
    """Where the value of a variable comes from. Exactly one of secretKeyRef and configMapKeyRef is set."""

    RULES: ClassVar = (
        Rule(
            cel="has(self.secretKeyRef) != has(self.configMapKeyRef)",
            message="exactly one source must be set: secretKeyRef or configMapKeyRef",
            holds=lambda self: (self.secret_key_ref is None) != (self.config_map_key_ref is None),
        ),
    )

    secret_key_ref: KeyRef | None = None
    config_map_key_ref: KeyRef | None = None


class EnvVar(ApiModel):
    """A variable for the pipeline's code. Names that begin with LOGHUB_ are reserved for the worker."""

    RULES: ClassVar = (
        Rule(
            cel="!(has(self.value) && has(self.valueFrom))",
            message="value and valueFrom must not both be set",
            holds=lambda self: self.value is None or self.value_from is None,
        ),
        Rule(
            field="name",
            cel="!self.name.startsWith('LOGHUB_')",
            message="names that begin with LOGHUB_ are reserved for the worker",
            holds=lambda self: not self.name.startswith("LOGHUB_"),
        ),
    )

    name: Annotated[str, Field(min_length=1, max_length=253, pattern=fields.ENV_NAME)] = Field(
        description="Name of the variable."
    )
    value: Annotated[str, Field(max_length=4096)] | None = Field(
        default=None, description="Value of the variable."
    )
    value_from: EnvSource | None = None


class Worker(ApiModel):
    """The worker pods. Of this, `loghub up` uses log and the plain values of env."""

    image: Annotated[str, Field(min_length=1, max_length=512)] | None = Field(
        default=None,
        description="Image whose entry point starts a worker. Default: the operator's setting.",
    )
    resources: Resources = Field(
        default=Resources(), description="Requests and limits of the worker container."
    )
    env: Annotated[
        tuple[EnvVar, ...],
        Field(
            max_length=64,
            json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
        ),
        once("name"),
    ] = Field(default=(), description="Environment variables for the pipeline's code.")
    pod_template: dict[str, Any] | None = Field(
        default=None,
        description="metadata and spec of a pod template, merged over the operator's by strategic merge: "
        "lists of named items are merged by name; a volume, and the handler of a probe or lifecycle hook, is "
        "replaced by one of another kind. $patch: replace in a map or a named item replaces the operator's, "
        "and $patch: delete removes it. Fields that group membership depends on (labels, the drain "
        "annotation, mounts, the minimum grace period) cannot be overridden.",
        json_schema_extra={"x-kubernetes-preserve-unknown-fields": True},
    )
    log: WorkerLog = Field(default=WorkerLog(), description="The log of the worker itself.")
    progress_deadline_seconds: Seconds = Field(
        default=600,
        description="A group that is not ready and makes no progress for this many seconds gets condition "
        "Stalled. Each worker that becomes ready, or runs with new settings, is progress. The operator "
        "continues to try.",
    )
