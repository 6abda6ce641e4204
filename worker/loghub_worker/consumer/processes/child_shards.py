"""The shards of a process, for the user's listener."""

import threading
from collections.abc import Iterable

from loghub_worker.consumer.processes.child_tracker import ChildTracker
from loghub_worker.consumer.processor import NotAssignedError


class ProcessShards:
    """A `loghub_worker.consumer.processor.ShardControl`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._trackers: dict[int, ChildTracker] = {}

    def add(self, tracker: ChildTracker) -> None:
        with self._lock:
            self._trackers[tracker.shard] = tracker

    def remove(self, tracker: ChildTracker) -> None:
        """The shard is given up; one that has returned since stays."""
        with self._lock:
            if self._trackers.get(tracker.shard) is tracker:
                del self._trackers[tracker.shard]

    def assignment(self) -> tuple[int, ...]:
        with self._lock:
            return tuple(sorted(self._trackers))

    def seek(self, shard: int, to: str | int) -> None:
        self._find(shard).seek(to)

    def pause(self, shards: Iterable[int]) -> None:
        for tracker in [self._find(shard) for shard in shards]:
            tracker.pause()

    def resume(self, shards: Iterable[int]) -> None:
        for tracker in [self._find(shard) for shard in shards]:
            tracker.resume()

    def _find(self, shard: int) -> ChildTracker:
        with self._lock:
            tracker = self._trackers.get(shard)
        if tracker is None:
            raise NotAssignedError(f"shard {shard} is not in this process")
        return tracker
