"""The part of the spec that describes the worker pods: ``spec.worker``."""

from typing import Annotated, Any, ClassVar

from pydantic import Field

from loghub_operator.api import patterns
from loghub_operator.api.fields import ObjectName, Quantity, Seconds, once
from loghub_operator.api.validation import ApiModel, Rule
from loghub_operator.api.worker_log import WorkerLog


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
    key: Annotated[str, Field(min_length=1, max_length=253, pattern=patterns.DATA_KEY)] = Field(
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

    name: Annotated[str, Field(min_length=1, max_length=253, pattern=patterns.ENV_NAME)] = Field(
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
