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

from loghub.clock import Clock
from loghub.wire.errors import LogHubException
from loghub.worker_contract import WorkerConfig
from loghub_worker.batch_plan import Plan, Range
from loghub_worker.exchange_files import Count, Handover
from loghub_worker.log_service import ServiceError, reason_of_code, trouble_of
from loghub_worker.membership.shard_manager import ShardManager
from loghub_worker.membership.shared_state import SharedState
from loghub_worker.query.spark_session import SPARK_ERRORS, FatalError, first_lines
from loghub_worker.query.transform import WITHOUT_PANDAS, PipelineError, Transform
from loghub_worker.sink.commit_log import LeaseLostError, RangeTakenError
from loghub_worker.sink.logstore import FORMAT
from loghub_worker.sink.sinks import Sink
from loghub_worker.source.datasource import Options

log = structlog.get_logger()

MOST_FAILURES = 10  # consecutive, without a batch between; from then on any failure not in `HEALS` is fatal
LONGEST_PAUSE_S = 30.0
UNREACHABLE, FAILED, STARVED = "EndpointUnreachable", "PipelineFailed", "PythonWorkerTimeout"
UNUSABLE = "SinkUnavailable"
HEALS = (UNREACHABLE, STARVED)  # retries succeed once the endpoint is back, or other processes leave CPU
LATE = "failed to connect back"  # Spark gives a new Python process ten seconds (docs/spark.md 8)
TRACEBACK = "Traceback (most recent call last):"


@dataclass(slots=True)
class Tally:
    """What the job has done since the process started."""

    rows: int = 0
    batches: int = 0
    refused: int = 0  # batches that the membership or the commit log rejected
    replaced: int = 0  # texts with invalid UTF-8
    missing: int = 0  # log groups that expired before they were read
    seconds: float = 0.0  # spent in batches that reached the sink


class Job:
    """One query at a time, in one thread of its own."""

    def __init__(
        self,
        config: WorkerConfig,
        spark: SparkSession,
        *,
        session: SharedState,
        keeper: ShardManager,
        transform: Transform,
        sink: Sink,
        handover: Handover,
        clock: Clock,
        credentials_dir: str,
        scratch: Path,
        name: str,
    ) -> None:
        self._config = config
        self._spark = spark
        self._session = session
        self._keeper = keeper
        self._transform = transform
        self._sink = sink
        self._handover = handover
        self._clock = clock
        self._scratch = scratch
        self._name = name
        self._options = Options(
            endpoint=config.endpoint,
            project=config.project,
            logstore=config.logstore,
            credentials_dir=credentials_dir,
            handover=str(handover.folder),
            fetch_interval_s=config.fetch_interval_s,
            max_log_groups=config.max_log_groups,
            max_bytes=config.max_bytes,
            cores=config.cores,
        )
        self._stop = threading.Event()
        self._failures = 0
        self._query: StreamingQuery | None = None
        self._batch_error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="job", daemon=True)
        self.tally = Tally()
        self.trouble = ServiceError()
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
        with self._session.use() as (consumer, _):
            consumer.source_started()
        try:
            self._query = self._start_query()
            self._query.awaitTermination()
        except SPARK_ERRORS as error:
            if not self._stop.is_set():
                self._after_failure(error)
        finally:
            with self._session.use() as (consumer, _):
                consumer.source_stopped()
        self._stop.wait(self._pause_s())

    def _start_query(self) -> StreamingQuery:
        shutil.rmtree(self._scratch, ignore_errors=True)
        rows = self._spark.readStream.format(FORMAT).option("settings", self._options.to_option()).load()
        return (
            rows.writeStream.foreachBatch(self._on_batch)
            .option("checkpointLocation", self._scratch.as_uri())
            .trigger(processingTime=f"{int(self._config.trigger_interval_s * 1000)} milliseconds")
            .start()
        )

    def _after_failure(self, error: Exception) -> None:
        if isinstance(error, Py4JNetworkError):
            raise FatalError(
                "SparkDriverExited", "Spark's JVM has ended; perhaps it had too little memory"
            ) from error
        self.trouble = trouble_in(self._batch_error or error)
        self._batch_error = None
        reason = self.trouble.reason
        self._failures += 1
        log.warning("query failed", reason=reason, message=self.trouble.message, in_a_row=self._failures)
        if self._failures >= MOST_FAILURES and reason not in HEALS:
            raise FatalError(reason, self.trouble.message) from error

    def _pause_s(self) -> float:
        if not self._failures:
            return 0.0
        doublings = min(self._failures - 1, 10)  # without the endpoint there may be thousands of failures
        return min(LONGEST_PAUSE_S, 2.0**doublings)

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
            self.tally.batches += 1
            self.tally.seconds += self._clock.monotonic_s() - began_s
            self._failures = 0
            self.trouble = ServiceError()
            self._keeper.save_all()
        else:
            self.tally.refused += 1

    def _deliver(self, rows: DataFrame, plan: Plan) -> bool:
        """Deliver one batch. Returns False if the sink does not have it; the source then plans its ranges
        again."""
        if not self._may_commit(plan):
            return False
        batch = f"{self._name}-{secrets.token_hex(8)}"
        try:
            written = self._sink.write(self._transform(rows), batch)
            counts = {
                r.shard: self._handover.take_count(plan=plan.number, shard=r.shard) for r in plan.ranges
            }
        except BaseException:
            self._sink.abort(batch)
            raise
        ranges = tuple(reached(piece, counts[piece.shard]) for piece in plan.ranges)
        try:
            self._sink.publish(batch, ranges, lambda: self._may_commit(plan))
        except LeaseLostError:
            log.warning("batch thrown away: lease lost", batch=batch)
            return False
        except RangeTakenError as error:
            log.warning("batch thrown away", batch=batch, message=str(error))
            self._reopen(plan)
            return False
        self.tally.rows += written
        self._note_losses(counts)
        self._record(ranges, counts)
        return True

    def _may_commit(self, plan: Plan) -> bool:
        with self._session.use() as (consumer, now):
            return consumer.may_commit(plan.ranges, now=now)

    def _reopen(self, plan: Plan) -> None:
        with self._session.use() as (consumer, _):
            for piece in plan.ranges:
                consumer.reopen(piece.shard)

    def _record(self, ranges: tuple[Range, ...], counts: dict[int, Count]) -> None:
        with self._session.use() as (consumer, _):
            consumer.committed(
                ranges,
                logs={shard: count.logs for shard, count in counts.items()},
                read_bytes={shard: count.bytes for shard, count in counts.items()},
            )

    def _note_losses(self, counts: dict[int, Count]) -> None:
        for shard, count in counts.items():
            if count.replaced or count.missing:
                log.warning(
                    "texts replaced or groups expired",
                    shard=shard,
                    texts=count.replaced,
                    groups=count.missing,
                )
            self.tally.replaced += count.replaced
            self.tally.missing += count.missing


