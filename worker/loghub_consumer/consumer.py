"""A consumer in a program of its own: puts the parts together, hands out shards and takes them back.

`Consumer.run` blocks; its thread calls the listener. Membership, heartbeats, the opening of shards and the
saving of checkpoints are shared with the worker on Spark (`loghub_consumer.membership`). The threads belong
to the consumer, or to all consumers of a program (`loghub_consumer.program_parts`). At its end (`Drain`) the
running batches end, the noted positions are saved, and the consumer leaves its group. A `RetryConsumer` runs
a second consumer for the retry logstore, with processors of its own.
"""

import random
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from inspect import GEN_CLOSED, getgeneratorstate
from typing import Generic, Literal, Protocol, TypeVar

import structlog

from loghub.clock import Clock, SystemClock
from loghub.contract.processor import retry_group
from loghub.wire.cursor import encode as encode_cursor
from loghub.wire.errors import Code
from loghub_consumer.acknowledgments import DeliveryCounts
from loghub_consumer.assignment import Assignment, GroupAssignment, make_assignment
from loghub_consumer.end_time import EndTime
from loghub_consumer.failure.handler import FailureReport
from loghub_consumer.held_shard import HeldShardState
from loghub_consumer.log_context import inherited
from loghub_consumer.log_service import ReportedError, reason_of_code
from loghub_consumer.log_threads import FanOutFactory, check_fan_out
from loghub_consumer.membership.membership import Membership
from loghub_consumer.membership.shard_manager import ShardManager
from loghub_consumer.processes.program import ProgramProcesses
from loghub_consumer.processor import Listener, ProcessorFactory
from loghub_consumer.program_parts import ProgramParts, own_parts
from loghub_consumer.puller import ArrivalWatch, Puller
from loghub_consumer.settings import (
    ConsumerSettings,
    WorkerOptions,
    about_consumer,
    log_to_logging,
    logs_as_consumer,
)
from loghub_consumer.settlement import make_failure_sink
from loghub_consumer.shard_runner import RunnerParts, ShardRunners
from loghub_consumer.shard_table import ShardTable
from loghub_consumer.subscription_assignment import SubscriptionAssignment
from loghub_consumer.subscription_session import Session
from loghub_consumer.tracker import cursor_of

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerError:
    """A present problem, which is retried. `shard` is None for a problem that concerns all shards."""

    shard: int | None
    reason: str  # in CamelCase
    message: str


def errors_of(shard: int | None, errors: Iterable[ReportedError]) -> tuple[ConsumerError, ...]:
    """The errors that have a reason."""
    return tuple(
        ConsumerError(shard=shard, reason=error.reason, message=error.message)
        for error in errors
        if error.reason
    )


# For leaving the group once every shard is given up. Only a courtesy to the other consumers: the service ends
# the session by itself later.
MAX_LEAVE_S = 10.0


def run_to_end(life: Generator[int, None, None], wait: Callable[[int], None]) -> None:
    """Take all steps. Each yields the change after which the next one is due, for which `wait` waits. An
    exception between two steps, such as Ctrl-C, is raised inside `life`."""
    between: BaseException | None = None
    while True:
        try:
            since = next(life) if between is None else life.throw(between)
            between = None
            wait(since)
        except StopIteration:
            return
        except BaseException as failure:
            if getgeneratorstate(life) == GEN_CLOSED:  # `life` has ended with it
                raise
            between = failure


class Drain:
    """The end of a consumer. Each step of `run` yields the number of the change after which the next one may
    do more."""

    def __init__(self, assignment: Assignment, runners: ShardRunners, clock: Clock) -> None:
        self._assignment = assignment
        self._runners = runners
        self._clock = clock

    def run(self, *, leaves: bool, timeout_s: float) -> Iterator[int]:
        """Give up all shards. After `timeout_s` the remaining ones are abandoned, so that other consumers
        continue with them."""
        self._assignment.give_up(leaves=leaves)
        yield from self._until(self._is_drained, timeout_s)
        if not self._is_drained():
            log.warning(
                "drain timeout: other consumers continue with the shards", shards=self._runners.shards
            )
            self._assignment.abandon()
            self._runners.step()
        elif not leaves:
            return
        # Until the service knows, or for a while: the membership ends by itself later.
        yield from self._until(lambda: self._assignment.has_left, MAX_LEAVE_S)

    def _is_drained(self) -> bool:
        self._runners.step()
        return self._assignment.is_drained and not self._runners.shards

    def _until(self, condition: Callable[[], bool], timeout_s: float) -> Iterator[int]:
        deadline_s = self._clock.monotonic_s() + timeout_s
        while self._clock.monotonic_s() < deadline_s:
            since = self._assignment.changes
            if condition():
                return
            yield since


