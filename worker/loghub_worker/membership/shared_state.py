"""The one lock around the membership, and the positions file that follows from it.

What for: beats, openings, commits and the status come from different threads; each does its step
on the same `Membership` here, and the source hears of the outcome before the step returns.
What it must not know: HTTP, Spark. Read next: `loghub_worker.membership.heartbeat`,
`loghub_worker.membership.shard_manager`."""

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
        """The consumer and the monotonic time, under the lock; the positions file is in step after."""
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
                # Mere looks wake nobody, or the threads would keep one another awake.
                if self._consumer.mark != before:
                    self.wake()
        self._write(positions)

    def wake(self) -> None:
        """End every `wait`."""
        with self._changed:
            self._changes += 1
            self._changed.notify_all()

    def _write(self, positions: Positions) -> None:
        # Outside the first lock: a slow disk must not hold a beat up. A newer version may have
        # been written meanwhile; then there is nothing to do.
        if positions.version <= self._written_version:
            return
        with self._writing:
            if positions.version > self._written_version:
                self._handover.write_positions(positions)
                self._written_version = positions.version

    @property
    def changes(self) -> int:
        """How many there were; for `wait`."""
        return self._changes

    def wait(self, since: int, timeout_s: float) -> None:
        """Wait until there was a change after the change `since`."""
        with self._changed:
            self._changed.wait_for(lambda: self._changes != since, timeout_s)
