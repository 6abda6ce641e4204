"""A shard of a worker without its process: what the processor says goes to the consumer as messages.

In place of `loghub_worker.consumer.processes.remote_processor.RemoteProcessor`, whose process and sockets
know no virtual time. The tracker of the process and the one that answers it are those of production.
"""

import itertools
from pathlib import Path
from typing import Any

import msgspec

from loghub.wire.compression import Packed
from loghub_worker.api import Consumer, ConsumerSettings
from loghub_worker.consumer.batch import BodySlice, LogBatch, PulledBody
from loghub_worker.consumer.processes.child_tracker import ChildTracker
from loghub_worker.consumer.processes.messages import Initialize, Save
from loghub_worker.consumer.processes.session_trackers import SessionTrackers
from loghub_worker.consumer.processor import ProcessorFactory, TrackedProcessor, Tracker
from loghub_worker.consumer.running_batches import RunningBatches
from loghub_worker.consumer.user_code import RemoteError, UserCode
from loghub_worker.consumer.worker_options import WorkerOptions
from loghub_worker.failure.outage import is_outage
from loghub_worker.failure.skip_limits import Cause, Failure
from loghub_worker.log_service import PIPELINE_FAILED
from tests.loghub_worker.consumer.virtual import TIMEOUT_S
from tests.simulator.faults import WorkerCrashed

_SESSIONS = itertools.count()


class DirectCalls:
    """In place of `loghub_worker.consumer.processes.child_tracker.TrackerCalls`."""

    def __init__(self, trackers: SessionTrackers) -> None:
        self._trackers = trackers
        self._numbers = itertools.count()

    def ask(self, make: Any) -> Any:
        call = sent(make(next(self._numbers)))
        is_sent = isinstance(call, Save) and call.persist
        return (self._trackers.note(call) if is_sent else None) or self._trackers.carry_out(call)

    def tell(self, message: Any) -> None:
        self._trackers.carry_out(sent(message))


def sent(message: Any) -> Any:
    """As the other end reads it."""
    return msgspec.msgpack.decode(msgspec.msgpack.encode(message), type=type(message))


class RemoteShard(TrackedProcessor):
    """One assignment of a shard."""

    def __init__(self, factory: ProcessorFactory) -> None:
        self._processor = factory()
        self._code = UserCode()
        self._trackers = SessionTrackers()
        self._session = next(_SESSIONS)

    def use(self, tracker: Tracker) -> None:
        self._trackers.open(self._session, tracker)  # type: ignore[arg-type]

    def initialize(self, shard: int) -> None:
        begin = Initialize(0, self._session, shard, True, True)
        self._child = ChildTracker(DirectCalls(self._trackers), begin)  # type: ignore[arg-type]
        self._code.call(self._processor.initialize, shard)

    def process(self, logs: LogBatch, tracker: Tracker) -> str | None:
        slices = []
        for one in logs.slices:
            packed = Packed(one.packed.content, one.packed.size, one.packed.how)
            body = PulledBody(packed, shard=logs.shard, first=one.first, count=one.groups)
            slices.append(BodySlice(body, 0, one.groups, one.only))
        batch = LogBatch(logs.shard, tuple(slices), delivery=logs.delivery)
        try:
            with self._child.running(batch):
                returned: str | None = self._code.call(self._processor.process, batch, self._child)
        except WorkerCrashed:
            raise
        except BaseException as error:
            cause = Cause.UNAVAILABLE if is_outage(error) else Cause.REJECTED
            failure = Failure(cause=cause, reason=PIPELINE_FAILED, message=str(error))
            raise RemoteError(failure.message, failure) from error
        return returned

    def shutdown(self, tracker: Tracker) -> None:
        self._code.call(self._processor.shutdown, self._child)

    def close(self) -> None:
        self._code.close()
        self._trackers.close(self._session)


def in_worker(settings: ConsumerSettings, factory: ProcessorFactory, folder: Path | None) -> Consumer:
    """The consumer of a worker with this state directory; None: of a program with processes."""
    timeout_s = None if folder is None else TIMEOUT_S
    options = WorkerOptions(
        timeout_s=timeout_s,
        retry_timeout_s=timeout_s,
        state_dir=folder,
        running=RunningBatches(folder),
        batch_timeout_s=60.0,
        restart_s=1.0,
        retry_factory=lambda: RemoteShard(factory),
    )
    return Consumer(settings, lambda: RemoteShard(factory), worker=options)
