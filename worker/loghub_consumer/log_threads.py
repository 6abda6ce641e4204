"""Processes the logs of a shard on several threads: the logs of one key in order, on one thread.

Each log is acknowledged by itself (`ConsumerSettings.acknowledge` is ``"log"``), so that the checkpoint
follows the first log that is not done, whatever the threads do. Queues need no bound of their own: nothing is
handed over beyond `max_unacknowledged` log groups and the shard's part of the buffered bytes, and no log is
redelivered while it waits here, since there is no `ack_timeout_s` (docs/processor.md 5).
"""

import queue
import random
import threading
import zlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import structlog

from loghub.backoff import Backoff
from loghub_consumer.batch import LogBatch, ReceivedLog, ReceivedLogGroup
from loghub_consumer.failure.outage import description, is_outage
from loghub_consumer.log_context import inherited, log_error
from loghub_consumer.processor import ThreadedProcessor, Tracker
from loghub_consumer.user_calls import UserCalls

log = structlog.get_logger()
FIRST_RETRY_S, MAX_RETRY_S = 0.2, 10.0

Handle: TypeAlias = Callable[[ReceivedLog, ReceivedLogGroup], Awaitable[None] | None]
Key: TypeAlias = Callable[[ReceivedLog, ReceivedLogGroup], str]


def fan_out(handle: Handle, *, key: Key, threads: int, max_attempts: int | None = None) -> "FanOutFactory":
    """A factory of processors that call `handle` for each log, on `threads` threads for each shard. It needs
    ``acknowledge="log"`` and no `ack_timeout_s`.

    `handle` may be ``async``. If it raises, it is called again after a pause that grows, and the later logs
    of its thread wait. After `max_attempts` the log is rejected, so that `ConsumerSettings.on_failure`
    settles it; None, or an outage such as `UnavailableError`: never. A log for which `key` raises, or does
    not return a text, is refused by itself, as by `Tracker.nack`.
    """
    if threads < 1:
        raise ValueError(f"threads is {threads}; it must be at least 1")
    return FanOutFactory(handle, key, threads, max_attempts)


def check_fan_out(*, by_log: bool, ack_timeout_s: float | None) -> None:
    """Raises `ValueError` for settings of a consumer that cannot work with it."""
    if not by_log:
        raise ValueError("fan_out needs acknowledge='log', since its threads end after process has returned")
    if ack_timeout_s is not None:
        raise ValueError(
            "fan_out keeps each log until handle has returned, however long it waits; leave out"
            " ack_timeout_s, with which it would come again meanwhile"
        )


@dataclass(frozen=True, slots=True)
class FanOutFactory:
    """The result of `fan_out`."""

    handle: Handle
    key: Key
    threads: int
    max_attempts: int | None

    def __call__(self) -> "FanOut":
        return FanOut(self)


@dataclass(frozen=True, slots=True)
class _Job:
    log: ReceivedLog
    group: ReceivedLogGroup


class FanOut(ThreadedProcessor):
    """The processor of one shard."""

    def __init__(self, how: FanOutFactory) -> None:
        self.shard = -1
        self._key = how.key
        self._lanes = [_Lane(how.handle, how.max_attempts, number) for number in range(how.threads)]

    def initialize(self, shard: int) -> None:
        self.shard = shard
        for lane in self._lanes:
            lane.shard = shard

    def process(self, logs: LogBatch, tracker: Tracker) -> None:
        """Pass the logs on."""
        jobs: list[tuple[_Lane, _Job]] = []
        refused: list[tuple[ReceivedLog, str]] = []
        for group in logs.groups:
            for received in group.logs:
                try:
                    jobs.append((self._lane_of(received, group), _Job(received, group)))
                except Exception as error:
                    if is_outage(error):
                        raise  # nothing was passed on so far, and the whole batch is redelivered
                    refused.append((received, f"key raised {description(error)}"))
                    if len(refused) == 1:
                        log_error(
                            log.warning, "log has no key", error, shard=self.shard, place=received.place
                        )
        for received, reason in refused:
            tracker.nack(received, reason=reason)
        for group in logs.groups:
            if not len(group):
                tracker.ack(group)
        for lane, job in jobs:
            lane.put(job, tracker)

    def _lane_of(self, received: ReceivedLog, group: ReceivedLogGroup) -> "_Lane":
        name = self._key(received, group)
        if not isinstance(name, str):
            raise TypeError(f"it returned {type(name).__name__}; return a text for each log")
        return self._lanes[zlib.crc32(name.encode(errors="surrogatepass")) % len(self._lanes)]

    @property
    def threads(self) -> tuple[threading.Thread, ...]:
        return tuple(lane.thread for lane in self._lanes if lane.thread is not None)

    @property
    def failure(self) -> BaseException | None:
        return next((lane.failure for lane in self._lanes if lane.failure is not None), None)

    def shutdown(self, tracker: Tracker) -> None:  # noqa: ARG002 - the tracker of each log acknowledges it
        """Let the threads end their present logs; the waiting logs are redelivered to the next consumer."""
        for lane in self._lanes:
            lane.stop()
        for lane in self._lanes:
            lane.join()


class _Lane:
    """One thread and its queue."""

    def __init__(self, handle: Handle, max_attempts: int | None, number: int) -> None:
        self.shard = -1
        self._handle = handle
        self._max_attempts = max_attempts
        self._number = number
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._stop = threading.Event()
        self._retries = Backoff(first_s=FIRST_RETRY_S, max_s=MAX_RETRY_S, random=random.SystemRandom().random)
        self.thread: threading.Thread | None = None
        self.failure: BaseException | None = None

    def put(self, job: _Job, tracker: Tracker) -> None:
        if self.thread is None:
            name = f"shard-{self.shard}-{self._number}"
            self.thread = threading.Thread(
                target=inherited(self._run), args=(tracker,), name=name, daemon=True
            )
            self.thread.start()
        self._jobs.put(job)

    def stop(self) -> None:
        self._stop.set()
        self._jobs.put(None)

    def join(self) -> None:
        if self.thread is not None:
            self.thread.join()

    def _run(self, tracker: Tracker) -> None:
        code = UserCalls()
        try:
            while (job := code.wait(self._jobs.get)) is not None and not self._stop.is_set():
                try:
                    if self._is_done(code, job, tracker):
                        tracker.ack(job.log)
                except BaseException as failure:  # noqa: BLE001 - such as SystemExit of user code
                    # A program ends. In a worker this counts as an exception, and the other logs are handled.
                    self.failure = failure
                    tracker.nack(job.log, reason=description(failure))
        finally:
            code.close()

    def _is_done(self, code: UserCalls, job: _Job, tracker: Tracker) -> bool:
        """Call `handle` until it returns. False if the log was rejected, or the shard is given up."""
        attempts = failures = 0
        while not self._stop.is_set():
            try:
                code.call(self._handle, job.log, job.group)
            except Exception as error:  # noqa: BLE001 - user code
                failures += 1
                attempts += not is_outage(error)
                if failures == 1:
                    log_error(log.warning, "log not handled", error, shard=self.shard, place=job.log.place)
                if self._max_attempts is not None and attempts >= self._max_attempts:
                    tracker.reject(job.log, reason=description(error))
                    return False
                code.wait(partial(self._stop.wait, self._retries.pause_s(failures)))
            else:
                return True
        return False
