"""Runs the requests about shards in a few threads: those of one shard one after the other, so that none of
its steps overtakes another, and those of different shards at the same time.
"""

import threading
from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Set
from contextlib import AbstractContextManager, contextmanager
from functools import partial

from loghub_worker.log_context import inherited

# At the same time. With the pulls of a consumer as many as a client keeps connections.
PARALLEL = 12


class ParallelTasks:
    """A `loghub_worker.membership.ports.ShardTasks`. Threads are started when needed, and do not keep the
    program from ending."""

    def __init__(self, limit: int = PARALLEL) -> None:
        self._limit = limit
        self._changed = threading.Condition()
        self._busy: set[Hashable] = set()
        self._waiting: deque[tuple[frozenset[Hashable], Callable[[], None]]] = deque()
        self._threads: list[threading.Thread] = []
        self._idle = 0
        self._stopped = False

    def start(self, key: Hashable, task: Callable[[], None]) -> bool:
        return bool(self.start_together((key,), lambda _: task()))

    def start_together(
        self, keys: Collection[Hashable], task: Callable[[frozenset[Hashable]], None]
    ) -> frozenset[Hashable]:
        with self._changed:
            free = frozenset(keys) - self._busy
            if not free or self._stopped:
                return frozenset()
            self._busy |= free
            self._waiting.append((free, partial(task, free)))
            if self._idle < len(self._waiting) and len(self._threads) < self._limit:
                name = f"shard-requests-{len(self._threads)}"
                self._threads.append(threading.Thread(target=inherited(self._run), name=name, daemon=True))
                self._threads[-1].start()
            self._changed.notify_all()
            return free

    @contextmanager
    def alone(self, key: Hashable) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(lambda: key not in self._busy)
            self._busy.add(key)
        try:
            yield
        finally:
            self._end(frozenset((key,)))

    def wait_for(self, keys: Set[Hashable]) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._busy.isdisjoint(keys))

    def stop(self, timeout_s: float) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        self.cancel(lambda _: True, timeout_s)

    def cancel(self, concerns: Callable[[Hashable], bool], timeout_s: float) -> None:
        """Forget the tasks of these keys that have not begun, and wait for the others, but at most so
        long."""
        with self._changed:
            kept = deque(entry for entry in self._waiting if not any(map(concerns, entry[0])))
            for keys, _ in self._waiting:
                if any(map(concerns, keys)):
                    self._busy -= keys
            self._waiting = kept
            self._changed.notify_all()
            self._changed.wait_for(lambda: not any(map(concerns, self._busy)), timeout_s)

    def _run(self) -> None:
        while (following := self._next()) is not None:
            keys, task = following
            try:
                task()
            finally:
                self._end(keys)

    def _next(self) -> tuple[frozenset[Hashable], Callable[[], None]] | None:
        with self._changed:
            self._idle += 1
            self._changed.wait_for(lambda: self._waiting or self._stopped)
            self._idle -= 1
            return self._waiting.popleft() if self._waiting else None

    def _end(self, keys: frozenset[Hashable]) -> None:
        with self._changed:
            self._busy -= keys
            self._changed.notify_all()


class TasksOfOne:
    """The part of one logstore, as a `loghub_worker.membership.ports.ShardTasks`, in the threads of all."""

    def __init__(self, tasks: ParallelTasks, owner: Hashable) -> None:
        self._tasks = tasks
        self._owner = owner
        self._stopped = False

    def start(self, key: Hashable, task: Callable[[], None]) -> bool:
        return bool(self.start_together((key,), lambda _: task()))

    def start_together(
        self, keys: Collection[Hashable], task: Callable[[frozenset[Hashable]], None]
    ) -> frozenset[Hashable]:
        if self._stopped:
            return frozenset()
        run = inherited(task)  # the threads are those of no logstore
        started = self._tasks.start_together(self._owned(keys), lambda free: run(_keys_of(free)))
        return _keys_of(started)

    def alone(self, key: Hashable) -> AbstractContextManager[None]:
        return self._tasks.alone((self._owner, key))

    def wait_for(self, keys: Set[Hashable]) -> None:
        self._tasks.wait_for(self._owned(keys))

    def stop(self, timeout_s: float) -> None:
        self._stopped = True
        self._tasks.cancel(lambda key: isinstance(key, tuple) and key[0] == self._owner, timeout_s)

    def _owned(self, keys: Iterable[Hashable]) -> frozenset[Hashable]:
        return frozenset((self._owner, key) for key in keys)


def _keys_of(owned: Iterable[Hashable]) -> frozenset[Hashable]:
    return frozenset(key[1] for key in owned if isinstance(key, tuple))
