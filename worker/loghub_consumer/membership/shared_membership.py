"""The lock around the membership, the positions file that follows from it, and the ports of the membership's
threads to the program around them.

Heartbeats, openings, commits and the status come from different threads. Each of them performs its step on
the same `Membership` under this lock, and the positions file contains the result before the step returns.

Two programs use them: the worker on Spark, whose source is in other processes and whose sink may keep a
record of its own (`loghub_consumer.resumption`), and the consumers of `loghub_consumer`.
"""

import threading
from collections.abc import Callable, Collection, Hashable, Iterator, Set
from contextlib import AbstractContextManager, contextmanager
from typing import Literal, Protocol

import structlog

from loghub.backoff import without_jitter
from loghub.clock import Clock
from loghub.contract.worker import WorkerReason
from loghub_consumer.exchange_files import Positions, Report
from loghub_consumer.log_service import ReportedError
from loghub_consumer.membership.membership import Membership, ShardPhase
from loghub_consumer.resumption import ShardIncarnation

log = structlog.get_logger()


class MembershipExchange(Protocol):
    """How the positions of the shards reach the reader, and how the reader reports."""

    def write_positions(self, positions: Positions) -> None:
        """Publish the positions that may be read from now on. Raises `OSError`; the next change writes
        again."""

    def report(self) -> Report:
        """The last report of the reader. Version -1 says nothing about the batches that have ended."""


class ShardTasks(Protocol):
    """Runs tasks that wait for requests, one task of a key at a time. Thread-safe."""

    def start(self, key: Hashable, task: Callable[[], None]) -> bool:
        """Run the task now or soon. False if another task of this key has not ended; the task is then not
        run."""

    def start_together(
        self, keys: Collection[Hashable], task: Callable[[frozenset[Hashable]], None]
    ) -> frozenset[Hashable]:
        """Run one task now or soon for all keys of which no other task runs; returns these keys."""

    def alone(self, key: Hashable) -> AbstractContextManager[None]:
        """Wait until no task of this key runs, and let none begin meanwhile."""

    def wait_for(self, keys: Set[Hashable]) -> None:
        """Wait until no task of these keys runs."""

    def stop(self, timeout_s: float) -> None:
        """Begin no other task, and wait for the running ones, but at most `timeout_s` seconds."""


class ShardSettings(Protocol):
    """The settings of the shard manager; `loghub.contract.worker.WorkerConfig` explains them."""

    @property
    def start_position(self) -> Literal["begin", "end"] | int: ...
    @property
    def last_initial_shard(self) -> int | None: ...
    @property
    def checkpoint_interval_s(self) -> float: ...


class ShardHistory(Protocol):
    """The record that a pipeline keeps of the logs of a shard that it has read
    (`loghub_worker.state.ledger`)."""

    def continue_at(
        self, incarnation: ShardIncarnation, position: int, *, is_first: bool, moved: bool
    ) -> int:
        """Where a shard continues that was opened at this position, never before it. `is_first`: no consumer
        has read the shard or its ancestors before; `moved`: its checkpoint was moved on purpose."""


class SharedState:
    """Use it as ``with shared_state.use() as (membership, now): ...``; never block inside.

    Every thread of the worker uses the same `exchange`, `clock` and `random`.
    """

    def __init__(
        self,
        membership: Membership,
        exchange: MembershipExchange,
        clock: Clock,
        *,
        random: Callable[[], float] = without_jitter,
    ) -> None:
        self._membership = membership
        self.exchange = exchange
        self.clock = clock
        self.random = random
        self._changed = threading.Condition()
        self._changes = 0
        self._on_change: list[Callable[[], None]] = []
        self._writing = threading.Lock()
        self._written_version = -1
        self.error = ReportedError()  # while the positions cannot be written

    @contextmanager
    def use(self) -> Iterator[tuple[Membership, float]]:
        """The membership and the monotonic time, under the lock. Afterwards the positions file is up to date,
        unless the disk fails; `error` is then set, and the next step writes the file."""
        with self._changed:
            before = self._membership.snapshot
            try:
                yield self._membership, self.clock.monotonic_s()
            finally:
                positions = self._unwritten_positions()
                # Reading alone wakes no thread; otherwise the threads would keep waking each other.
                if self._membership.snapshot != before:
                    self.wake()
        if positions is not None:
            self._write(positions)

    def _unwritten_positions(self) -> Positions | None:
        membership = self._membership
        if membership.version <= self._written_version:
            return None
        return Positions(
            version=membership.version,
            shards=membership.positions,
            group_sizes=membership.group_sizes,
            opening=[s.shard for s in membership.shards if s.phase is ShardPhase.OPENING],
        )

    def call_on_change(self, on_change: Callable[[], None]) -> None:
        """Call this after each change. It must not block."""
        self._on_change.append(on_change)

    def wake(self) -> None:
        """End every `wait`."""
        with self._changed:
            self._changes += 1
            self._changed.notify_all()
            for on_change in self._on_change:
                on_change()

    def _write(self, positions: Positions) -> None:
        # Outside the first lock, since a slow disk must not delay a heartbeat. If a newer version was
        # written in the meantime, there is nothing to do.
        if positions.version <= self._written_version:
            return
        with self._writing:
            if positions.version > self._written_version:
                try:
                    self.exchange.write_positions(positions)
                except OSError as error:
                    # The thread goes on: a batch that the source plans by older positions is not committed.
                    self._set_error(ReportedError(WorkerReason.STATE_UNAVAILABLE.value, str(error)))
                    return
                self._written_version = positions.version
                self._set_error(ReportedError())

    def _set_error(self, error: ReportedError) -> None:
        if error.reason and not self.error.reason:
            log.warning("positions not written, will retry", reason=error.reason, message=error.message)
        self.error = error

    @property
    def changes(self) -> int:
        """The number of changes so far, for `wait`."""
        return self._changes

    def wait(self, since: int, timeout_s: float) -> None:
        """Wait until a change follows the change `since`, but at most `timeout_s` seconds."""
        with self._changed:
            self._changed.wait_for(lambda: self._changes != since, timeout_s)
