"""A port for a protocol of frames: its listener, its connections, and their end with the service."""

import asyncio
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass

from loghub_service.connections.frames import FrameConnection, FrameLimits
from loghub_service.connections.listener import HttpConnection, HttpConnections, SocketListener

_MAPPED = "::ffff:"  # begins an IPv4 address on a socket for both families


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """Where clients find the broker."""

    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Port:
    """A listening socket, and how clients find it; with ``advertised`` None, each client uses the address to
    which it connected."""

    listening: socket.socket
    tls: ssl.SSLContext | None
    advertised: BrokerAddress | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ends:
    """The two ends of a connection: where the client finds the broker from now on, and the client's host."""

    broker: BrokerAddress
    client_host: str


class BrokerPort:
    """Accepts the clients of a broker, from `start` until `close`.

    ``make_connection`` makes the connection of a client that was admitted. Call `opened` once its transport
    is there, and `closed` at its end.
    """

    def __init__(
        self,
        port: Port,
        limits: FrameLimits,
        make_connection: Callable[[HttpConnection], FrameConnection],
    ) -> None:
        self.connections = HttpConnections(limits.connections)
        self._limits = limits
        self._port = port
        self._open: set[FrameConnection] = set()
        self._all_closed = asyncio.Event()
        self._all_closed.set()
        self._listener = SocketListener(
            port.listening, connections=self.connections, make_protocol=make_connection, tls=port.tls
        )

    def start(self) -> None:
        self._listener.start()

    async def close(self) -> None:
        """Answer requests in progress, for some seconds, and end all connections."""
        self._listener.close()
        for connection in tuple(self._open):
            connection.finish()
        try:
            async with asyncio.timeout(self._limits.close_s):
                await self._all_closed.wait()
        except TimeoutError:
            for connection in tuple(self._open):
                connection.abort()
            await self._all_closed.wait()

    def opened(self, connection: FrameConnection, admitted: HttpConnection) -> Ends:
        self._open.add(connection)
        self._all_closed.clear()
        transport = connection.transport
        admitted.abort = transport.abort
        here, there = (transport.get_extra_info(name) or ("", 0) for name in ("sockname", "peername"))
        return Ends(
            broker=self._port.advertised or BrokerAddress(here[0].removeprefix(_MAPPED), here[1]),
            client_host=there[0].removeprefix(_MAPPED),
        )

    def closed(self, connection: FrameConnection, admitted: HttpConnection) -> None:
        self.connections.forget(admitted)
        self._open.discard(connection)
        if not self._open:
            self._all_closed.set()
