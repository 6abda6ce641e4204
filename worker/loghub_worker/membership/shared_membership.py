"""The lock around the membership, and the positions file that follows from it.

Heartbeats, openings, commits and the status come from different threads. Each of them performs its step on
the same `Membership` under this lock, and the positions file contains the result before the step returns.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from loghub.clock import Clock
from loghub_worker.exchange_files import ExchangeFiles, Positions
from loghub_worker.membership.membership import Membership


class SharedState:
    """Use it as ``with shared_state.use() as (membership, now): ...``; never block inside.

    `exchange` and `clock` are those that every thread of the worker uses."""

    def __init__(self, membership: Membership, exchange: ExchangeFiles, clock: Clock) -> None:
        self._membership = membership
        self.exchange = exchange
        self.clock = clock
        self._changed = threading.Condition()
        self._changes = 0
        self._writing = threading.Lock()
        self._written_version = -1

    @contextmanager
    def use(self) -> Iterator[tuple[Membership, float]]:
        """The membership and the monotonic time, under the lock. Afterwards the positions file is up to
        date."""
        with self._changed:
            before = self._membership.snapshot
            try:
                yield self._membership, self.clock.monotonic_s()
            finally:
                positions = Positions(
                    version=self._membership.version,
                    shards=self._membership.positions,
                    group_bytes=self._membership.group_bytes,
                )
                # Reading alone wakes no thread; otherwise the threads would keep waking each other.
                if self._membership.snapshot != before:
                    self.wake()
        self._write(positions)

    def wake(self) -> None:
        """End every `wait`."""
        with self._changed:
            self._changes += 1
            self._changed.notify_all()

    def _write(self, positions: Positions) -> None:
        # Outside the first lock, since a slow disk must not delay a heartbeat. If a newer version was
        # written in the meantime, there is nothing to do.
        if positions.version <= self._written_version:
            return
        with self._writing:
            if positions.version > self._written_version:
                self.exchange.write_positions(positions)
                self._written_version = positions.version

    @property
    def changes(self) -> int:
        """The number of changes so far, for `wait`."""
        return self._changes

    def wait(self, since: int, timeout_s: float) -> None:
        """Wait until a change follows the change `since`, but at most `timeout_s` seconds."""
        with self._changed:
            self._changed.wait_for(lambda: self._changes != since, timeout_s)
