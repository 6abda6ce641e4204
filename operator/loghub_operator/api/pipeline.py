"""The part of the spec that says what a worker does with its logs: ``spec.pipeline``."""

from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import Field

from loghub_operator.api.fields import seconds_of
from loghub_operator.api.on_failure import FailurePolicy, OnFailure
from loghub_operator.api.processor import EntryName, ProcessorPipeline, UserCode
from loghub_operator.api.sinks import LogstoreSink, Sink, SinkCredentials
from loghub_operator.api.validation import ApiModel, Rule
from loghub_operator.api.worker import STATE_RULES, StateVolume


class Trigger(ApiModel):
    """When the next micro-batch starts."""

    interval_seconds: Annotated[int, Field(ge=0, le=86_400)] = Field(
        default=1,
        description=(
            "The shortest time from the start of one micro-batch to the next, in seconds. 0: a micro-batch"
            " starts as soon as there are logs. One that left logs behind, because it was full, is followed"
            " at once in any case."
        ),
    )
    interval_milliseconds: Annotated[int, Field(ge=0, le=60_000)] | None = Field(
        default=None, description="The same in milliseconds. If set, intervalSeconds has no effect."
    )

    @property
    def interval_s(self) -> float:
        """The interval that is in effect."""
        return seconds_of(self.interval_seconds, self.interval_milliseconds)


class PythonPipeline(UserCode):
    """A Python function from DataFrame to DataFrame, called for each micro-batch.

    Its argument has the columns of the view `logs`; it returns the rows for the sink. Without configMap and
    volumeClaim the code is in the worker's image. A function that runs an action, such as count or collect,
    reads the logs from the log service again unless it calls logs.persist() first; the worker releases
    them."""

    function: EntryName = Field(description="The function as module:function, for example enrich:run.")

    @property
    def entry(self) -> str:
        return self.function


class QueryEngine(StrEnum):
    """What computes the rows of a query."""

    AUTO = "Auto"
    SPARK = "Spark"


COPIES = "has(self.sink) && has(self.sink.logstore) && self.sink.logstore.copy"


