"""The turns of one shard: calls its processor, step by step.

Calls user code that may be `async`, with one event loop for all calls of a thread.

The loop also runs while the thread waits for its next call, so that tasks which user code has started go on:
producers that collect messages, keep-alives of connections, timers.

Begins the shards that a consumer has been given, and gives them up: listener, processor, checkpoint.

`loghub_consumer.shard_flow` decides; this does it, in the thread of `Consumer.run`.
"""

import asyncio
import inspect
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import structlog

from loghub.client.port import LogHub
from loghub.wire.cursor import decode as decode_cursor
from loghub.wire.errors import LogHubException
from loghub_consumer import shard_flow
from loghub_consumer.assignment import Assignment
from loghub_consumer.batch import LogBatch
from loghub_consumer.failure.outage import description, is_outage
from loghub_consumer.failure.policy import Cause, Failure
from loghub_consumer.log_context import log_error
from loghub_consumer.log_service import ReportedError
from loghub_consumer.membership.membership import HeldShard
from loghub_consumer.membership.shard_manager import PARALLEL
from loghub_consumer.membership.turns import OwnThreads, Turns
from loghub_consumer.processor import (
    Listener,
    Processor,
    ProcessorFactory,
    ShardLostError,
    ThreadedProcessor,
    TrackedProcessor,
)
from loghub_consumer.reading.answers import ShortReadError
from loghub_consumer.settings import ConsumerSettings, stored_shard
from loghub_consumer.settlement import FailureSink, Settlement
from loghub_consumer.shard_flow import ShardFlow, ThreadStep, rebalance
from loghub_consumer.shard_table import Kept, ShardSlot, ShardTable, SlotControl
from loghub_consumer.tracker import Acknowledgement, ShardTracker, StoredPosition

log = structlog.get_logger()


T = TypeVar("T")


class RemoteError(Exception):
    """User code failed in another process, which has logged it. The message is for the user; `failure` is
    why `process` failed."""

    def __init__(self, message: str, failure: Failure | None = None) -> None:
        super().__init__(message)
        self.failure = failure


class UserCalls:
    """Used by one thread at a time."""

    def __init__(self) -> None:
        self._loop: asyncio.Runner | None = None

    @property
    def has_loop(self) -> bool:
        """Whether some of the code is `async`: tasks of it may go on between its calls."""
        return self._loop is not None

    def call(self, method: Callable[..., Any], *arguments: object) -> Any:
        """What the method returns, or what it returns when awaited."""
        result = method(*arguments)
        if not inspect.isawaitable(result):
            return result
        if self._loop is None:
            self._loop = asyncio.Runner()
        try:
            return self._loop.run(_await(result))
        except asyncio.CancelledError as error:  # no Exception, and would end the consumer
            raise RuntimeError(f"a task of {method.__name__} was cancelled") from error

    def wait(self, wait: Callable[[], T]) -> T:
        """What `wait` returns, which blocks until there is something to do. With a loop it does so in another
        thread."""
        return wait() if self._loop is None else self._loop.run(_aside(wait))

    def close(self) -> None:
        if self._loop is not None:
            self._loop.close()


async def _await(result: Any) -> Any:
    return await result


async def _aside(wait: Callable[[], T]) -> T:
    waiting = asyncio.get_running_loop().run_in_executor(None, wait)
    while not waiting.done():
        with suppress(asyncio.CancelledError):  # of user code that cancels all tasks, of which this is none
            await asyncio.wait([waiting])
    return waiting.result()


PROCESSOR_FAILED = "ProcessorFailed"


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentParts:
    """What belongs to one assignment of a shard. `settlement` and `stored` are None if the settings have no
    failure policy and no database."""

    tracker: ShardTracker
    acknowledgement: Acknowledgement
    settlement: Settlement | None
    stored: StoredPosition | None


