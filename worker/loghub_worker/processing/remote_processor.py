"""A processor whose user code runs in another process, with the failure policy of the group around it.

For the consumer it is like any other processor. A batch that fails is divided as one of Spark's is
(`loghub_worker.failure`): what can be processed is, down to one log group, which then waits, is skipped, or
goes to the dead letter.
"""

import itertools
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from loghub.clock import Clock
from loghub.worker_contract import WorkerReason
from loghub_worker.batch_plan import Range, RangeRetry
from loghub_worker.consumer.batch import LogBatch
from loghub_worker.consumer.processor import Processor, Tracker
from loghub_worker.consumer.user_code import RemoteError
from loghub_worker.exchange_files import Retries
from loghub_worker.failure.dead_letter import DeadLetters
from loghub_worker.failure.failure_handler import ENDED, FailureHandler, FailureReport, Settlement
from loghub_worker.failure.failure_policy import FailingRange
from loghub_worker.failure.skip_limits import Cause, Failure, FailureSettings
from loghub_worker.log_service import PIPELINE_FAILED, encode_cursor
from loghub_worker.processing.batch_parts import bodies_of, part_of
from loghub_worker.processing.child_process import (
    CallFailedError,
    CallSuspectedError,
    CallTimedOutError,
    ChildProcess,
    ProcessEndedError,
)
from loghub_worker.processing.messages import Answer, Initialize, Process, ShutDown
from loghub_worker.processing.process_pool import ProcessPool

_SESSIONS = itertools.count()


class ShardFailures:
    """What is known of the failures of one shard. It outlives its assignments, like the journal."""

    def __init__(
        self,
        settings: FailureSettings,
        *,
        clock: Clock,
        journal: Path,
        dead_letters: DeadLetters | None,
        random: Callable[[], float],
    ) -> None:
        self._clock = clock
        self._retries: Mapping[int, RangeRetry] = {}
        self.at: int | None = None  # where the next attempt begins, while the shard is assigned
        self.last_message = ""
        self.is_suspected = False  # a process was killed during a call for this shard, or for another one
        self.handler = FailureHandler(
            settings, exchange=self, clock=clock, journal=journal, dead_letters=dead_letters, random=random
        )

    def write_retries(self, retries: Retries) -> None:
        """The port of the handler."""
        self._retries = retries.shards

    def report(self, shard: int) -> FailureReport:
        """What concerns the present place of the shard."""
        return self.handler.report({} if self.at is None else {shard: self.at})

    def must_run_alone(self, shard: int) -> bool:
        """A process has ended, or was killed, during the log group that is next. Other shards were processed
        in it, too, so that counts only if it happens while nothing else runs there."""
        causes = [one.failure.cause for one in self.report(shard).failing]
        return self.is_suspected or Cause.ENDED in causes or Cause.TIMED_OUT in causes

    def end_of_next(self, shard: int, begin: int, end: int) -> int | None:
        """Where the next attempt ends that begins at `begin`; None: not yet."""
        retry = self._retries.get(shard)
        if retry is None or retry.begin != begin:
            return end
        if retry.not_before_s is None or self._clock.monotonic_s() < retry.not_before_s:
            return None
        return min(end, begin + retry.log_groups)


class ProcessorCounts:
    """What was processed since the worker started, by shard, and since when a batch is processed."""

    def __init__(self) -> None:
        self.logs: dict[int, int] = {}
        self.batches = 0
        self.seconds = 0.0
        self.timed_out = 0
        self.running_since_s: dict[int, float] = {}
        self.lock = threading.Lock()


