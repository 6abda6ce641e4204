"""The custom resource ``loghub.dev/v1alpha1 LogHubConsumerGroup``: what a user writes.

What for: the one definition of the spec; the CRD in ``crds/`` is generated from it and
`loghub up` reads files through it. What it must not know: how any of it is carried out.
Read next: `loghub_operator.api.status` (what we answer), `loghub_operator.api.parse`.
"""

from datetime import datetime
from typing import Annotated, ClassVar, Literal

from pydantic import ConfigDict, Field

from loghub_operator.api import patterns
from loghub_operator.api.fields import GroupName, LogstoreName, ObjectName, ProjectName, Replicas, Seconds
from loghub_operator.api.pipeline import Pipeline, Spark
from loghub_operator.api.reposition import Reposition
from loghub_operator.api.rules import ApiModel, Immutable, Rule
from loghub_operator.api.scaling import Scaling
from loghub_operator.api.status import Status
from loghub_operator.api.worker import Worker

GROUP = "loghub.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
KIND = "LogHubConsumerGroup"
PLURAL = "loghubconsumergroups"
SINGULAR = "loghubconsumergroup"
SHORT_NAME = "lhcg"
EMBEDDED = "embedded"

_WORDS: tuple[Literal["begin"], Literal["end"]] = ("begin", "end")


class CredentialsSecret(ApiModel):
    """The Secret with accessKeyId, accessKeySecret and, for STS, securityToken; in the CR's namespace."""

    name: ObjectName = Field(default="loghub-credentials", description="Name of the Secret.")


class Fetch(ApiModel):
    """How a held shard is read."""

    interval_seconds: Seconds = Field(
        default=1, description="How often the end of a held shard is asked for."
    )
    max_log_groups: Annotated[int, Field(ge=1, le=1000)] = Field(
        default=1000, description="Most log groups per shard and micro-batch."
    )
    max_bytes: Annotated[int, Field(ge=65_536, le=1 << 30)] = Field(
        default=64 << 20,
        description="About the most bytes per shard and micro-batch; one log group is read in any case.",
    )


class Checkpoint(ApiModel):
    """When the position of a shard is saved at the log service."""

    interval_seconds: Annotated[int, Field(ge=0, le=600)] = Field(
        default=0, description="At most so often; 0: after each micro-batch. A worker that stops saves first."
    )


