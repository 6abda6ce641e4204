"""The shards of a worker without its processes: what a processor says goes to the consumer as messages.

`DirectProcess` is in place of `loghub_consumer.processes.child_process.ChildProcess`, whose sockets
know no virtual time, and makes the calls as they come. All else is that of production.
"""

import itertools
from pathlib import Path
from typing import Any

import msgspec

from loghub.wire.compression import Packed
from loghub_consumer import Consumer, ConsumerSettings, Processor
from loghub_consumer.batch import BodySlice, LogBatch, PulledBody
from loghub_consumer.failure.outage import is_outage
from loghub_consumer.processes.messages import CallAnswer, Initialize, ProcessBatch, Save, ShutDown
from loghub_consumer.processes.remote_processor import ProcessorCounts, RemoteParts, RemoteProcessor
from loghub_consumer.processes.session_trackers import SessionTrackers
from loghub_consumer.processes.trackers import ChildTracker
from loghub_consumer.processor import ProcessorFactory
from loghub_consumer.running_batches import RunningBatches
from loghub_consumer.settings import WorkerOptions
from loghub_consumer.user_calls import UserCalls
from tests.loghub_consumer.virtual import TIMEOUT_S
from tests.simulator.faults import WorkerCrashed
from tests.simulator.service import VirtualClock

BATCH_TIMEOUT_S = 60.0


class DirectCalls:
    """In place of `loghub_consumer.processes.trackers.TrackerCalls`."""

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


class DirectProcess:
    """One process, with its sessions."""

    loaded = True

    def __init__(self, factory: ProcessorFactory, trackers: SessionTrackers) -> None:
        self._factory = factory
        self._trackers = trackers
        self._sessions: dict[int, tuple[Processor, ChildTracker, UserCalls]] = {}
        self.generation = 1

    def replaced(self) -> None:
        """The process has ended, and another one is there."""
        self.generation += 1
        sessions, self._sessions = tuple(self._sessions), {}
        self._trackers.process_ended(sessions, "killed")

    def await_loaded(self, may_wait: Any) -> None:
        """It is."""

    def call(self, make: Any, bodies: Any = (), *, generation: Any, **_: Any) -> tuple[CallAnswer, int]:
        assert generation in (None, self.generation)
        request = sent(make(0))
        try:
            return self._answer(request, bodies), self.generation
        except WorkerCrashed:
            raise
        except BaseException as error:  # noqa: BLE001 - as of a process
            return CallAnswer(0, error=str(error), is_outage=is_outage(error)), self.generation

    def _answer(self, request: Initialize | ProcessBatch | ShutDown, bodies: Any) -> CallAnswer:
        if isinstance(request, Initialize):
            calls: Any = DirectCalls(self._trackers)
            processor, code = self._factory(), UserCalls()
            self._sessions[request.session] = processor, ChildTracker(calls, request), code
            code.call(processor.initialize, request.shard)
            return CallAnswer(0, is_known=True)
        processor, tracker, code = self._sessions[request.session]
        if isinstance(request, ShutDown):
            del self._sessions[request.session]
            code.call(processor.shutdown, tracker)
            code.close()
            return CallAnswer(0)
        slices = []
        for body, content in zip(request.bodies, bodies, strict=True):
            packed = Packed(content, body.size, body.how)
            pulled = PulledBody(packed, shard=tracker.shard, first=body.first, count=body.count)
            slices.append(BodySlice(pulled, 0, body.count, body.only))
        batch = LogBatch(tracker.shard, tuple(slices), delivery=request.delivery)
        with tracker.running(batch):
            return CallAnswer(0, cursor=code.call(processor.process, batch, tracker))


class DirectPool:
    """In place of `loghub_consumer.processes.child_process.ProcessPool`: two processes, of which a
    session has one. `moves` says that each moves to the other one before its next batch."""

    def __init__(self, factory: ProcessorFactory) -> None:
        self.trackers = SessionTrackers()
        self.processes = [DirectProcess(factory, self.trackers) for _ in range(2)]
        self.moves = 0  # so often
        self._of: dict[int, int] = {}

    def take(self, session: int, shard: int, **_: Any) -> DirectProcess:
        self._of[session] = shard % 2
        return self.processes[shard % 2]

    def move(self, session: int, shard: int) -> DirectProcess | None:
        if not self.moves:
            return None
        self.moves -= 1
        self._of[session] = 1 - self._of[session]
        return self.processes[self._of[session]]

    def give_back(self, session: int) -> None:
        self.trackers.close(session)


def in_worker(
    settings: ConsumerSettings,
    factory: ProcessorFactory,
    folder: Path | None,
    clock: VirtualClock,
    *,
    pool: DirectPool | None = None,
) -> Consumer:
    """The consumer of a worker with this state directory; None: of a program with processes."""
    timeout_s = None if folder is None else TIMEOUT_S
    parts: Any = RemoteParts(
        pool=pool or DirectPool(factory),  # type: ignore[arg-type]
        counts=ProcessorCounts(),
        clock=clock,
        timeout_s=BATCH_TIMEOUT_S,
        has_hung=lambda _: False,
    )
    options = WorkerOptions(
        timeout_s=timeout_s,
        retry_timeout_s=timeout_s,
        state_dir=folder,
        running=RunningBatches(folder),
        batch_timeout_s=BATCH_TIMEOUT_S,
        restart_s=1.0,
        retry_factory=lambda: RemoteProcessor(parts.of_retries()),
    )
    return Consumer(settings, lambda: RemoteProcessor(parts), worker=options)
