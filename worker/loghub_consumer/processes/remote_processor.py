"""A processor whose user code runs in another process, and the counts of such processors.

For the consumer it is like any other processor, and the consumer decides what happens to failed logs
(`loghub_consumer.settlement`). This module has what only a worker knows: a call that hangs ends with its
process, and why a process has ended.
"""

import itertools
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from loghub.clock import Clock
from loghub.contract.worker import WorkerReason
from loghub.wire.cursor import encode as encode_cursor
from loghub_consumer.batch import LogBatch
from loghub_consumer.failure.handler import FailureReport
from loghub_consumer.failure.policy import Cause, Failure
from loghub_consumer.log_service import PIPELINE_FAILED
from loghub_consumer.processes.child_process import (
    CallFailedError,
    CallSuspectedError,
    CallTimedOutError,
    ChildProcess,
    ProcessEndedError,
    ProcessPool,
)
from loghub_consumer.processes.messages import BodyMessage, CallAnswer, Initialize, ProcessBatch, ShutDown
from loghub_consumer.processor import Listener, TrackedProcessor, Tracker
from loghub_consumer.shard_runner import RemoteError
from loghub_consumer.tracker import ShardTracker


class ProcessorCounts:
    """The logs that were processed since the worker started, by shard, and since when each session has had a
    batch. Thread-safe."""

    def __init__(self) -> None:
        self.logs: dict[int, int] = {}
        self.batches = 0
        self.seconds = 0.0
        self.timed_out = 0
        self.running_since_s: dict[int, float] = {}
        self._lock = threading.Lock()

    def add(self, shard: int, logs: int, seconds: float) -> None:
        """A batch was processed."""
        with self._lock:
            self.batches += 1
            self.seconds += seconds
            self.logs[shard] = self.logs.get(shard, 0) + logs

    def add_timed_out(self) -> None:
        """A batch took too long."""
        with self._lock:
            self.timed_out += 1


_SESSIONS = itertools.count()


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteParts:
    """The parts that the processors of all shards share. A call that takes longer than `timeout_s` fails.
    `has_hung` is the function `has_hung` of this module, for the present report."""

    pool: ProcessPool
    counts: ProcessorCounts
    clock: Clock
    timeout_s: float
    has_hung: Callable[[int], bool]
    is_of_retries: bool = False  # the shards belong to the retry logstore

    def of_retries(self) -> "RemoteParts":
        return replace(self, is_of_retries=True)


