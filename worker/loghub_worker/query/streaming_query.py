"""The streaming query: delivers micro-batches to the sink, and restarts Spark's query after a failure.

A batch is read, passes through the user's query or function, and is written to the sink; only then do
positions and checkpoints advance. A failed batch is discarded, and `loghub_consumer.failure` decides what is
read next; Spark's query continues. A batch that takes too long is cancelled.

Spark's own checkpoint directory is scratch space: it is emptied before each start. The ranges of a batch are
read from Spark's log in that directory, which is written before the batch begins.
"""

import secrets
import shutil
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

import structlog
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from loghub.backoff import backoff_s
from loghub.contract.sinks import roll_of
from loghub.wire.cursor import encode as encode_cursor
from loghub_consumer.batch_plan import BatchPlan, Range
from loghub_consumer.errors import FatalError
from loghub_consumer.exchange_files import FileShare
from loghub_consumer.failure.handler import FailureHandler, FailureReport, SettledAs
from loghub_consumer.failure.policy import (
    Cause,
    DeadlineStep,
    FailingRange,
    Failure,
    RunningBatch,
    ShardTotals,
    deadline_step,
    failure_settings,
)
from loghub_consumer.log_service import ReportedError
from loghub_consumer.membership.shard_manager import ShardManager
from loghub_consumer.membership.shared_membership import SharedState
from loghub_consumer.reading.shard_reader import ReadCount
from loghub_worker.cluster_error import ClusterError
from loghub_worker.metrics import Counter, failure_counters
from loghub_worker.query.batch_counts import BatchCounts, ComputedRows, plan_of_batch, ranges_read
from loghub_worker.query.batch_errors import failure_of, is_outage, may_need_restart, query_error
from loghub_worker.query.settings import QuerySettings
from loghub_worker.query.spark_session import (
    compute_nothing,
    is_remote,
    require_application,
    write_checksums,
)
from loghub_worker.query.transform import PipelineError, Transform, empty_logs
from loghub_worker.sink.batch_sink import BatchSink, WritesFiles, require_rows
from loghub_worker.sink.files.commit_log import RangeTakenError, SessionLostError
from loghub_worker.sink.logstore.sink import FORMAT
from loghub_worker.source import batch_token
from loghub_worker.spark_errors import JVM_EXITED, SPARK_ERRORS

log = structlog.get_logger()


# Failures of the whole query that a new process may not have, without a batch in between. Logs that cannot be
# delivered do not count, nor does a target or an endpoint that is unavailable for a while.
MAX_FAILURES = 10
MAX_PAUSE_S = 30.0
TIMED_OUT = "BatchTimedOut"
DRIVER_EXITED = "Spark's JVM exited, often because it ran out of memory"


@dataclass(slots=True)
class QueryTotals:
    """What the worker has delivered since the process started."""

    rows: int = 0
    batches: int = 0
    discarded: int = 0  # batches that the membership or the commit log rejected
    timed_out: int = 0  # batches that were cancelled
    replaced: int = 0  # texts with invalid UTF-8
    missing: int = 0  # log groups that expired before they were read
    ahead: int = 0  # logs with a time after their receipt, which was replaced
    seconds: float = 0.0  # spent in batches that reached the sink


