"""Connections to log services, kept while their keys are the same.

What for: one client per endpoint, project and key; calls run in a bounded pool of threads,
since the adapters are synchronous. What it must not know: Kubernetes. Read next:
`loghub.client.port`, `loghub_operator.logservice`.
"""

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from loghub.client.port import Credentials, LogHub

Connect = Callable[[str, str, Credentials], LogHub]
THREADS = 16
MOST_OPEN = 1024
P = ParamSpec("P")
T = TypeVar("T")


class Hubs:
    """Open clients, the least recently used one closed first beyond `MOST_OPEN`."""

    def __init__(self, connect: Connect, *, threads: int = THREADS) -> None:
        self._connect = connect
        self._pool = ThreadPoolExecutor(max_workers=threads, thread_name_prefix="log-service")
        self._open: OrderedDict[tuple[str, str, Credentials], LogHub] = OrderedDict()
        self._lock = threading.Lock()

    def hub(self, endpoint: str, project: str, credentials: Credentials) -> LogHub:
        """The client for this project; the same one for the same key."""
        key = (endpoint, project, credentials)
        with self._lock:
            if key not in self._open:
                self._open[key] = self._connect(endpoint, project, credentials)
            self._open.move_to_end(key)
            stale = self._open.popitem(last=False)[1] if len(self._open) > MOST_OPEN else None
        if stale is not None:
            stale.close()
        return self._open[key]

    async def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a synchronous call in one of the threads."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, lambda: function(*args, **kwargs))

    def close(self) -> None:
        """Close every client; calls that run still end by their own bound."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            hubs, self._open = list(self._open.values()), OrderedDict()
        for hub in hubs:
            hub.close()
