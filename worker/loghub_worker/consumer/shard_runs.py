"""Begins the shards that a consumer has been given, and gives them up: listener, processor, checkpoint.

`loghub_worker.consumer.rebalance` decides; this does it, in the thread of `Consumer.run`.
"""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

import structlog

from loghub.client.port import LogHub
from loghub.wire.errors import LogHubException
from loghub_worker.consumer import shard_flow
from loghub_worker.consumer.acknowledgement import Acknowledgement
from loghub_worker.consumer.assignment import Assignment
from loghub_worker.consumer.failure_sink import FailureSink
from loghub_worker.consumer.group import stored_shard
from loghub_worker.consumer.processor import Listener, ProcessorFactory, ShardLostError
from loghub_worker.consumer.rebalance import rebalance
from loghub_worker.consumer.settings import ConsumerSettings
from loghub_worker.consumer.settlement import Settlement
from loghub_worker.consumer.shard_runner import AssignmentParts, ShardRunner
from loghub_worker.consumer.shard_slot import ShardSlot
from loghub_worker.consumer.shard_table import ShardTable
from loghub_worker.consumer.slot_control import SlotControl
from loghub_worker.consumer.stored_position import StoredPosition
from loghub_worker.consumer.tracker import ShardTracker
from loghub_worker.membership.membership import HeldShard
from loghub_worker.membership.parallel_tasks import PARALLEL
from loghub_worker.membership.turns import Turns

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class _Run:
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


def _commit(run: _Run) -> Exception | None:
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
        self._runs: dict[int, _Run] = {}

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
        """Note what was acknowledged by log, then do what `loghub_worker.consumer.rebalance` decides."""
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
        except Exception as failure:  # user code: ends the consumer, but not before the drain
            log.exception("listener failed", shards=shards)
            self._table.fail(failure)

    def _begin(self, assigned: tuple[HeldShard, ...]) -> None:
        for held in assigned:
            self._runs[held.shard] = self._make_run(held)
        shards = tuple(held.shard for held in assigned)
        self._call_listener(shards, self._listener.on_assigned)
        for shard in shards:
            self._runs[shard].runner.start()

    def _make_run(self, held: HeldShard) -> _Run:
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
        return _Run(slot, tracker, ShardRunner(table, slot, own, parts.factory, parts.processors))

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
