"""Which batches run in a worker at the same time, so that what ends a process is laid on the right logs.

A process may be ended by what another one does: the kernel ends the largest if memory runs out, or all of a
container. So an end counts against logs only if nothing else ran in the worker. Logs that are suspected run
one after the other, and alone; all others run side by side.
"""

import threading
from collections.abc import Callable
from pathlib import Path

from loghub_consumer.failure.handler import AttemptJournal

LOOK_S = 0.2  # how often who waits looks whether it still has to
FILES = "attempts-*.json"  # of `loghub_consumer.settlement`


class BatchTurn:
    """`was_alone`: nothing else has run since it began."""

    def __init__(self, *, was_alone: bool) -> None:
        self.was_alone = was_alone


class RunningBatches:
    """Those of a worker, of its retry logstore included. Thread-safe."""

    def __init__(self, folder: Path | None) -> None:
        """`folder` has the journals of a worker: `ended_alone` says whether its last process ended in one
        batch only. None: a program, which leaves none."""
        files = () if folder is None else folder.rglob(FILES)
        left = (AttemptJournal(path).read() for path in files)
        self.ended_alone = sum(len(journal.running) for journal in left) == 1
        self._changed = threading.Condition()
        self._running: set[BatchTurn] = set()
        self._is_alone = False
        self._waiting_alone = 0

    def begin(self, may_wait: Callable[[], bool], *, alone: bool) -> BatchTurn | None:
        """Wait until a batch may run; None once `may_wait` says no. The wait is bounded, since a call that
        takes too long is ended. Those that run alone go first, since the others would never leave a gap."""
        with self._changed:
            self._waiting_alone += alone
            try:
                while not self._is_free(alone=alone):
                    if not may_wait():
                        return None
                    self._changed.wait(LOOK_S)
            finally:
                self._waiting_alone -= alone
                self._changed.notify_all()
            self._is_alone = alone
            for other in self._running:
                other.was_alone = False
            batch = BatchTurn(was_alone=not self._running)
            self._running.add(batch)
            return batch

    def _is_free(self, *, alone: bool) -> bool:
        return not self._running if alone else not self._is_alone and not self._waiting_alone

    def end(self, batch: BatchTurn) -> None:
        with self._changed:
            self._running.discard(batch)
            self._is_alone = False
            self._changed.notify_all()