class RemoteProcessor(Processor):
    """One assignment of a shard."""

    def __init__(
        self,
        pool: ProcessPool,
        failures: Callable[[int], ShardFailures],
        counts: ProcessorCounts,
        clock: Clock,
        *,
        timeout_s: float,
    ) -> None:
        """`failures` returns those of a shard. A call that takes longer than `timeout_s` fails."""
        self._pool = pool
        self._failures_of = failures
        self._counts = counts
        self._clock = clock
        self._timeout_s = timeout_s
        self._process: ChildProcess | None = None
        self._generation: int | None = None  # of the process, when the session began
        self._session = next(_SESSIONS)
        self._tracker: Tracker | None = None
        self._part_end: str | None = None  # of the part of a batch that is being processed
        self._kept: tuple[LogBatch, int] | None = None  # a batch of which a part is left, and where it begins

    # -- the methods of a processor

    def initialize(self, shard: int) -> None:
        self._shard = shard
        self._failures = self._failures_of(shard)
        self._process = self._pool.take(shard)
        self._begin_session()

    def process(self, logs: LogBatch, tracker: Tracker) -> str | None:
        self._tracker = tracker
        begin = self._kept[1] if self._kept is not None and self._kept[0] is logs else logs.begin
        try:
            while begin < logs.end:
                self._failures.at = begin
                end = self._failures.end_of_next(self._shard, begin, logs.end)
                if end is None:
                    raise RemoteError(self._waiting_message())
                part = Range(self._shard, begin, end)
                is_done, cursor = self._attempt(part, logs, tracker)
                if cursor is not None:
                    self._kept = None
                    return cursor
                if is_done:
                    begin = end
                    self._kept = (logs, begin)
        finally:
            self._part_end = None
        self._kept = None
        return None

    def shutdown(self, tracker: Tracker) -> None:
        self._tracker = tracker
        self._failures.at = None
        process, session = self._process, self._session
        try:
            if process is not None and process.loaded and self._generation == process.generation:
                answer = self._call(lambda call: ShutDown(call, session))
                if answer.error is not None:
                    raise RemoteError(answer.error)
        finally:
            self._pool.close_session(session)

    # -- sessions

    def _begin_session(self) -> None:
        """Make a processor in the process, unless it has one of this session."""
        process, session, shard = self._process, self._session, self._shard
        assert process is not None
        if self._generation is not None and self._generation == process.generation and process.loaded:
            return
        self._pool.open_session(session, self._tracker_and_done)
        answer, generation = process.call(
            lambda call: Initialize(call, session, shard), generation=None, timeout_s=self._timeout_s
        )
        if answer.error is not None:
            raise RemoteError(answer.error)
        self._generation = generation

    def _tracker_and_done(self) -> tuple[Tracker | None, str | None]:
        return self._tracker, self._part_end

    def _call(
        self,
        make: Callable[[int], Process | ShutDown],
        bodies: Sequence[bytes] = (),
        *,
        alone: bool = False,
    ) -> Answer:
        assert self._process is not None
        answer, _ = self._process.call(
            make, bodies, generation=self._generation, timeout_s=self._timeout_s, alone=alone
        )
        return answer

    # -- one attempt

    def _attempt(self, part: Range, logs: LogBatch, tracker: Tracker) -> tuple[bool, str | None]:
        """Whether everything up to the end of the part is done, and the cursor that the processor returned
        instead."""
        handler = self._failures.handler
        to_settle = handler.begin((part,))
        try:
            if to_settle is not None:
                return self._settle(to_settle, tracker), None
            answer, failure = self._process_part(part, logs, tracker)
            if failure is not None:
                self._failures.last_message = failure.message
                handler.failed((part,), failure)
                return False, None
            handler.succeeded((part,))
            self._failures.is_suspected = False
            return True, answer.cursor
        finally:
            handler.end()

    def _process_part(self, part: Range, logs: LogBatch, tracker: Tracker) -> tuple[Answer, Failure | None]:
        batch = (
            logs if (logs.begin, logs.end) == (part.begin, part.end) else part_of(logs, part.begin, part.end)
        )
        self._part_end = batch.next_cursor
        began_s = self._clock.monotonic_s()
        self._counts.running_since_s[self._shard] = began_s
        try:
            answer, failure = self._answer_to(batch, tracker.get())
        finally:
            del self._counts.running_since_s[self._shard]
        if failure is None:
            self._count(answer.logs, self._clock.monotonic_s() - began_s)
        else:
            self._part_end = batch.begin_cursor
        return answer, failure

    def _answer_to(self, batch: LogBatch, noted: str) -> tuple[Answer, Failure | None]:
        session, bodies = self._session, bodies_of(batch)
        nothing, alone = Answer(0), self._failures.must_run_alone(self._shard)
        try:
            self._begin_session()
        except RemoteError as error:
            return nothing, _unavailable(WorkerReason.PROCESSOR_FAILED, f"initialize: {error}")
        try:
            answer = self._call(
                lambda call: Process(call, session, [head for head, _ in bodies], noted),
                [content for _, content in bodies],
                alone=alone,
            )
        except CallSuspectedError as error:
            self._failures.is_suspected = True
            return nothing, _unavailable(WorkerReason.BATCH_TIMED_OUT, str(error))
        except CallTimedOutError:
            with self._counts.lock:
                self._counts.timed_out += 1
            message = f"process took longer than {self._timeout_s:.0f} s, and its process was killed"
            reason = WorkerReason.BATCH_TIMED_OUT.value
            return nothing, Failure(cause=Cause.TIMED_OUT, reason=reason, message=message)
        except ProcessEndedError as error:
            reason = WorkerReason.PROCESS_ENDED.value
            return nothing, Failure(cause=Cause.ENDED, reason=reason, message=str(error))
        except CallFailedError as error:
            return nothing, _unavailable(WorkerReason.PROCESS_ENDED, str(error))
        if answer.error is None:
            return answer, None
        cause = Cause.UNAVAILABLE if answer.is_outage else Cause.REJECTED
        return answer, Failure(cause=cause, reason=PIPELINE_FAILED, message=answer.error)

    def _count(self, logs: int, seconds: float) -> None:
        with self._counts.lock:
            self._counts.batches += 1
            self._counts.seconds += seconds
            self._counts.logs[self._shard] = self._counts.logs.get(self._shard, 0) + logs

    def _settle(self, failing: FailingRange, tracker: Tracker) -> bool:
        """Skip or dead-letter the log group at which the shard waits. If the processor has saved everything
        before it, the checkpoint passes it too; otherwise that is left to the processor, which may have
        logs that it did not save yet."""
        handler = self._failures.handler
        settlement = handler.write_dead_letter(failing)
        if settlement is Settlement.FAILED:
            return False
        handler.settled(failing, settlement)
        if tracker.get() == encode_cursor(failing.begin):
            tracker.save(persist=False, cursor=encode_cursor(failing.begin + 1))
        return True

    def _waiting_message(self) -> str:
        known = self._failures.report(self._shard).error.message or self._failures.last_message
        return known or ENDED.message


def _unavailable(reason: WorkerReason, message: str) -> Failure:
    """The logs are not to blame."""
    return Failure(cause=Cause.UNAVAILABLE, reason=reason.value, message=message)
