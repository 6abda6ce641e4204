"""Pool of log-service clients, which stay open while they are in use.

There is one client per endpoint, project and access key, so a rotated key gets a new client and the old
client is closed once idle. The endpoint decides whether it is the vendor's SDK or this project's own HTTP
adapter. Calls run in a bounded pool of threads, because the adapters are synchronous. A call that makes many
requests spreads them over a second pool, so that calls never wait for each other's requests in a circle.
"""

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import ParamSpec, TypeVar

from loghub.client.choice import open_client
from loghub.client.port import Credentials, LogHub, Timeouts
from loghub.client.target import EndpointAt
from loghub.clock import Clock, SystemClock

Connect = Callable[[str, str, Credentials], LogHub]
THREADS = 20  # as many as reconciles run at a time
# At 50 ms a request, 960 requests per second: 500 groups of 32 shards twice a minute.
REQUEST_THREADS = 48
MAX_OPEN = 1024
IDLE_S = 600.0  # far longer than any call, and than the interval between two reconciles of a group
_CLOCK = SystemClock()
P = ParamSpec("P")
T = TypeVar("T")


class LogServicePool:
    """The open clients. A client that is not requested for `IDLE_S` is closed, because its key may have been
    rotated; beyond `MAX_OPEN` clients, the least recently used are closed."""

    def __init__(self, connect: Connect, *, threads: int = THREADS, clock: Clock = _CLOCK) -> None:
        self._connect = connect
        self._pool = ThreadPoolExecutor(max_workers=threads, thread_name_prefix="log-service")
        self._requests = ThreadPoolExecutor(
            max_workers=REQUEST_THREADS, thread_name_prefix="log-service-request"
        )
        self._clock = clock
        # Ordered by last use; the value includes its time.
        self._open: OrderedDict[tuple[str, str, Credentials], tuple[LogHub, float]] = OrderedDict()
        self._lock = threading.Lock()

    def client(self, endpoint: str, project: str, credentials: Credentials) -> LogHub:
        """Returns the client for this project; the same arguments return the same client."""
        key, now = (endpoint, project, credentials), self._clock.monotonic_s()
        with self._lock:
            opened = self._open.pop(key, None)
            client = self._connect(endpoint, project, credentials) if opened is None else opened[0]
            self._open[key] = (client, now)
            stale = self._pop_stale(now)
        for old in stale:
            old.close()
        return client

    def _pop_stale(self, now: float) -> list[LogHub]:
        stale: list[LogHub] = []
        while True:
            key, (client, used_s) = next(iter(self._open.items()))
            if used_s >= now - IDLE_S and len(self._open) <= MAX_OPEN:
                return stale
            del self._open[key]
            stale.append(client)

    async def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs a synchronous call in one of the threads."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, lambda: function(*args, **kwargs))

    def run_all(self, task: Callable[[], None], times: int) -> None:
        """Runs ``task`` so many times in as many threads, and returns once all have ended. Raises what one
        of them raised. To be called in a thread of `call`."""
        futures = [self._requests.submit(task) for _ in range(times)]
        wait(futures)
        for future in futures:
            future.result()

    def close(self) -> None:
        """Closes every client; calls in progress end within their own time limits."""
        for pool in (self._pool, self._requests):
            pool.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            clients, self._open = list(self._open.values()), OrderedDict()
        for client, _ in clients:
            client.close()


# The longest that a slow endpoint can block one of the pool's threads.
TIMEOUTS = Timeouts(connect_s=3.0, read_s=5.0, total_s=10.0)
AGENT = "loghub-operator"


def connector(uses_sdk: Callable[[str], bool], address_of: Callable[[str], str]) -> Connect:
    """Returns a function that opens clients; ``uses_sdk`` decides by the endpoint's URL whether the vendor's
    SDK or our own adapter is used, and ``address_of`` where the latter connects to ("": to the host of the
    project)."""

    def connect(endpoint: str, project: str, credentials: Credentials) -> LogHub:
        address = address_of(endpoint)
        return open_client(
            "sdk" if uses_sdk(endpoint) else "http",
            EndpointAt(url=endpoint, address=address) if address else endpoint,
            project,
            credentials=credentials,
            agent=AGENT,
            timeouts=TIMEOUTS,
        )

    return connect
