"""``spec.pipeline.processor``: user code that consumes without Spark.

Where the Python code of a pipeline comes from: ``configMap`` and ``volumeClaim``.
"""

import math
from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import Field

from loghub_operator.api import fields
from loghub_operator.api.fields import LogstoreName, ObjectName, RelativePath, described
from loghub_operator.api.validation import ApiModel, Rule

EntryName = Annotated[str, Field(min_length=3, max_length=256, pattern=fields.FUNCTION)]


class ConfigMapCode(ApiModel):
    """Python files from a ConfigMap in this namespace, one file per key. A change restarts the workers."""

    name: ObjectName = Field(description="Name of the ConfigMap.")


class VolumeCode(ApiModel):
    """Python files from a folder of a PersistentVolumeClaim in this namespace, mounted read-only."""

    name: ObjectName = Field(description="Name of the PersistentVolumeClaim.")
    path: RelativePath | None = Field(
        default=None, description="Folder inside the volume. Default: its root."
    )


class UserCode(ApiModel):
    """What is named as module:name, in a ConfigMap, on a volume or in the worker's image."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="!(has(self.configMap) && has(self.volumeClaim))",
            message=(
                "configMap and volumeClaim must not both be set; with neither, the code is in the worker's"
                " image"
            ),
            holds=lambda self: self.config_map is None or self.volume_claim is None,
        ),
    )

    config_map: ConfigMapCode | None = None
    volume_claim: VolumeCode | None = None

    @property
    def entry(self) -> str:
        """What is called, as module:name."""
        raise NotImplementedError

    @property
    def module_file(self) -> str:
        """The key of the ConfigMap with the module."""
        return f"{self.entry.partition(':')[0]}.py"


MAX_PROCESSES = 64  # of 160 MiB each: more belong into further workers, which a failure ends one by one


class Batch(ApiModel):
    """When a batch is complete: whichever is reached first. A log group is never divided."""

    max_logs: Annotated[int, Field(ge=1, le=10_000_000)] | None = Field(
        default=None, description="Limit of logs in one batch. Default: no limit."
    )
    max_bytes: Annotated[int, Field(ge=65_536, le=1_073_741_824)] = Field(
        default=4 << 20, description="Approximate limit of bytes in one batch."
    )
    max_wait_milliseconds: Annotated[int, Field(ge=0, le=60_000)] = Field(
        default=0,
        description=(
            "How long a batch waits for more logs after its first log group arrived. 0: it is processed at"
            " once."
        ),
    )


class AcknowledgeMode(StrEnum):
    """What acknowledges logs, so that they do not come again. BATCH: what process returns from is
    acknowledged, but for what tracker.nack has refused. LOG: nothing is acknowledged but by tracker.ack,
    which any thread may call at any time, and which is also what moves the checkpoint; fan_out needs it.
    """

    BATCH = "Batch"
    LOG = "Log"


class Redelivery(ApiModel):
    """When logs that were refused, or not acknowledged in time, are handed over again."""

    RULES: ClassVar = (
        Rule(
            cel="self.maxDelayMilliseconds >= self.delayMilliseconds",
            message="maxDelayMilliseconds must be at least delayMilliseconds",
            holds=lambda self: self.max_delay_milliseconds >= self.delay_milliseconds,
        ),
        Rule(
            cel=(
                "!has(self.maxAckTimeoutSeconds) || (has(self.ackTimeoutSeconds)"
                " && self.maxAckTimeoutSeconds >= self.ackTimeoutSeconds)"
            ),
            message="maxAckTimeoutSeconds needs ackTimeoutSeconds, and must be at least that",
            holds=lambda self: (
                self.max_ack_timeout_seconds is None
                or self.max_ack_timeout_seconds >= (self.ack_timeout_seconds or math.inf)
            ),
        ),
    )

    delay_milliseconds: Annotated[int, Field(ge=50, le=3_600_000)] = Field(
        default=1000,
        description=(
            "How long a log waits that was refused for the first time; then twice as long each time, unless"
            " tracker.nack says when."
        ),
    )
    max_delay_milliseconds: Annotated[int, Field(ge=50, le=3_600_000)] = Field(
        default=60_000, description="The longest of these waits."
    )
    ack_timeout_seconds: Annotated[int, Field(ge=1, le=86_400)] | None = Field(
        default=None,
        description=(
            "With acknowledge: Log, a log that was neither acknowledged nor refused for so long is handed"
            " over again. Default: never."
        ),
    )
    max_ack_timeout_seconds: Annotated[int, Field(ge=1, le=86_400)] | None = Field(
        default=None,
        description=(
            "A log that was not acknowledged within ackTimeoutSeconds has twice as long the next time, up to"
            " this. Default: as long each time."
        ),
    )
    max_unacknowledged: Annotated[int, Field(ge=1, le=1_000_000)] = Field(
        default=10_000,
        description=(
            "Log groups of a shard from the first that is not acknowledged to the last that was handed over;"
            " beyond, nothing new is. So many are repeated, at most, after a crash or a move of the shard."
            " With spec.subscription: logs that a worker has and has not acknowledged, over all shards."
        ),
    )


class RetryLogstore(ApiModel):
    """A logstore in which logs wait that failed pipeline.onFailure.maxAttempts times, so that their shard can
    go on. The workers read it in a consumer group GROUP-FROM-LOGSTORE, which they create: readers-FROM-access
    for the group readers of the logstore access, and readers-OF-access for a subscription of that name. After
    the last delay, pipeline.onFailure settles the logs.
    """

    name: LogstoreName = Field(
        description=(
            "Name of the logstore, which must exist in the project that is consumed. Several groups may share"
            " it: each passes over the logs of the others."
        )
    )
    delays_seconds: Annotated[
        tuple[Annotated[int, Field(ge=1, le=2_592_000)], ...], Field(min_length=1, max_length=20)
    ] = Field(
        default=(10, 60, 600),
        description="How long logs wait before they are tried again: the first time, the second, and so on.",
    )


class ProcessorPipeline(UserCode):
    """A processor of `loghub_consumer` (docs/processor.md), without Spark and Java.

    Each shard has a processor of its own, which gets its logs batch by batch and in order, writes what it
    wants where it wants, and says what the checkpoint is; delivery is at least once. It does not run in the
    process that sends heartbeats, and one that hangs or crashes is replaced. Without
    configMap and volumeClaim the code is in the worker's image."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        *UserCode.RULES,
        Rule(
            field="redelivery",
            cel="!has(self.redelivery.ackTimeoutSeconds) || self.acknowledge == 'Log'",
            message="ackTimeoutSeconds needs acknowledge: Log; with Batch, returning acknowledges",
            holds=lambda self: (
                self.redelivery.ack_timeout_seconds is None or self.acknowledge is AcknowledgeMode.LOG
            ),
        ),
    )

    factory: EntryName = Field(
        description=(
            "A class derived from loghub_consumer.Processor, a function that returns such an object, or"
            " what loghub_consumer.fan_out returns, as module:name, for example counts:CountByTopic. It is"
            " called without arguments for each shard."
        )
    )
    listener: EntryName | None = Field(
        default=None,
        description=(
            "A class derived from loghub_consumer.Listener, as module:name, in the same files. Each process"
            " makes one, with the shards of the process as its argument, which it may seek, pause and resume."
        ),
    )
    processes: Annotated[int, Field(ge=0, le=MAX_PROCESSES)] = Field(
        default=1,
        description=(
            "Number of processes for processors; a shard stays in one of them. 0: one for each core that the"
            f" worker may use, see worker.resources, and at most {MAX_PROCESSES}. A process starts when its"
            " first shard comes. The memory request of a worker is 128 MiB plus 160 MiB for each process, the"
            " limit 256 MiB plus 384 MiB for each, unless worker.resources sets them; with 0 and without a"
            " limit of cpu, the request is enough for one process, and there is no limit of memory."
        ),
    )
    load_timeout_seconds: Annotated[int, Field(ge=1, le=3600)] = Field(
        default=120,
        description=(
            "How long a process may take to import the code, for example to load a model. One that takes"
            " longer is ended and started again; after ten times in a row the worker ends."
        ),
    )
    batch: Batch = Field(default=Batch(), description="How many logs a processor gets at a time.")
    acknowledge: AcknowledgeMode = Field(
        default=AcknowledgeMode.BATCH, strict=False, description=described(AcknowledgeMode)
    )
    redelivery: Redelivery = Field(
        default=Redelivery(),
        description="When logs that were refused, or not acknowledged in time, are handed over again.",
    )
    retry_logstore: RetryLogstore | None = None

    @property
    def entry(self) -> str:
        return self.factory
