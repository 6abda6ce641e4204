"""The processes of a worker, and which shard is in which.

A shard is in one process at a time, so its logs stay in order. It goes to the process with the fewest shards;
which of several that is depends on its number alone, so that a shard that returns usually finds the process
that it had. Where others have left another process, it moves between two batches. A process is started when
its first shard comes.
"""

import threading
from collections.abc import Sequence

from loghub.worker_contract import ProcessProgress
from loghub_worker.consumer.processes.child_process import ChildProcess, ProcessSettings
from loghub_worker.consumer.processes.session_trackers import SessionTrackers
from loghub_worker.fatal_error import FatalError
from loghub_worker.log_context import inherited


def choose(shard: int, loads: Sequence[int]) -> int:
    """The number of the process for a shard. `loads` are the numbers of shards that the processes have."""
    return min(range(len(loads)), key=lambda number: (loads[number], (number - shard) % len(loads)))


class ProcessPool:
    """All processes. Thread-safe."""

    def __init__(self, count: int, settings: ProcessSettings) -> None:
        self.trackers = SessionTrackers()
        self._processes = [ChildProcess(number, settings, self.trackers) for number in range(count)]
        self._started: set[int] = set()
        self._lock = threading.Lock()

    def start_first(self) -> ChildProcess:
        """Start one process, which shows whether the user's code can be loaded."""
        with self._lock:
            return self._start(0)

    def _start(self, number: int) -> ChildProcess:
        process = self._processes[number]
        if number not in self._started:
            self._started.add(number)
            process.start()
        return process

    def take(self, session: int, shard: int, *, is_of_retries: bool = False) -> ChildProcess:
        """The process of a session, which keeps it until `give_back`. The shards of the retry logstore are
        not reported."""
        with self._lock:
            process = self._start(choose(shard, [len(one.shards) for one in self._processes]))
            process.shards[session] = None if is_of_retries else shard
            return process

    def move(self, session: int, shard: int) -> ChildProcess | None:
        """The process to which a session moves, because it has at least two shards less than its own, which
        others have left; None: it stays."""
        with self._lock:
            loads = [len(one.shards) for one in self._processes]
            here = next(one for one in self._processes if session in one.shards)
            number = choose(shard, loads)
            if len(here.shards) - loads[number] < 2:
                return None
            there = self._start(number)
            there.shards[session] = here.shards.pop(session)
            return there

    def give_back(self, session: int) -> None:
        """The session has ended."""
        self.trackers.close(session)
        with self._lock:
            for process in self._processes:
                process.shards.pop(session, None)

    @property
    def failure(self) -> FatalError | None:
        """Why the worker cannot go on."""
        return next((one.failure for one in self._processes if one.failure is not None), None)

    def progress(self) -> list[ProcessProgress]:
        with self._lock:
            started = sorted(self._started)
        return [self._processes[number].progress() for number in started]

    def close(self) -> None:
        """End all processes."""
        with self._lock:
            started = [self._processes[number] for number in sorted(self._started)]
        threads = [threading.Thread(target=inherited(one.close), daemon=True) for one in started]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