Error = TypeVar("Error", covariant=True)


class Runnable(Protocol[Error]):
    """The methods of a consumer that `RetryConsumer` uses."""

    def run(self) -> None: ...
    def wakeup(self) -> None: ...
    def leave(self) -> None: ...
    def is_own_thread(self) -> bool: ...
    def errors(self) -> tuple[Error, ...]: ...
    def failure_report(self) -> FailureReport: ...


def retry_settings(settings: ConsumerSettings) -> ConsumerSettings | None:
    """The settings of the consumer of the retry logstore; None if there is no retry logstore, or if these
    settings are the ones of its consumer."""
    if settings.retry is None or settings.is_of_retries:
        return None
    return replace(
        settings,
        logstore=settings.retry.logstore,
        consumer_group=retry_group(
            settings.consumer_group,
            settings.logstore,
            is_subscription=settings.subscription is not None,
        ),
        retries_of=settings.origin,
        start_position="begin",
        last_initial_shard=None,
        end_time_s=None,
        create_group=True,
        in_order=False,
        subscription=None,
    )


class RetryConsumer(Generic[Error]):
    """Runs a consumer in a thread."""

    def __init__(self, consumer: Runnable[Error], fail: Callable[[BaseException], None]) -> None:
        self._consumer = consumer
        self._fail = fail
        self._thread = threading.Thread(target=inherited(self._run), name="retries", daemon=True)

    def errors(self) -> tuple[Error, ...]:
        return self._consumer.errors()

    def start(self) -> None:
        self._thread.start()

    def is_own_thread(self) -> bool:
        return self._consumer.is_own_thread()

    def failure_report(self) -> FailureReport:
        return self._consumer.failure_report()

    def stop(self, *, leaves: bool) -> None:
        """Let the consumer end, and its shards drain meanwhile. With `leaves` it leaves the group in any
        case."""
        if leaves:
            self._consumer.leave()
        else:
            self._consumer.wakeup()

    def join(self) -> None:
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        try:
            self._consumer.run()
        except BaseException as failure:  # noqa: BLE001 - raised by the consumer of the logstore
            self._fail(failure)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardLag:
    """Log groups that were not processed yet. `is_complete`: the last pull reached the end of the shard, so
    that there were no more at that time; otherwise there are at least this many."""

    log_groups: int
    is_complete: bool


def lag_of(state: HeldShardState, end: int | None) -> ShardLag:
    """The lag of a shard. `end` is the cursor after the last log group; None if the last pull did not reach
    it."""
    if end is not None and end >= state.position:
        return ShardLag(log_groups=end - state.position, is_complete=True)
    return ShardLag(log_groups=max(0, state.read_to - state.position), is_complete=False)


T = TypeVar("T")

STEP_S = 0.2  # `wakeup` takes no lock, so `run` notices it only when it looks: this often


