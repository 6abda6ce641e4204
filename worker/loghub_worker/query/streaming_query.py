"""The streaming query: delivers micro-batches to the sink, and restarts Spark's query after a failure.

A batch is read, passes through the user's query or function, and is written to the sink; only then do
positions and checkpoints advance.

Spark's own checkpoint directory is scratch space: it is emptied before each start. The ranges of a batch are
read from Spark's log in that directory, which is written before the batch begins.
"""

import json
import re
import secrets
import shutil
import threading
from dataclasses import dataclass
from pathlib import Path

import structlog
from py4j.protocol import Py4JNetworkError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from loghub.wire.errors import LogHubException
from loghub.worker_contract import WorkerConfig
from loghub_worker.batch_plan import BatchPlan, Range
from loghub_worker.exchange_files import ReadCount
from loghub_worker.log_service import ReportedError, reason_of_code, to_reported_error
from loghub_worker.membership.shard_manager import ShardManager
from loghub_worker.membership.shared_membership import SharedState
from loghub_worker.query.spark_session import SPARK_ERRORS, FatalError, first_lines
from loghub_worker.query.transform import WITHOUT_PANDAS, PipelineError, Transform
from loghub_worker.sink.commit_log import RangeTakenError, SessionLostError
from loghub_worker.sink.logstore import FORMAT
from loghub_worker.sink.sinks import BatchSink
from loghub_worker.source.datasource import SourceOptions

log = structlog.get_logger()

# Consecutive, without a batch between; from then on any failure not in `RETRIED_FOREVER` is fatal.
MAX_FAILURES = 10
MAX_PAUSE_S = 30.0
UNREACHABLE, PIPELINE_FAILED, PYTHON_TIMEOUT = "EndpointUnreachable", "PipelineFailed", "PythonWorkerTimeout"
SINK_UNAVAILABLE = "SinkUnavailable"
# Retries succeed once the endpoint is back, or other processes leave CPU.
RETRIED_FOREVER = (UNREACHABLE, PYTHON_TIMEOUT)
# Spark gives a new Python process ten seconds (docs/spark.md 8).
PYTHON_TIMEOUT_MESSAGE = "failed to connect back"
TRACEBACK = "Traceback (most recent call last):"


@dataclass(slots=True)
class QueryTotals:
    """What the worker has delivered since the process started."""

    rows: int = 0
    batches: int = 0
    discarded: int = 0  # batches that the membership or the commit log rejected
    replaced: int = 0  # texts with invalid UTF-8
    missing: int = 0  # log groups that expired before they were read
    seconds: float = 0.0  # spent in batches that reached the sink


@dataclass(frozen=True, slots=True, kw_only=True)
class QuerySettings:
    """The settings of the query, and the folders that it uses."""

    config: WorkerConfig
    consumer: str  # part of the name of each batch
    credentials_dir: str
    scratch: Path  # Spark's checkpoint directory, emptied before each start


class QueryRunner:
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
        config = settings.config
        self._trigger_interval_s = config.trigger_interval_s
        self._spark = spark
        self._shared_state = shared_state
        self._shard_manager = shard_manager
        self._transform = transform
        self._sink = sink
        self._exchange = shared_state.exchange
        self._clock = shared_state.clock
        self._scratch = settings.scratch
        self._consumer = settings.consumer
        self._options = SourceOptions(
            endpoint=config.endpoint,
            project=config.project,
            logstore=config.logstore,
            credentials_dir=settings.credentials_dir,
            exchange_dir=str(self._exchange.folder),
            fetch_interval_s=config.fetch_interval_s,
            max_log_groups=config.max_log_groups,
            max_bytes=config.max_bytes,
            cores=config.cores,
        )
        self._stop = threading.Event()
        self._failures = 0
        self._query: StreamingQuery | None = None
        self._batch_error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="query", daemon=True)
        self.totals = QueryTotals()
        self.error = ReportedError()
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
        except SPARK_ERRORS as error:
            if not self._stop.is_set():
                self._after_failure(error)
        finally:
            with self._shared_state.use() as (membership, _):
                membership.source_stopped()
        self._stop.wait(self._pause_s())

    def _start_query(self) -> StreamingQuery:
        shutil.rmtree(self._scratch, ignore_errors=True)
        rows = self._spark.readStream.format(FORMAT).option("settings", self._options.to_option()).load()
        return (
            rows.writeStream.foreachBatch(self._on_batch)
            .option("checkpointLocation", self._scratch.as_uri())
            .trigger(processingTime=f"{int(self._trigger_interval_s * 1000)} milliseconds")
            .start()
        )

    def _after_failure(self, error: Exception) -> None:
        if isinstance(error, Py4JNetworkError):
            raise FatalError(
                "SparkDriverExited",
                "Spark's JVM exited, often because it ran out of memory; raise spark.memory",
            ) from error
        self.error = query_error(self._batch_error or error)
        self._batch_error = None
        reason = self.error.reason
        self._failures += 1
        log.warning(
            "query failed", reason=reason, message=self.error.message, consecutive_failures=self._failures
        )
        if self._failures >= MAX_FAILURES and reason not in RETRIED_FOREVER:
            raise FatalError(reason, self.error.message) from error

    def _pause_s(self) -> float:
        if not self._failures:
            return 0.0
        doublings = min(self._failures - 1, 10)  # without the endpoint there may be thousands of failures
        return min(MAX_PAUSE_S, 2.0**doublings)

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
        began_s = self._clock.monotonic_s()
        if self._deliver(rows, plan):
            self.totals.batches += 1
            self.totals.seconds += self._clock.monotonic_s() - began_s
            self._failures = 0
            self.error = ReportedError()
            self._shard_manager.save_all()
        else:
            self.totals.discarded += 1

    def _deliver(self, rows: DataFrame, plan: BatchPlan) -> bool:
        """Deliver one batch. Returns False if the sink does not have it; the source then plans its ranges
        again."""
        if not self._may_commit(plan):
            return False
        batch = f"{self._consumer}-{secrets.token_hex(8)}"
        try:
            written = self._sink.write(self._transform(rows), batch)
            counts = {
                r.shard: self._exchange.take_count(plan=plan.number, shard=r.shard) for r in plan.ranges
            }
        except BaseException:
            self._sink.abort(batch)
            raise
        ranges = tuple(consumed_range(shard_range, counts[shard_range.shard]) for shard_range in plan.ranges)
        try:
            self._sink.publish(batch, ranges, lambda: self._may_commit(plan))
        except SessionLostError:
            log.warning("batch discarded: the session of this worker is over", batch=batch)
            return False
        except RangeTakenError as error:
            log.warning("batch discarded", batch=batch, message=str(error))
            self._reopen(plan)
            return False
        self.totals.rows += written
        self._count_losses(counts)
        self._record(ranges, counts)
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
            if count.replaced or count.missing:
                log.warning(
                    "invalid UTF-8 was replaced or log groups expired",
                    shard=shard,
                    invalid_utf8_values=count.replaced,
                    log_groups_expired=count.missing,
                )
            self.totals.replaced += count.replaced
            self.totals.missing += count.missing


