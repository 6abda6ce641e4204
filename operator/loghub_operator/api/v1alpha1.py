"""The custom resource ``loghub.dev/v1alpha1 LogHubConsumerGroup``: what a user writes.

The CRD in ``crds/`` is generated from these models, and `loghub up` reads files through them. Some pipelines
must not follow the load in every way; the rules for them are here too, since they relate several parts of
``spec``.
"""

from datetime import datetime
from enum import StrEnum
from typing import Annotated, ClassVar, Literal

from pydantic import ConfigDict, Field

from loghub_operator.api import fields
from loghub_operator.api.conditions import ConditionType, UncheckedReason
from loghub_operator.api.fetch import Checkpoint, Fetch, ResetCheckpoints
from loghub_operator.api.fields import (
    GroupName,
    LogstoreName,
    ObjectName,
    ProjectName,
    Replicas,
    Timestamp,
    described,
)
from loghub_operator.api.pipeline import Pipeline
from loghub_operator.api.scaling import Scaling
from loghub_operator.api.spark import SPARK_MASTER_RULES, Spark
from loghub_operator.api.status import NOT_OBSERVED, Status
from loghub_operator.api.subscription import SUBSCRIPTION_RULES, SUBSCRIPTION_STAYS, GroupSubscription
from loghub_operator.api.validation import ApiModel, Immutable, Rule
from loghub_operator.api.worker import Worker

LOAD_RULES = (
    Rule(
        field="pipeline.stateful",
        cel=(
            "!self.pipeline.stateful || self.pipeline.acceptIncompleteState || "
            "!(self.scaling.mode in ['Auto', 'External']) && "
            "!self.scaling.shards.autoSplit && !self.scaling.shards.autoMerge"
        ),
        message=(
            "with stateful, each shard that moves leaves its state behind: use scaling.mode Fixed or "
            "Recommend without autoSplit and autoMerge, or set pipeline.acceptIncompleteState"
        ),
        holds=lambda self: (
            not self.pipeline.stateful
            or self.pipeline.accept_incomplete_state
            or not self.scaling.moves_shards
        ),
    ),
)


GROUP = "loghub.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
KIND = "LogHubConsumerGroup"
PLURAL = "loghubconsumergroups"
SINGULAR = "loghubconsumergroup"
SHORT_NAME = "lhcg"
EMBEDDED = "embedded"
_UNCHECKED = frozenset(UncheckedReason)


class CredentialsSecret(ApiModel):
    """The Secret with accessKeyId, accessKeySecret and, for STS, securityToken, in this namespace."""

    name: ObjectName = Field(default="loghub-credentials", description="Name of the Secret.")


class StartFrom(StrEnum):
    """Where the group starts to read a shard that has no checkpoint.

    BEGIN: at the oldest log. END: after the newest log. TIMESTAMP: at the first log received at or after
    `timestamp`.
    """

    BEGIN = "Begin"
    END = "End"
    TIMESTAMP = "Timestamp"


class StartPosition(ApiModel):
    """Where a new group starts to read."""

    RULES: ClassVar = (
        Rule(
            cel="(self.from == 'Timestamp') == has(self.timestamp)",
            message="timestamp is required with from: Timestamp and not allowed otherwise",
            holds=lambda self: (self.from_ == StartFrom.TIMESTAMP) == (self.timestamp is not None),
        ),
        Rule(
            field="timestamp",
            cel="!has(self.timestamp) || self.timestamp > timestamp('1970-01-01T00:00:00Z')",
            message="timestamp must be after 1970-01-01T00:00:00Z",
            holds=lambda self: self.timestamp is None or fields.unix_s(self.timestamp) > 0,
        ),
    )

    from_: StartFrom = Field(default=StartFrom.BEGIN, strict=False, description=described(StartFrom))
    timestamp: Timestamp | None = Field(
        default=None,
        description="With from: Timestamp, the time at which the log service received the logs.",
    )

    def begin_end_or_unix_s(self) -> Literal["begin", "end"] | int:
        """The endpoint in the form that workers and clients of the log service accept."""
        match self.from_:
            case StartFrom.BEGIN:
                return "begin"
            case StartFrom.END:
                return "end"
            case StartFrom.TIMESTAMP:
                assert self.timestamp is not None  # a rule of this class
                return fields.unix_s(self.timestamp)


