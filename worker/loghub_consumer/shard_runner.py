"""Runs the processors of the shards: the turns of one shard (`ShardRunner`), which call its processor step by
step, and the shards that a consumer begins and gives up (`ShardRunners`), with listener, processor and
checkpoint. `loghub_consumer.held_shard` decides the steps.
"""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

import structlog

from loghub.client.port import LogHub
from loghub.wire.cursor import decode as decode_cursor
from loghub.wire.errors import LogHubException
from loghub_consumer import held_shard
from loghub_consumer.assignment import Assignment
from loghub_consumer.batch import LogBatch
from loghub_consumer.failure.outage import description, is_outage
from loghub_consumer.failure.policy import Cause, Failure
from loghub_consumer.held_shard import HeldShardState, ThreadStep, rebalance
from loghub_consumer.log_context import log_error
from loghub_consumer.log_service import ReportedError
from loghub_consumer.membership.membership import MemberShard
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
from loghub_consumer.shard_table import HeldShardEntry, Kept, ShardTable
from loghub_consumer.tracker import Acknowledgement, ShardTracker, StoredPosition, cursor_of
from loghub_consumer.user_calls import UserCalls

log = structlog.get_logger()


class RemoteError(Exception):
    """User code failed in another process, which has logged it. The message is for the user; `failure` is
    why `process` failed."""

    def __init__(self, message: str, failure: Failure | None = None) -> None:
        super().__init__(message)
        self.failure = failure


PROCESSOR_FAILED = "ProcessorFailed"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerParts:
    """What the runners of all shards of a consumer share."""

    settings: ConsumerSettings
    client: LogHub
    factory: ProcessorFactory
    failure_sink: FailureSink | None  # None with the policy ``Retry``
    processors: Turns


