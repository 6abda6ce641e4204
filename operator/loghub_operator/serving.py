"""One small HTTP server for what others ask of this process.

What for: probes, and whatever else is handed in as a route. What it must not know: what an answer
means. Read next: `loghub_operator.__main__` (the routes).
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from aiohttp import web

LONGEST_REQUEST_BYTES = 64 * 1024
STOP_BOUND_S = 1.0
MOST_CONNECTIONS = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What is sent back."""

    status: int = 200
    body: bytes = b""
    content_type: str = "text/plain; charset=utf-8"


Route = Callable[[], Answer] | Callable[[], Awaitable[Answer]]


def text(words: str, *, status: int = 200) -> Answer:
    """A line of text."""
    return Answer(status=status, body=f"{words}\n".encode())


@asynccontextmanager
async def serving(address: str, routes: Mapping[str, Route]) -> AsyncIterator[str]:
    """Answer GET for each path of ``routes`` at ``host:port``; the real address (port 0: any free one)."""
    host, _, port = address.rpartition(":")
    application = web.Application(client_max_size=LONGEST_REQUEST_BYTES)
    application.add_routes([web.get(path, _handler(route)) for path, route in routes.items()])
    runner = web.AppRunner(application, handle_signals=False, shutdown_timeout=STOP_BOUND_S, access_log=None)
    await runner.setup()
    try:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(bounded(runner), host.strip("[]"), int(port))
        async with server:
            yield f"{host}:{server.sockets[0].getsockname()[1]}"
    finally:
        await runner.cleanup()


def bounded(runner: web.AppRunner) -> Callable[[], asyncio.BaseProtocol]:
    """The runner's protocol, for `MOST_CONNECTIONS` at once; a further one is closed."""
    handlers: Any = runner.server
    return lambda: handlers() if len(handlers.connections) < MOST_CONNECTIONS else _Refused()


class _Refused(asyncio.Protocol):
    """One connection too many."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


def _handler(route: Route) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def answer(_: web.Request) -> web.Response:
        found = route()
        made = found if isinstance(found, Answer) else await found
        return web.Response(status=made.status, body=made.body, headers={"Content-Type": made.content_type})

    return answer
