"""``python -m tests.loghub_operator.latency HOST:PORT MILLISECONDS``: a log service far away.

A relay in front of the embedded service: every request arrives later by this time, and the extensions are
absent, as they are in SLS. It prints ``HOST:PORT`` once it accepts connections, and runs until SIGTERM.

It does not read the protocol beyond that. A request that arrives in two pieces is late once, since the pieces
wait side by side, and answers are not held back.
"""

import asyncio
import json
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from subprocess import PIPE, Popen
from typing import cast

import uvloop

EXTENSION = b"GET /_loghub/"
_BODY = json.dumps({"errorCode": "InvalidMethod", "errorMessage": "there is no such path"}).encode()
ABSENT = b"HTTP/1.1 404 Not Found\r\nContent-Length: %d\r\n\r\n%s" % (len(_BODY), _BODY)


class _Answers(asyncio.Protocol):
    """The service's side of one connection."""

    def __init__(self, client: asyncio.Transport) -> None:
        self._client = client

    def data_received(self, data: bytes) -> None:
        self._client.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._client.close()


class _Requests(asyncio.Protocol):
    """The client's side of one connection."""

    def __init__(self, host: str, port: int, delay_s: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._address = (host, port)
        self._delay_s = delay_s
        self._waiting: deque[bytes] = deque()
        self._due = 0  # pieces whose time came before the connection to the service was established
        self._service: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._client = cast(asyncio.Transport, transport)
        self._connecting = self._loop.create_task(self._connect())

    async def _connect(self) -> None:
        self._service, _ = await self._loop.create_connection(lambda: _Answers(self._client), *self._address)
        for _ in range(self._due):
            self._service.write(self._waiting.popleft())

    def data_received(self, data: bytes) -> None:
        if data.startswith(EXTENSION):
            self._client.write(ABSENT)
            return
        self._waiting.append(data)
        self._loop.call_later(self._delay_s, self._pass_on)

    def _pass_on(self) -> None:
        if self._service is None:
            self._due += 1
        else:
            self._service.write(self._waiting.popleft())

    def connection_lost(self, exc: Exception | None) -> None:
        self._connecting.cancel()
        if self._service is not None:
            self._service.close()


async def relay(host: str, port: int, delay_s: float) -> None:
    server = await asyncio.get_running_loop().create_server(
        lambda: _Requests(host, port, delay_s), "127.0.0.1", 0, backlog=1024
    )
    print("{}:{}".format(*server.sockets[0].getsockname()), flush=True)
    await server.serve_forever()


@contextmanager
def distant(endpoint: str, delay_ms: float) -> Iterator[str]:
    """The endpoint of a relay in a process of its own."""
    address = endpoint.removeprefix("http://")
    command = [sys.executable, "-m", "tests.loghub_operator.latency", address, str(delay_ms)]
    with Popen(command, stdout=PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            line = process.stdout.readline().strip()
            assert line, "the relay did not start"
            yield f"http://{line}"
        finally:
            process.terminate()


if __name__ == "__main__":
    name, _, number = sys.argv[1].rpartition(":")
    uvloop.run(relay(name, int(number), float(sys.argv[2]) / 1000))
