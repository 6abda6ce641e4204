"""One worker process whose pipeline is a processor: puts the parts together and reports about them.

This process is the member of the group: it sends the heartbeats, pulls, and saves checkpoints, all as a
`loghub_worker.api` consumer does. The user's code runs in other processes
(`loghub_worker.processing.process_pool`), so nothing that it does delays a heartbeat, and one that hangs or
crashes is replaced while the shards stay here.
"""

import os
import random
import threading
from dataclasses import replace
from functools import partial
from pathlib import Path

import msgspec
import structlog

from loghub.clock import Clock
from loghub.processor_settings import ProcessorPipeline
from loghub.worker_contract import WorkerStatus
from loghub_worker.consumer.consumer import Consumer
from loghub_worker.consumer.processor import Listener
from loghub_worker.consumer.settings import LEAST_FETCH_INTERVAL_S, ConsumerSettings
from loghub_worker.failure.batch_deadline import hung_after_s
from loghub_worker.failure.dead_letter import checked_dead_letters
from loghub_worker.failure.failure_handler import FailureReport
from loghub_worker.failure.skip_limits import failure_settings
from loghub_worker.fatal_error import FatalError
from loghub_worker.log_service import Address, ReportedError, read_credentials
from loghub_worker.membership.membership import Membership, MembershipTimings
from loghub_worker.membership.shard_manager import ShardManager
from loghub_worker.metrics import Counter
from loghub_worker.processing.child_process import ProcessSettings
from loghub_worker.processing.cores import available_cores
from loghub_worker.processing.freed_memory import return_freed_memory
from loghub_worker.processing.messages import Load
from loghub_worker.processing.process_pool import ProcessPool
from loghub_worker.processing.processor_counters import processor_counters
from loghub_worker.processing.remote_processor import ProcessorCounts, RemoteProcessor, ShardFailures
from loghub_worker.settings import WorkerSettings, is_drain_requested
from loghub_worker.status import Moment, QueryProgress, ShardReadings, status_of
from loghub_worker.status_publisher import StatusPublisher
from loghub_worker.user_code import place_code

log = structlog.get_logger()