class ShardRunner:
    """Runs one assignment of a shard from `initialize` to `shutdown`."""

    def __init__(
        self,
        table: ShardTable,
        slot: ShardSlot,
        parts: AssignmentParts,
        factory: ProcessorFactory,
        turns: Turns,
    ) -> None:
        self._table = table
        self._slot = slot
        self._tracker = parts.tracker
        self._acknowledgement = parts.acknowledgement
        self._settlement = parts.settlement
        self._stored = parts.stored
        self._factory = factory
        self._processor: Processor | None = None
        self._code = UserCalls()
        self._turns = turns
        self._thread: threading.Thread | None = None  # that may be in the user's code

    def start(self) -> None:
        turn = self._turns.start(f"shard-{self._tracker.shard}", self._take_turn, wait=self._wait)
        self._slot.wake = turn.wake
        turn.wake()  # for what has changed meanwhile

    @property
    def threads(self) -> tuple[threading.Thread, ...]:
        """All threads that call the user's code now; any thread may ask."""
        processor, thread = self._processor, self._thread
        own = () if thread is None else (thread,)
        return (*own, *(processor.threads if isinstance(processor, ThreadedProcessor) else ()))

    @property
    def failure(self) -> BaseException | None:
        """What must end the consumer; any thread may ask."""
        return self._processor.failure if isinstance(self._processor, ThreadedProcessor) else None

    def _wait(self, wait: Callable[[], object]) -> object:
        """In a thread of its own, in which tasks of `async` code go on meanwhile."""
        self._thread = threading.current_thread()
        try:
            return self._code.wait(wait)
        finally:
            self._thread = None

    def _take_turn(self) -> float | None:
        """The processor may have its turns in different threads, one after the other."""
        self._thread = threading.current_thread()
        try:
            pause_s = self._step()
        finally:
            self._thread = None
        if pause_s is None or not self._code.has_loop or isinstance(self._turns, OwnThreads):
            return pause_s
        self._turns = OwnThreads()  # tasks that `async` code has started go on between its calls, in `_wait`
        self.start()
        return None

    def _step(self) -> float | None:
        """What is due, and how long nothing is then; None: the shard has ended."""
        steps: dict[ThreadStep, Callable[[], None]] = {
            ThreadStep.INITIALIZE: self._initialize,
            ThreadStep.PROCESS: self._process,
            ThreadStep.REDELIVER: self._process,
            ThreadStep.SHUT_DOWN: self._shut_down,
        }
        try:
            step, wait_s = self._table.next_step(self._slot)
            if step is ThreadStep.WAIT:
                return wait_s
            if step is not ThreadStep.END:
                steps[step]()
                return 0.0
        except BaseException as failure:  # noqa: BLE001 - such as SystemExit of user code: ends the consumer
            self._table.fail(failure)
            self._table.apply(self._slot, lambda flow, _: shard_flow.shut_down(flow))
        if isinstance(self._processor, TrackedProcessor):
            self._processor.close()
        self._code.close()
        return None

    def _initialize(self) -> None:
        try:
            if self._stored is not None and self._stored.is_uncertain:
                self._tracker.require_held()
                self._stored.acquire()
            if self._processor is None:
                self._processor = self._factory()
                if isinstance(self._processor, TrackedProcessor):
                    self._processor.use(self._tracker)
            self._code.call(self._processor.initialize, self._tracker.shard)
        except Exception as error:  # noqa: BLE001 - user code
            self._report("initialize", error)
            retries = self._table.retries
            self._apply(lambda flow, now: shard_flow.initialize_failed(flow, retries=retries, now=now))
            return
        self._apply(lambda flow, now: shard_flow.initialized(flow, now=now))

    def _process(self) -> None:
        assert self._slot.kept is not None
        if self._settlement is None:
            self._process_kept()
            return
        if not self._settlement.begin(self._slot.kept):
            self._keep(self._slot.kept)
            return
        try:
            self._process_kept()
        finally:
            self._settlement.end()

    def _process_kept(self) -> None:
        assert self._slot.kept is not None
        assert self._processor is not None
        if self._slot.kept.again is None and self._table.defers:
            self._defer(self._slot.kept)
            return
        kept = self._settle(self._slot.kept)
        if kept is None or self._is_elsewhere(kept):
            return
        batch = kept.batch
        try:
            to = self._hand_over(kept, self._processor)
        except ShortReadError as error:
            self._report("process", error)
            self._roll_back(kept, to=batch.begin)  # the body is unusable, so it is pulled again
        except Exception as error:  # noqa: BLE001 - user code
            self._report("process", error)
            if not _is_sound(batch):
                self._roll_back(kept, to=batch.begin)
                return
            failure = _failure_of(error)
            was_alone = self._settlement is None or self._settlement.was_alone
            if not self._acknowledgement.raised(failure, was_alone=was_alone):
                self._complete(kept)
                return
            if self._settlement is not None:
                self._settlement.failed(kept, failure)
            self._fail(kept)
        else:
            self._slot.user_error = ReportedError()
            refused_all = self._acknowledgement.returned()
            if self._settlement is not None and to is None:
                self._settlement.succeeded(kept, refused_all=refused_all)
            if to is None:
                self._complete(kept)
            else:
                self._roll_back(kept, to=to)

    def _hand_over(self, kept: Kept, processor: Processor) -> int | None:
        """The cursor that `process` has returned. Raises what it raised, and `ShortReadError`."""
        batch, failure, returned = kept.batch, None, None
        try:  # while nothing that is saved concerns this batch
            returned = processor.prepare(batch) if isinstance(processor, TrackedProcessor) else None
        except Exception as error:  # noqa: BLE001 - it counts as one of `process`
            failure = error
        self._acknowledgement.begin(kept)
        if failure is not None:
            raise failure
        if returned is None:
            end = max(batch.end, self._slot.flow.position)
            self._tracker.begin_batch(end, generation=kept.generation)
            returned = self._code.call(processor.process, batch, self._tracker)
        if self._stored is not None and self._stored.is_uncertain:
            raise RuntimeError("process returned although its transaction failed; let it raise")
        return None if returned is None else decode_cursor(returned)

    def _is_elsewhere(self, kept: Kept) -> bool:
        """After a transaction that failed, ask the database whether it was committed. True if the batch must
        not be processed now."""
        if self._stored is None or not self._stored.is_uncertain:
            return False
        try:
            self._tracker.require_held()
            moved: bool = self._stored.acquire()
        except Exception as error:  # noqa: BLE001 - each driver has its own
            self._report("the checkpoint store", error)
            self._fail(kept)
            return True
        if moved:
            self._complete(kept)
        return moved

    def _defer(self, kept: Kept) -> None:
        try:
            self._acknowledgement.defer(kept)
        except ShortReadError as error:
            self._report("process", error)
            self._roll_back(kept, to=kept.batch.begin)
            return
        self._complete(kept)
        self._note_settled(kept.batch.begin, kept.batch.end)

    def _settle(self, kept: Kept) -> Kept | None:
        """Settle what failed too often. Returns what is left for the processor."""
        settlement = self._settlement
        if settlement is None:
            return kept
        if kept.again is not None:
            rest = settlement.settle(kept, kept.again)
            self._note_settled()
            if rest is not None:
                return rest
            self._complete(kept)
        elif not settlement.is_due(kept):
            return kept
        elif settlement.settle_alone(kept):
            self._slot.user_error = ReportedError()
            self._complete(kept)
            self._note_settled(kept.batch.begin, kept.batch.end)
        else:
            self._fail(kept)
        return None

    def _note_settled(self, begin: int = 0, end: int = 0) -> None:
        with suppress(ShardLostError):
            self._tracker.settled(begin, end)

    def _complete(self, kept: Kept) -> None:
        generation, size = kept.generation, _held_bytes(kept)
        self._end_batch(
            lambda flow, _: shard_flow.batch_done(
                flow, end=max(flow.position, kept.batch.end), size=size, generation=generation
            )
        )

    def _fail(self, kept: Kept) -> None:
        self._keep(kept)
        if self._settlement is not None:
            self._settlement.divide(kept)

    def _keep(self, kept: Kept) -> None:
        generation, size, retries = kept.generation, _held_bytes(kept), self._table.retries
        self._end_batch(
            lambda flow, now: shard_flow.batch_failed(
                flow, size=size, generation=generation, retries=retries, now=now
            )
        )

    def _roll_back(self, kept: Kept, *, to: int) -> None:
        if self._is_elsewhere(kept):
            return
        generation, size, retries = kept.generation, _held_bytes(kept), self._table.retries
        self._end_batch(
            lambda flow, now: shard_flow.rolled_back(
                flow, to=to, size=size, generation=generation, retries=retries, now=now
            )
        )

    def _end_batch(self, event: Callable[[ShardFlow, float], ShardFlow]) -> None:
        self._tracker.end_batch(self._table.end_batch(self._slot, event))
        self._acknowledgement.ended()

    def _shut_down(self) -> None:
        if self._processor is not None and self._slot.flow.is_initialized:
            self._tracker.end_batch(self._slot.flow)
            try:
                self._code.call(self._processor.shutdown, self._tracker)
            except Exception as error:  # noqa: BLE001 - user code
                self._report("shutdown", error)
        with suppress(ShardLostError):
            self._tracker.note_acknowledged()
        self._apply(lambda flow, _: shard_flow.shut_down(flow))

    def _apply(self, event: Callable[[ShardFlow, float], ShardFlow]) -> None:
        self._table.apply(self._slot, event)

    def _report(self, method: str, error: Exception) -> None:
        is_remote = isinstance(error, RemoteError)
        what = f"failed: {error}" if is_remote else f"raised {description(error)}"
        message = f"{method} of shard {self._tracker.shard} {what}"
        failure = error.failure if isinstance(error, RemoteError) else None
        if self._slot.user_error.message != message:
            shard = self._tracker.shard
            if is_remote:
                log.warning("processor failed", shard=shard, method=method, message=str(error))
            else:
                log_error(log.warning, "processor failed", error, shard=shard, method=method)
        self._slot.user_error = ReportedError(failure.reason if failure else PROCESSOR_FAILED, message)