def reached(piece: Range, count: Count) -> Range:
    """What is done once the range is read. If all of it has expired, that is everything before the oldest log
    group that exists: between two incarnations of a logstore lie more cursors than batches could ever work
    through."""
    return Range(piece.shard, piece.begin, max(piece.end, count.oldest))


def plan_of_batch(scratch: Path, number: int) -> Plan:
    """The plan of a batch from Spark's log of it: a version line, a line of Spark's own, then one line for
    each source."""
    lines = (scratch / "offsets" / str(number)).read_text(encoding="utf-8").splitlines()
    return Plan.from_json(json.loads(lines[-1]))


# The last line of a Python traceback, as Spark quotes it from its other processes.
_RAISED = re.compile(r"^(?:[a-z_]\w*\.)*(\w+): (.*)$")
_FRAME = re.compile(r'^ +File "([^"]+)", line (\d+), in (.+)$')
_SERVICE_ERROR = re.compile(r"^(\w+) \(HTTP")


def trouble_in(error: Exception) -> ServiceError:
    """Why a query failed. Errors of the service keep their reason although Spark passes them on as text. Most
    others are PipelineFailed with the message of the exception that was raised first."""
    if isinstance(error, LogHubException):
        return trouble_of(error)
    if isinstance(error, PipelineError):
        return ServiceError(FAILED, str(error))
    if isinstance(error, OSError):  # the user's arrive as PipelineError, and Spark raises types of its own
        return ServiceError(UNUSABLE, str(error))
    if not isinstance(error, SPARK_ERRORS):
        return ServiceError(FAILED, f"{type(error).__name__}: {error}")
    if LATE in str(error):
        return ServiceError(
            STARVED, "Spark's Python processes did not start within ten seconds: too little CPU"
        )
    place = ""
    for line in str(error).partition(TRACEBACK)[2].splitlines():
        if (frame := _FRAME.match(line)) is not None:
            place = f" ({Path(frame[1]).name}:{frame[2]}, in {frame[3]})"
        if (found := _RAISED.match(line)) is not None:
            return _trouble_of_line(found[1], found[2], place)
    return ServiceError(FAILED, first_lines(error))


def _trouble_of_line(name: str, message: str, place: str) -> ServiceError:
    code = _SERVICE_ERROR.match(message)
    if name == UNREACHABLE:
        return ServiceError(UNREACHABLE, message)
    if name == "LogHubError" and code is not None:
        return ServiceError(reason_of_code(code[1]), message)
    # An import that fails in a user's function in Spark's own processes arrives only as text.
    advice = WITHOUT_PANDAS if message == "No module named 'pandas'" else ""
    return ServiceError(FAILED, f"{name}: {message}{place}{advice}")
