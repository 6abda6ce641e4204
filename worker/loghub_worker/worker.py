"""One worker process: starts its parts in order, watches them, and stops them in order.

The order matters. The query or function is checked and Spark is warm before the first heartbeat, because the
service assigns shards to this worker from that heartbeat on, and they would idle meanwhile. At the end, the
shards drain while heartbeats continue.
"""

import hashlib
import random
import shutil
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import msgspec
import structlog
from pyspark.sql import DataFrame, SparkSession

from loghub.client.port import LogHub
from loghub.clock import Clock
from loghub.contract.worker import CopyPipeline, WorkerConfig, WorkerStatus
from loghub_consumer.errors import FatalError
from loghub_consumer.exchange_files import ExchangeFiles
from loghub_consumer.failure.dead_letter import checked_dead_letters
from loghub_consumer.failure.policy import hung_after_s
from loghub_consumer.log_service import ConsumerIdentity, ReportedError, connect
from loghub_consumer.membership.heartbeat import GroupWatch, Heartbeats
from loghub_consumer.membership.membership import Membership, MembershipTimings, MemberState, ShutdownMode
from loghub_consumer.membership.shard_manager import ParallelTasks, ShardManager
from loghub_consumer.membership.shard_opening import ShardOpening
from loghub_consumer.membership.shared_membership import SharedState
from loghub_consumer.user_code import place_code
from loghub_worker.metrics import Counter
from loghub_worker.query.engine import Way, is_likely_short, way_of
from loghub_worker.query.settings import QuerySettings
from loghub_worker.query.spark_jvm import COMPILERS, JAVA_OPTIONS, JvmMisjudgedError
from loghub_worker.query.spark_session import invalid, start_spark
from loghub_worker.query.stateful_plan import refuse_settings, refuse_unbounded
from loghub_worker.query.stateful_query import StatefulQueryRunner, stream_of_logs
from loghub_worker.query.streaming_query import QueryRunner, query_counters
from loghub_worker.query.transform import (
    Transform,
    checked_rows_of_batch,
    empty_logs,
    make_transform,
)
from loghub_worker.settings import WorkerSettings, is_drain_requested
from loghub_worker.sink.batch_sink import BatchSink
from loghub_worker.sink.sink_start import CredentialFiles, SinkStart
from loghub_worker.sink.sinks import make_sink
from loghub_worker.spark_errors import SPARK_ERRORS
from loghub_worker.state.ledger import StateIdentity, StateLedger
from loghub_worker.status import Moment, QueryProgress, ShardReadings, StatusPublisher, member_of, status_of

log = structlog.get_logger()


def checked_rows(transform: Transform, spark: SparkSession, settings: QuerySettings) -> DataFrame:
    """The rows of no logs, for a check of the sink. Raises `FatalError` ``InvalidPipeline``."""
    config = settings.config
    if config.stateful:
        rows = transform.check(stream_of_logs(spark, settings))
        refuse_unbounded(rows)
        return spark.createDataFrame([], rows.schema)
    return checked_rows_of_batch(transform, empty_logs(spark), per_batch=config.per_batch)


def state_identity(config: WorkerConfig) -> StateIdentity:
    """The identity of the state of these settings. The text of a query or function counts, but not what it
    reads from a volume or an image. Nor does the endpoint: a log service may get another name, a port or TLS,
    and its shards are known by when they were created."""
    parts = (config.project, config.logstore, config.consumer_group, config.pipeline)
    return StateIdentity(
        pipeline=_digest(parts), former=_digest((config.endpoint, *parts)), reset=config.reset
    )


def _digest(parts: tuple[object, ...]) -> str:
    return hashlib.sha256(msgspec.json.encode(parts, order="sorted")).hexdigest()


STEP_S = 0.4  # how often the drain file and the threads are checked; a drain begins as late
MAX_LEAVE_S = 10.0  # for the leave call of a worker that ends itself; its session ends in any case


class _StoppedAtStart(BaseException):
    """Ends the start of the worker when a stop is requested before the first heartbeat."""


