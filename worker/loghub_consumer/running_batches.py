"""Which batches run in a worker at the same time, so that the end of a process is blamed on the right logs.

Another process may be the reason why a process ends: if memory runs out, the kernel ends the largest process,
or all processes of a container. So an end counts against logs only if nothing else ran in the worker.
Suspected logs run one after the other, and alone; all others run at the same time.
"""

import threading
from collections.abc import Callable
from pathlib import Path

from loghub_consumer.failure.handler import AttemptJournal

LOOK_S = 0.2  # how often a waiting thread checks whether it still must wait
FILES = "attempts-*.json"  # of `loghub_consumer.settlement`


class BatchTurn:
    """`was_alone`: nothing else has run since it began."""

    def __init__(self, *, was_alone: bool) -> None:
        self.was_alone = was_alone


class RunningBatches:
    """The running batches of a worker, including its retry logstore. Thread-safe."""

    def __init__(self, folder: Path | None) -> None:
        """`folder` has the journals of a worker: `ended_alone` says whether its last process ended in a
        single batch. None: a program, which has no journals."""
        files = () if folder is None else folder.rglob(FILES)
        left = (AttemptJournal(path).read() for path in files)
        self.ended_alone = sum(len(journal.running) for journal in left) == 1
        self._changed = threading.Condition()
        self._running: set[BatchTurn] = set()
        self._is_alone = False
        self._waiting_alone = 0

    def begin(self, may_wait: Callable[[], bool], *, alone: bool) -> BatchTurn | None:
        """Wait until a batch may run; None once `may_wait` returns False. The wait is bounded, since a call
        that takes too long is ended. Batches that must run alone go first, because the other batches would
        never leave a gap."""
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