class DeletionPolicy(StrEnum):
    """What happens to the consumer group and its checkpoints, or to the subscription and its acknowledgments,
    when this object is deleted.

    RETAIN: they are kept. DELETE: they are deleted if this object created them; what existed before is kept
    unless the object has the annotation loghub.dev/delete-adopted-group: "true".
    """

    DELETE = "Delete"
    RETAIN = "Retain"


class Adoption(StrEnum):
    """Whether this object may adopt a consumer group or subscription that existed before it. What is adopted
    gets the settings of this object, and is shared with the consumers that it already has.

    IF_IDLE: only if no consumer of others is live in it. Consumers named like workers of this object are of
    others while it has no pods; after a recreation of the object they are no longer live within the group's
    timeout. Where the log service does not list consumers, those
    count that saved a checkpoint within five minutes, so a consumer that had nothing to read is not seen.
    ALWAYS: also if others consume it. NEVER: only a group that this object creates is consumed. A group that
    this object has created or adopted before is consumed in any case.
    """

    IF_IDLE = "IfIdle"
    ALWAYS = "Always"
    NEVER = "Never"


RETRIES = "has(self.pipeline.processor) && has(self.pipeline.processor.retryLogstore)"


class Spec(ApiModel):
    """One consumer group or subscription, and the workers that consume it."""

    RULES: ClassVar = (
        Rule(
            field="endpoint",
            cel=f"self.endpoint == '{EMBEDDED}' || self.endpoint.matches({fields.cel(fields.ENDPOINT)})",
            message=(
                "endpoint must be 'embedded' or the URL of an endpoint without project and path, "
                "such as https://cn-hangzhou.log.aliyuncs.com"
            ),
            holds=lambda self: self.endpoint == EMBEDDED or fields.matches(fields.ENDPOINT, self.endpoint),
        ),
        Rule(
            field="timeoutSeconds",
            cel="self.timeoutSeconds >= 2 * self.heartbeatIntervalSeconds",
            message="timeoutSeconds must be at least twice heartbeatIntervalSeconds",
            holds=lambda self: self.timeout_seconds >= 2 * self.heartbeat_interval_seconds,
        ),
        Rule(
            field="pipeline",
            cel=(
                "!has(self.pipeline.sink) || !has(self.pipeline.sink.logstore) || "
                "self.pipeline.sink.logstore.name != self.logstore || "
                "(has(self.pipeline.sink.logstore.project) && "
                "self.pipeline.sink.logstore.project != self.project)"
            ),
            message="the sink must not be the logstore that is consumed",
            holds=lambda self: not self.writes_to_its_source(),
        ),
        Rule(
            field="pipeline.onFailure",
            cel=(
                "!has(self.pipeline.onFailure.deadLetter) || "
                "!has(self.pipeline.onFailure.deadLetter.logstore) || "
                "self.pipeline.onFailure.deadLetter.logstore.name != self.logstore || "
                "(has(self.pipeline.onFailure.deadLetter.logstore.project) && "
                "self.pipeline.onFailure.deadLetter.logstore.project != self.project)"
            ),
            message="the dead letter must not be the logstore that is consumed",
            holds=lambda self: not self.rejects_into_its_source(),
        ),
        Rule(
            field="pipeline.processor.retryLogstore",
            cel=(
                f"!({RETRIES}) || self.pipeline.processor.retryLogstore.name != self.logstore && "
                "(!has(self.pipeline.onFailure.deadLetter) || "
                "!has(self.pipeline.onFailure.deadLetter.logstore) || "
                "self.pipeline.onFailure.deadLetter.logstore.name != "
                "self.pipeline.processor.retryLogstore.name || "
                "(has(self.pipeline.onFailure.deadLetter.logstore.project) && "
                "self.pipeline.onFailure.deadLetter.logstore.project != self.project))"
            ),
            message="retryLogstore must be neither the logstore that is consumed nor the dead letter",
            holds=lambda self: not self.retries_elsewhere_used(),
        ),
        *SPARK_MASTER_RULES,
        *LOAD_RULES,
        *SUBSCRIPTION_RULES,
    )
    IMMUTABLE: ClassVar = (
        Immutable(
            field="endpoint",
            same_cel=fields.same_unless_known_to_differ("self.endpoint", "oldSelf.endpoint"),
            same=lambda old, new: (
                fields.known_service(old) == fields.known_service(new)
                or "" in (fields.known_service(old), fields.known_service(new))
            ),
            message="endpoint must stay at the same log service; create another LogHubConsumerGroup instead",
        ),
        Immutable(field="project"),
        Immutable(field="logstore"),
        Immutable(field="consumerGroup", optional=True),
        SUBSCRIPTION_STAYS,
        # The volumes of a StatefulSet cannot change, and without them the state of its workers is lost.
        Immutable(field="pipeline.stateful"),
        Immutable(field="pipeline.state", optional=True),
    )

    endpoint: Annotated[str, Field(min_length=1, max_length=512)] = Field(
        default=EMBEDDED,
        description=(
            "URL of an SLS endpoint without project and path, such as "
            "https://cn-hangzhou.log.aliyuncs.com, or 'embedded' for the LogHub service that comes with the "
            "operator. It may change to another host name of the same service; at another region of SLS the "
            "name means another group, which needs another object. With http, the host must be inside the "
            "cluster or have a private address, unless the operator's settings allow it."
        ),
    )
    project: ProjectName = Field(description="Project of the logstore.")
    logstore: LogstoreName = Field(description="The logstore to consume.")
    consumer_group: GroupName | None = Field(
        default=None,
        description="Name of the consumer group, or of the subscription. Default: the name of this object.",
    )
    subscription: GroupSubscription | None = None
    credentials_secret: CredentialsSecret = Field(
        default=CredentialsSecret(),
        description=(
            "The Secret with accessKeyId, accessKeySecret and, for STS, securityToken, in this namespace."
        ),
    )
    in_order: bool = Field(
        default=False,
        description=(
            "Consume in order: the shards that result from a split or merge wait until their parents "
            "are consumed. A logstore or Kafka sink also writes in order, so a change restarts its workers."
        ),
    )
    heartbeat_interval_seconds: Annotated[int, Field(ge=1, le=600)] = Field(
        default=5, description="How often a worker sends a heartbeat, in seconds."
    )
    timeout_seconds: Annotated[int, Field(ge=2, le=3600)] = Field(
        default=30,
        description=(
            "A worker that sends no heartbeat for this many seconds loses its shards, or what it has of a "
            "subscription. At least twice heartbeatIntervalSeconds."
        ),
    )
    start_position: StartPosition = Field(
        default=StartPosition(),
        description=(
            "Where a new group or subscription starts to read the shards that exist then. A shard that a "
            "later split or merge creates is read from its first log."
        ),
    )
    fetch: Fetch = Field(default=Fetch(), description="How a worker reads its shards.")
    replicas: Replicas = Field(
        default=1,
        description=(
            "Number of workers. There are never more workers than assignable shards, except for a "
            "subscription. scaling.mode says who sets this."
        ),
    )
    scaling: Scaling = Field(default=Scaling(), description="How many workers run.")
    pipeline: Pipeline = Field(description="What every worker does with the logs.")
    spark: Spark = Field(default=Spark(), description="Spark of each worker.")
    worker: Worker = Field(default=Worker(), description="The worker pods.")
    checkpoint: Checkpoint = Field(
        default=Checkpoint(),
        description="When a worker saves the checkpoint of a shard at the log service.",
    )
    suspend: bool = Field(
        default=False,
        description=(
            "Stop all workers. The consumer group and its checkpoints stay as they are, and so do a"
            " subscription and its acknowledgments."
        ),
    )
    reset_checkpoints: ResetCheckpoints | None = None
    adoption: Adoption = Field(default=Adoption.IF_IDLE, strict=False, description=described(Adoption))
    deletion_policy: DeletionPolicy = Field(
        default=DeletionPolicy.RETAIN, strict=False, description=described(DeletionPolicy)
    )

    @property
    def reset_nonce(self) -> str | None:
        """The nonce of the requested reset of checkpoints, if there is one."""
        return None if self.reset_checkpoints is None else self.reset_checkpoints.nonce

    @property
    def reset_source(self) -> str | None:
        """The ConfigMap that the requested reset of checkpoints restores, if it does."""
        return None if self.reset_checkpoints is None else self.reset_checkpoints.config_map_name

    @property
    def other_projects(self) -> tuple[str, ...]:
        """The projects that the sink and the dead letter write to, without the project that is consumed."""
        dead_letter = self.pipeline.on_failure.dead_letter
        targets = (self.pipeline.logstore_sink, None if dead_letter is None else dead_letter.logstore)
        named = (target.project for target in targets if target is not None)
        return tuple(dict.fromkeys(name for name in named if name is not None and name != self.project))

    def writes_to_its_source(self) -> bool:
        """The pipeline would read its own output forever."""
        sink = self.pipeline.logstore_sink
        return sink is not None and (sink.project or self.project, sink.name) == (self.project, self.logstore)

    def rejects_into_its_source(self) -> bool:
        """The pipeline would read what it rejected, and reject it again, forever."""
        return self.dead_letter_logstore == self.logstore

    def retries_elsewhere_used(self) -> bool:
        """The logs that wait would be taken for others."""
        retry = self.pipeline.retry_logstore
        return retry is not None and retry in (self.logstore, self.dead_letter_logstore)

    @property
    def dead_letter_logstore(self) -> str | None:
        """The dead letter if it is a logstore of the project that is consumed."""
        dead_letter = self.pipeline.on_failure.dead_letter
        target = None if dead_letter is None else dead_letter.logstore
        is_here = target is not None and (target.project or self.project) == self.project
        return target.name if target is not None and is_here else None


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
        """When the deletion was requested; None if it was not."""
        if self.deletion_timestamp is None:
            return None
        return datetime.fromisoformat(self.deletion_timestamp).timestamp()