class WorkerRuntime:
    """One worker process. `run` blocks until it ends."""

    def __init__(self, settings: WorkerSettings, clock: Clock) -> None:
        config = settings.config
        self._settings = settings
        self._config = config
        self._clock = clock
        self._stop = False  # a stop was requested
        self._ended = threading.Event()  # `run` is about to return
        self._address = settings.address
        self._identity = ConsumerIdentity(
            logstore=config.logstore, group=config.consumer_group, consumer=settings.consumer
        )
        self._exchange = ExchangeFiles(_empty_folder(settings.state_dir / "exchange"))
        timings = MembershipTimings.of(interval_s=config.heartbeat_interval_s, timeout_s=config.timeout_s)
        chance = random.SystemRandom().random
        self._shared_state = SharedState(
            Membership(timings, random=chance), self._exchange, clock, random=chance
        )
        self._heartbeat: Heartbeats | None = None
        self._group_watch: GroupWatch | None = None
        self._shard_manager: ShardManager | None = None
        self._query_runner: QueryRunner | None = None
        self._ledger: StateLedger | None = None  # of a stateful pipeline
        self._way: Way | None = None  # of the rows
        self._only_plans = False  # whether Spark's JVM is one that computes no rows
        self._failed = ReportedError()
        self._starting = False
        self._sink_start = SinkStart(self._wait_at_start, random=chance)
        self._publisher = StatusPublisher(settings, clock, self.status, self._counters)

    def request_stop(self) -> None:
        """Request a drain and then the end of the process. Only for a signal handler in the main thread.

        The worker stays a member of the group unless the operator requested that it leaves. Before the first
        heartbeat there is nothing to drain, so the start of Spark is interrupted and not waited for. The
        method acquires no lock, not even an event's: the interrupted thread may hold that same lock.
        """
        self._stop = True
        if self._starting:
            self._starting = False  # only once: a second signal must not interrupt the shutdown
            raise _StoppedAtStart

    def run(self) -> None:
        """Work until stopped. Raises `FatalError`; the phase in the status is then ``failed``. Raises
        `JvmMisjudgedError` if it must be started once more."""
        with self._publisher.publishing():
            try:
                self._start()
                self._serve()
                self._end()
            except _StoppedAtStart:
                log.info("stopped before the first heartbeat")
            except FatalError as fatal:
                self._failed = ReportedError(fatal.reason, fatal.message)
                raise
            finally:
                self._starting = False
                self._ended.set()

    # -- start

    def _start(self) -> None:
        self._starting = True
        self._end_if_stopped()
        if self._config.stateful:
            refuse_settings(self._config)
            self._ledger = self._open_ledger()
        sink = self._make_sink()
        dead_letters = checked_dead_letters(self._config, self._address, agent=self._agent())
        code = place_code(self._config.pipeline, self._settings.state_dir / "code")
        self._only_plans = self._expects_arrow(sink)
        spark = self._start_spark(code)
        transform = make_transform(self._config.pipeline, code)
        settings = QuerySettings(
            config=self._config,
            consumer=self._settings.consumer,
            address=self._address,
            exchange=self._exchange,
            scratch=self._settings.state_dir / "query" if self._ledger is None else self._ledger.checkpoint,
            journal=self._settings.state_dir / "attempts.json",
            dead_letters=dead_letters,
            ledger=self._ledger,
        )
        result = checked_rows(transform, spark, settings)
        self._end_if_stopped()
        way = self._choose_way(spark, result, sink)
        # A heartbeat that takes longer than an interval counts as failed: the next one is due.
        heartbeat_client = connect(
            self._address, agent=self._agent(), timeout_s=max(2.0, self._config.heartbeat_interval_s)
        )
        self._heartbeat = Heartbeats(self._shared_state, heartbeat_client, self._identity)
        client = connect(self._address, agent=self._agent())
        self._group_watch = GroupWatch(self._shared_state, client, self._identity)
        self._shard_manager = self._make_shard_manager(sink, client)
        runner = QueryRunner if self._ledger is None else StatefulQueryRunner
        self._query_runner = runner(
            replace(settings, selection=transform.selection, writing=way.writing),
            spark,
            self._shared_state,
            self._shard_manager,
            transform=transform,
            sink=sink,
        )
        with self._shared_state.use():
            pass  # writes the initial, empty positions
        self._query_runner.start()
        if way.writing is None:
            self._check_sink(partial(sink.check, result))  # while the query warms up
        self._wait_until_warm()
        self._starting = False
        self._shard_manager.start()
        self._heartbeat.start()
        self._group_watch.start()

    def _start_spark(self, code: Path | None) -> SparkSession:
        session = start_spark(
            self._config,
            _empty_folder(self._settings.state_dir / "spark"),
            class_archive=self._settings.class_archive,
            code=code,
            pod=self._settings.consumer,
            only_plans=self._only_plans,
        )
        self._end_if_stopped()
        return session

    @property
    def _misjudged(self) -> Path:
        """A file with the digest of a query that Arrow was expected to compute, and does not."""
        return self._settings.state_dir / "spark-computes"

    def _expects_arrow(self, sink: BatchSink) -> bool:
        """Whether to start a JVM that computes no rows, which costs a third less. The query is not yet known
        to Spark. A JVM whose compilers the user has chosen is neither kind."""
        if COMPILERS in self._config.spark_conf.get(JAVA_OPTIONS, ""):
            return False
        if self._misjudged.is_file() and self._misjudged.read_text() == _digest((self._config.pipeline,)):
            return False
        return is_likely_short(self._config, sink)

    def _choose_way(self, spark: SparkSession, result: DataFrame, sink: BatchSink) -> Way:
        """Choose the way of the rows. For the short one the sink is checked here: that takes no time, and
        Spark has nothing to warm up for it. Raises `JvmMisjudgedError`."""
        consumer = self._settings.consumer
        way = self._sink_start.take(partial(way_of, self._config, spark, result, sink, consumer=consumer))
        if not isinstance(self._config.pipeline, CopyPipeline):  # which has no rows
            log.info(f"rows are computed by {way.engine}", **({"why_not_arrow": way.why} if way.why else {}))
            self._way = way
        if way.writing is not None:
            self._check_sink(partial(sink.check, result))
        elif self._only_plans:
            self._misjudged.write_text(_digest((self._config.pipeline,)))
            raise JvmMisjudgedError
        return way

    def _check_sink(self, check: Callable[[], None]) -> None:
        try:
            self._sink_start.take(check)
        except (*SPARK_ERRORS, ValueError) as error:
            raise invalid(error) from error
        self._end_if_stopped()

    def _wait_at_start(self, seconds: float) -> None:
        deadline_s = self._clock.monotonic_s() + seconds
        while (left_s := deadline_s - self._clock.monotonic_s()) > 0:
            self._is_stopped_in(min(left_s, STEP_S))
            self._end_if_stopped()
            self._raise_failures()

    def _end_if_stopped(self) -> None:
        """End the start if a stop was requested. The exception of the signal handler may have been lost:
        Python ignores exceptions that are raised in a finalizer or in a hook at a fork, and Spark's start
        forks."""
        if self._stop:
            raise _StoppedAtStart

    def _make_sink(self) -> BatchSink:
        return self._sink_start.take(
            partial(
                make_sink,
                self._config,
                consumer=self._settings.consumer,
                source=self._address,
                sink_credentials=CredentialFiles(self._settings.sink_credentials_dir),
                scratch=self._exchange.folder,
            )
        )

    def _open_ledger(self) -> StateLedger:
        try:
            return StateLedger(self._settings.state_dir / "stateful", state_identity(self._config))
        except OSError as error:
            raise FatalError("StateUnavailable", str(error)) from error

    def _make_shard_manager(self, sink: BatchSink, client: LogHub) -> ShardManager:
        return ShardManager(
            self._shared_state,
            client,
            ShardOpening(client, sink, self._identity, config=self._config, history=self._ledger),
            self._identity,
            config=self._config,
            tasks=ParallelTasks(),
        )

    def _agent(self) -> str:
        return f"{self._config.consumer_group}/{self._settings.consumer}"

    def _wait_until_warm(self) -> None:
        """Wait until the source has planned for the first time. The bound is the query runner's limit of
        failures and not a time: a worker that joins before it can read only keeps shards from workers that
        can."""
        runner = self._query_runner
        while self._exchange.report().version < 0 and not (runner and runner.waits_for_shards):
            self._raise_failures()
            self._is_stopped_in(0.05)
            self._end_if_stopped()

    # -- serve

    def _serve(self) -> None:
        while not self._is_stopped_in(STEP_S):
            self._raise_failures()
            if is_drain_requested(self._settings.drain_file):
                self._drain(ShutdownMode.LEAVE)
                self._await_stop()

    def _await_stop(self) -> None:
        """Wait for the stop after the worker has left the group. The operator ends such a process; if it
        ended itself, it would be restarted."""
        while not self._is_stopped_in(STEP_S):
            if not self._has_left():
                self._raise_failures()

    def _is_stopped_in(self, seconds: float) -> bool:
        self._ended.wait(0.0 if self._stop else seconds)
        return self._stop

    def _has_left(self) -> bool:
        with self._shared_state.use() as (membership, _):
            return membership.state is MemberState.LEFT

    def _raise_failures(self) -> None:
        self._end_if_hung()
        parts = (self._heartbeat, self._group_watch, self._shard_manager, self._query_runner)
        for failure in (part.failure for part in parts if part is not None):
            if isinstance(failure, FatalError):
                raise failure
            if failure is not None:
                raise FatalError("InternalError", f"{type(failure).__name__}: {failure}") from failure

    def _end_if_hung(self) -> None:
        """Cancel a batch that exceeds its timeout. If it does not end, leave the group, so that other workers
        continue with the shards, and end the process."""
        failure = self._query_runner.enforce_timeout() if self._query_runner is not None else None
        if failure is None:
            return
        log.error("the batch cannot be cancelled; giving up all shards", message=failure.message)
        with self._shared_state.use() as (membership, _):
            membership.abandon()
        deadline_s = self._clock.monotonic_s() + MAX_LEAVE_S
        since = self._shared_state.changes
        while not self._has_left() and self._clock.monotonic_s() < deadline_s:
            self._shared_state.wait(since, STEP_S)
            since = self._shared_state.changes
        raise FatalError(failure.reason, f"{failure.message} and cannot be cancelled")

    # -- shutdown

    def _end(self) -> None:
        if not self._has_left():
            self._drain(
                ShutdownMode.LEAVE if is_drain_requested(self._settings.drain_file) else ShutdownMode.STOP
            )
        for part in (self._group_watch, self._heartbeat, self._shard_manager, self._query_runner):
            if part is not None:
                part.stop()

    def _drain(self, mode: ShutdownMode) -> None:
        """Deliver the batch in progress and save its checkpoints. The drain timeout bounds the wait."""
        log.info("draining", mode=mode)
        with self._shared_state.use() as (membership, _):
            membership.set_shutdown_mode(mode)
        deadline_s = self._clock.monotonic_s() + self._config.drain_timeout_s
        since = self._shared_state.changes
        while not self._is_drained(mode):
            left_s = deadline_s - self._clock.monotonic_s()
            if left_s <= 0:
                log.warning("drain timeout: the next holder of the shards delivers what is not yet saved")
                return
            self._raise_failures()
            self._shared_state.wait(since, min(left_s, STEP_S))
            since = self._shared_state.changes  # before the next check, so that no change is missed

    def _is_drained(self, mode: ShutdownMode) -> bool:
        if mode is ShutdownMode.LEAVE:
            return self._has_left()
        with self._shared_state.use() as (membership, _):
            return membership.drained

    # -- status and metrics

    def status(self) -> WorkerStatus:
        """The current status of the worker."""
        with self._shared_state.use() as (membership, now):
            query = self._query_progress(membership)
            status = status_of(
                member_of(membership),
                name=self._settings.consumer,
                now=Moment(monotonic_s=now, unix_s=self._clock.unix_s()),
                error=self._current_error(query),
                query=query,
                readings=self._shard_readings(),
            )
        status = msgspec.structs.replace(status, ignored_settings=list(self._settings.ignored))
        if (way := self._way) is not None:
            status = msgspec.structs.replace(status, engine=way.engine, why_spark=way.why)
        return msgspec.structs.replace(status, phase="failed") if self._failed.reason else status

    def _shard_readings(self) -> ShardReadings:
        manager = self._shard_manager
        if manager is None:
            return ShardReadings()
        # A copy, because the shard manager's threads change the original.
        return ShardReadings(
            oldest_unix_s=dict(manager.oldest_unix_s),
            beyond_end=manager.beyond_end,
            continued=dict(manager.opening.continued),
        )

    def _query_progress(self, membership: Membership) -> QueryProgress:
        limit_s, runner = hung_after_s(self._config.batch_timeout_s), self._query_runner
        if runner is None:
            return QueryProgress(batch_hung_after_s=limit_s)
        positions = {s.shard: s.position for s in membership.shards if s.position is not None}
        return QueryProgress(
            rows=runner.totals.rows,
            batch_age_s=runner.batch_age_s,
            batch_hung_after_s=limit_s,
            failures=runner.failure_report(positions),
            incomplete={} if self._ledger is None else self._ledger.incomplete(positions),
            state=None if self._ledger is None else self._ledger.figures,
        )

    def _current_error(self, query: QueryProgress) -> ReportedError:
        """The first error of the parts, the closest to the cause first; empty if there is none."""
        errors = [self._failed, self._shared_state.error, self._sink_start.error]
        if self._heartbeat and self._shard_manager and self._query_runner:
            shard_manager = self._shard_manager
            errors += [
                self._heartbeat.error,
                self._query_runner.error,
                query.failures.error,
                shard_manager.error,
                shard_manager.source_error,
            ]
        return next((error for error in errors if error.reason), ReportedError())

    def _counters(self) -> tuple[Counter, ...]:
        if (query := self._query_runner) is None:
            return ()
        return query_counters(query.totals, query.failures.report({}).totals)


def _empty_folder(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder
