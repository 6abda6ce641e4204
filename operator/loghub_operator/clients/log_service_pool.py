"""Connections to log services, kept while they are used.

What for: one client per endpoint, project and key, so that a new key is another client and the old
one goes; calls run in a bounded pool of threads, since the adapters are synchronous. What it must
not know: Kubernetes. Read next: `loghub.client.port`, `loghub_operator.logservice.group_state`.
"""

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from loghub.client.port import Credentials, LogHub
from loghub.clock import Clock, SystemClock

Connect = Callable[[str, str, Credentials], LogHub]
THREADS = 16
MOST_OPEN = 1024
IDLE_S = 600.0  # far longer than any call, and than the pause between two rounds of a group
_CLOCK = SystemClock()
P = ParamSpec("P")
T = TypeVar("T")


class LogServicePool:
    """Open clients. One that was not asked for in `IDLE_S` is closed, its key may be an old one;
    beyond `MOST_OPEN` the least recently used ones are."""

    def __init__(self, connect: Connect, *, threads: int = THREADS, clock: Clock = _CLOCK) -> None:
        self._connect = connect
        self._pool = ThreadPoolExecutor(max_workers=threads, thread_name_prefix="log-service")
        self._clock = clock
        # By last use, with its time
        self._open: OrderedDict[tuple[str, str, Credentials], tuple[LogHub, float]] = OrderedDict()
        self._lock = threading.Lock()

    def client(self, endpoint: str, project: str, credentials: Credentials) -> LogHub:
        """The client for this project; the same one for the same key."""
        key, now = (endpoint, project, credentials), self._clock.monotonic_s()
        with self._lock:
            known = self._open.pop(key, None)
            found = self._connect(endpoint, project, credentials) if known is None else known[0]
            self._open[key] = (found, now)
            stale = self._take_stale(now)
        for one in stale:
            one.close()
        return found

    def _take_stale(self, now: float) -> list[LogHub]:
        taken: list[LogHub] = []
        while True:
            key, (hub, used_s) = next(iter(self._open.items()))
            if used_s >= now - IDLE_S and len(self._open) <= MOST_OPEN:
                return taken
            del self._open[key]
            taken.append(hub)

    async def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a synchronous call in one of the threads."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, lambda: function(*args, **kwargs))

    def close(self) -> None:
        """Close every client; calls that run still end by their own bound."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            hubs, self._open = list(self._open.values()), OrderedDict()
        for hub, _ in hubs:
            hub.close()