class LogHubConsumerGroup(ApiModel):
    """A whole object, as `kubectl apply` and `loghub up -f` take it."""

    # A pod's name is a host name, and its labels hold the StatefulSet's name with a hash; a Service's
    # name must begin with a letter before Kubernetes 1.36.
    RULES: ClassVar = (
        Rule(
            cel=f"self.metadata.name.matches({fields.cel(fields.NAME)})",
            message=(
                "metadata.name must be 2 to 52 lower-case letters, digits and hyphens, "
                "with a letter first and a letter or digit last"
            ),
            holds=lambda self: fields.matches(fields.NAME, self.metadata.name),
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
    def consumed_kind(self) -> str:
        """What kind of thing its workers consume, for messages."""
        return "consumer group" if self.spec.subscription is None else "subscription"

    @property
    def consumed(self) -> str:
        """The consumer group or the subscription, with its name, for messages."""
        return f"{self.consumed_kind} {self.group}"

    @property
    def positions(self) -> str:
        """What the log service keeps of how far that is consumed, for messages."""
        return "checkpoints" if self.spec.subscription is None else "acknowledgments"

    @property
    def is_new(self) -> bool:
        """No observation was reported yet: the object was just created or recreated. It may have a status
        that says why it could not be observed.
        """
        return self.status.observed_generation in (None, NOT_OBSERVED) or (
            self.status.consumer_group is None
            and self.status.checkpoint_reset is None
            and any(
                condition.type == ConditionType.READY and condition.reason in _UNCHECKED
                for condition in self.status.conditions
            )
        )

    def consumer(self, ordinal: int) -> str:
        """Name of one worker: its pod's name, its consumer name, its process's name."""
        return f"{self.metadata.name}-{ordinal}"