def consumed_range(shard_range: Range, count: ReadCount) -> Range:
    """What is done once the range is read. If all of it has expired, that is everything before the oldest log
    group that exists: between two incarnations of a logstore lie more cursors than batches could ever work
    through."""
    return Range(shard_range.shard, shard_range.begin, max(shard_range.end, count.oldest))


def plan_of_batch(scratch: Path, number: int) -> BatchPlan:
    """The plan of a batch from Spark's log of it: a version line, a line of Spark's own, then one line for
    each source."""
    lines = (scratch / "offsets" / str(number)).read_text(encoding="utf-8").splitlines()
    return BatchPlan.from_json(json.loads(lines[-1]))


# The last line of a Python traceback, as Spark quotes it from its other processes.
_RAISED = re.compile(r"^(?:[a-z_]\w*\.)*(\w+): (.*)$")
_FRAME = re.compile(r'^ +File "([^"]+)", line (\d+), in (.+)$')
_SERVICE_ERROR = re.compile(r"^(\w+) \(HTTP")


def query_error(error: Exception) -> ReportedError:
    """Why a query failed. Errors of the service keep their reason although Spark passes them on as text. Most
    others are PipelineFailed with the message of the exception that was raised first."""
    if isinstance(error, LogHubException):
        return to_reported_error(error)
    if isinstance(error, PipelineError):
        return ReportedError(PIPELINE_FAILED, str(error))
    if isinstance(error, OSError):  # the user's arrive as PipelineError, and Spark raises types of its own
        return ReportedError(SINK_UNAVAILABLE, str(error))
    if not isinstance(error, SPARK_ERRORS):
        return ReportedError(PIPELINE_FAILED, f"{type(error).__name__}: {error}")
    if PYTHON_TIMEOUT_MESSAGE in str(error):
        return ReportedError(
            PYTHON_TIMEOUT,
            "Spark's Python processes did not start within ten seconds: raise worker.resources",
        )
    location = ""
    for line in str(error).partition(TRACEBACK)[2].splitlines():
        if (frame := _FRAME.match(line)) is not None:
            location = f" ({Path(frame[1]).name}:{frame[2]}, in {frame[3]})"
        if (raised := _RAISED.match(line)) is not None:
            return _error_in_line(raised[1], raised[2], location)
    return ReportedError(PIPELINE_FAILED, first_lines(error))


def _error_in_line(name: str, message: str, location: str) -> ReportedError:
    code = _SERVICE_ERROR.match(message)
    if name == UNREACHABLE:
        return ReportedError(UNREACHABLE, message)
    if name == "LogHubError" and code is not None:
        return ReportedError(reason_of_code(code[1]), message)
    # An import that fails in a user's function in Spark's own processes arrives only as text.
    advice = WITHOUT_PANDAS if message == "No module named 'pandas'" else ""
    return ReportedError(PIPELINE_FAILED, f"{name}: {message}{location}{advice}")