class Consumer:
    """One consumer of a consumer group. `run` it once; any thread may call the other methods, including
    processors and the listener."""

    @logs_as_consumer
    def __init__(
        self,
        settings: ConsumerSettings,
        factory: ProcessorFactory | str,
        listener: Listener | None = None,
        *,
        shared: ProgramParts | None = None,
        worker: WorkerOptions | None = None,
    ) -> None:
        """With `ConsumerSettings.processes`, `factory` may be a text ``module:name``.
        `loghub_consumer.multi_logstore.MultiLogstoreConsumer` passes `shared`, `loghub_worker.processing`
        passes `worker`. Raises `OSError` if its folder cannot be written to."""
        if not settings.logstore:
            raise ValueError("logstore is empty")
        if isinstance(factory, FanOutFactory):
            check_fan_out(by_log=settings.acknowledge == "log", ack_timeout_s=settings.ack_timeout_s)
        log_to_logging()
        self._leaves, self._abandons = settings.leaves_at_end, False
        self.has_started = False  # `run` has read the group and the shards
        self._settings, self._clock = settings, SystemClock()
        self._random = random.SystemRandom().random
        self._parts = shared or own_parts(settings.max_buffered_bytes)
        self._client = self._parts.connections.open(settings)
        self._table = table = ShardTable(
            settings.limits,
            settings.redelivery,
            self._clock,
            self._parts.buffers,
            priority=settings.priority,
            random=self._random,
        )
        self._processes: ProgramProcesses | None = None
        factory, worker = self._in_processes(factory, worker)
        self._failure_sink = make_failure_sink(settings, worker, self._clock, random=self._random)
        if self._failure_sink is not None:
            table.failures, table.ended = self._failure_sink.policy, self._failure_sink.ended
        self._retries = self._make_retries(factory, worker)
        self._puller = Puller(table, self._client, settings, self._parts)
        self._arrivals = ArrivalWatch(table, self._client, logstore=settings.logstore, random=self._random)
        timeout_s = None if worker is None else worker.timeout_s
        self._assignment = make_assignment(
            settings, self._client, table, parts=self._parts, random=self._random, timeout_s=timeout_s
        )
        self._end_time: EndTime | None = None
        if settings.end_time_s is not None:
            self._end_time = EndTime(
                table, self._client, self._assignment, settings, self._clock, self.wakeup
            )
        parts = RunnerParts(
            settings=settings,
            client=self._client,
            factory=factory,
            failure_sink=self._failure_sink,
            processors=self._parts.processors,
        )
        self._runners = ShardRunners(table, self._assignment, parts, listener or Listener())
        self._commits = ThreadPoolExecutor(1, thread_name_prefix="commit")
        self._stop = self._has_begun = False
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None  # the thread that calls the listener, if one does now

    def _in_processes(
        self, factory: ProcessorFactory | str, worker: WorkerOptions | None
    ) -> tuple[ProcessorFactory, WorkerOptions | None]:
        """The factory of processors; with processes, its processors call the user's processors in these."""
        if self._settings.processes and worker is None:
            self._processes = ProgramProcesses(
                self._settings, factory, self.failure_report, self._clock, random=self._random
            )
            return self._processes.factory, self._processes.options
        if isinstance(factory, str):
            raise TypeError(f"factory is {factory!r}; a name needs processes above 0")
        return factory, worker

    def _make_retries(
        self, factory: ProcessorFactory, worker: WorkerOptions | None
    ) -> RetryConsumer[ConsumerError] | None:
        settings = retry_settings(self._settings)
        if settings is None:
            return None
        if worker is None:
            return RetryConsumer(Consumer(settings, factory), self._table.fail)
        retrying = Consumer(settings, worker.retry_factory, worker=worker.of_retries())
        return RetryConsumer(retrying, self._table.fail)

    def run(self) -> None:
        """Consume until `shutdown`, `wakeup` or Ctrl-C, or until all logs up to `ConsumerSettings.end_time_s`
        are processed. Raises `LogHubException` if the group cannot be read at the start, or a subscription
        refuses this consumer for good, `OSError` if the dead letter is a folder that cannot be written to,
        and the exceptions of the listener, or of a processor that ends its thread. With processes,
        `RuntimeError` if the factory cannot be imported there."""
        with self._in_turn():  # also between the steps: a signal handler may call `shutdown`
            run_to_end(self.life(), lambda since: self._assignment.wait(since, STEP_S))

    def life(self) -> Generator[int, None, None]:
        """`run` without waits: a step yields the change after which the next is due, or `STEP_S` later."""
        if self._has_begun:
            raise RuntimeError("a consumer runs only once; make another one")
        self._has_begun = True
        return self._steps()

    def _steps(self) -> Generator[int, None, None]:
        is_left = False
        try:
            if not self._stop:
                with self._in_turn():
                    self._start()
                yield from self._serve()
        except GeneratorExit:  # the program has ended in between
            is_left = True
            raise
        finally:
            if not is_left:
                with self._in_turn():
                    self._end()
        if self._table.failure is not None:
            raise self._table.failure

    @contextmanager
    def _in_turn(self) -> Iterator[None]:
        before, self._thread = self._thread, threading.current_thread()
        try:
            with about_consumer(self._settings):
                yield
        finally:
            self._thread = before

    def call_on_change(self, on_change: Callable[[], None]) -> None:
        """Call this when the next step of `life` may do more. It must not block. To be called before the
        first step."""
        self._assignment.call_on_change(on_change)

    def wakeup(self) -> None:
        """Let `run` return once running batches have ended. Returns at once and takes no lock, so that a
        signal handler may call it."""
        self._stop = True

    def leave(self) -> None:
        """End like `wakeup`, and leave the group in any case."""
        self._leaves = True
        self._stop = True

    def fail(self, failure: BaseException) -> None:
        """End like `wakeup`, and let `run` raise this error."""
        self._table.fail(failure)

    def abandon(self) -> None:
        """End like `wakeup`, for a logstore that no longer exists: the shards are lost, and nothing is waited
        for."""
        self._abandons = True
        self._stop = True

    def shutdown(self, timeout_s: float | None = None) -> bool:
        """End like `wakeup`, and wait until `run` has returned; False after `timeout_s`. A processor or the
        listener does not wait for itself."""
        self._stop = True
        if not self._has_begun or self.is_own_thread():
            return self._ended.is_set()
        return self._ended.wait(timeout_s)

    def is_own_thread(self) -> bool:
        """Whether the caller is the listener, a processor (of the retry logstore, too), or `handle` of
        `fan_out`."""
        if self._retries is not None and self._retries.is_own_thread():
            return True
        return threading.current_thread() in (self._thread, *self._runners.threads)

    @property
    def has_lost_group(self) -> bool:
        """Whether the log service says that the group does not exist any more. A user may have deleted it on
        purpose, so a running consumer does not create it again."""
        missing = reason_of_code(Code.CONSUMER_GROUP_NOT_EXIST)
        return self.has_started and any(error.reason == missing for error in self._assignment.errors())

    # -- shards

    def assignment(self) -> tuple[int, ...]:
        """The shards of this consumer, including shards that it is giving up."""
        return tuple(sorted(self._table.working()))

    def position(self, shard: int) -> str:
        """The cursor up to which the shard was processed. Raises `NotAssignedError`, and `ValueError` with a
        subscription."""
        self._require_positions()
        return encode_cursor(self._table.entry(shard).state.position)

    def lag(self, shard: int) -> ShardLag:
        """The log groups that are not processed yet, as far as the pulls have seen; no request is sent.
        Raises `NotAssignedError`, and `ValueError` with a subscription."""
        self._require_positions()
        entry = self._table.entry(shard)
        return lag_of(entry.state, entry.end)

    def _require_positions(self) -> None:
        if self._settings.subscription is not None:
            raise ValueError(
                "single logs of a subscription are acknowledged, so that a shard has no position; use"
                " Consumer.backlog, or `loghub subscription show`"
            )

    def backlog(self, shard: int) -> int | None:
        """The logs of a shard that no consumer of the subscription has acknowledged, at the last call; None:
        not known. Raises `NotAssignedError`, and `ValueError` without a subscription."""
        if not isinstance(self._assignment, SubscriptionAssignment):
            raise ValueError("there is no subscription; use Consumer.lag")  # noqa: TRY004 - of the settings
        self._table.entry(shard)
        return self._assignment.backlog(shard)

    def end(self, shard: int) -> str | None:
        """The cursor after the last log group at the time of the last pull; None if that pull did not reach
        the end, and before the first pull. A paused shard is not pulled. Raises `NotAssignedError`."""
        end = self._table.entry(shard).end
        return None if end is None else encode_cursor(end)

    def cursor_at(self, shard: int, where: Literal["begin", "end"] | int) -> str:
        """The cursor of the oldest log group of any shard, the cursor after the last one, or the cursor of a
        time of receipt in unix seconds, as the log service reports it. Raises `LogHubException`."""
        return self._client.get_cursor(self._settings.logstore, shard, where)

    def seek(self, shard: int, to: str | int) -> None:
        """Continue a shard at ``"begin"``, ``"end"``, a time of receipt in unix seconds, or a cursor. The new
        position is not saved; a subscription moves for all of its consumers, and keeps it. A batch that is
        being processed ends first. Raises `NotAssignedError`,
        `MalformedCursor` and `LogHubException`."""
        entry = self._table.entry(shard)
        self._assignment.seek(entry, cursor_of(self._client, self._settings.logstore, shard, to))

    def pause(self, shards: Iterable[int] | None = None) -> None:
        """Hand over no further batch of these shards; None: of any shard, including shards that are assigned
        later. Raises `NotAssignedError`."""
        if shards is None:
            self._table.pause_all(is_paused=True)
            return
        for entry in [self._table.entry(shard) for shard in shards]:
            entry.pause()

    def resume(self, shards: Iterable[int] | None = None) -> None:
        """The opposite of `pause`."""
        if shards is None:
            self._table.pause_all(is_paused=False)
            return
        for entry in [self._table.entry(shard) for shard in shards]:
            entry.resume()

    def prioritize(self, shards: Iterable[int], priority: int) -> None:
        """Give shards another priority than `ConsumerSettings.priority`, until they are given up. Raises
        `NotAssignedError`."""
        self._table.prioritize([self._table.entry(shard) for shard in shards], priority)

    def paused(self) -> tuple[int, ...]:
        """The shards that are paused by `pause` or by the failure policy ``Stop``."""
        return tuple(sorted(n for n, entry in self._table.working().items() if entry.state.is_paused))

    def commit(self) -> None:
        """Save the position of every shard. Tries all, then raises the first error: `ShardLostError` or
        `LogHubException`."""
        self._runners.commit()

    def commit_async(self) -> Future[None]:
        """Run `commit` in another thread; calls run one after the other."""
        return self._commits.submit(self.commit)

    def errors(self) -> tuple[ConsumerError, ...]:
        """The present problems. For a problem of the retry logstore, the shard is None."""
        of_retries = () if self._retries is None else self._retries.errors()
        of_end = () if self._end_time is None else (self._end_time.error,)
        return (
            *errors_of(None, (*self._assignment.errors(), *of_end)),
            *(
                error
                for shard, entry in self._table.working().items()
                for error in errors_of(shard, entry.errors)
            ),
            *(replace(error, shard=None) for error in of_retries),
        )

    def failure_report(self) -> FailureReport:
        """The shards that wait at failing logs, and the settled logs."""
        if self._failure_sink is None:
            return FailureReport()
        report = self._failure_sink.report(self._table)
        return report if self._retries is None else report.with_retries(self._retries.failure_report())

    def inspect(self, view: Callable[[Membership, float, ShardManager], T]) -> T | None:
        """The result of `view` for the membership at the present monotonic time; None before `run`, and
        without a group."""
        if not isinstance(self._assignment, GroupAssignment):
            return None
        return self._assignment.inspect(view)

    def session(self) -> Session | None:
        """The present session in a subscription; None without a subscription."""
        if not isinstance(self._assignment, SubscriptionAssignment):
            return None
        return self._assignment.session

    def delivery_counts(self) -> DeliveryCounts:
        """How many logs of a subscription were delivered, acknowledged and refused; 0 without one."""
        if not isinstance(self._assignment, SubscriptionAssignment):
            return DeliveryCounts()
        return self._assignment.counts

    def check(self) -> None:
        """Raises `OSError` if the dead letter is a folder that cannot be written to."""
        if self._failure_sink is not None:
            self._failure_sink.check()

    def _start(self) -> None:
        self.check()
        if self._processes is not None:
            self._processes.start(lambda: self._stop)
        self._assignment.start()
        self._table.call_on_change(self._assignment.wake)
        if self._end_time is not None:
            self._end_time.start()
        if self._settings.subscription is None:
            self._puller.start()
        if self._settings.subscription is None and self._parts.polls:
            self._arrivals.start()
        self.has_started = True
        if self._retries is not None:
            self._retries.start()

    def _serve(self) -> Iterator[int]:
        try:
            while not self._stop and not self._failed():
                since = self._assignment.changes
                with self._in_turn():
                    self._runners.step()
                yield since
        except GeneratorExit:
            raise
        except BaseException as failure:  # noqa: BLE001 - raised again after the drain
            self._table.fail(failure)
        yield from self._drain()

    def _failed(self) -> bool:
        processes = None if self._processes is None else self._processes.failure
        failure = self._assignment.failure or processes
        if failure is not None:
            self._table.fail(failure)
        return self._table.failure is not None

    def _drain(self) -> Iterator[int]:
        if self._retries is not None:
            self._retries.stop(leaves=self._leaves)
        if self._abandons:
            with self._in_turn():
                self._assignment.abandon()
                self._runners.step()
            return
        drain = Drain(self._assignment, self._runners, self._clock)
        steps = drain.run(leaves=self._leaves, timeout_s=self._settings.drain_timeout_s)
        while True:
            with self._in_turn():
                since = next(steps, None)
            if since is None:
                return
            yield since

    def _end(self) -> None:
        if self._retries is not None:
            self._retries.join()
        if self._end_time is not None:
            self._end_time.stop()
        self._arrivals.stop()
        self._puller.stop()
        self._assignment.stop()
        if self._processes is not None:
            self._processes.close()
        self._commits.shutdown(wait=False, cancel_futures=True)
        if self._failure_sink is not None:
            if self._table.failure is None:
                self._failure_sink.forget()
            self._failure_sink.close()
        self._parts.connections.give_back(self._client)
        self._ended.set()
