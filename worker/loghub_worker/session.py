"""The one lock around the membership, and the positions file that follows from it.

What for: beats, openings, commits and the status come from different threads; each does its step
on the same `Consumer` here, and the source hears of the outcome before the step returns.
What it must not know: HTTP, Spark. Read next: `loghub_worker.membership`, `loghub_worker.keeper`.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from loghub.clock import Clock
from loghub_worker.consumer import Consumer
from loghub_worker.handover import Handover, Positions


class Session:
    """Use it as ``with session.use() as (consumer, now): ...``; never block inside."""

    def __init__(self, consumer: Consumer, handover: Handover, clock: Clock) -> None:
        self._consumer = consumer
        self._handover = handover
        self._clock = clock
        self._changed = threading.Condition()
        self._steps = 0
        self._writing = threading.Lock()
        self._written_version = -1

    @contextmanager
    def use(self) -> Iterator[tuple[Consumer, float]]:
        """The consumer and the monotonic time, under the lock; the positions file is in step after."""
        with self._changed:
            try:
                yield self._consumer, self._clock.monotonic_s()
            finally:
                positions = Positions(version=self._consumer.version, shards=self._consumer.positions)
                self._steps += 1
                self._changed.notify_all()
        self._write(positions)

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
    def steps(self) -> int:
        return self._steps

    def wait(self, since: int, timeout_s: float) -> int:
        """Wait until a step was done after the step `since`; how many there are then."""
        with self._changed:
            self._changed.wait_for(lambda: self._steps != since, timeout_s)
            return self._steps
