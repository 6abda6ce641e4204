"""Small HTTP server for probes, metrics and any other route that is passed in.

The number of connections is bounded, and idle connections are closed, both before their first request and
after their last.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from aiohttp import web

from loghub.listening import listen

MAX_REQUEST_BYTES = 64 * 1024  # requests are GETs and short JSON objects of an API server
STOP_BOUND_S = 1.0  # answers take milliseconds, and the end of a leader must not wait for a slow reader
MAX_CONNECTIONS = 256  # kubelet, Prometheus and API servers have a few each; further ones take no memory
FIRST_REQUEST_BOUND_S = 10.0  # from the connection to a complete request
KEEP_ALIVE_S = 15.0  # from a response to the next complete request
HANDSHAKE_BOUND_S = 10.0  # the time that a first request has, see FIRST_REQUEST_BOUND_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """An HTTP response."""

    status: int = 200
    body: bytes = b""
    content_type: str = "text/plain; charset=utf-8"


Route = Callable[[], Response] | Callable[[], Awaitable[Response]]


def text(line: str, *, status: int = 200) -> Response:
    """A response with one line of text."""
    return Response(status=status, body=f"{line}\n".encode())


@asynccontextmanager
async def serving(address: str, routes: Mapping[str, Route]) -> AsyncIterator[str]:
    """Serves GET for each path of ``routes`` at ``host:port`` (`loghub.listening`); yields the actual address
    (port 0: any free port)."""
    application = web.Application(client_max_size=MAX_REQUEST_BYTES)
    application.add_routes([web.get(path, _handler(route)) for path, route in routes.items()])
    async with serving_application(address, application) as real:
        yield real


@asynccontextmanager
async def serving_application(
    address: str, application: web.Application, context: ssl.SSLContext | None = None
) -> AsyncIterator[str]:
    """Serves a whole application, over HTTPS if there is a ``context``. Raises OSError."""
    host, _, port = address.rpartition(":")
    application.middlewares.insert(0, _note_request)
    runner = web.AppRunner(application, handle_signals=False, shutdown_timeout=STOP_BOUND_S)
    await runner.setup()
    try:
        server = await asyncio.get_running_loop().create_server(
            lambda: _connection(runner.server),
            sock=listen(host, int(port), backlog=MAX_CONNECTIONS),
            ssl=context,
            ssl_handshake_timeout=HANDSHAKE_BOUND_S if context else None,
            backlog=MAX_CONNECTIONS,
        )
        async with server:
            yield f"{host}:{server.sockets[0].getsockname()[1]}"
    finally:
        await runner.cleanup()


def _connection(handlers: web.Server | None) -> asyncio.BaseProtocol:
    """The protocol of a new connection, which is closed at once if there are too many."""
    assert handlers is not None  # the runner is set up
    return _Connection(handlers) if len(handlers.connections) < MAX_CONNECTIONS else _ClosedConnection()


class _Connection(web.RequestHandler):
    """A connection that is closed if its first request, or the next, does not arrive in time."""

    def __init__(self, handlers: web.Server) -> None:
        loop = asyncio.get_running_loop()
        super().__init__(handlers, loop=loop, keepalive_timeout=KEEP_ALIVE_S)
        self._first: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        assert isinstance(transport, asyncio.Transport)
        loop = asyncio.get_running_loop()
        self._first = loop.call_later(FIRST_REQUEST_BOUND_S, transport.abort)

    def connection_lost(self, exc: BaseException | None) -> None:
        self.request_received()
        super().connection_lost(exc)

    def request_received(self) -> None:
        """A complete request has arrived; the response is not subject to its time limit."""
        if self._first is not None:
            self._first.cancel()


@web.middleware
async def _note_request(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    connection = request.protocol
    assert isinstance(connection, _Connection)
    connection.request_received()
    return await handler(request)


class _ClosedConnection(asyncio.Protocol):
    """A connection that exceeds the limit."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


def _handler(route: Route) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def respond(_: web.Request) -> web.Response:
        result = route()
        response = result if isinstance(result, Response) else await result
        return web.Response(
            status=response.status, body=response.body, headers={"Content-Type": response.content_type}
        )

    return respond