class RemoteProcessor(TrackedProcessor):
    """One assignment of a shard."""

    def __init__(self, parts: RemoteParts) -> None:
        self._pool = parts.pool
        self._counts = parts.counts
        self._clock = parts.clock
        self._timeout_s = parts.timeout_s
        self._has_hung = parts.has_hung
        self._is_of_retries = parts.is_of_retries
        self._process: ChildProcess | None = None
        # The generation of the process in which `initialize` has returned.
        self._generation: int | None = None
        self._begun: int | None = None  # the generation of the process in which the session began
        self._session = next(_SESSIONS)
        self._tracker: ShardTracker
        self._is_known = False  # the listener knows that the shard is assigned
        self._is_suspected = False  # the process was killed since the last call took too long

    # -- the methods of a processor

    def use(self, tracker: Tracker) -> None:
        assert isinstance(tracker, ShardTracker)
        self._tracker = tracker

    def initialize(self, shard: int) -> None:
        self._shard = shard
        if self._process is None:
            self._process = self._pool.take(self._session, shard, is_of_retries=self._is_of_retries)
        self._process.await_loaded(self._may_wait)
        self._begin_session()

    def _may_wait(self) -> bool:
        """Whether the shard stays here."""
        return not self._tracker.is_given_up

    def prepare(self, logs: LogBatch) -> str | None:
        if logs.delivery == 1:
            self._level(logs.begin)
        self._await_process()
        has_begun = self._begin_batch()
        restart = self._tracker.restart_before(logs.begin)
        if has_begun and logs.delivery == 1 and restart < logs.begin:
            return encode_cursor(restart)  # the earlier processor has not saved the logs in its memory
        return None

    def process(self, logs: LogBatch, tracker: Tracker) -> str | None:  # noqa: ARG002 - it has it
        began_s = self._clock.monotonic_s()
        self._counts.running_since_s[self._session] = began_s
        try:
            answer = self._answer_to(logs)
        finally:
            del self._counts.running_since_s[self._session]
        if answer.error is not None:
            cause = Cause.UNAVAILABLE if answer.is_outage else Cause.REJECTED
            raise _failed(Failure(cause=cause, reason=PIPELINE_FAILED, message=answer.error))
        self._is_suspected = False
        logs_read = answer.logs if logs.delivery == 1 and not self._is_of_retries else 0
        self._counts.add(self._shard, logs_read, self._clock.monotonic_s() - began_s)
        return answer.cursor

    def shutdown(self, tracker: Tracker) -> None:  # noqa: ARG002 - it has it
        self._end_session()

    def close(self) -> None:
        with suppress(RemoteError):  # `initialize` has never succeeded, or `shutdown` has reported it
            self._end_session()
        self._pool.give_back(self._session)

    # -- the session

    def _begin_session(self) -> bool:
        """Make a processor in the process, unless it has one of this session; whether it was made."""
        process, session, shard = self._process, self._session, self._shard
        assert process is not None
        if self._generation is not None and self._generation == process.generation and process.loaded:
            return False
        self._pool.trackers.open(session, self._tracker)
        is_listened, is_assigned = not self._is_of_retries, not self._is_known
        answer, generation = process.call(
            lambda call: Initialize(call, session, shard, is_listened, is_assigned),
            generation=None,
            timeout_s=self._timeout_s,
        )
        self._begun = generation
        self._is_known |= answer.is_known
        if answer.error is not None:
            raise RemoteError(answer.error)
        self._generation = generation
        return True

    def _end_session(self, *, is_moved: bool = False) -> None:
        process, session, is_lost = self._process, self._session, not self._tracker.is_held
        generation, self._begun = self._begun, None
        if process is not None and process.loaded and generation == process.generation:
            answer, _ = process.call(
                lambda call: ShutDown(call, session, is_lost, is_moved),
                generation=generation,
                timeout_s=self._timeout_s,
            )
            if answer.error is not None:
                raise RemoteError(answer.error)

    def _call(
        self,
        make: Callable[[int], ProcessBatch],
        bodies: Sequence[bytes] = (),
        *,
        alone: bool = False,
    ) -> CallAnswer:
        assert self._process is not None
        answer, _ = self._process.call(
            make, bodies, generation=self._generation, timeout_s=self._timeout_s, alone=alone
        )
        return answer

    def _level(self, begin: int) -> None:
        """Move to a process with fewer shards, unless this one has logs that it may still acknowledge."""
        there = None
        if self._tracker.is_settled_before(begin):
            there = self._pool.move(self._session, self._shard)
        if there is not None:
            with suppress(RemoteError):
                self._end_session(is_moved=True)
            self._process, self._generation, self._is_suspected = there, None, False

    # -- one batch

    def _await_process(self) -> None:
        """A process that is replaced is waited for. That is no attempt with the logs."""
        assert self._process is not None
        try:
            self._process.await_loaded(self._may_wait)
        except CallFailedError as error:
            raise _failed(self._failure_of(error)) from error

    def _begin_batch(self) -> bool:
        try:
            return self._begin_session()
        except RemoteError as error:
            reason = WorkerReason.PROCESSOR_FAILED
            raise _failed(_unavailable(reason, f"initialize: {error}")) from error

    def _answer_to(self, logs: LogBatch) -> CallAnswer:
        session = self._session
        packed = [one.packed for one in logs.slices]
        bodies = [
            BodyMessage(part.body.first + part.begin, part.groups, part.only, content.size, content.how)
            for part, content in zip(logs.slices, packed, strict=True)
        ]
        # Other shards are processed in the process, too, so a hang counts only if nothing else runs there.
        alone = self._is_suspected or (not self._is_of_retries and self._has_hung(self._shard))
        try:
            return self._call(
                lambda call: ProcessBatch(call, session, bodies, logs.delivery),
                [one.content for one in packed],
                alone=alone,
            )
        except CallFailedError as error:
            self._is_suspected |= isinstance(error, CallSuspectedError | CallTimedOutError)
            raise _failed(self._failure_of(error)) from error

    def _failure_of(self, error: CallFailedError) -> Failure:
        match error:
            case CallSuspectedError():
                return _unavailable(WorkerReason.BATCH_TIMED_OUT, str(error))
            case CallTimedOutError():
                self._counts.add_timed_out()
                message = f"process took longer than {self._timeout_s:.0f} s, and its process was killed"
                reason = WorkerReason.BATCH_TIMED_OUT.value
                return Failure(cause=Cause.TIMED_OUT, reason=reason, message=message)
            case ProcessEndedError():
                reason = WorkerReason.PROCESS_ENDED.value
                return Failure(cause=Cause.ENDED, reason=reason, message=str(error))
            case _:
                return _unavailable(WorkerReason.PROCESS_ENDED, str(error))


class RemoteListener(Listener):
    """Tells the listeners in the processes what is of no shard of theirs; what is of a shard, its session
    tells."""

    def __init__(self, pool: ProcessPool) -> None:
        self._pool = pool

    def on_standby(self, shards: tuple[int, ...]) -> None:
        self._pool.tell_standby(shards)


def has_hung(report: FailureReport, shard: int) -> bool:
    """Whether a process was killed since the log group that the shard has next took too long."""
    return any(one.shard == shard and one.failure.cause is Cause.TIMED_OUT for one in report.failing)


def _unavailable(reason: WorkerReason, message: str) -> Failure:
    """The logs are not to blame."""
    return Failure(cause=Cause.UNAVAILABLE, reason=reason.value, message=message)


def _failed(failure: Failure) -> RemoteError:
    return RemoteError(failure.message, failure)
