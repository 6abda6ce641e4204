"""The pipeline: Spark's streaming query, batch by batch into the sink, and its restarts.

What for: a batch is read, goes through the user's query or function into the sink, and only then do positions
and checkpoints move. What it must not know: how beats are sent.
Read next: `loghub_worker.source.datasource`, `loghub_worker.sink.sinks`,
`loghub_worker.membership.state.Membership.may_commit`.

Spark's own checkpoint is scratch: it is emptied before each start, and what a batch holds is read
from Spark's log of it there, which is written before the batch begins.
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

MOST_FAILURES = 10  # in a row, without a batch between, other than for want of the endpoint or of CPU
LONGEST_PAUSE_S = 30.0
UNREACHABLE, FAILED, STARVED = "EndpointUnreachable", "PipelineFailed", "PythonWorkerTimeout"
UNUSABLE = "SinkUnavailable"
HEALS = (UNREACHABLE, STARVED)  # trying again helps as soon as others are done
LATE = "failed to connect back"  # Spark gives a new Python process ten seconds (docs/spark.md 8)
TRACEBACK = "Traceback (most recent call last):"


@dataclass(slots=True)
class Tally:
    """What the job has done since the process began."""

    rows: int = 0
    batches: int = 0
    refused: int = 0  # batches that the membership or the ledger did not let through
    replaced: int = 0  # texts that were not UTF-8
    missing: int = 0  # log groups that had expired
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
        """End the query; a batch under way is thrown away."""
        self._stop.set()
        query = self._query
        if query is not None:
            threading.Thread(target=query.stop, daemon=True).start()
        self._thread.join(timeout_s)

    # -- the query's life

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
        doublings = min(self._failures - 1, 10)  # for want of the endpoint there may be thousands
        return min(LONGEST_PAUSE_S, 2.0**doublings)

    # -- one batch

    def _on_batch(self, rows: DataFrame, number: int) -> None:
        """Called by Spark in this process. What it raises ends the query, and nothing was saved."""
        try:
            self._process(rows, number)
        except Exception as error:
            self._batch_error = error  # Spark tells it only as a text around it
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
        """Whether the sink has the batch. If not, the source plans its ranges anew."""
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
    """What is done once the range is read. Where all of it has expired, that is all before the oldest log
    group there is: between two lives of a logstore lie more cursors than batches would ever get through."""
    return Range(piece.shard, piece.begin, max(piece.end, count.oldest))


def plan_of_batch(scratch: Path, number: int) -> Plan:
    """The plan of a batch from Spark's log of it: a version line, a line of Spark's, then one line
    for each source."""
    lines = (scratch / "offsets" / str(number)).read_text(encoding="utf-8").splitlines()
    return Plan.from_json(json.loads(lines[-1]))


# The last line of a Python traceback, as Spark quotes it from its other processes.
_RAISED = re.compile(r"^(?:[a-z_]\w*\.)*(\w+): (.*)$")
_FRAME = re.compile(r'^ +File "([^"]+)", line (\d+), in (.+)$')
_SERVICE_ERROR = re.compile(r"^(\w+) \(HTTP")


def trouble_in(error: Exception) -> ServiceError:
    """Why a query died. Errors of the service keep their word although Spark hands them through as
    text; for the rest it is PipelineFailed with the message of what was raised first."""
    if isinstance(error, LogHubException):
        return trouble_of(error)
    if isinstance(error, PipelineError):
        return ServiceError(FAILED, str(error))
    if isinstance(error, OSError):  # the user's are PipelineErrors, Spark's its own
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
    # What a function of the user's imports in Spark's own processes comes as a text alone.
    advice = WITHOUT_PANDAS if message == "No module named 'pandas'" else ""
    return ServiceError(FAILED, f"{name}: {message}{place}{advice}")