class Spec(ApiModel):
    """One consumer group, and the workers that consume it."""

    RULES: ClassVar = (
        Rule(
            field="endpoint",
            cel=f"self.endpoint == '{EMBEDDED}' || self.endpoint.matches({patterns.cel(patterns.ENDPOINT)})",
            message="endpoint must be 'embedded' or the URL of an endpoint without project and path, "
            "such as https://cn-hangzhou.log.aliyuncs.com",
            holds=lambda self: (
                self.endpoint == EMBEDDED or patterns.matches(patterns.ENDPOINT, self.endpoint)
            ),
        ),
        Rule(
            field="initialPosition",
            cel="self.initialPosition in ['begin', 'end'] || "
            f"(self.initialPosition.matches({patterns.cel(patterns.RFC3339)}) && "
            "timestamp(self.initialPosition) > timestamp('1970-01-01T00:00:00Z'))",
            message="initialPosition must be 'begin', 'end' or a time such as 2026-01-31T08:00:00Z",
            holds=lambda self: (
                self.initial_position in ("begin", "end") or patterns.unix_s(self.initial_position) > 0
            ),
        ),
        Rule(
            field="timeoutSeconds",
            cel="self.timeoutSeconds >= 2 * self.heartbeatIntervalSeconds",
            message="timeoutSeconds must be at least twice heartbeatIntervalSeconds",
            holds=lambda self: self.timeout_seconds >= 2 * self.heartbeat_interval_seconds,
        ),
        Rule(
            field="pipeline",
            cel="!has(self.pipeline.sink.logstore) || self.pipeline.sink.logstore.name != self.logstore || "
            "(has(self.pipeline.sink.logstore.project) && "
            "self.pipeline.sink.logstore.project != self.project)",
            message="the sink must not be the logstore that is consumed",
            holds=lambda self: not self.writes_to_its_source(),
        ),
    )
    IMMUTABLE: ClassVar = (
        Immutable(field="project"),
        Immutable(field="logstore"),
        Immutable(field="consumerGroup", optional=True),
    )

    endpoint: Annotated[str, Field(min_length=1, max_length=512)] = Field(
        default=EMBEDDED,
        description="'embedded' (the service that came with the operator) or the URL of an SLS endpoint.",
    )
    project: ProjectName = Field(description="Project of the logstore.")
    logstore: LogstoreName = Field(description="The logstore to consume.")
    consumer_group: GroupName | None = Field(
        default=None, description="Name of the consumer group; default: this object's name."
    )
    credentials_secret: CredentialsSecret = Field(
        default=CredentialsSecret(), description="Secret with the access key."
    )
    order: bool = Field(
        default=False, description="Shards of a split or merge wait until their parents are consumed."
    )
    heartbeat_interval_seconds: Annotated[int, Field(ge=1, le=600)] = Field(
        default=5, description="How often a worker beats."
    )
    timeout_seconds: Annotated[int, Field(ge=2, le=3600)] = Field(
        default=30, description="A worker silent for so long loses its shards."
    )
    initial_position: Annotated[str, Field(min_length=1, max_length=64)] = Field(
        default="begin", description="begin, end or a time (RFC 3339); used only where no checkpoint exists."
    )
    fetch: Fetch = Field(default=Fetch(), description="How a held shard is read.")
    replicas: Replicas = Field(
        default=1, description="Workers wanted; never more run than there are assignable shards."
    )
    scaling: Scaling = Field(default=Scaling(), description="How many workers run.")
    pipeline: Pipeline = Field(description="What every worker does with its logs.")
    spark: Spark = Field(default=Spark(), description="The Spark inside each worker.")
    worker: Worker = Field(default=Worker(), description="The worker pods.")
    checkpoint: Checkpoint = Field(default=Checkpoint(), description="When positions are saved.")
    suspend: bool = Field(
        default=False, description="No worker runs; the group and its checkpoints stay as they are."
    )
    reposition: Reposition | None = None
    deletion_policy: Literal["Delete", "Retain"] = Field(
        default="Retain",
        description="What becomes of the group and its checkpoints when this object is deleted. "
        "A group that existed before this object is kept in any case.",
    )

    @property
    def reposition_nonce(self) -> str | None:
        """Of the order to move checkpoints, if there is one."""
        return None if self.reposition is None else self.reposition.nonce

    def writes_to_its_source(self) -> bool:
        """The pipeline would read its own output for ever."""
        sink = self.pipeline.sink.logstore
        return sink is not None and (sink.project or self.project, sink.name) == (self.project, self.logstore)

    def initial_position_or_time(self) -> Literal["begin", "end"] | int:
        """``begin``, ``end`` or unix seconds."""
        for word in _WORDS:
            if self.initial_position == word:
                return word
        return patterns.unix_s(self.initial_position)


class Metadata(ApiModel):
    """The part of an object's metadata that we use; the rest is the apiserver's business."""

    model_config = ConfigDict(extra="ignore")

    name: ObjectName
    namespace: str = "default"
    uid: str = ""
    generation: int = 1
    creation_timestamp: str | None = None  # RFC 3339
    deletion_timestamp: str | None = None  # RFC 3339
    annotations: dict[str, str] = Field(default={})
    finalizers: tuple[str, ...] = ()

    def deleted_at_unix_s(self) -> float | None:
        """When the deletion was asked for; None while nobody did."""
        if self.deletion_timestamp is None:
            return None
        return datetime.fromisoformat(self.deletion_timestamp).timestamp()


class LogHubConsumerGroup(ApiModel):
    """A whole object, as `kubectl apply` and `loghub up -f` take it."""

    # A pod's name is a host name, and its labels hold the StatefulSet's name with a hash; a Service's
    # name must begin with a letter before Kubernetes 1.36.
    RULES: ClassVar = (
        Rule(
            cel=f"self.metadata.name.matches({patterns.cel(patterns.NAME)})",
            message="metadata.name must be 2 to 52 lower-case letters, digits and hyphens, "
            "with a letter first and a letter or digit last",
            holds=lambda self: patterns.matches(patterns.NAME, self.metadata.name),
        ),
    )

    api_version: Literal["loghub.dev/v1alpha1"]
    kind: Literal["LogHubConsumerGroup"]
    metadata: Metadata
    spec: Spec
    status: Status = Status()

    @property
    def group(self) -> str:
        """Name of the consumer group at the log service."""
        return self.spec.consumer_group or self.metadata.name

    @property
    def is_new(self) -> bool:
        """Nothing was told of it yet: it was just made, or made anew."""
        return self.status.observed_generation is None

    def consumer(self, ordinal: int) -> str:
        """Name of one worker: its pod's name, its consumer name, its process's name."""
        return f"{self.metadata.name}-{ordinal}"