class QueryRunner:
    """Runs one query at a time, in one thread of its own."""

    waits_for_shards = False  # a batch was planned before the worker joined (`stateful_query`)

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
        config = settings.config
        self._settings = settings
        self._timeout_s = config.batch_timeout_s
        self._spark = spark
        self._shared_state = shared_state
        self._shard_manager = shard_manager
        self._transform = transform
        self._sink = sink
        self._exchange = settings.exchange
        self._clock = shared_state.clock
        self._scratch = settings.scratch
        self._consumer = settings.consumer
        self.counts, self.rows = BatchCounts(spark), ComputedRows(spark)  # tests without Spark replace them
        self._options = settings.source_options()
        # Executors elsewhere may not see the folder that the sink reads. A copy has no rows, nor has a source
        # that writes files, which are found or not.
        self._counts_rows = is_remote(config) and not (self._options.copy_to or self._options.writing)
        self._token = ""  # of the running query
        self._stop = threading.Event()
        self._failures = 0  # in a row, of the whole query or of the sink as a whole
        self._own_failures = 0  # the failures among them for which `may_need_restart` is true
        self._query: StreamingQuery | None = None
        self._batch_error: Exception | None = None
        self._file_share: float | None = None  # None: before the first batch
        self._running: RunningBatch | None = None
        self._cancelled: RunningBatch | None = None
        self._canceller: threading.Thread | None = None
        self._ending = threading.Lock()  # a batch does not end while it is being cancelled
        self._thread = threading.Thread(target=self._run, name="query", daemon=True)
        self.failures = FailureHandler(
            failure_settings(config.on_failure, batch_timeout_s=config.batch_timeout_s),
            exchange=self._exchange,
            clock=self._clock,
            journal=settings.journal,
            dead_letters=settings.dead_letters,
            random=shared_state.random,
        )
        self.totals = QueryTotals()
        self.error = ReportedError()  # of the query as a whole
        self.failure: BaseException | None = None

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_s: float = 10.0) -> None:
        """End the query; a batch in progress is discarded."""
        self._stop.set()
        query = self._query
        if query is not None:
            threading.Thread(target=query.stop, daemon=True).start()
        self._thread.join(timeout_s)
        self.failures.close()

    # -- lifecycle of the query

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self._run_query()
        except BaseException as failure:  # noqa: BLE001 - the main thread raises it again
            self.failure = failure

    def _run_query(self) -> None:
        with self._shared_state.use() as (membership, _):
            membership.source_started()
        try:
            self._query = self._start_query()
            self._query.awaitTermination()
        except (*SPARK_ERRORS, *JVM_EXITED, PipelineError) as error:
            if not self._stop.is_set():
                self._after_failure(error)
        finally:
            with self._shared_state.use() as (membership, _):
                membership.source_stopped()
        self._stop.wait(self._pause_s())

    def _start_query(self) -> StreamingQuery:
        shutil.rmtree(self._scratch, ignore_errors=True)
        self._token = secrets.token_hex(8)
        options = replace(self._options, counts=self.counts.begin_query(), token=self._token)
        write_checksums(self._spark, wanted=False)
        if options.writing:
            compute_nothing(self._spark)
        rows = self._spark.readStream.format(FORMAT).option("settings", options.to_option()).load()
        return (
            rows.writeStream.foreachBatch(self._on_batch)
            .option("checkpointLocation", self._scratch.as_uri())
            .trigger(processingTime="0 seconds")  # the source sets the pace
            .start()
        )

    def _after_failure(self, error: Exception) -> None:
        if isinstance(error, JVM_EXITED):
            raise FatalError("SparkDriverExited", f"{DRIVER_EXITED}; raise spark.memory") from error
        try:
            require_application(self._spark, self._settings.config)
        except ClusterError as ended:
            raise FatalError(ended.reason, str(ended)) from error
        cause, self._batch_error = self._batch_error or error, None
        self.error = query_error(cause)
        reason, message = self.error.reason, self.error.message
        self._failures += 1
        self._own_failures += may_need_restart(cause)
        log.warning("query failed", reason=reason, message=message, consecutive_failures=self._failures)
        if self._own_failures >= MAX_FAILURES:
            raise FatalError(reason, message) from error

    def _pause_s(self) -> float:
        if not self._failures:
            return 0.0
        return backoff_s(self._failures, first_s=1.0, max_s=MAX_PAUSE_S)

    def failure_report(self, positions: Mapping[int, int]) -> FailureReport:
        """What concerns the shards that are at these positions now."""
        return self.failures.report(positions)

    # -- the timeout of a batch

    @property
    def batch_age_s(self) -> float | None:
        """How long the running batch takes already; None if none runs."""
        running = self._running
        return None if running is None else self._clock.monotonic_s() - running.began_s

    def enforce_timeout(self) -> Failure | None:
        """Cancel the running batch if it exceeds its timeout. Returns the reason to end this process if the
        batch does not end nevertheless. That batch is then recorded for the worker's next process."""
        running = self._running
        step = deadline_step(running, timeout_s=self._timeout_s, now=self._clock.monotonic_s())
        if running is None or step is DeadlineStep.WAIT:
            return None
        if running is not self._cancelled:
            self._cancelled = running
            self.totals.timed_out += 1
            log.warning("batch cancelled", timeout_s=self._timeout_s, ranges=running.ranges)
        if step is DeadlineStep.GIVE_UP:
            failure = self._timed_out(running)
            self.failures.give_up(running.ranges, failure)
            return failure
        # In a thread of its own: the JVM may not answer either. Again and again: a batch may have many jobs.
        if self._canceller is None or not self._canceller.is_alive():
            self._canceller = threading.Thread(target=self._cancel, args=(running,), daemon=True)
            self._canceller.start()
        return None

    def _cancel(self, running: RunningBatch) -> None:
        query = self._query
        with self._ending:
            if self._running is running and query is not None:
                # The jobs of a batch are in the job group of its query.
                self._spark.sparkContext.cancelJobGroup(str(query.runId))

    def _timed_out(self, running: RunningBatch) -> Failure:
        places = ", ".join(f"shard {r.shard} from cursor {encode_cursor(r.begin)}" for r in running.ranges)
        message = f"a batch of {places} took longer than batchTimeoutSeconds ({self._timeout_s:.0f} s)"
        return Failure(cause=Cause.TIMED_OUT, reason=TIMED_OUT, message=message)

    # -- one batch

    def _on_batch(self, rows: DataFrame, number: int) -> None:
        """Called by Spark in this process. An exception ends the query, and nothing is saved."""
        try:
            self._process(rows, number)
        except Exception as error:
            self._batch_error = error  # Spark reports it only as text in an error of its own
            raise

    def _process(self, rows: DataFrame, number: int) -> None:
        plan = plan_of_batch(self._scratch, number)
        if not plan.ranges:
            return
        running = RunningBatch(ranges=plan.ranges, began_s=self._clock.monotonic_s())
        self._running = running
        try:
            to_settle = self.failures.begin(plan.ranges)
            if to_settle is None:
                delivered = self._deliver(rows, plan)
            else:
                delivered = self._settle(plan, to_settle, running)
        except Exception as error:
            if self._stop.is_set() or is_outage(error):
                raise
            self.failures.failed(plan.ranges, self._failure_of(error, running))
            return
        finally:
            with self._ending:
                self._running = None
            self.failures.end()
        if not delivered:
            return
        self.totals.batches += 1
        self.totals.seconds += self._clock.monotonic_s() - running.began_s
        self._failures = self._own_failures = 0
        self.error = ReportedError()
        self._shard_manager.save_all()

    def _failure_of(self, error: Exception, running: RunningBatch) -> Failure:
        return self._timed_out(running) if self._cancelled is running else failure_of(error)

    def _settle(self, plan: BatchPlan, failing: FailingRange, running: RunningBatch) -> bool:
        """Skip or dead-letter the one log group of this batch instead of reading it. Its range is committed
        like any other, so that another worker continues after it. Returns False if it must be tried again."""
        if not self._may_commit(plan):
            self.totals.discarded += 1
            return False
        try:
            # An unavailable sink would fail every log group, and not because of its content.
            self._sink.check(self._transform(empty_logs(self._spark)))
        except Exception as error:  # noqa: BLE001 - any failure here has another cause than the log group
            self.failures.pipeline_failed(failing, self._failure_of(error, running))
            return False
        settlement = self.failures.write_dead_letter(failing)
        if settlement is SettledAs.FAILED or not self._publish(self._new_batch(), plan, plan.ranges):
            return False
        self._record(plan.ranges, {})
        self.totals.missing += settlement is SettledAs.EXPIRED
        self.failures.settled(failing, settlement)
        return True

    def _deliver(self, rows: DataFrame, plan: BatchPlan) -> bool:
        """Deliver one batch, without the ranges of which nothing could be read. Returns False if nothing of
        it is in the sink; the source then plans its ranges again."""
        if not self._may_commit(plan):
            self.totals.discarded += 1
            return False
        batch = self._new_batch(plan)
        self.counts.begin_batch()
        try:
            result = rows if self._options.writing else self._transform(rows)
            written = self._sink.write(self.rows.counted(result) if self._counts_rows else result, batch)
            if self._counts_rows:
                require_rows(self.rows.number(), written)
        except BaseException:
            self._sink.abort(batch)
            raise
        counts = self.counts.of(plan.ranges)
        read = ranges_read(plan, counts, only_counted=bool(self._options.copy_to))
        for shard_range, failure in read.failed:
            self.failures.failed((shard_range,), failure)
        if not read.consumed:
            self._sink.abort(batch)
            return False
        if not self._publish(batch, plan, read.consumed):
            return False
        self.totals.rows += written
        self._count_losses(counts)
        self._record(read.consumed, counts)
        self._note_file_share(sum(count.bytes for count in counts.values()))
        log.debug("batch delivered", batch=batch, shards=[r.shard for r in read.consumed], rows=written)
        self.failures.succeeded(read.consumed)
        return True

    def _note_file_share(self, log_bytes: int) -> None:
        """Let the source know how large the files of a batch become."""
        sink = self._sink
        if roll_of(self._settings.config.sink) is None or not isinstance(sink, WritesFiles) or not log_bytes:
            return
        share = sink.file_bytes / log_bytes
        self._file_share = max(share, ((self._file_share or share) + share) / 2)
        with suppress(OSError):  # the batch is delivered, and the next one says it again
            self._exchange.write_file_share(FileShare(bytes=self._file_share))

    def _new_batch(self, plan: BatchPlan | None = None) -> str:
        """The name of a batch; of a plan whose files the source writes, the name that the source knows."""
        known = plan is not None and self._options.writing
        token = batch_token(self._token, plan.number) if plan is not None and known else secrets.token_hex(8)
        return f"{self._consumer}-{token}"

    def _publish(self, batch: str, plan: BatchPlan, ranges: tuple[Range, ...]) -> bool:
        """Make the batch part of the sink. Returns False if another worker delivers one of its ranges."""
        try:
            self._sink.publish(batch, ranges, lambda: self._may_commit(plan))
        except SessionLostError:
            self.totals.discarded += 1
            log.warning("batch discarded: the session of this worker is over", batch=batch)
            return False
        except RangeTakenError as error:
            self.totals.discarded += 1
            log.warning("batch discarded", batch=batch, message=str(error))
            self._reopen(plan)
            return False
        return True

    def _may_commit(self, plan: BatchPlan) -> bool:
        with self._shared_state.use() as (membership, now):
            return membership.may_commit(plan.ranges, now=now)

    def _reopen(self, plan: BatchPlan) -> None:
        with self._shared_state.use() as (membership, _):
            for shard_range in plan.ranges:
                membership.reopen(shard_range.shard)

    def _record(self, ranges: tuple[Range, ...], counts: dict[int, ReadCount]) -> None:
        with self._shared_state.use() as (membership, _):
            membership.committed(
                ranges,
                logs={shard: count.logs for shard, count in counts.items()},
                read_bytes={shard: count.bytes for shard, count in counts.items()},
            )

    def _count_losses(self, counts: dict[int, ReadCount]) -> None:
        for shard, count in counts.items():
            if count.replaced or count.missing or count.ahead:
                log.warning(
                    "invalid UTF-8 was replaced, log groups expired, or times lay after the receipt",
                    shard=shard,
                    invalid_utf8_values=count.replaced,
                    log_groups_expired=count.missing,
                    logs_ahead_of_receipt=count.ahead,
                )
            self.totals.replaced += count.replaced
            self.totals.missing += count.missing
            self.totals.ahead += count.ahead


def query_counters(totals: QueryTotals, failures: Mapping[int, ShardTotals]) -> tuple[Counter, ...]:
    """All of them; ``failures`` by shard."""
    return (
        Counter("loghub_worker_batches", "Number of micro-batches committed to the sink.", totals.batches),
        Counter(
            "loghub_worker_batches_discarded",
            "Number of micro-batches discarded because the worker no longer held their shards.",
            totals.discarded,
        ),
        Counter(
            "loghub_worker_batches_timed_out",
            "Number of micro-batches cancelled because they took longer than their timeout.",
            totals.timed_out,
        ),
        Counter(
            "loghub_worker_batch_duration_seconds",
            "Total duration of the committed micro-batches.",
            totals.seconds,
        ),
        Counter(
            "loghub_worker_invalid_utf8_values",
            "Number of text values in which invalid UTF-8 was replaced.",
            totals.replaced,
        ),
        Counter(
            "loghub_worker_log_groups_expired",
            "Number of log groups that expired before they were read.",
            totals.missing,
        ),
        Counter(
            "loghub_worker_logs_ahead_of_receipt",
            "Number of logs of a time after their receipt, which got another one (stateful pipelines).",
            totals.ahead,
        ),
        *failure_counters(failures),
    )
