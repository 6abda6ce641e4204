"""``spec.worker.log``: what the workers log, how, and where."""

from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import Field

from loghub_operator.api.explain import described
from loghub_operator.api.fields import ObjectName, RelativePath
from loghub_operator.api.validation import ApiModel, Rule

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
