"""``spec.pipeline.onFailure``: what happens to logs that the pipeline or the sink rejects."""

from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import Field

from loghub_operator.api.fields import LogstoreName, ObjectName, ProjectName, RelativePath, described
from loghub_operator.api.validation import ApiModel, Rule


class FailurePolicy(StrEnum):
    """What happens to a log group with which a micro-batch fails.

    A failed micro-batch is divided until one log group fails alone; everything else is delivered, and other
    shards continue. RETRY: the log group is retried forever, with pauses of up to about five minutes, and its
    shard waits. DEAD_LETTER: after maxAttempts the log group is written to deadLetter, and the shard
    continues after it. SKIP: after maxAttempts the shard continues after it; its logs are lost. STOP: after
    maxAttempts nothing more is read of the shard, until its worker restarts (as after a change of the spec),
    another worker gets it, or its checkpoint is reset. The log service or a disk that is unavailable is
    always retried.
    """

    RETRY = "Retry"
    DEAD_LETTER = "DeadLetter"
    SKIP = "Skip"
    STOP = "Stop"


class DeadLetterLogstore(ApiModel):
    """Another logstore at the same endpoint.

    It gets each log group as it was written, with tags that name the origin, the reason, the number of
    attempts and the time. A crash may write a log group twice.
    """

    project: ProjectName | None = Field(
        default=None, description="Project of the logstore. Default: the project that is consumed."
    )
    name: LogstoreName = Field(description="Name of the logstore, which must exist.")


class DeadLetterFolder(ApiModel):
    """A folder of a PersistentVolumeClaim.

    It gets one JSON file for each log group, with the origin, the reason, the number of attempts, the time,
    the logs, and the bytes of the log group in base64.
    """

    path: RelativePath = Field(description="Folder inside the volume.")
    volume_claim: ObjectName = Field(
        description="Name of a PersistentVolumeClaim in this namespace; every worker mounts it."
    )


class DeadLetter(ApiModel):
    """Where rejected log groups are written. Exactly one of logstore and folder is set."""

    RULES: ClassVar = (
        Rule(
            cel="has(self.logstore) != has(self.folder)",
            message="exactly one dead letter must be set: logstore or folder",
            holds=lambda self: (self.logstore is None) != (self.folder is None),
        ),
    )

    logstore: DeadLetterLogstore | None = None
    folder: DeadLetterFolder | None = None


class OnFailure(ApiModel):
    """What happens to logs that the pipeline or the sink rejects."""

    RULES: ClassVar = (
        Rule(
            cel="(self.policy == 'DeadLetter') == has(self.deadLetter)",
            message="deadLetter is required with policy: DeadLetter and not allowed otherwise",
            holds=lambda self: (self.policy == FailurePolicy.DEAD_LETTER) == (self.dead_letter is not None),
        ),
    )

    policy: FailurePolicy = Field(
        default=FailurePolicy.RETRY, strict=False, description=described(FailurePolicy)
    )
    max_attempts: Annotated[int, Field(ge=1, le=100)] = Field(
        default=5,
        description=(
            "How often a log group must fail alone before the policy applies, with pauses of up to "
            "1, 2, 4 .. seconds between the attempts. Without effect with policy: Retry."
        ),
    )
    max_consecutive: Annotated[int, Field(ge=1, le=10_000)] = Field(
        default=10,
        description=(
            "The most log groups of a shard that a worker skips or dead-letters one directly after another. "
            "If the next one fails too, the pipeline counts as broken: the shard waits as with policy: Retry "
            "until a log group succeeds."
        ),
    )
    max_per_hour: Annotated[int, Field(ge=1, le=1_000_000)] = Field(
        default=100,
        description=(
            "The most log groups of a shard that a worker skips or dead-letters within an hour; then the "
            "shard waits."
        ),
    )
    dead_letter: DeadLetter | None = Field(
        default=None,
        description=(
            "With policy: DeadLetter, where rejected log groups are written. Exactly one of logstore and "
            "folder is set."
        ),
    )

    @property
    def folder(self) -> DeadLetterFolder | None:
        """The dead letter if it is a folder on a volume."""
        return None if self.dead_letter is None else self.dead_letter.folder
