"""uvicorn over our own listener and protocol, which bound what clients can occupy."""

import asyncio
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

from loghub.service.http.connections import Connection, Connections
from loghub.service.http.listener import Listener
from loghub.service.http.protocol import BoundedProtocol
from loghub.service.settings import Limits

_GRACEFUL_S = 10


class HttpServer(uvicorn.Server):
    """Serves an ASGI application on a listening socket, which it closes at the end.

    It leaves signals to the process, which closes its storage before it exits. ``on_started`` is called once
    connections are accepted.
    """

    def __init__(
        self,
        application: Callable[..., Any],
        listening: socket.socket,
        *,
        limits: Limits,
        keep_alive_s: int,
        tls: ssl.SSLContext | None = None,
        on_started: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(_config(application, keep_alive_s))
        self.connections = Connections(limits.connections)
        self._listening = listening
        self._limits = limits
        self._tls = tls
        self._on_started = on_started
        self._listener: Listener | None = None

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: object = None) -> None:  # noqa: ARG002 - uvicorn's own listeners
        await self.lifespan.startup()
        self.servers: list[asyncio.base_events.Server] = []
        self._listener = Listener(
            self._listening, connections=self.connections, make_protocol=self._protocol, tls=self._tls
        )
        self._listener.start()
        self.started = True
        self._on_started()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self._listener is not None:
            self._listener.close()
        await super().shutdown(sockets)

    def _protocol(self, connection: Connection) -> BoundedProtocol:
        return BoundedProtocol(self.config, self.server_state, self.connections, connection, self._limits)


def _config(application: Callable[..., Any], keep_alive_s: int) -> uvicorn.Config:
    return uvicorn.Config(
        application,
        loop="none",
        http=BoundedProtocol,
        ws="none",
        lifespan="off",
        interface="asgi3",
        access_log=False,
        log_config=None,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=keep_alive_s,
        timeout_graceful_shutdown=_GRACEFUL_S,
    )
