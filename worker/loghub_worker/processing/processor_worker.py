"""One worker process whose pipeline is a processor: puts the parts together and reports about them.

This process is the member of the group: it sends the heartbeats, pulls, and saves checkpoints, all as a
`loghub_consumer` consumer does. The user's code runs in other processes (`loghub_consumer.processes`), so
nothing that it does delays a heartbeat, and a process that hangs or crashes is replaced while the shards stay
here.
"""

import math
import os
import random
import threading
from functools import partial
from pathlib import Path

import msgspec
import structlog

from loghub.backoff import Backoff
from loghub.client.credentials_dir import read_key
from loghub.clock import Clock
from loghub.contract.processor import ProcessorPipeline
from loghub.contract.worker import WorkerReason, WorkerStatus
from loghub.freed_memory import limit_freed_memory
from loghub.wire.errors import LogHubException
from loghub_consumer.acknowledgments import DeliveryCounts
from loghub_consumer.consumer import Consumer, retry_settings
from loghub_consumer.errors import FatalError
from loghub_consumer.failure.handler import FailureReport
from loghub_consumer.failure.policy import hung_after_s
from loghub_consumer.log_service import ReportedError, to_reported_error
from loghub_consumer.membership.membership import Membership, MembershipTimings
from loghub_consumer.membership.shard_manager import ShardManager
from loghub_consumer.processes.child_process import ProcessPool, ProcessSettings
from loghub_consumer.processes.messages import Load
from loghub_consumer.processes.remote_processor import (
    ProcessorCounts,
    RemoteListener,
    RemoteParts,
    RemoteProcessor,
    has_hung,
)
from loghub_consumer.running_batches import RunningBatches
from loghub_consumer.settings import (
    MIN_FETCH_INTERVAL_S,
    ConsumerSettings,
    SubscriptionOptions,
    WorkerOptions,
    connect,
    group_timeout_s,
)
from loghub_consumer.user_code import place_code
from loghub_worker.metrics import Counter, processor_counters
from loghub_worker.settings import WorkerSettings, is_drain_requested
from loghub_worker.status import (
    MemberReport,
    Moment,
    QueryProgress,
    ShardReadings,
    StatusPublisher,
    member_of,
    member_of_subscription,
    status_of,
)

log = structlog.get_logger()


CPU_MAX = Path("/sys/fs/cgroup/cpu.max")  # of a container with a limit: quota and period


