"""A processor over given logs (`loghub_worker.dry_run`).

Each shard has a processor of its own, whose methods are called in the order and with the batches of a worker:
`initialize`, `process` for one batch after the other, `shutdown`. Its tracker keeps what it is told, and
sends nothing. Logs that are refused do not come again.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from loghub.contract.dry_run import DryRunReport, RejectedLogs, Sample, SampledGroup
from loghub.contract.processor import ProcessorPipeline
from loghub.wire.cursor import decode as decode_cursor
from loghub.wire.cursor import encode as encode_cursor
from loghub_consumer.batch import LogBatch, LogPlace, Logs, count_logs, places_of
from loghub_consumer.errors import FatalError
from loghub_consumer.failure.outage import decisive, is_outage
from loghub_consumer.failure.policy import Cause, Failure
from loghub_consumer.log_service import PIPELINE_FAILED
from loghub_consumer.processes.child import ProcessShards
from loghub_consumer.processor import Listener, Processor, ProcessorFactory
from loghub_consumer.tracker import REFUSED
from loghub_consumer.unacknowledged import FINAL, TIMED_OUT
from loghub_consumer.user_calls import UserCalls
from loghub_consumer.user_code import user_message
from loghub_worker.dry_run import Attempts, batches_of, divide, report_of
from loghub_worker.settings import WorkerSettings
from loghub_worker.start_check import load_processor, user_code

# For logs that the processor still has after `process` has returned: threads of a fan-out are done in
# moments, and about a log that was forgotten nothing is said, however long one waits.
MAX_ACK_WAIT_S = 30.0
SOUGHT = "the processor continues elsewhere in a shard; here it got the next logs of the sample"


class RecordingTracker:
    """The `loghub_consumer.processor.Tracker` of a shard that nobody else may have. Thread-safe."""

    def __init__(self, shard: int) -> None:
        self.shard = shard
        self.sought = False
        self._changed = threading.Condition()
        self._running: LogBatch | None = None
        self._position = 0  # as saved last
        self._open: dict[
            LogPlace, tuple[str, str] | None
        ] = {}  # handed over and not done; reason and message
        self._logs: dict[int, int] = {}  # cursor -> number of logs, of all that was handed over

    def begin(self, batch: LogBatch) -> None:
        """`process` is called with this batch. Its logs may have been handed over before."""
        with self._changed:
            self._running = batch
            for cursor, raw, _ in batch.raw_groups():
                if cursor not in self._logs:
                    self._logs[cursor] = count_logs(raw)
                    self._open |= dict.fromkeys(self._of_group(cursor))

    def returned(self, batch: LogBatch) -> None:
        """By batch: what `process` has had and has not refused is done."""
        with self._changed:
            for place in self._places([batch]):
                if self._open.get(place, ()) is None:
                    del self._open[place]

    def settle(self, cursor: int) -> int:
        """The log group fails by itself, and is settled. Returns how many of its logs were not done."""
        with self._changed:
            left = [place for place in self._of_group(cursor) if place in self._open]
            for place in left:
                del self._open[place]
            return len(left)

    def await_all(self) -> bool:
        """Wait until each log is done or refused."""
        with self._changed:
            return self._changed.wait_for(lambda: None not in self._open.values(), MAX_ACK_WAIT_S)

    def left(self) -> Iterator[RejectedLogs]:
        """The logs that are not done."""
        waited = f"{TIMED_OUT.message}: waited {MAX_ACK_WAIT_S:.0f} s after the last batch"
        reasons = {
            place: (TIMED_OUT.reason, waited) if why is None else why for place, why in self._open.items()
        }
        counted = Counter((place.cursor, *why) for place, why in reasons.items())
        for (cursor, reason, message), logs in sorted(counted.items()):
            yield RejectedLogs(
                outcome={REFUSED: "refused", FINAL: "rejected"}.get(reason, "unacknowledged"),  # type: ignore[arg-type]
                shard=self.shard,
                cursor=encode_cursor(cursor),
                logs=logs,
                reason=reason,
                message=message,
            )

    # -- what the processor calls

    def save(self, *, persist: bool = True, cursor: str | None = None) -> None:  # noqa: ARG002 - nothing is sent
        with self._changed:
            end = 0 if self._running is None else self._running.end
            self._position = end if cursor is None else decode_cursor(cursor)

    def get(self) -> str:
        return encode_cursor(self._position)

    def ack(self, *logs: Logs) -> None:
        with self._changed:
            self._acknowledge(self._places(logs))

    def ack_up_to(self, last: Logs) -> None:
        with self._changed:
            self._acknowledge(self._up_to(last))

    def nack(self, *logs: Logs, delay_s: float | None = None, reason: str = "") -> None:  # noqa: ARG002
        with self._changed:
            self._refuse(self._places(logs), REFUSED, reason)

    def nack_up_to(self, last: Logs, *, delay_s: float | None = None, reason: str = "") -> None:  # noqa: ARG002
        with self._changed:
            self._refuse(self._up_to(last), REFUSED, reason)

    def reject(self, *logs: Logs, reason: str = "") -> None:
        with self._changed:
            self._refuse(self._places(logs), FINAL, reason)

    def transaction(self, logs: LogBatch) -> AbstractContextManager[Any]:  # noqa: ARG002 - as in a worker
        raise ValueError("there is no database; set ConsumerSettings.checkpoint_store")

    def seek(self, to: str | int) -> None:
        if not isinstance(to, int) and to not in ("begin", "end"):
            decode_cursor(to)
        self.sought = True

    def pause(self) -> None:
        """The sample is all that there is, so nothing is held back."""

    def resume(self) -> None:
        """See `pause`."""

    def _acknowledge(self, places: Iterable[LogPlace]) -> None:
        for place in places:
            self._open.pop(place, None)
        self._changed.notify_all()

    def _refuse(self, places: Iterable[LogPlace], reason: str, message: str) -> None:
        for place in places:
            if place in self._open:
                self._open[place] = (reason, message)
        self._changed.notify_all()

    def _places(self, logs: Iterable[Logs]) -> list[LogPlace]:
        found = places_of(logs, self._running)
        return [
            one
            for place in found
            for one in ([place] if place.index is not None else self._of_group(place.cursor))
        ]

    def _of_group(self, cursor: int) -> list[LogPlace]:
        return [LogPlace(cursor, index) for index in range(self._logs.get(cursor, 0))]

    def _up_to(self, last: Logs) -> list[LogPlace]:
        ends = [(place.cursor, place.index) for place in places_of([last], self._running)]
        cursor, index = ends[-1]
        return [
            place
            for place in self._open
            if place.cursor < cursor
            or (place.cursor == cursor and (index is None or (place.index or 0) <= index))
        ]


def run_processor(settings: WorkerSettings, sample: Sample) -> DryRunReport:
    """Raises `FatalError` with the reason for which a worker would end, or would wait."""
    pipeline, shards = settings.config.pipeline, ProcessShards()
    assert isinstance(pipeline, ProcessorPipeline)
    code = user_code(settings)
    factory, listener = load_processor(pipeline, code, shards)
    found, notes = Attempts(), list[str]()
    for shard in sorted({group.shard for group in sample.groups}):
        groups = [group for group in sample.groups if group.shard == shard]
        run = _ShardRun(pipeline, shards, factory, listener, code=code, shard=shard)
        run.over(groups, found)
        if run.tracker.sought and not notes:
            notes.append(SOUGHT)
    report = report_of(sample, found)
    return msgspec.structs.replace(
        report,
        done=report.logs - report.untried - sum(one.logs for one in report.rejected),
        notes=notes,
    )


class _ShardRun:
    """One shard, from its assignment until it is given up."""

    def __init__(
        self,
        pipeline: ProcessorPipeline,
        shards: ProcessShards,
        factory: ProcessorFactory,
        listener: Listener | None,
        *,
        code: Path | None,
        shard: int,
    ) -> None:
        self.tracker = RecordingTracker(shard)
        self._pipeline = pipeline
        self._shards = shards
        self._factory = factory
        self._listener = listener
        self._code = code
        self._calls = UserCalls()

    def over(self, groups: Sequence[SampledGroup], found: Attempts) -> None:
        tracker = self.tracker
        self._shards.add(tracker)
        processor = self._step(self._begin)
        for batch in _batches(groups, self._pipeline):
            part = divide(batch, lambda some: self._attempt(processor, some), rejected=len(found.rejected))
            found.rejected += [
                msgspec.structs.replace(one, logs=tracker.settle(decode_cursor(one.cursor)))
                for one in part.rejected
            ]
            found.untried += part.untried
        if self._pipeline.acknowledge == "log":
            self._calls.wait(tracker.await_all)
        left = list(tracker.left())
        if self._listener is not None:
            self._step(partial(self._listener.on_revoked, (tracker.shard,)))
        self._step(lambda: self._calls.call(processor.shutdown, tracker))
        self._calls.close()
        self._shards.remove(tracker)
        found.rejected += left

    def _begin(self) -> Processor:
        shard = self.tracker.shard
        if self._listener is not None:
            self._listener.on_assigned((shard,))
        processor: Any = self._factory()
        if not isinstance(processor, Processor):
            raise TypeError(
                f"the factory returned {type(processor).__name__}, not a loghub_consumer.Processor"
            )
        self._calls.call(processor.initialize, shard)
        return processor

    def _step(self, step: Callable[[], Any]) -> Any:
        """A call without logs: a worker repeats it, and gets no further."""
        try:
            return step()
        except BaseException as error:  # noqa: BLE001 - user code; SystemExit, too
            self._end(error)

    def _end(self, error: BaseException) -> NoReturn:
        raise FatalError(PIPELINE_FAILED, self._message(error)) from error

    def _message(self, error: BaseException) -> str:
        return user_message(decisive(error), self._code)

    def _attempt(self, processor: Processor, groups: Sequence[SampledGroup]) -> Failure | None:
        [batch] = batches_of(groups)
        self.tracker.begin(batch)
        try:
            cursor = self._calls.call(processor.process, batch, self.tracker)
            if not isinstance(cursor, str | None):
                raise TypeError(
                    f"process returned {type(cursor).__name__}; return None, or a cursor as a text"
                )
            if cursor is not None:
                decode_cursor(cursor)
                self.tracker.sought = True
        except BaseException as error:  # noqa: BLE001 - user code; SystemExit and CancelledError, too
            cause = Cause.UNAVAILABLE if is_outage(error) else Cause.REJECTED
            return Failure(cause=cause, reason=PIPELINE_FAILED, message=self._message(error))
        if self._pipeline.acknowledge != "log":
            self.tracker.returned(batch)
        return None


def _batches(groups: Sequence[SampledGroup], pipeline: ProcessorPipeline) -> Iterator[list[SampledGroup]]:
    """The log groups in batches of the pipeline's size. A log group that is larger is a batch of its own."""
    batch, logs, size = list[SampledGroup](), 0, 0
    for group in groups:
        more, more_size = count_logs(group.log_group), len(group.log_group)
        too_many = pipeline.max_logs is not None and logs + more > pipeline.max_logs
        if batch and (too_many or size + more_size > pipeline.max_bytes):
            yield batch
            batch, logs, size = [], 0, 0
        batch.append(group)
        logs, size = logs + more, size + more_size
    if batch:
        yield batch
