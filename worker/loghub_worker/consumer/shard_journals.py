"""What is known of logs that fail, for the next process of this worker.

Each shard has a file, since each has a thread: `loghub_worker.failure.attempt_journal` says what is in it.
"""

import re
import threading
from pathlib import Path

import structlog

from loghub_worker.batch_plan import Range
from loghub_worker.failure.attempt_journal import ENDED, AttemptJournal, Journal
from loghub_worker.failure.failure_policy import FailurePolicy

log = structlog.get_logger()
FILE_NAME = re.compile(r"attempts-(\d+)\.json")


def journal_of(policy: FailurePolicy, shard: int, running: tuple[Range, ...] = (), *, now: float) -> Journal:
    """What the next process must know of a shard."""
    return Journal(
        running=running,
        failing=tuple(one for one in policy.failing if one.shard == shard),
        skips=tuple(one for one in policy.skips.past_skips(now) if one.shard == shard),
    )


class ShardJournals:
    """The files. Thread-safe; the thread of a shard writes that of the shard."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._files: dict[int, AttemptJournal] = {}
        self._is_closed = False
        self._lock = threading.Lock()

    def restore(self, policy: FailurePolicy, *, ended_alone: bool, now: float) -> None:
        """Tell the policy what an earlier process knew, and that it ended in the batches that ran. The end
        counts against the logs only if a single batch ran."""
        for path in sorted(self._folder.iterdir()):
            name = FILE_NAME.fullmatch(path.name)
            if name is None:
                continue
            shard = int(name[1])
            left = self._file(shard).read()
            policy.restore(left.failing, left.skips, now=now)
            for part in left.running:
                log.warning("an earlier process ended during a batch", range=part)
                if ended_alone:
                    policy.failed((part,), ENDED, now=now)
                else:
                    policy.suspected(part, ENDED, now=now)
            self.write(shard, journal_of(policy, shard, now=now))

    def write(self, shard: int, journal: Journal) -> None:
        with self._lock:
            if self._is_closed:
                return
            file = self._file(shard)
        file.write(journal)

    def close(self) -> None:
        """The worker stops in order: the next process has nothing to learn from this one."""
        with self._lock:
            self._is_closed = True
            for file in self._files.values():
                file.write(Journal())

    def _file(self, shard: int) -> AttemptJournal:
        if shard not in self._files:
            self._files[shard] = AttemptJournal(self._folder / f"attempts-{shard}.json")
        return self._files[shard]
