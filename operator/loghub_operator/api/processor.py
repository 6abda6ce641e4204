"""``spec.pipeline.processor``: user code that consumes without Spark."""

from typing import Annotated

from pydantic import Field

from loghub_operator.api.user_code import EntryName, UserCode
from loghub_operator.api.validation import ApiModel


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


class ProcessorPipeline(UserCode):
    """A processor of `loghub_worker.api` (docs/processor.md), without Spark and Java.

    Each shard has a processor of its own, which gets its logs batch by batch and in order, writes what it
    wants where it wants, and says what the checkpoint is; delivery is at least once. It does not run in the
    process that sends heartbeats, and one that hangs or crashes is replaced. Without
    configMap and volumeClaim the code is in the worker's image."""

    factory: EntryName = Field(
        description=(
            "A class derived from loghub_worker.api.Processor, or a function that returns such an object, as"
            " module:name, for example counts:CountByTopic. It is called without arguments for each shard."
        )
    )
    processes: Annotated[int, Field(ge=0, le=64)] = Field(
        default=1,
        description=(
            "Number of processes for processors; a shard stays in one of them. 0: one for each core that the"
            " worker may use, see worker.resources. A process is started when its first shard comes. The"
            " memory request of a worker is 128 MiB plus 160 MiB for each process, and the limit 256 MiB plus"
            " 384 MiB for each, unless worker.resources sets them; with 0 and without a limit of cpu, the"
            " request is that of one process, and there is no limit of memory."
        ),
    )
    batch: Batch = Field(default=Batch(), description="How many logs a processor gets at a time.")

    @property
    def entry(self) -> str:
        return self.factory
