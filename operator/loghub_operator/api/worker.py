"""The part of the spec that says what a worker pod looks like: ``spec.worker``.

What for: image, resources, environment and the overlay for everything else. What it must not
know: the StatefulSet. Read next: `loghub_operator.api.v1alpha1`,
`loghub_operator.resources.worker_set`.
"""

from typing import Annotated, Any, ClassVar

from pydantic import Field

from loghub_operator.api import patterns
from loghub_operator.api.fields import ObjectName, Quantity, once
from loghub_operator.api.rules import ApiModel, Rule


class Resources(ApiModel):
    """Requests and limits of the worker container, as in a pod; a key that is not given keeps our default."""

    requests: Annotated[dict[str, Quantity], Field(max_length=16)] = Field(default={})
    limits: Annotated[dict[str, Quantity], Field(max_length=16)] = Field(default={})


class KeyRef(ApiModel):
    """One key of a Secret or a ConfigMap in the CR's namespace."""

    name: ObjectName
    key: Annotated[str, Field(min_length=1, max_length=253, pattern=patterns.DATA_KEY)]


class EnvSource(ApiModel):
    """Where the value of a variable comes from."""

    RULES: ClassVar = (
        Rule(
            cel="has(self.secretKeyRef) != has(self.configMapKeyRef)",
            message="exactly one source must be given: secretKeyRef or configMapKeyRef",
            holds=lambda self: (self.secret_key_ref is None) != (self.config_map_key_ref is None),
        ),
    )

    secret_key_ref: KeyRef | None = None
    config_map_key_ref: KeyRef | None = None


class EnvVar(ApiModel):
    """A variable for the user's code; names that begin with LOGHUB_ are the worker's own."""

    RULES: ClassVar = (
        Rule(
            cel="!(has(self.value) && has(self.valueFrom))",
            message="value and valueFrom must not both be given",
            holds=lambda self: self.value is None or self.value_from is None,
        ),
        Rule(
            field="name",
            cel="!self.name.startsWith('LOGHUB_')",
            message="names that begin with LOGHUB_ are the worker's own",
            holds=lambda self: not self.name.startswith("LOGHUB_"),
        ),
    )

    name: Annotated[str, Field(min_length=1, max_length=253, pattern=patterns.ENV_NAME)]
    value: Annotated[str, Field(max_length=4096)] | None = None
    value_from: EnvSource | None = None


class Worker(ApiModel):
    """The worker pods. `loghub up` takes of it the values of env."""

    image: Annotated[str, Field(min_length=1, max_length=512)] | None = Field(
        default=None,
        description="Image of the workers, whose entry point starts one; default: the operator's.",
    )
    resources: Resources = Field(default=Resources(), description="Requests and limits of a worker.")
    env: Annotated[
        tuple[EnvVar, ...],
        Field(
            max_length=64,
            json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
        ),
        once("name"),
    ] = Field(default=(), description="Variables for the user's code.")
    pod_template: dict[str, Any] | None = Field(
        default=None,
        description="metadata and spec as in a pod template, merged strategically over ours: lists with "
        "names are merged by name. What the group's membership stands on stays ours.",
        json_schema_extra={"x-kubernetes-preserve-unknown-fields": True},
    )
