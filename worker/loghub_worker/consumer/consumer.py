"""A consumer in a program of its own: puts the parts together, hands out shards and takes them back.

`Consumer.run` blocks; its thread calls the listener. Membership, heartbeats, the opening of shards and the
saving of checkpoints are those of the worker on Spark (`loghub_worker.membership`). Each shard has a thread
for its processor, and a few threads pull for all shards.
"""

import random
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TypeVar

import structlog

from loghub.clock import SystemClock
from loghub.wire.errors import LogHubException
from loghub_worker.consumer import shard_flow
from loghub_worker.consumer.acknowledgement import Acknowledgement
from loghub_worker.consumer.connection import connect
from loghub_worker.consumer.failure_sink import make_failure_sink
from loghub_worker.consumer.fan_out import FanOutFactory
from loghub_worker.consumer.group import group_timeout_s, stored_shard
from loghub_worker.consumer.log_setup import log_to_logging
from loghub_worker.consumer.processor import Listener, ProcessorFactory, ShardLostError
from loghub_worker.consumer.puller import Puller
from loghub_worker.consumer.rebalance import rebalance
from loghub_worker.consumer.retry_consumer import RetryConsumer, retry_settings
from loghub_worker.consumer.settings import ConsumerSettings
from loghub_worker.consumer.settlement import Settlement
from loghub_worker.consumer.shard_runner import AssignmentParts, ShardRunner
from loghub_worker.consumer.shard_table import ShardSlot, ShardTable
from loghub_worker.consumer.stored_position import StoredPosition
from loghub_worker.consumer.tracker import Checkpoints, ShardTracker
from loghub_worker.log_service import ConsumerIdentity, ReportedError, decode_cursor, encode_cursor
from loghub_worker.membership.heartbeat import HeartbeatThread
from loghub_worker.membership.membership import (
    HeldShard,
    Membership,
    MembershipTimings,
    MemberState,
    ShutdownMode,
)
from loghub_worker.membership.shard_manager import ShardManager
from loghub_worker.membership.shared_membership import SharedState
from loghub_worker.sink.shard_record import NoRecord

log = structlog.get_logger()
T = TypeVar("T")

STEP_S = 0.2  # how often `wakeup`, which takes no lock, is noticed
MAX_LEAVE_S = 10.0  # for leaving the group once every shard is given up
HEARTBEATS_PER_TIMEOUT = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerError:
    """Why something does not work now; it is retried. `shard` is None for what concerns all."""

    shard: int | None
    reason: str  # in CamelCase
    message: str


@dataclass(frozen=True, slots=True)
class _Run:
    slot: ShardSlot
    tracker: ShardTracker
    runner: ShardRunner


