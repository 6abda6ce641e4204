"""An HTTP server of the service in a thread, over any ASGI application, with limits that a test chooses."""

import socket
import ssl
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import uvloop

from loghub_service.connections.listener import HttpConnections
from loghub_service.http.protocol import AUTHENTICATED
from loghub_service.http.server import HttpServer
from loghub_service.settings import Limits

GUARD_S = 120.0
Asgi = Callable[[Any, Any, Any], Awaitable[None]]


def answering(body: bytes = b"") -> Asgi:
    """An application that answers every request without reading its body. A request to ``/known`` counts as
    authenticated with the key ``k``."""

    async def application(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/known":
            scope["state"][AUTHENTICATED]("k")
        length = str(len(body)).encode()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", length)]})
        await send({"type": "http.response.body", "body": body})

    return application


def receiving() -> Asgi:
    """An application that answers every request once its body is there. The key is the path, without "/"."""

    async def application(scope: Any, receive: Any, send: Any) -> None:
        scope["state"][AUTHENTICATED](scope["path"][1:])
        while (message := await receive())["type"] == "http.request":
            if not message["more_body"]:
                await send({"type": "http.response.start", "status": 200, "headers": []})
                await send({"type": "http.response.body"})
                break

    return application


class Served:
    """The running server: its address, and its connections."""

    def __init__(
        self, application: Asgi, limits: Limits, keep_alive_s: int, tls: ssl.SSLContext | None
    ) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._make = lambda: HttpServer(
            application,
            self._listening,
            limits=limits,
            keep_alive_s=keep_alive_s,
            tls=tls,
            on_started=self._started.set,
        )
        self._server: HttpServer | None = None
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: uvloop.run(self._run()))
        self.address: tuple[str, int] = self._listening.getsockname()

    async def _run(self) -> None:
        self._server = self._make()
        await self._server.serve()

    def start(self) -> None:
        self._thread.start()
        assert self._started.wait(GUARD_S)

    def stop(self) -> None:
        assert self._server is not None
        self._server.should_exit = True
        self._thread.join(GUARD_S)
        self._listening.close()

    @property
    def connections(self) -> HttpConnections:
        assert self._server is not None
        return self._server.connections

    @property
    def protocols(self) -> int:
        """The connections that uvicorn knows; it keeps each in memory until it is lost."""
        assert self._server is not None
        return len(self._server.server_state.connections)

    @property
    def open_connections(self) -> int:
        return self.connections.unauthenticated_count + self.connections.authenticated_count

    @property
    def responses(self) -> int:
        """How many were written so far."""
        assert self._server is not None
        return self._server.server_state.total_requests

    @property
    def unsent_bytes(self) -> int:
        """Of responses, beyond what the operating system has taken."""
        assert self._server is not None
        known = list(self._server.server_state.connections)
        return sum(one.transport.get_write_buffer_size() for one in known)

    def shrink_buffers(self) -> None:
        """Let the operating system take little of what is sent on later connections."""
        self._listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)

    def connect(self) -> socket.socket:
        return socket.create_connection(self.address, GUARD_S)


@contextmanager
def serving(
    application: Asgi,
    *,
    limits: Limits | None = None,
    keep_alive_s: int = 75,
    tls: ssl.SSLContext | None = None,
) -> Iterator[Served]:
    served = Served(application, limits or Limits(), keep_alive_s, tls)
    served.start()
    try:
        yield served
    finally:
        served.stop()


def is_closed(connection: socket.socket) -> bool:
    """Wait until the server closes the connection; what it sent before is read."""
    try:
        while connection.recv(65536):
            pass
    except ConnectionError:
        return True
    except TimeoutError:
        return False
    return True