def _is_sound(batch: LogBatch) -> bool:
    """Whether the bodies are lists of log groups: nobody may have looked at them yet."""
    try:
        for part in batch.slices:
            _ = part.body.ends
    except ShortReadError:
        return False
    return True


def _failure_of(error: Exception) -> Failure:
    """Why `process` raised, for the failure policy."""
    if isinstance(error, RemoteError) and error.failure is not None:
        return error.failure
    cause = Cause.UNAVAILABLE if is_outage(error) else Cause.REJECTED
    return Failure(cause=cause, reason=PROCESSOR_FAILED, message=description(error))


def _held_bytes(kept: Kept) -> int:
    """What comes again is not counted with what was pulled."""
    return kept.batch.size_bytes if kept.again is None else 0


@dataclass(frozen=True, slots=True)
class _ShardRun:
    slot: ShardSlot
    tracker: ShardTracker
    runner: ShardRunner


@dataclass(frozen=True, slots=True, kw_only=True)
class RunParts:
    """What all shards of a consumer share. `failure_sink` is None with the policy ``Retry``."""

    settings: ConsumerSettings
    client: LogHub
    factory: ProcessorFactory
    failure_sink: FailureSink | None
    processors: Turns


def _commit(run: _ShardRun) -> Exception | None:
    """Why the position is not saved."""
    try:
        run.tracker.commit(lambda: run.slot.flow)
    except (ShardLostError, LogHubException) as error:
        return error
    return None