class Consumer:
    """One consumer of a consumer group. `run` it once; the other methods may be called by any thread, also by
    processors and the listener."""

    def __init__(
        self,
        settings: ConsumerSettings,
        factory: ProcessorFactory,
        listener: Listener | None = None,
        *,
        timeout_s: int | None = None,
    ) -> None:
        """`timeout_s` is the group's; None: it is read from the group."""
        if isinstance(factory, FanOutFactory) and settings.acknowledge != "log":
            raise ValueError(
                "fan_out needs acknowledge='log', since its threads end after process has returned"
            )
        log_to_logging()
        self._timeout_s = timeout_s
        self._leaves = settings.leave
        self._settings = settings
        self._factory = factory
        self._listener = listener or Listener()
        self._clock = SystemClock()
        self._random = random.SystemRandom().random
        self._client = connect(settings)
        self._table = ShardTable(
            settings.limits,
            settings.redelivery,
            self._clock,
            max_buffered_bytes=settings.max_buffered_bytes,
            random=self._random,
        )
        self._failure_sink = make_failure_sink(settings, random=self._random)
        self._table.failures = self._failure_sink.policy if self._failure_sink is not None else None
        of_retries = retry_settings(settings)
        self._retries = RetryConsumer(Consumer(of_retries, factory), self._table.fail) if of_retries else None
        self._puller = Puller(self._table, self._client, settings)
        self._runs: dict[int, _Run] = {}
        self._shared_state: SharedState | None = None
        self._heartbeat: HeartbeatThread | None = None
        self._shard_manager: ShardManager | None = None
        self._commits = ThreadPoolExecutor(1, thread_name_prefix="commit")
        self._stop = False
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def run(self) -> None:
        """Consume until `shutdown`, `wakeup` or Ctrl-C. Raises `LogHubException` if the group cannot be read
        at the
        start, `OSError` if the dead letter is a folder that cannot be written to, and what the listener, or a
        processor that ends its thread, raised."""
        if self._thread is not None:
            raise RuntimeError("a consumer runs only once; make another one")
        self._thread = threading.current_thread()
        try:
            if not self._stop:
                shared_state = self._start()
                self._serve(shared_state)
        finally:
            self._end()
        if self._table.failure is not None:
            raise self._table.failure

    def wakeup(self) -> None:
        """Let `run` return once running batches have ended. Returns at once and takes no lock, so that a
        signal
        handler may call it."""
        self._stop = True

    def leave(self) -> None:
        """As `wakeup`, and leave the group in any case."""
        self._leaves = True
        self._stop = True

    def shutdown(self, timeout_s: float | None = None) -> bool:
        """As `wakeup`, and wait until `run` has returned; False after `timeout_s`. A processor or the
        listener
        does not wait for itself."""
        self._stop = True
        own = [self._thread, *(run.runner.thread for run in tuple(self._runs.values()))]
        if self._thread is None or threading.current_thread() in own:
            return self._ended.is_set()
        return self._ended.wait(timeout_s)

    # -- shards

    def assignment(self) -> tuple[int, ...]:
        """The shards of this consumer, those included that it is giving up."""
        return tuple(sorted(self._table.working()))

    def position(self, shard: int) -> str:
        """The cursor up to which the shard was processed. Raises `NotAssignedError`."""
        return encode_cursor(self._table.slot(shard).flow.position)

    def seek(self, shard: int, to: str | int) -> None:
        """Continue a shard at ``"begin"``, ``"end"``, a time of receipt in unix seconds, or a cursor. It is
        not
        saved. A batch that is being processed ends first. Raises `NotAssignedError`, `MalformedCursor` and
        `LogHubException`."""
        slot = self._table.slot(shard)
        cursor = to
        if isinstance(to, int) or to in ("begin", "end"):
            cursor = self._client.get_cursor(self._settings.logstore, shard, to)  # type: ignore[arg-type]
        position = decode_cursor(str(cursor))
        self._table.apply(slot, lambda flow, now: shard_flow.sought(flow, to=position, now=now))

    def pause(self, shards: Iterable[int]) -> None:
        """Hand over no further batch of these shards. Raises `NotAssignedError`."""
        for slot in [self._table.slot(shard) for shard in shards]:
            self._table.apply(slot, lambda flow, _: shard_flow.paused(flow))

    def resume(self, shards: Iterable[int]) -> None:
        """The opposite of `pause`."""
        for slot in [self._table.slot(shard) for shard in shards]:
            self._table.apply(slot, lambda flow, now: shard_flow.resumed(flow, now=now))

    def commit(self) -> None:
        """Save the position of every shard. Tries all, then raises the first error: `ShardLostError` or
        `LogHubException`."""
        first: Exception | None = None
        for shard, slot in self._table.working().items():
            run = self._runs.get(shard)
            if run is None or run.slot is not slot:
                continue
            try:
                run.tracker.commit(lambda slot=slot: slot.flow.position)  # type: ignore[misc]
            except (ShardLostError, LogHubException) as error:
                first = first or error
        if first is not None:
            raise first

    def commit_async(self) -> Future[None]:
        """`commit` in another thread, one after the other."""
        return self._commits.submit(self.commit)

    def errors(self) -> tuple[ConsumerError, ...]:
        """What does not work at the moment, with the shards of the retry logstore as None."""
        found: list[tuple[int | None, ReportedError]] = []
        of_retries = () if self._retries is None else self._retries.errors()
        if self._heartbeat is not None and self._shard_manager is not None:
            found += [(None, self._heartbeat.error), (None, self._shard_manager.error)]
        for shard, slot in self._table.working().items():
            found += [(shard, slot.pull_error), (shard, slot.user_error), (shard, slot.failure_error)]
        return tuple(
            ConsumerError(shard=shard, reason=error.reason, message=error.message)
            for shard, error in found
            if error.reason
        ) + tuple(replace(error, shard=None) for error in of_retries)

    def inspect(self, view: Callable[[Membership, float, ShardManager], T]) -> T | None:
        """What `view` makes of the membership, at the present monotonic time; None before `run`."""
        if self._shared_state is None or self._shard_manager is None:
            return None
        with self._shared_state.use() as (membership, now):
            return view(membership, now, self._shard_manager)

    # -- start

    def _start(self) -> SharedState:
        settings = self._settings
        if self._failure_sink is not None:
            self._failure_sink.check()
        timeout_s = self._timeout_s or group_timeout_s(self._client, settings)
        interval_s = min(settings.heartbeat_interval_s, timeout_s / HEARTBEATS_PER_TIMEOUT)
        timings = MembershipTimings.of(interval_s=interval_s, timeout_s=timeout_s)
        shared_state = SharedState(
            Membership(timings, random=self._random), self._table, self._clock, random=self._random
        )
        identity = ConsumerIdentity(
            logstore=settings.logstore, group=settings.consumer_group, consumer=settings.consumer
        )
        # A heartbeat that takes longer than an interval counts as failed: the next one is due.
        heartbeat_client = connect(settings, timeout_s=max(2.0, interval_s))
        self._shared_state = shared_state
        self._heartbeat = HeartbeatThread(shared_state, heartbeat_client, identity)
        self._shard_manager = ShardManager(shared_state, self._client, NoRecord(), identity, config=settings)
        with shared_state.use() as (membership, _):
            membership.source_started()
        self._table.call_on_change(shared_state.wake)
        self._puller.start()
        self._shard_manager.start()
        self._heartbeat.start()
        if self._retries is not None:
            self._retries.start()
        return shared_state

    # -- serve

    def _serve(self, shared_state: SharedState) -> None:
        try:
            while not self._stop and not self._failed():
                since = shared_state.changes
                self._rebalance(shared_state)
                shared_state.wait(since, STEP_S)
        except BaseException as failure:  # noqa: BLE001 - such as Ctrl-C: raised again after the drain
            self._table.fail(failure)
        self._drain(shared_state)

    def _failed(self) -> bool:
        for part in (self._heartbeat, self._shard_manager):
            if part is not None and part.failure is not None:
                self._table.fail(part.failure)
        return self._table.failure is not None

    def _rebalance(self, shared_state: SharedState) -> None:
        """Note what was acknowledged by log, then do what `loghub_worker.consumer.rebalance` decides."""
        for run in self._runs.values():
            with suppress(ShardLostError):
                run.tracker.note_acknowledged()
        with shared_state.use() as (membership, _):
            held = membership.shards
        plan = rebalance(self._table.flows(), held)
        for shard in plan.ended:
            self._release(shared_state, shard)
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
            self._assign(plan.assigned)

    def _announce(self, shards: tuple[int, ...], method: Callable[[tuple[int, ...]], None]) -> None:
        """Call the listener, then let the processors shut down."""
        self._call_listener(shards, method)
        for shard in shards:
            self._table.apply(self._runs[shard].slot, lambda flow, _: shard_flow.announced(flow))

    def _call_listener(self, shards: tuple[int, ...], method: Callable[[tuple[int, ...]], None]) -> None:
        try:
            method(shards)
        except Exception as failure:  # user code: ends the consumer, but not before the drain
            log.exception("listener failed", shards=shards)
            self._table.fail(failure)

    def _assign(self, assigned: tuple[HeldShard, ...]) -> None:
        assert self._shared_state is not None
        assert self._shard_manager is not None
        checkpoints = Checkpoints(self._shared_state, self._shard_manager)
        for held in assigned:
            assert held.position is not None
            slot = self._table.add(held.shard, epoch=held.epoch, position=held.position)
            acknowledgement = Acknowledgement(self._table, slot, self._settings.redelivery)
            stored = self._stored_position(slot)
            tracker = ShardTracker(
                checkpoints,
                acknowledgement,
                stored,
                shard=held.shard,
                epoch=held.epoch,
                position=held.position,
            )
            settlement = None
            if self._failure_sink is not None:
                settlement = Settlement(self._table, slot, self._failure_sink, self._settings.redelivery)
            parts = AssignmentParts(
                tracker=tracker, acknowledgement=acknowledgement, settlement=settlement, stored=stored
            )
            runner = ShardRunner(self._table, slot, parts, self._factory)
            self._runs[held.shard] = _Run(slot, tracker, runner)
        shards = tuple(held.shard for held in assigned)
        self._call_listener(shards, self._listener.on_assigned)
        for shard in shards:
            self._runs[shard].runner.start()

    def _stored_position(self, slot: ShardSlot) -> StoredPosition | None:
        settings, shard = self._settings, slot.flow.shard
        if settings.checkpoint_store is None:
            return None
        return StoredPosition(
            settings.checkpoint_store,
            self._table,
            slot,
            lambda: stored_shard(self._client, settings, shard),
        )

    def _release(self, shared_state: SharedState, shard: int) -> None:
        """The processor has ended: the shard is released as soon as its checkpoint is saved."""
        epoch = self._runs.pop(shard).slot.flow.epoch
        self._table.remove(shard)
        with shared_state.use() as (membership, _):
            membership.source_released(shard, epoch=epoch)

    # -- end

    def _drain(self, shared_state: SharedState) -> None:
        """Let the running batches end, save what was noted, and leave. The drain timeout bounds the wait;
        then the shards are abandoned, so that other consumers continue with them."""
        if self._retries is not None:
            self._retries.stop()
        mode = ShutdownMode.LEAVE if self._leaves else ShutdownMode.STOP
        with shared_state.use() as (membership, _):
            membership.set_shutdown_mode(mode)
        if self._await_drained(shared_state, mode):
            return
        log.warning("drain timeout: other consumers continue with the shards", shards=tuple(self._runs))
        with shared_state.use() as (membership, _):
            membership.abandon()
        self._rebalance(shared_state)
        self._await_left(shared_state)

    def _await_drained(self, shared_state: SharedState, mode: ShutdownMode) -> bool:
        deadline_s = self._clock.monotonic_s() + self._settings.drain_timeout_s
        while self._clock.monotonic_s() < deadline_s:
            since = shared_state.changes
            self._rebalance(shared_state)
            with shared_state.use() as (membership, _):
                is_drained = membership.drained and not self._runs
            if is_drained:
                if mode is ShutdownMode.LEAVE:
                    self._await_left(shared_state)
                return True
            shared_state.wait(since, STEP_S)
        return False

    def _await_left(self, shared_state: SharedState) -> None:
        """Until the service knows, or for a while: the membership ends by itself later."""
        deadline_s = self._clock.monotonic_s() + MAX_LEAVE_S
        while self._clock.monotonic_s() < deadline_s:
            since = shared_state.changes
            with shared_state.use() as (membership, _):
                if membership.state is MemberState.LEFT:
                    return
            shared_state.wait(since, STEP_S)

    def _end(self) -> None:
        if self._retries is not None:
            self._retries.join()
        self._puller.stop()
        for part in (self._heartbeat, self._shard_manager):
            if part is not None:
                part.stop()
        self._commits.shutdown(wait=False, cancel_futures=True)
        if self._failure_sink is not None:
            self._failure_sink.close()
        self._client.close()
        self._ended.set()