STEP_S = 0.2  # how often the drain file and the processes are checked
RESTART_S = 1.0  # the first pause after a process has ended; a new one is there in about a second
LEAST_BUFFERED_BYTES = 32 << 20


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
        self._consumer: Consumer | None = None
        self._pool: ProcessPool | None = None
        self._counts = ProcessorCounts()
        self._failures: dict[int, ShardFailures] = {}
        self._address = Address(
            endpoint=config.endpoint, project=config.project, credentials_dir=settings.credentials_dir
        )
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
        return_freed_memory()
        code = place_code(self._pipeline, self._settings.state_dir / "code")
        self._pool = self._make_pool(code)
        first = self._pool.start_first()  # while this process prepares itself
        checked_dead_letters(self._config, self._address, agent=self._agent())
        consumer = self._make_consumer(self._pool)
        while not first.loaded:
            if self._stop:
                log.info("stopped before the first heartbeat")
                return
            if self._pool.failure is not None:
                raise self._pool.failure
            self._ended.wait(0.02)
        self._consumer = consumer
        if self._stop:
            return
        threading.Thread(target=self._watch, args=(consumer, self._pool), name="watch", daemon=True).start()
        consumer.run()
        if self._pool.failure is not None:
            raise self._pool.failure
        for failures in tuple(self._failures.values()):
            failures.handler.close()
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
                consumer.wakeup()
                return
            if is_drain_requested(self._settings.drain_file):
                log.info("draining", mode="leave")
                consumer.leave()
                return

    # -- parts

    def _make_pool(self, code: Path | None) -> ProcessPool:
        load = Load(self._pipeline.factory, str(code) if code is not None else None)
        settings = ProcessSettings(
            load=load,
            environment=os.environ,
            send_timeout_s=self._config.batch_timeout_s,
            random=self._random,
        )
        return ProcessPool(self._pipeline.processes or available_cores(), settings)

    def _make_consumer(self, pool: ProcessPool) -> Consumer:
        config, pipeline = self._config, self._pipeline
        settings = ConsumerSettings(
            endpoint=config.endpoint,
            project=config.project,
            logstore=config.logstore,
            consumer_group=config.consumer_group,
            consumer=self._settings.consumer,
            credentials=partial(read_credentials, Path(self._settings.credentials_dir)),
            start_position=config.start_position,
            last_initial_shard=config.last_initial_shard,
            heartbeat_interval_s=config.heartbeat_interval_s,
            fetch_interval_s=max(LEAST_FETCH_INTERVAL_S, config.fetch_interval_s),
            checkpoint_interval_s=config.checkpoint_interval_s,
            max_logs=pipeline.max_logs,
            max_bytes=pipeline.max_bytes,
            max_wait_s=pipeline.max_wait_s,
            max_buffered_bytes=max(LEAST_BUFFERED_BYTES, 2 * pipeline.max_bytes),
            drain_timeout_s=config.drain_timeout_s,
            leave=is_drain_requested(self._settings.drain_file),
        )
        make_processor = partial(
            RemoteProcessor,
            pool,
            self._failures_of,
            self._counts,
            self._clock,
            timeout_s=config.batch_timeout_s,
        )
        return Consumer(settings, make_processor, _GivesBack(pool), timeout_s=config.timeout_s)

    def _failures_of(self, shard: int) -> ShardFailures:
        """Of a shard, also after it was assigned elsewhere in between."""
        if shard not in self._failures:
            config = self._config
            given = failure_settings(config.on_failure, batch_timeout_s=config.batch_timeout_s)
            self._failures[shard] = ShardFailures(
                replace(given, restart_s=RESTART_S),
                clock=self._clock,
                journal=self._settings.state_dir / f"attempts-{shard}.json",
                dead_letters=checked_dead_letters(self._config, self._address, agent=self._agent()),
                random=self._random,
            )
        return self._failures[shard]

    def _agent(self) -> str:
        return f"{self._config.consumer_group}/{self._settings.consumer}"

    # -- status

    def status(self) -> WorkerStatus:
        """The current status of the worker."""
        # Before the lock of the membership is taken: what they lock is locked around it elsewhere.
        failures = self._failure_report()
        error = self._current_error(failures)

        def view(membership: Membership, now: float, manager: ShardManager | None) -> WorkerStatus:
            return status_of(
                membership,
                name=self._settings.consumer,
                now=Moment(monotonic_s=now, unix_s=self._clock.unix_s()),
                error=error,
                query=self._progress(failures, now),
                readings=_readings(manager),
            )

        status = None if self._consumer is None else self._consumer.inspect(view)
        status = status or view(self._not_joined, self._clock.monotonic_s(), None)
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
            batch_age_s=None if since_s is None else now - since_s,
            batch_hung_after_s=hung_after_s(self._config.batch_timeout_s),
            failures=failures,
        )

    def _failure_report(self) -> FailureReport:
        return FailureReport.together(one.report(shard) for shard, one in tuple(self._failures.items()))

    def _current_error(self, failures: FailureReport) -> ReportedError:
        """The first error, those closest to the cause first; empty if there is none."""
        if self._failed.reason or self._consumer is None:
            return self._failed
        of_consumer = [ReportedError(one.reason, one.message) for one in self._consumer.errors()]
        return next((error for error in (failures.error, *of_consumer) if error.reason), ReportedError())

    def _counters(self) -> tuple[Counter, ...]:
        progress = [] if self._pool is None else self._pool.progress()
        return processor_counters(self._counts, self._failure_report(), progress)


def _readings(manager: ShardManager | None) -> ShardReadings:
    if manager is None:
        return ShardReadings()
    # A copy, because the shard manager's threads change the original.
    return ShardReadings(oldest_unix_s=dict(manager.oldest_unix_s), beyond_end=manager.beyond_end)


class _GivesBack(Listener):
    """Tells the pool which shards go."""

    def __init__(self, pool: ProcessPool) -> None:
        self._pool = pool

    def on_revoked(self, shards: tuple[int, ...]) -> None:
        for shard in shards:
            self._pool.give_back(shard)

    on_lost = on_revoked