class ShardRuns:
    """The shards whose processors exist. `commit` and `threads` may be called by any thread."""

    def __init__(
        self, table: ShardTable, assignment: Assignment, parts: RunParts, listener: Listener
    ) -> None:
        self._table = table
        self._assignment = assignment
        self._parts = parts
        self._listener = listener
        self._runs: dict[int, _ShardRun] = {}

    @property
    def shards(self) -> tuple[int, ...]:
        return tuple(self._runs)

    @property
    def threads(self) -> tuple[threading.Thread, ...]:
        return tuple(thread for run in tuple(self._runs.values()) for thread in run.runner.threads)

    def commit(self) -> None:
        """Save the position of every shard. Tries all, then raises the first error: `ShardLostError` or
        `LogHubException`."""
        runs = [
            run
            for shard, slot in self._table.working().items()
            if (run := self._runs.get(shard)) is not None and run.slot is slot
        ]
        if not runs:
            return
        with ThreadPoolExecutor(min(PARALLEL, len(runs)), thread_name_prefix="commit") as pool:
            errors = [error for error in pool.map(_commit, runs) if error is not None]
        if errors:
            raise errors[0]

    def step(self) -> None:
        """Note what was acknowledged by log, then do what `loghub_consumer.shard_flow` decides."""
        for run in self._runs.values():
            if run.runner.failure is not None:
                self._table.fail(run.runner.failure)
            with suppress(ShardLostError):
                run.tracker.note_acknowledged()
                if self._parts.settings.query:
                    run.tracker.passed(run.slot.flow.position)
        plan = rebalance(self._table.flows(), self._assignment.held())
        for shard in plan.ended:
            self._release(shard)
        for held in plan.unbegun:
            self._assignment.released(held.shard, epoch=held.epoch)
        for shard in plan.revoked:
            self._table.apply(self._runs[shard].slot, lambda flow, _: shard_flow.revoked(flow))
        for shard in plan.lost:
            self._table.apply(self._runs[shard].slot, lambda flow, _: shard_flow.lost(flow))
        if plan.lost:
            log.warning("shards lost", shards=plan.lost)
            self._announce(plan.lost, self._listener.on_lost)
        if plan.announce:
            self._announce(plan.announce, self._listener.on_revoked)
        if plan.assigned:
            self._begin(plan.assigned)

    def _announce(self, shards: tuple[int, ...], method: Callable[[tuple[int, ...]], None]) -> None:
        """Call the listener, then let the processors shut down."""
        self._call_listener(shards, method)
        for shard in shards:
            self._table.apply(self._runs[shard].slot, lambda flow, _: shard_flow.announced(flow))

    def _call_listener(self, shards: tuple[int, ...], method: Callable[[tuple[int, ...]], None]) -> None:
        try:
            method(shards)
        except Exception as failure:  # noqa: BLE001 - user code: ends the consumer, but not before the drain
            log_error(log.error, "listener failed", failure, shards=shards)
            self._table.fail(failure)

    def _begin(self, assigned: tuple[HeldShard, ...]) -> None:
        for held in assigned:
            self._runs[held.shard] = self._make_run(held)
        shards = tuple(held.shard for held in assigned)
        self._call_listener(shards, self._listener.on_assigned)
        for shard in shards:
            self._runs[shard].runner.start()

    def _make_run(self, held: HeldShard) -> _ShardRun:
        assert held.position is not None
        parts, table = self._parts, self._table
        slot = table.add(held.shard, epoch=held.epoch, position=held.position)
        acknowledgement = Acknowledgement(table, slot, parts.settings.redelivery)
        stored = self._stored_position(slot)
        tracker = ShardTracker(
            self._assignment.checkpoints,
            acknowledgement,
            stored,
            SlotControl(table, slot, parts.client, logstore=parts.settings.logstore),
            held=held,
        )
        settlement = None
        if parts.failure_sink is not None:
            settlement = Settlement(table, slot, parts.failure_sink, parts.settings.redelivery)
        own = AssignmentParts(
            tracker=tracker, acknowledgement=acknowledgement, settlement=settlement, stored=stored
        )
        return _ShardRun(slot, tracker, ShardRunner(table, slot, own, parts.factory, parts.processors))

    def _stored_position(self, slot: ShardSlot) -> StoredPosition | None:
        settings, client = self._parts.settings, self._parts.client
        shard, epoch = slot.flow.shard, slot.flow.epoch
        if settings.checkpoint_store is None:
            return None
        return StoredPosition(
            settings.checkpoint_store,
            self._table,
            slot,
            describe=lambda: stored_shard(client, settings, shard),
            on_fenced=lambda: self._assignment.fenced(shard, epoch=epoch),
        )

    def _release(self, shard: int) -> None:
        """The processor has ended."""
        epoch = self._runs.pop(shard).slot.flow.epoch
        self._table.remove(shard)
        self._assignment.released(shard, epoch=epoch)