def available_cores(cpu_max: Path = CPU_MAX) -> int:
    """The cores of the machine that the process may use, or the cores of a container's limit, rounded up."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = cpu_max.read_text().split()
        return max(1, min(allowed, math.ceil(int(quota) / int(period))))
    except (OSError, ValueError):  # no such file, or no limit: max
        return allowed


STEP_S = 0.2  # how often the drain file and the processes are checked; a drain begins as late
RESTART_S = 1.0  # the first pause after a process has ended; a new one is there in about a second
MIN_BUFFERED_BYTES = 32 << 20  # three answers of a pull of 10 MiB, so that shards are read while others work


class ProcessorWorker:
    """One worker process. `run` blocks until it ends."""

    def __init__(self, settings: WorkerSettings, clock: Clock) -> None:
        config = settings.config
        assert isinstance(config.pipeline, ProcessorPipeline)
        settings.state_dir.mkdir(parents=True, exist_ok=True)
        self._settings = settings
        self._config = config
        self._pipeline = config.pipeline
        self._clock = clock
        self._random = random.SystemRandom().random
        self._stop = False
        self._ended = threading.Event()
        self._failed = ReportedError()
        self._not_ready = ReportedError()
        self._consumer: Consumer | None = None
        self._pool: ProcessPool | None = None
        self._counts = ProcessorCounts()
        timings = MembershipTimings.of(interval_s=config.heartbeat_interval_s, timeout_s=config.timeout_s)
        self._not_joined = Membership(timings)
        self._publisher = StatusPublisher(settings, clock, self.status, self._counters)

    def request_stop(self) -> None:
        """Request a drain and then the end of the process. Only for a signal handler in the main thread."""
        self._stop = True
        if self._consumer is not None:
            self._consumer.wakeup()

    def run(self) -> None:
        """Work until stopped. Raises `FatalError`; the phase in the status is then ``failed``."""
        with self._publisher.publishing():
            try:
                self._work()
            except FatalError as fatal:
                self._failed = ReportedError(fatal.reason, fatal.message)
                raise
            finally:
                self._ended.set()
                if self._pool is not None:
                    self._pool.close()

    def _work(self) -> None:
        limit_freed_memory()
        code = place_code(self._pipeline, self._settings.state_dir / "code")
        self._pool = self._make_pool(code)
        first = self._pool.start_first()  # while this process prepares itself
        consumer = self._make_consumer(self._pool)
        while not first.loaded:
            if self._stop:
                log.info("stopped before the first heartbeat")
                return
            if self._pool.failure is not None:
                raise self._pool.failure
            self._ended.wait(0.02)
        if consumer is None:
            if self._pool.failure is not None:
                raise self._pool.failure
            return
        self._consumer = consumer
        if self._stop:
            return
        threading.Thread(target=self._watch, args=(consumer, self._pool), name="watch", daemon=True).start()
        try:
            consumer.run()
        except LogHubException as error:  # a repetition does not change it
            reported = to_reported_error(error)
            raise FatalError(reported.reason, reported.message) from error
        self._await_stop()

    def _await_stop(self) -> None:
        """Wait for the stop after the worker has left the group. The operator ends such a process; if it
        ended itself, it would be restarted."""
        while not self._stop:
            self._ended.wait(STEP_S)

    def _watch(self, consumer: Consumer, pool: ProcessPool) -> None:
        """End the consumer if the operator asks for it, or if the processes cannot go on."""
        while not self._ended.wait(STEP_S):
            if pool.failure is not None:
                consumer.fail(pool.failure)
                return
            if is_drain_requested(self._settings.drain_file):
                log.info("draining", mode="leave")
                consumer.leave()
                return

    # -- parts

    def _make_pool(self, code: Path | None) -> ProcessPool:
        pipeline = self._pipeline
        by_log, times_out = pipeline.acknowledge == "log", pipeline.ack_timeout_s is not None
        folder = str(code) if code is not None else None
        load = Load(pipeline.factory, folder, by_log, pipeline.listener, times_out)
        settings = ProcessSettings(
            load=load,
            load_timeout_s=self._pipeline.load_timeout_s,
            load_setting="pipeline.processor.loadTimeoutSeconds",
            environment=os.environ,
            send_timeout_s=self._config.batch_timeout_s,
            random=self._random,
        )
        return ProcessPool(self._pipeline.processes or available_cores(), settings)

    def _retry_timeout_s(self, settings: ConsumerSettings) -> int | None:
        """The timeout of the group in the retry logstore, which is created; requested until it is known. None
        if there is no retry logstore, or if the worker ends before."""
        of_retries = retry_settings(settings)
        if of_retries is None:
            return None
        backoff = Backoff(first_s=1.0, max_s=30.0, random=self._random)
        client, failures = connect(of_retries), 0
        try:
            while not self._is_ending():
                try:
                    return group_timeout_s(client, of_retries)
                except LogHubException as error:
                    self._not_ready = to_reported_error(error)
                    log.warning("the retry logstore cannot be used", message=str(error))
                failures += 1
                next_s = self._clock.monotonic_s() + backoff.pause_s(failures)
                while self._clock.monotonic_s() < next_s and not self._is_ending():
                    self._ended.wait(STEP_S)
            return None
        finally:
            client.close()
            self._not_ready = ReportedError()

    def _is_ending(self) -> bool:
        return self._stop or (self._pool is not None and self._pool.failure is not None)

    def _make_consumer(self, pool: ProcessPool) -> Consumer | None:
        """None if the worker is stopped before."""
        config, settings = self._config, consumer_settings(self._settings)
        retry_timeout_s = self._retry_timeout_s(settings)
        if settings.retry is not None and retry_timeout_s is None:
            return None
        parts = self._remote_parts(pool)
        factory = partial(RemoteProcessor, parts)
        options = WorkerOptions(
            timeout_s=config.timeout_s,
            retry_timeout_s=retry_timeout_s,
            state_dir=self._settings.state_dir,
            batch_timeout_s=config.batch_timeout_s,
            restart_s=RESTART_S,
            retry_factory=partial(RemoteProcessor, parts.of_retries()),
            running=RunningBatches(self._settings.state_dir),
        )
        consumer = Consumer(settings, factory, RemoteListener(pool), worker=options)
        try:
            consumer.check()
        except OSError as error:
            raise FatalError(WorkerReason.DEAD_LETTER_UNAVAILABLE.value, str(error)) from error
        return consumer

    def _remote_parts(self, pool: ProcessPool) -> RemoteParts:
        return RemoteParts(
            pool=pool,
            counts=self._counts,
            clock=self._clock,
            timeout_s=self._config.batch_timeout_s,
            has_hung=lambda shard: has_hung(self._failure_report(), shard),
        )

    # -- status

    def status(self) -> WorkerStatus:
        """The current status of the worker."""
        # Before the lock of the membership is taken: elsewhere, the locks of this report are held around it.
        failures = self._failure_report()
        error = self._current_error(failures)

        def shown(member: MemberReport, now: float, manager: ShardManager | None) -> WorkerStatus:
            return status_of(
                member,
                name=self._settings.consumer,
                now=Moment(monotonic_s=now, unix_s=self._clock.unix_s()),
                error=error,
                query=self._progress(failures, now),
                readings=_readings(manager),
            )

        def view(membership: Membership, now: float, manager: ShardManager | None) -> WorkerStatus:
            return shown(member_of(membership), now, manager)

        consumer, now = self._consumer, self._clock.monotonic_s()
        session = None if consumer is None else consumer.session()
        if session is not None:
            status = shown(member_of_subscription(session), now, None)
        else:
            found = None if consumer is None else consumer.inspect(view)
            status = found or view(self._not_joined, now, None)
        logs = self._counts.logs
        return msgspec.structs.replace(
            status,
            phase="failed" if self._failed.reason else status.phase,
            ignored_settings=list(self._settings.ignored),
            processes=[] if self._pool is None else self._pool.progress(),
            shards=[msgspec.structs.replace(one, logs=logs.get(one.shard, 0)) for one in status.shards],
        )

    def _progress(self, failures: FailureReport, now: float) -> QueryProgress:
        since_s = min(tuple(self._counts.running_since_s.values()), default=None)
        return QueryProgress(
            rows=sum(self._counts.logs.copy().values()),
            batch_age_s=None if since_s is None else now - since_s,
            batch_hung_after_s=hung_after_s(self._config.batch_timeout_s),
            failures=failures,
        )

    def _failure_report(self) -> FailureReport:
        return FailureReport() if self._consumer is None else self._consumer.failure_report()

    def _current_error(self, failures: FailureReport) -> ReportedError:
        """The first error, the closest to the cause first; empty if there is none."""
        if self._failed.reason or self._consumer is None:
            return self._failed if self._failed.reason else self._not_ready
        of_consumer = [ReportedError(one.reason, one.message) for one in self._consumer.errors()]
        return next((error for error in (failures.error, *of_consumer) if error.reason), ReportedError())

    def _counters(self) -> tuple[Counter, ...]:
        progress = [] if self._pool is None else self._pool.progress()
        consumer = self._consumer
        deliveries = DeliveryCounts() if consumer is None else consumer.delivery_counts()
        return processor_counters(self._counts, self._failure_report(), progress, deliveries)


def consumer_settings(settings: WorkerSettings) -> ConsumerSettings:
    """The settings of the consumer in a worker with a processor."""
    config, pipeline = settings.config, settings.config.pipeline
    assert isinstance(pipeline, ProcessorPipeline)
    return ConsumerSettings(
        endpoint=config.endpoint,
        project=config.project,
        logstore=config.logstore,
        consumer_group=config.consumer_group,
        consumer=settings.consumer,
        credentials=partial(read_key, Path(settings.credentials_dir)),
        client=settings.client,
        start_position=config.start_position,
        last_initial_shard=config.last_initial_shard if pipeline.subscription is None else None,
        subscription=_subscription(pipeline),
        heartbeat_interval_s=config.heartbeat_interval_s,
        fetch_interval_s=max(MIN_FETCH_INTERVAL_S, config.fetch_interval_s),
        checkpoint_interval_s=config.checkpoint_interval_s,
        max_logs=pipeline.max_logs,
        max_bytes=pipeline.max_bytes,
        max_wait_s=pipeline.max_wait_s,
        max_buffered_bytes=max(MIN_BUFFERED_BYTES, 2 * pipeline.max_bytes),
        acknowledge=pipeline.acknowledge,
        redelivery_delay_s=pipeline.redelivery_delay_s,
        max_redelivery_delay_s=pipeline.max_redelivery_delay_s,
        ack_timeout_s=pipeline.ack_timeout_s,
        max_ack_timeout_s=pipeline.max_ack_timeout_s,
        max_unacknowledged=pipeline.max_unacknowledged,
        on_failure=config.on_failure,
        retry=pipeline.retry,
        timeout_s=config.timeout_s,
        drain_timeout_s=config.drain_timeout_s,
        leave=is_drain_requested(settings.drain_file),
    )


def _subscription(pipeline: ProcessorPipeline) -> SubscriptionOptions | None:
    """The operator has created the subscription, with its key and order."""
    wanted = pipeline.subscription
    return None if wanted is None else SubscriptionOptions(type=wanted.type, priority=wanted.priority)


def _readings(manager: ShardManager | None) -> ShardReadings:
    if manager is None:
        return ShardReadings()
    # A copy, because the shard manager's threads change the original.
    return ShardReadings(oldest_unix_s=dict(manager.oldest_unix_s), beyond_end=manager.beyond_end)
