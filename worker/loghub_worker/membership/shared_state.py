"""The lock around the membership, and the positions file that follows from it.

Heartbeats, openings, commits and the status come from different threads. Each of them performs its step on
the same `Membership` under this lock, and the positions file contains the result before the step returns.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from loghub.clock import Clock
from loghub_worker.exchange_files import Handover, Positions
from loghub_worker.membership.state import Membership


class SharedState:
    """Use it as ``with session.use() as (consumer, now): ...``; never block inside."""

    def __init__(self, consumer: Membership, handover: Handover, clock: Clock) -> None:
        self._consumer = consumer
        self._handover = handover
        self._clock = clock
        self._changed = threading.Condition()
        self._changes = 0
        self._writing = threading.Lock()
        self._written_version = -1

    @contextmanager
    def use(self) -> Iterator[tuple[Membership, float]]:
        """The membership and the monotonic time, under the lock. Afterwards the positions file is up to
        date."""
        with self._changed:
            before = self._consumer.mark
            try:
                yield self._consumer, self._clock.monotonic_s()
            finally:
                positions = Positions(
                    version=self._consumer.version,
                    shards=self._consumer.positions,
                    group_bytes=self._consumer.group_bytes,
                )
                # Reading alone wakes no thread; otherwise the threads would keep waking each other.
                if self._consumer.mark != before:
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
                self._handover.write_positions(positions)
                self._written_version = positions.version

    @property
    def changes(self) -> int:
        """The number of changes so far, for `wait`."""
        return self._changes

    def wait(self, since: int, timeout_s: float) -> None:
        """Wait until a change follows the change `since`, but at most `timeout_s` seconds."""
        with self._changed:
            self._changed.wait_for(lambda: self._changes != since, timeout_s)
