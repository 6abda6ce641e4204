"""The streaming query of a stateful pipeline: the query or function is applied to the stream itself.

Spark keeps its state, and with it the batches that it has planned and ended, in a checkpoint directory that
outlives the worker's process. `loghub_worker.state.ledger` says what the state consists of, and
`loghub_worker.state.pending_batch` what is done with a batch that Spark hands over, perhaps not for the first
time. A batch that fails ends Spark's query, which keeps the state as it was; the same batch is then tried
again. It is never divided, because its state depends on all its logs.
"""

import secrets
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

import structlog
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from loghub.contract.worker import OnFailure
from loghub_consumer.batch_plan import BatchPlan, Range
from loghub_consumer.errors import FatalError, first_lines
from loghub_consumer.failure.handler import FailureReport
from loghub_consumer.failure.policy import Cause, FailingRange, Failure, Policy, RunningBatch, WaitState
from loghub_consumer.log_service import ReportedError
from loghub_consumer.membership.membership import MemberState, ShardPhase
from loghub_consumer.membership.shard_manager import ShardManager
from loghub_consumer.membership.shared_membership import SharedState
from loghub_worker.query.batch_counts import plan_of_batch, watermark_of_batch
from loghub_worker.query.batch_errors import UNREACHABLE, failure_of, is_outage, is_unreadable_state
from loghub_worker.query.settings import QuerySettings
from loghub_worker.query.spark_session import write_checksums
from loghub_worker.query.stateful_plan import counted_by_operators
from loghub_worker.query.streaming_query import DRIVER_EXITED, QueryRunner
from loghub_worker.query.transform import Transform
from loghub_worker.sink.batch_sink import BatchSink
from loghub_worker.sink.files.commit_log import RangeTakenError, SessionLostError
from loghub_worker.sink.logstore.sink import FORMAT
from loghub_worker.spark_errors import JVM_EXITED, SPARK_ERRORS
from loghub_worker.state.checkpoint_folder import roll_back
from loghub_worker.state.ledger import StateFigures, Why
from loghub_worker.state.pending_batch import PendingStep, next_step

log = structlog.get_logger()

# Attempts after which an unreadable state is given up: all shards of the worker wait for it, and later
# attempts would fail as well.
STATE_ATTEMPTS = 3
LOOK_S = 0.1  # how often the positions are read, in memory, while a batch waits for them
# How Spark begins its messages if the state belongs to another query, or is gone.
UNFIT = (
    "[STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE]",
    "[STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE]",
    "[STATE_STORE_INVALID_VALUE_SCHEMA_EVOLUTION]",
    "[STATE_STORE_INVALID_VARIABLE_TYPE_CHANGE]",
    "[STATE_STORE_COLUMN_FAMILY_SCHEMA_INCOMPATIBLE]",
    "[STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA]",
    "[STREAMING_STATEFUL_OPERATOR_MISSING_STATE_DIRECTORY]",
)
# And if spark.conf has another value than the state began with; Spark's message names it.
CONF_CHANGED = "[STATE_STORE_INVALID_CONFIG_AFTER_RESTART]"


class _QueryEndedError(Exception):
    """Spark's query must start again, and nothing has failed."""