class ShardRunner:
    """Runs the processor of one assignment of a shard from `initialize` to `shutdown`, in turns: in a thread
    of its own, or in one of a pool, in which the next turn may have another thread."""

    def __init__(
        self, entry: HeldShardEntry, assignment: Assignment, parts: RunnerParts, *, held: MemberShard
    ) -> None:
        settings, sink = parts.settings, parts.failure_sink
        self.entry = entry
        self._acknowledgement = Acknowledgement(entry, settings.redelivery)
        self._settlement = None if sink is None else Settlement(entry, sink, settings.redelivery)
        self._stored = _stored_position(entry, assignment, parts)
        self.tracker = ShardTracker(
            assignment.checkpoints,
            self._acknowledgement,
            self._stored,
            entry,
            held=held,
            seek=lambda to: assignment.seek(
                entry, cursor_of(parts.client, settings.logstore, held.shard, to)
            ),
        )
        self._factory = parts.factory
        self._processor: Processor | None = None
        self._is_closed = False  # what the processor had is given back
        self._code = UserCalls()
        self._turns = parts.processors
        self._thread: threading.Thread | None = None  # the thread that runs a turn now

    def start(self) -> None:
        turn = self._turns.start(f"shard-{self.tracker.shard}", self._take_turn, wait=self._wait)
        self.entry.wake = turn.wake
        turn.wake()  # for changes since the entry was made

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
        """Carry out the step that is due, and return after how many seconds the next one is; None: the shard
        has ended."""
        steps: dict[ThreadStep, Callable[[], None]] = {
            ThreadStep.INITIALIZE: self._initialize,
            ThreadStep.PROCESS: self._process,
            ThreadStep.REDELIVER: self._process,
            ThreadStep.SHUT_DOWN: self._shut_down,
        }
        try:
            step, wait_s = self.entry.table.next_step(self.entry)
            if step is ThreadStep.WAIT:
                return wait_s
            if step is not ThreadStep.END:
                steps[step]()
                return 0.0
        except BaseException as failure:  # noqa: BLE001 - such as SystemExit of user code: ends the consumer
            self.entry.table.fail(failure)
            self._close()
            self.entry.apply(lambda state, _: held_shard.shut_down(state))
        self._close()
        self._code.close()
        return None

    def _close(self) -> None:
        """Give back what the processor has, before the consumer may end."""
        if isinstance(self._processor, TrackedProcessor) and not self._is_closed:
            self._is_closed = True
            self._processor.close()

    def _initialize(self) -> None:
        try:
            if self._stored is not None and self._stored.is_uncertain:
                self.tracker.require_held()
                self._stored.acquire()
            if self._processor is None:
                self._processor = self._factory()
                if isinstance(self._processor, TrackedProcessor):
                    self._processor.use(self.tracker)
            self._code.call(self._processor.initialize, self.tracker.shard)
        except Exception as error:  # noqa: BLE001 - user code
            self._report("initialize", error)
            retries = self.entry.table.retries
            self._apply(lambda state, now: held_shard.initialize_failed(state, retries=retries, now=now))
            return
        self._apply(lambda state, now: held_shard.initialized(state, now=now))

    def _process(self) -> None:
        assert self.entry.kept is not None
        if self._settlement is None:
            self._process_kept()
            return
        if not self._settlement.begin(self.entry.kept):
            self._keep(self.entry.kept)
            return
        try:
            self._process_kept()
        finally:
            self._settlement.end()

    def _process_kept(self) -> None:
        assert self.entry.kept is not None
        assert self._processor is not None
        if self.entry.kept.again is None and self.entry.table.defers:
            self._defer(self.entry.kept)
            return
        kept = self._settle(self.entry.kept)
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
            self.entry.user_error = ReportedError()
            refused_all = self._acknowledgement.returned()
            if self._settlement is not None and to is None:
                self._settlement.succeeded(kept, refused_all=refused_all)
            if to is None:
                self._complete(kept)
            else:
                self._roll_back(kept, to=to)

    def _hand_over(self, kept: Kept, processor: Processor) -> int | None:
        """The cursor that `process` has returned. Raises its exception, and `ShortReadError`."""
        batch, failure, returned = kept.batch, None, None
        try:  # while nothing that is saved concerns this batch
            returned = processor.prepare(batch) if isinstance(processor, TrackedProcessor) else None
        except Exception as error:  # noqa: BLE001 - it counts as one of `process`
            failure = error
        self._acknowledgement.begin(kept)
        if failure is not None:
            raise failure
        if returned is None:
            end = max(batch.end, self.entry.state.position)
            self.tracker.begin_batch(end, generation=kept.generation)
            returned = self._code.call(processor.process, batch, self.tracker)
        if self._stored is not None and self._stored.is_uncertain:
            raise RuntimeError("process returned although its transaction failed; let it raise")
        if returned is not None and self.entry.unacknowledged.deliveries is not None:
            raise ValueError(
                "process returned a cursor, and a subscription has no position to continue at; return None,"
                " and use tracker.nack for logs that must come again"
            )
        return None if returned is None else decode_cursor(returned)

    def _is_elsewhere(self, kept: Kept) -> bool:
        """After a transaction that failed, ask the database whether it was committed. True if the batch must
        not be processed now."""
        if self._stored is None or not self._stored.is_uncertain:
            return False
        try:
            self.tracker.require_held()
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
        """Settle logs that failed too often. Returns the remaining batch for the processor."""
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
            self.entry.user_error = ReportedError()
            self._complete(kept)
            self._note_settled(kept.batch.begin, kept.batch.end)
        else:
            self._fail(kept)
        return None

    def _note_settled(self, begin: int = 0, end: int = 0) -> None:
        with suppress(ShardLostError):
            self.tracker.settled(begin, end)

    def _complete(self, kept: Kept) -> None:
        generation, size = kept.generation, _held_bytes(kept)
        self._end_batch(
            lambda state, _: held_shard.batch_done(
                state, end=max(state.position, kept.batch.end), size=size, generation=generation
            )
        )

    def _fail(self, kept: Kept) -> None:
        self._keep(kept)
        if self._settlement is not None:
            self._settlement.divide(kept)

    def _keep(self, kept: Kept) -> None:
        generation, size, retries = kept.generation, _held_bytes(kept), self.entry.table.retries
        self._end_batch(
            lambda state, now: held_shard.batch_failed(
                state, size=size, generation=generation, retries=retries, now=now
            )
        )

    def _roll_back(self, kept: Kept, *, to: int) -> None:
        if self._is_elsewhere(kept):
            return
        generation, size, retries = kept.generation, _held_bytes(kept), self.entry.table.retries
        self._end_batch(
            lambda state, now: held_shard.rolled_back(
                state, to=to, size=size, generation=generation, retries=retries, now=now
            )
        )

    def _end_batch(self, event: Callable[[HeldShardState, float], HeldShardState]) -> None:
        self.tracker.end_batch(self.entry.end_batch(event))
        self._acknowledgement.ended()

    def _shut_down(self) -> None:
        if self._processor is not None and self.entry.state.is_initialized:
            self.tracker.end_batch(self.entry.state)
            try:
                self._code.call(self._processor.shutdown, self.tracker)
            except Exception as error:  # noqa: BLE001 - user code
                self._report("shutdown", error)
        with suppress(ShardLostError):
            self.tracker.note_acknowledged()
        self._close()
        self._apply(lambda state, _: held_shard.shut_down(state))

    def _apply(self, event: Callable[[HeldShardState, float], HeldShardState]) -> None:
        self.entry.apply(event)

    def _report(self, method: str, error: Exception) -> None:
        is_remote = isinstance(error, RemoteError)
        what = f"failed: {error}" if is_remote else f"raised {description(error)}"
        message = f"{method} of shard {self.tracker.shard} {what}"
        failure = error.failure if isinstance(error, RemoteError) else None
        if self.entry.user_error.message != message:
            shard = self.tracker.shard
            if is_remote:
                log.warning("processor failed", shard=shard, method=method, message=str(error))
            else:
                log_error(log.warning, "processor failed", error, shard=shard, method=method)
        self.entry.user_error = ReportedError(failure.reason if failure else PROCESSOR_FAILED, message)


