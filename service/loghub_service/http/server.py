"""uvicorn over our own listener and protocol, which bound how much clients can occupy, with TLS from two
files that are replaced while the service runs, as cert-manager and the kubelet do.

A new pair of files is loaded into a context of its own and takes effect only if it is complete and fits, so
that an incomplete rotation never breaks the handshakes. Open connections keep the certificate that they began
with.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import uvicorn

from loghub_service.access_keys import FindKey, file_stamps
from loghub_service.connections.listener import HttpConnection, HttpConnections, SocketListener
from loghub_service.errors import ServiceFault
from loghub_service.http.protocol import BoundedProtocol, Direct
from loghub_service.settings import Limits


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """What the endpoints of other protocols share with the HTTP API."""

    find_key: FindKey
    tls: ssl.SSLContext | None


class BadCertificate(ServiceFault):
    """The certificate or its key cannot be used; the message names the files."""


class ServerTls:
    """The TLS context of a listener. Call `refresh` periodically and off the event loop.

    ``problem`` says why the files could not be used at the last `refresh`; "" if they could. Raises
    BadCertificate.
    """

    def __init__(self, certificate: str, key: str) -> None:
        self.problem = ""
        self._certificate = certificate
        self._key = key
        self._stamp = file_stamps(self._certificate, self._key)
        self._current = self._load()
        # OpenSSL calls it for every handshake, also if the client sends no server name.
        self.context = self._load()
        self.context.sni_callback = self._use_current

    def refresh(self) -> bool:
        """Load the files again if they changed; True if new handshakes use them."""
        stamp = file_stamps(self._certificate, self._key)
        if stamp == self._stamp and not self.problem:
            return False
        try:
            self._current = self._load()
        except BadCertificate as error:
            self.problem = str(error)
            return False
        self._stamp, self.problem = stamp, ""
        return True

    def _use_current(self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        connection.context = self._current

    def _load(self) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        try:
            # The empty password makes OpenSSL refuse an encrypted key instead of asking a terminal for one.
            context.load_cert_chain(self._certificate, self._key, password="")
        except (OSError, ValueError) as error:  # SSLError is an OSError
            reason = f"{type(error).__name__}: {error}"
            raise BadCertificate(f"TLS with {self._certificate} and {self._key}: {reason}") from error
        return context


_GRACEFUL_S = 10  # for requests in progress when the service stops; Kubernetes kills it after 30 s


class HttpServer(uvicorn.Server):
    """Serves an ASGI application on a listening socket, which it closes at the end.

    It leaves signals to the process, which closes its storage before it exits. ``on_started`` is called once
    connections are accepted. ``direct`` serves requests without the application, once it is set.
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
        self.connections = HttpConnections(limits.connections)
        self._listening = listening
        self._limits = limits
        self._tls = tls
        self._on_started = on_started
        self.direct: Direct | None = None
        self._listener: SocketListener | None = None

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: object = None) -> None:  # noqa: ARG002 - uvicorn's own listeners
        await self.lifespan.startup()
        self.servers: list[asyncio.base_events.Server] = []
        self._listener = SocketListener(
            self._listening, connections=self.connections, make_protocol=self._protocol, tls=self._tls
        )
        self._listener.start()
        self.started = True
        self._on_started()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self._listener is not None:
            self._listener.close()
        await super().shutdown(sockets)

    def _protocol(self, connection: HttpConnection) -> BoundedProtocol:
        return BoundedProtocol(
            self.config, self.server_state, self.connections, connection, self._limits, lambda: self.direct
        )


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
