"""Shard tasks without threads: each runs to its end where it is started."""

from collections.abc import Callable, Collection, Hashable, Iterator, Set
from contextlib import contextmanager


class TasksInOrder:
    """A `loghub_consumer.membership.shared_membership.ShardTasks`."""

    def __init__(self) -> None:
        self._busy: set[Hashable] = set()

    def start(self, key: Hashable, task: Callable[[], None]) -> bool:
        return bool(self.start_together((key,), lambda _: task()))

    def start_together(
        self, keys: Collection[Hashable], task: Callable[[frozenset[Hashable]], None]
    ) -> frozenset[Hashable]:
        free = frozenset(keys) - self._busy
        self._busy |= free
        try:
            if free:
                task(free)
        finally:
            self._busy -= free
        return free

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