def _is_sound(batch: LogBatch) -> bool:
    """Whether the bodies are lists of log groups, which perhaps no code has checked yet."""
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
    """The bytes that the batch has of the pulled ones; a redelivered batch has none."""
    return kept.batch.size_bytes if kept.again is None else 0


def _stored_position(
    entry: HeldShardEntry, assignment: Assignment, parts: RunnerParts
) -> StoredPosition | None:
    """The position in the user's database, if the settings have one."""
    settings, shard, epoch = parts.settings, entry.state.shard, entry.state.epoch
    if settings.checkpoint_store is None:
        return None
    return StoredPosition(
        settings.checkpoint_store,
        entry,
        describe=lambda: stored_shard(parts.client, settings, shard),
        on_fenced=lambda: assignment.fenced(shard, epoch=epoch),
    )


def _commit(runner: ShardRunner) -> Exception | None:
    """Save the position. Returns the error that prevented it."""
    try:
        runner.tracker.commit(lambda: runner.entry.state)
    except (ShardLostError, LogHubException) as error:
        return error
    return None


class ShardRunners:
    """The shards whose processors exist. `commit` and `threads` may be called by any thread."""

    def __init__(
        self, table: ShardTable, assignment: Assignment, parts: RunnerParts, listener: Listener
    ) -> None:
        self._table = table
        self._assignment = assignment
        self._parts = parts
        self._listener = listener
        self._runners: dict[int, ShardRunner] = {}
        self._standby: tuple[int, ...] = ()

    @property
    def shards(self) -> tuple[int, ...]:
        return tuple(self._runners)

    @property
    def threads(self) -> tuple[threading.Thread, ...]:
        return tuple(thread for runner in tuple(self._runners.values()) for thread in runner.threads)

    def commit(self) -> None:
        """Save the position of every shard. Tries all, then raises the first error: `ShardLostError` or
        `LogHubException`."""
        runners = [
            runner
            for shard, entry in self._table.working().items()
            if (runner := self._runners.get(shard)) is not None and runner.entry is entry
        ]
        if not runners:
            return
        with ThreadPoolExecutor(min(PARALLEL, len(runners)), thread_name_prefix="commit") as pool:
            errors = [error for error in pool.map(_commit, runners) if error is not None]
        if errors:
            raise errors[0]

    def step(self) -> None:
        """Note what was acknowledged by log, then do what `loghub_consumer.held_shard` decides."""
        for runner in self._runners.values():
            if runner.failure is not None:
                self._table.fail(runner.failure)
            with suppress(ShardLostError):
                runner.tracker.note_acknowledged()
                if self._parts.settings.query:
                    runner.tracker.passed(runner.entry.state.position)
        plan = rebalance(self._table.states(), self._assignment.held())
        for shard in plan.ended:
            self._release(shard)
        for held in plan.unbegun:
            self._assignment.released(held.shard, epoch=held.epoch)
        for shard in plan.revoked:
            self._runners[shard].entry.apply(lambda state, _: held_shard.revoked(state))
        for shard in plan.lost:
            self._runners[shard].entry.apply(lambda state, _: held_shard.lost(state))
        if plan.lost:
            log.warning("shards lost", shards=plan.lost)
            self._announce(plan.lost, self._listener.on_lost)
        if plan.announce:
            self._announce(plan.announce, self._listener.on_revoked)
        if plan.assigned:
            self._begin(plan.assigned)
        standby = self._assignment.standby()
        if standby != self._standby:
            self._standby = standby
            self._call_listener(standby, self._listener.on_standby)

    def _announce(self, shards: tuple[int, ...], method: Callable[[tuple[int, ...]], None]) -> None:
        """Call the listener, then let the processors shut down."""
        self._call_listener(shards, method)
        for shard in shards:
            self._runners[shard].entry.apply(lambda state, _: held_shard.announced(state))

    def _call_listener(self, shards: tuple[int, ...], method: Callable[[tuple[int, ...]], None]) -> None:
        try:
            method(shards)
        except Exception as failure:  # noqa: BLE001 - user code: ends the consumer, but not before the drain
            log_error(log.error, "listener failed", failure, shards=shards)
            self._table.fail(failure)

    def _begin(self, assigned: tuple[MemberShard, ...]) -> None:
        for held in assigned:
            assert held.position is not None  # `rebalance` assigns no shard without one
            entry = self._table.add(held.shard, epoch=held.epoch, position=held.position)
            self._runners[held.shard] = ShardRunner(entry, self._assignment, self._parts, held=held)
            self._assignment.opened(entry)
        shards = tuple(held.shard for held in assigned)
        self._call_listener(shards, self._listener.on_assigned)
        for shard in shards:
            self._runners[shard].start()

    def _release(self, shard: int) -> None:
        """Forget a shard whose processor has ended, and give it back to the group."""
        epoch = self._runners.pop(shard).entry.state.epoch
        self._table.remove(shard)
        self._assignment.released(shard, epoch=epoch)
