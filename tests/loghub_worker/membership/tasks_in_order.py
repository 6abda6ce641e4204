"""Shard tasks without threads: each runs to its end where it is started."""

from collections.abc import Callable, Hashable, Iterator, Set
from contextlib import contextmanager


class TasksInOrder:
    """A `loghub_worker.membership.ports.ShardTasks`."""

    def __init__(self) -> None:
        self._busy: set[Hashable] = set()

    def start(self, key: Hashable, task: Callable[[], None]) -> bool:
        if key in self._busy:
            return False
        with self.alone(key):
            task()
        return True

    @contextmanager
    def alone(self, key: Hashable) -> Iterator[None]:
        assert key not in self._busy, "nothing else would end it"
        self._busy.add(key)
        try:
            yield
        finally:
            self._busy.discard(key)

    def wait_for(self, keys: Set[Hashable]) -> None:
        """Nothing runs."""

    def stop(self, timeout_s: float) -> None:
        """Nothing runs."""
