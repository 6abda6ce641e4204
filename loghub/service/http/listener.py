"""Accepts connections, within the bound of `loghub.service.http.connections`.

The bound holds from the first packet on: a connection counts, and has a deadline, while its TLS handshake is
in progress, when neither uvicorn nor its protocol know of it yet.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable

import structlog

from loghub.service.http.connections import Connection, Connections, peer_of

_log = structlog.get_logger("loghub.service.http")
# Per iteration of the event loop, so that requests continue in a flood of connections. Few, since it takes
# some iterations to read what a new connection sent, which must happen before newer ones take its place.
_ACCEPTED_AT_ONCE = 8
_PAUSE_S = 1.0  # after an error, for example if no file descriptor is free
_HANDSHAKE_S = 10.0
_SHUTDOWN_S = 5.0

MakeProtocol = Callable[[Connection], asyncio.BaseProtocol]


class Listener:
    """Serves a listening socket on the event loop, from `start` until `close`."""

    def __init__(
        self,
        listening: socket.socket,
        *,
        connections: Connections,
        make_protocol: MakeProtocol,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._socket = listening
        self._connections = connections
        self._make_protocol = make_protocol
        self._tls = tls
        self._loop = asyncio.get_running_loop()
        self._opening: dict[asyncio.Task[None], Connection] = {}
        self._closed = False

    def start(self) -> None:
        self._socket.setblocking(False)
        self._loop.add_reader(self._socket, self._accept)

    def close(self) -> None:
        """Accept no more connections. Those that are open stay."""
        if not self._closed:
            self._closed = True
            self._loop.remove_reader(self._socket)
            for connection in list(self._opening.values()):
                connection.evict()

    def _accept(self) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                accepted, address = self._socket.accept()
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionAbortedError:
                continue
            except OSError as error:
                self._pause(error)
                return
            self._admit(accepted, peer_of(address))

    def _pause(self, error: OSError) -> None:
        _log.warning("no connections are accepted for a moment", error=str(error))
        self._loop.remove_reader(self._socket)
        self._loop.call_later(_PAUSE_S, lambda: None if self._closed else self.start())

    def _admit(self, accepted: socket.socket, peer: str) -> None:
        connection = Connection(peer=peer, abort=accepted.close)
        if not self._connections.admit(connection):
            accepted.close()
            return
        accepted.setblocking(False)
        task = self._loop.create_task(self._open(accepted, connection))
        # The protocol replaces it once there is a transport. A handshake may last; without one, the protocol
        # begins at once and ends itself: after a cancellation uvloop may never tell it that it has ended.
        connection.abort = task.cancel if self._tls else lambda: None
        self._opening[task] = connection
        task.add_done_callback(lambda task: self._opened(task, accepted, connection))

    async def _open(self, accepted: socket.socket, connection: Connection) -> None:
        await self._loop.connect_accepted_socket(
            lambda: self._make_protocol(connection),
            accepted,
            ssl=self._tls,
            ssl_handshake_timeout=_HANDSHAKE_S if self._tls else None,
            ssl_shutdown_timeout=_SHUTDOWN_S if self._tls else None,
        )

    def _opened(self, task: asyncio.Task[None], accepted: socket.socket, connection: Connection) -> None:
        del self._opening[task]
        # Not TLS, or too slow; or closed for another connection, perhaps before the task began.
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if error is not None:
            self._connections.forget(connection)
            accepted.close()
        if error is not None and not isinstance(error, OSError | asyncio.CancelledError):
            _log.error("a connection could not be opened", error=repr(error))
