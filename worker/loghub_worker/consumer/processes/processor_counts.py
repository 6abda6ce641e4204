"""What the processors of a program or a worker have done."""

import threading


class ProcessorCounts:
    """What was processed since the worker started, by shard, and since when each session has a batch.
    Thread-safe."""

    def __init__(self) -> None:
        self.logs: dict[int, int] = {}
        self.batches = 0
        self.seconds = 0.0
        self.timed_out = 0
        self.running_since_s: dict[int, float] = {}
        self._lock = threading.Lock()

    def add(self, shard: int, logs: int, seconds: float) -> None:
        """A batch was processed."""
        with self._lock:
            self.batches += 1
            self.seconds += seconds
            self.logs[shard] = self.logs.get(shard, 0) + logs

    def add_timed_out(self) -> None:
        """A batch took too long."""
        with self._lock:
            self.timed_out += 1