class _UnreadRangeError(Exception):
    """A range of a batch was not read to its end."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


def stream_of_logs(spark: SparkSession, settings: QuerySettings, *, counts: int | None = None) -> DataFrame:
    """The logs as a stream, which reads nothing before a query over it starts."""
    options = replace(settings.source_options(), counts=counts)
    return spark.readStream.format(FORMAT).option("settings", options.to_option()).load()


class StatefulQueryRunner(QueryRunner):
    """Runs one query at a time, in one thread of its own."""

    def __init__(
        self,
        settings: QuerySettings,
        spark: SparkSession,
        shared_state: SharedState,
        shard_manager: ShardManager,
        *,
        transform: Transform,
        sink: BatchSink,
    ) -> None:
        """The settings have the ledger of the state."""
        super().__init__(settings, spark, shared_state, shard_manager, transform=transform, sink=sink)
        self._on_failure: OnFailure = settings.config.on_failure
        assert settings.ledger is not None
        self._ledger = settings.ledger
        self._failed: tuple[Range, ...] = ()  # the batch that fails
        self._failure: Failure | None = None  # why it did last
        self._attempts = 0
        self._name = ""  # of the query that runs
        self._noted: Exception | None = None  # the error of that attempt
        self._rolled_back: dict[int, int] | None = None  # where the shards of a dropped batch continue

    # -- lifecycle of the query

    def _start_query(self) -> StreamingQuery:
        with self._shared_state.use() as (membership, _):
            positions = membership.positions
        if self._rolled_back is not None:
            self._ledger.rolled_back(self._rolled_back)  # first: a crash in between repeats the decision
            roll_back(self._scratch)
            self._rolled_back = None
        self._ledger.empty(positions)
        write_checksums(self._spark, wanted=True)
        # A batch without logs would have no ranges, by which the sink recognizes it.
        self._spark.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "false")
        logs = stream_of_logs(self._spark, self._settings, counts=self.counts.begin_query())
        self._name = f"{self._consumer}-{secrets.token_hex(8)}"
        return (
            self._transform(logs)
            .writeStream.outputMode("append")
            .queryName(self._name)
            .foreachBatch(self._on_batch)
            .option("checkpointLocation", self._scratch.as_uri())
            .trigger(processingTime="0 seconds")  # the source sets the pace
            .start()
        )

    def _after_failure(self, error: Exception) -> None:
        cause, failure = self._batch_error, self._failure
        if isinstance(error, JVM_EXITED):
            raise FatalError("SparkDriverExited", self._driver_exited()) from error
        if isinstance(cause, _QueryEndedError):
            self._batch_error = None
        elif cause is None and CONF_CHANGED in str(error):
            raise FatalError("InvalidPipeline", first_lines(error)) from error
        elif cause is None and any(text in str(error) for text in UNFIT):
            log.warning("the state is of another query", message=str(error))
            self._ledger.discard(Why.UNUSABLE)
        elif cause is not None and is_unreadable_state(cause) and self._attempts >= STATE_ATTEMPTS:
            self._batch_error = None
            log.warning("the state cannot be read", message=str(cause))
            self._ledger.discard(Why.UNUSABLE)
        elif failure is None or cause is None or cause is not self._noted:
            super()._after_failure(error)
        else:
            self._batch_error = None
            self._after_failed_batch(failure)

    def _driver_exited(self) -> str:
        figures = self._ledger.figures
        if figures is None:
            return f"{DRIVER_EXITED}; raise spark.memory"
        return (
            f"{DRIVER_EXITED}: the state has {figures.rows} rows, which took {figures.bytes >> 20} MiB of it;"
            " raise spark.memory, or keep the state in RocksDB, which needs a state that begins empty"
            " (spec.resetCheckpoints)"
        )

    def _after_failed_batch(self, failure: Failure) -> None:
        self._failures += 1
        self.error = ReportedError(failure.reason, failure.message)
        log.warning(
            "batch failed, and is tried again as it is",
            reason=failure.reason,
            message=failure.message,
            attempts=self._attempts,
        )
        if self._is_stopped:
            log.warning("no further attempt, as pipeline.onFailure says", ranges=self._failed)

    def _pause_s(self) -> float:
        return threading.TIMEOUT_MAX if self._is_stopped else super()._pause_s()

    @property
    def _is_stopped(self) -> bool:
        is_rejected = self._failure is not None and self._failure.cause is not Cause.UNAVAILABLE
        limited = (
            Policy(self._on_failure.policy) is Policy.STOP and self._attempts >= self._on_failure.max_attempts
        )
        return is_rejected and limited

    def failure_report(self, positions: Mapping[int, int]) -> FailureReport:
        """The shards of the failing batch. In which of them the cause is, is unknown."""
        failure, attempts = self._failure, self._attempts
        if failure is None or failure.cause is Cause.UNAVAILABLE:
            return FailureReport()
        return FailureReport(
            failing=tuple(
                FailingRange(
                    shard=part.shard,
                    begin=part.begin,
                    until=part.end,
                    failed_end=part.end,
                    log_groups=part.groups,
                    attempts=attempts,
                    state=WaitState.STOPPED if self._is_stopped else WaitState.RETRYING,
                    not_before_s=None,
                    failure=failure,
                )
                for part in self._failed
                if positions.get(part.shard) == part.begin
            )
        )

    # -- one batch

    def _process(self, rows: DataFrame, number: int) -> None:
        plan = plan_of_batch(self._scratch, number)
        step = self._await_step(plan, number)
        running = RunningBatch(ranges=plan.ranges, began_s=self._clock.monotonic_s())
        self._running = running
        try:
            if step is PendingStep.REPLAY:
                self._replay(rows, plan, number)
            else:
                self._deliver_once(rows, plan, number)
        except Exception as error:
            if not (self._stop.is_set() or is_outage(error) or isinstance(error, _QueryEndedError)):
                self._note_failure(plan, error, running)
            raise
        finally:
            with self._ending:
                self._running = None
        if not self._ledger.is_delivered(number):
            self._ledger.delivered(number, plan.ranges)
        self._record(plan.ranges, self.counts.of(plan.ranges))
        self.totals.batches += 1
        self.totals.seconds += self._clock.monotonic_s() - running.began_s
        self._failures = self._own_failures = self._attempts = 0
        self._failed, self._failure, self._noted = (), None, None
        self.error = ReportedError()
        self._shard_manager.save_all()

    def _await_step(self, plan: BatchPlan, number: int) -> PendingStep:
        """What to do with the batch, once the positions of its shards are known."""
        while True:
            if self._stop.is_set() or self._ledger.is_discarded:
                raise _QueryEndedError
            positions = self._known_positions()
            step = next_step(
                plan.ranges,
                positions,
                is_delivered=self._ledger.is_delivered(number),
                may_be_delivered=self._ledger.may_be_delivered(number),
            )
            if step is PendingStep.ROLL_BACK:
                log.info("a batch cannot be delivered as it was planned", ranges=plan.ranges)
                self._roll_back_with(positions)
            if step is not PendingStep.WAIT:
                self.waits_for_shards = False
                return step
            self.waits_for_shards = True
            self._stop.wait(LOOK_S)

    def _known_positions(self) -> dict[int, int | None]:
        """The positions of the shards that this worker holds, None while one is opened."""
        with self._shared_state.use() as (membership, now):
            if membership.state is not MemberState.MEMBER or membership.session_left_s(now) <= 0:
                return {}
            return {
                held.shard: None if held.phase is ShardPhase.OPENING else held.position
                for held in membership.shards
            }

    def _replay(self, rows: DataFrame, plan: BatchPlan, number: int) -> None:
        """Compute the state of a batch that the sink has already."""
        log.info("the state of a delivered batch is computed again", ranges=plan.ranges)
        self.counts.begin_batch()
        rows.count()
        self._require_all_read(plan)
        self._measure(plan, number)

    def _deliver_once(self, rows: DataFrame, plan: BatchPlan, number: int) -> None:
        if not self._may_commit(plan):
            self.totals.discarded += 1
            raise _QueryEndedError
        batch = self._new_batch()
        self.counts.begin_batch()
        # The state is computed with the rows. So each task must run to its end, and once, however the sink
        # reads them.
        kept = rows.persist()
        try:
            kept.count()
            self._require_all_read(plan)
            self._measure(plan, number)
            written = self._sink.write(kept, batch)
            self._ledger.publishing(number, plan.ranges)
        except BaseException:
            self._sink.abort(batch)
            raise
        finally:
            with suppress(*SPARK_ERRORS, *JVM_EXITED):  # an error of the batch says more
                kept.unpersist()
        self._publish_once(batch, plan)
        self.totals.rows += written
        self._count_losses(self.counts.of(plan.ranges))
        log.debug("batch delivered", batch=batch, shards=[r.shard for r in plan.ranges], rows=written)

    def _measure(self, plan: BatchPlan, number: int) -> None:
        """Note Spark's figures of the state, once all rows of the batch are computed."""
        (query,) = (query for query in self._spark.streams.active if query.name == self._name)
        counted = counted_by_operators(query)
        watermark_ms = watermark_of_batch(self._scratch, number)
        latest_s = plan.latest_s
        figures = StateFigures(
            rows=counted.rows,
            bytes=counted.bytes,
            watermark_ms=watermark_ms,
            is_ahead=latest_s is not None and watermark_ms >= (latest_s + 1) * 1000,
            late_rows=counted.late_rows,
            late_unix_s=self._clock.unix_s(),
        )
        if counted.late_rows:
            log.warning(
                "rows were dropped as late", rows=counted.late_rows, watermark_unix_s=watermark_ms / 1000
            )
        self._ledger.measured(number, figures)

    def _publish_once(self, batch: str, plan: BatchPlan) -> None:
        try:
            self._sink.publish(batch, plan.ranges, lambda: self._may_commit(plan))
        except SessionLostError as error:
            self.totals.discarded += 1
            raise _QueryEndedError from error
        except RangeTakenError as error:
            self.totals.discarded += 1
            log.warning("batch discarded", batch=batch, message=str(error))
            self._reopen(plan)
            raise _QueryEndedError from error
        except Exception:
            self._reopen(plan)  # the sink may have the batch: it is asked where its shards continue
            raise

    def _require_all_read(self, plan: BatchPlan) -> None:
        """Raise `_UnreadRangeError` unless every range was read to its end: the state must have the logs that
        the positions say. Log groups that expired are read as none."""
        counts = self.counts.of(plan.ranges)
        for part in plan.ranges:
            count = counts.get(part.shard)
            if count is not None and count.failure is not None:
                cause = Cause.REJECTED if count.failure.rejected else Cause.UNAVAILABLE
                reason, message = count.failure.reason, count.failure.message
                raise _UnreadRangeError(Failure(cause=cause, reason=reason, message=message))
            if count is None or 0 < count.end < part.end:
                message = f"shard {part.shard} was not read to the end of the batch"
                raise _UnreadRangeError(Failure(cause=Cause.UNAVAILABLE, reason=UNREACHABLE, message=message))

    def _note_failure(self, plan: BatchPlan, error: Exception, running: RunningBatch) -> None:
        if isinstance(error, _UnreadRangeError):
            self._failure = error.failure
        elif self._cancelled is running:
            self._failure = self._timed_out(running)
        else:
            self._failure = failure_of(error)
        self._noted = error
        self._attempts = self._attempts + 1 if self._failed == plan.ranges else 1
        self._failed = plan.ranges

    def _roll_back_with(self, positions: Mapping[int, int | None]) -> None:
        """End the query, so that another batch is planned in place of this one."""
        self._rolled_back = {shard: at for shard, at in positions.items() if at is not None}
        raise _QueryEndedError