class Pipeline(ApiModel):
    """What every worker does with the logs of its shards. Exactly one of sql, python and processor is set,
    unless the sink copies log groups. A processor has no sink."""

    RULES: ClassVar = (
        Rule(
            cel=(
                f"{COPIES} || [has(self.sql), has(self.python), has(self.processor)]"
                ".filter(given, given).size() == 1"
            ),
            message="exactly one pipeline must be set: sql, python or processor",
            holds=lambda self: self.copies or sum(one is not None for one in self.kinds) == 1,
        ),
        Rule(
            cel=f"!({COPIES}) || !has(self.sql) && !has(self.python) && !has(self.processor)",
            message=(
                "a sink that copies log groups takes them as they are: leave out sql, python and processor"
            ),
            holds=lambda self: not self.copies or not any(one is not None for one in self.kinds),
        ),
        Rule(
            cel="has(self.processor) || has(self.sink)",
            message="sink must be set: it says where the rows are written",
            holds=lambda self: self.processor is not None or self.sink is not None,
        ),
        Rule(
            cel="!has(self.processor) || !has(self.sink)",
            message="a processor writes its results itself: leave out sink",
            holds=lambda self: self.processor is None or self.sink is None,
        ),
        Rule(
            cel=(
                "!has(self.processor) || !has(self.processor.retryLogstore) || "
                "self.onFailure.policy in ['DeadLetter', 'Skip']"
            ),
            message=(
                "retryLogstore needs onFailure.policy: DeadLetter or Skip, which says what becomes of its"
                " logs after the last delay"
            ),
            holds=lambda self: (
                self.retry_logstore is None
                or self.on_failure.policy in (FailurePolicy.DEAD_LETTER, FailurePolicy.SKIP)
            ),
        ),
        *STATE_RULES,
    )

    sql: Annotated[str, Field(min_length=1, max_length=65_536)] | None = Field(
        default=None,
        description=(
            "A Spark SQL query over the view `logs`; the sink gets the columns of its result. The columns of"
            " the view are __time__ (timestamp), __time_ns__ (nanoseconds below a second), __topic__,"
            " __source__, __tags__ and contents (maps of strings), and the place of the log: __shard__,"
            " __cursor__ of its log group and __index__ within it."
        ),
    )
    python: PythonPipeline | None = None
    processor: ProcessorPipeline | None = None
    per_batch: bool = Field(
        default=False,
        description=(
            "Allow results of single micro-batches. A pipeline sees the logs of one micro-batch, and how many"
            " these are depends on the load. GROUP BY and aggregate functions, DISTINCT, LIMIT, ORDER BY,"
            " window functions, joins of logs with logs, and joins and unions that keep rows of another table"
            " therefore give results of each micro-batch, not of all logs. Unless this is true, a worker"
            " refuses such a pipeline with reason InvalidPipeline."
        ),
    )
    engine: QueryEngine = Field(
        default=QueryEngine.AUTO,
        description=(
            "What computes the rows of sql for a sink of files or a Delta table. Auto: Arrow, where logs are"
            " read and files are written, if the query is one that Arrow computes as Spark does, which costs"
            " less than half of the CPU time; otherwise Spark. The status and the log of a worker say which,"
            " and why. Spark: always Spark."
        ),
    )
    stateful: bool = Field(
        default=False,
        description=(
            "Keep state from one micro-batch to the next, such as dropDuplicatesWithinWatermark has, or"
            " windows with a watermark. sql or python is applied to the stream of logs. The state of a worker"
            " belongs to the shards that it holds, on a volume of its own: a restart continues with it, and a"
            " shard that moves leaves it behind, which condition StateIncomplete reports. Immutable."
        ),
    )
    accept_incomplete_state: bool = Field(
        default=False,
        description=(
            "With stateful: true, allow what moves shards between workers again and again: scaling.mode Auto "
            "and External, and scaling.shards.autoSplit and autoMerge. Each move leaves state behind, so "
            "windows are cut and repetitions are written again."
        ),
    )
    state: StateVolume | None = Field(
        default=None, description="The volume of the state, with stateful: true. Immutable."
    )
    trigger: Trigger = Field(default=Trigger(), description="When the next micro-batch starts.")
    sink: Sink | None = Field(
        default=None,
        description="Where the rows of sql or python are written. Exactly one sink is set.",
    )
    batch_timeout_seconds: Annotated[int, Field(ge=30, le=86_400)] = Field(
        default=600,
        description=(
            "A micro-batch that takes longer than this many seconds is cancelled and counts as failed, see "
            "onFailure. If it cannot be cancelled, its worker gives up its shards and restarts."
        ),
    )
    on_failure: OnFailure = Field(
        default=OnFailure(), description="What happens to logs that the pipeline or the sink rejects."
    )

    @property
    def longest_wait_s(self) -> float:
        """For how long logs may wait for a micro-batch of a worker that keeps up."""
        files = None if self.sink is None else self.sink.file_sink
        delay_s = 0.0 if files is None or files.roll is None else float(files.roll.max_delay_seconds)
        return max(delay_s, self.trigger.interval_s)

    @property
    def copies(self) -> bool:
        """Log groups are copied as they are, without a query."""
        return self.sink is not None and self.sink.logstore is not None and self.sink.logstore.copy_

    @property
    def kinds(self) -> tuple[object | None, ...]:
        """Every kind of pipeline, of which at most one is set."""
        return (self.sql, self.python, self.processor)

    @property
    def code(self) -> UserCode | None:
        """The Python code that the user brings, if there is any."""
        return self.python or self.processor

    @property
    def retry_logstore(self) -> str | None:
        """The logstore in which logs of a processor wait, if there is one."""
        logstore = None if self.processor is None else self.processor.retry_logstore
        return None if logstore is None else logstore.name

    @property
    def sink_volume_claim(self) -> str | None:
        """The volume that the sink writes to, if it does."""
        return None if self.sink is None else self.sink.volume_claim

    @property
    def sink_credentials(self) -> SinkCredentials | None:
        """The Secret of the sink, if it has one."""
        return None if self.sink is None else self.sink.credentials_secret

    @property
    def logstore_sink(self) -> LogstoreSink | None:
        """The logstore that the sink writes to, if it does."""
        return None if self.sink is None else self.sink.logstore
