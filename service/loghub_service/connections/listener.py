"""Accepts connections, and decides which of them a listener keeps: bounded in total, and no client can have
all places.

At the bound a new connection takes the place of another one, so that no client can occupy all places by
connecting first, or by requests that it does not complete. A part of the places is for connections without an
authenticated request so far: a client that opens a connection for each request needs a place until its
request has arrived. Beyond that part these connections are closed first, the oldest one of the peer that has
most of them. Otherwise a connection of the key with the most connections is closed: the one that for the
longest time has had no request, or a request that waits for its client or for a change. A request that the
service works on is never interrupted; so a key with such requests in all other places gets no more places. A
client whose connection was closed opens another one. `HttpConnections` knows no socket: the listener reports
the events.

The bound holds from the first packet on: a connection counts, and has a deadline, while its TLS handshake is
in progress, when neither uvicorn nor its protocol know of it yet.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address
from itertools import islice
from typing import Any

import structlog

_NETWORK_BITS = 64  # of IPv6 addresses that one host may use
_UNAUTHENTICATED_SHARE = 4  # one in four places


@dataclass(slots=True, eq=False, kw_only=True)
class HttpConnection:
    """One connection. ``abort`` closes it at once, or has no effect yet while it is being opened; the code
    that opens it then sees that it is ``evicted``."""

    peer: str
    abort: Callable[[], object]
    key_id: str = ""  # the key of the last authenticated request; "" before the first one
    evicted: bool = False
    busy: bool = False  # while a request is in progress
    waiting: bool = False  # for the client to send more of the request, or to read more of the response
    parked: bool = False  # while its request only waits for a change

    def evict(self) -> None:
        """Close the connection in favour of another one, or because the listener stops."""
        self.evicted = True
        self.abort()

    @property
    def may_go(self) -> bool:
        return not self.busy or self.waiting or self.parked


Group = dict[str, dict[HttpConnection, None]]


class HttpConnections:
    """The open connections of one listener, at most ``maximum``."""

    def __init__(self, maximum: int) -> None:
        self.maximum = maximum
        self.unauthenticated_count = 0
        self.authenticated_count = 0
        self.evicted = 0
        self.refused = 0
        self._unauthenticated: Group = {}  # by peer, oldest first
        self._authenticated: Group = {}  # by key; the connection whose last request is the oldest comes first
        self._reserve = max(1, maximum // _UNAUTHENTICATED_SHARE)

    def admit(self, new: HttpConnection) -> bool:
        """Whether the connection may stay. Closes another connection for it if there are too many."""
        if self.unauthenticated_count + self.authenticated_count >= self.maximum:
            victim = self._victim()
            if victim is None:
                self.refused += 1
                return False
            self.forget(victim)
            self.evicted += 1
            victim.evict()
        self._unauthenticated.setdefault(new.peer, {})[new] = None
        self.unauthenticated_count += 1
        return True

    def authenticated(self, connection: HttpConnection, key_id: str) -> bool:
        """A request with this key arrived on the connection. False if it must not be served, because it would
        take a place that other clients need, and could not be interrupted."""
        if self._is_full_of_requests(key_id, connection):
            return False
        if self._remove(connection):
            connection.key_id = key_id
            self._authenticated.setdefault(key_id, {})[connection] = None
            self.authenticated_count += 1
        return True

    def _is_full_of_requests(self, key_id: str, new: HttpConnection) -> bool:
        """Whether the key has requests that the service works on in all places except the ones for new
        clients."""
        members = self._authenticated.get(key_id, {})
        may_be_free = len(members) - (new in members) - max(1, self.maximum - self._reserve)
        if may_be_free < 0:
            return False
        # The connections with the oldest requests come first, so that the loop usually ends after a few.
        free = (one for one in members if one is not new and one.may_go)
        return sum(1 for _ in islice(free, may_be_free + 1)) <= may_be_free

    def forget(self, connection: HttpConnection) -> None:
        """The connection is closed."""
        self._remove(connection)

    def _remove(self, connection: HttpConnection) -> bool:
        """False if the connection is not here, because it was closed for another one, or closed twice."""
        if connection.key_id:
            was_open = _take(self._authenticated, connection.key_id, connection)
            self.authenticated_count -= was_open
        else:
            was_open = _take(self._unauthenticated, connection.peer, connection)
            self.unauthenticated_count -= was_open
        return was_open

    def _victim(self) -> HttpConnection | None:
        if self.unauthenticated_count < self._reserve:
            of_keys = (one for members in _by_size(self._authenticated) for one in members if one.may_go)
            if (victim := next(of_keys, None)) is not None:
                return victim
        if self._unauthenticated:
            return next(iter(_by_size(self._unauthenticated)[0]))
        return None


def _by_size(group: Group) -> list[dict[HttpConnection, None]]:
    """The largest first."""
    return sorted(group.values(), key=len, reverse=True)


def _take(group: Group, name: str, connection: HttpConnection) -> bool:
    """Remove a connection from the group; False if it is not there."""
    members = group.get(name, {})
    if connection not in members:
        return False
    del members[connection]
    if not members:
        del group[name]
    return True


def peer_of(address: tuple[Any, ...]) -> str:
    """The client that a socket's address belongs to: an IPv4 address, or the network of an IPv6 address."""
    ip = ip_address(address[0].partition("%")[0])
    if not isinstance(ip, IPv6Address):
        return str(ip)
    if ip.ipv4_mapped is not None:
        return str(ip.ipv4_mapped)
    return f"{IPv6Address(int(ip) >> _NETWORK_BITS << _NETWORK_BITS)}/{_NETWORK_BITS}"


_log = structlog.get_logger("loghub_service.http")
# Per iteration of the event loop, so that requests continue in a flood of connections. It takes some
# iterations to read the first bytes of a new connection, which must happen before newer connections take its
# place.
_ACCEPTED_AT_ONCE = 8
_PAUSE_S = 1.0  # after an error, for example if no file descriptor is free: without it a core is busy
_HANDSHAKE_S = 10.0
_SHUTDOWN_S = 5.0

MakeProtocol = Callable[[HttpConnection], asyncio.BaseProtocol]


class SocketListener:
    """Serves a listening socket on the event loop, from `start` until `close`."""

    def __init__(
        self,
        listening: socket.socket,
        *,
        connections: HttpConnections,
        make_protocol: MakeProtocol,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._socket = listening
        self._connections = connections
        self._make_protocol = make_protocol
        self._tls = tls
        self._loop = asyncio.get_running_loop()
        self._opening: dict[asyncio.Task[None], HttpConnection] = {}
        self._closed = False

    def start(self) -> None:
        self._socket.setblocking(False)
        self._loop.add_reader(self._socket, self._accept)

    def close(self) -> None:
        """Accept no more connections: a client that connects now is refused at once, and does not wait until
        the process ends. Open connections stay."""
        if not self._closed:
            self._closed = True
            self._loop.remove_reader(self._socket)
            self._socket.close()
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
        connection = HttpConnection(peer=peer, abort=accepted.close)
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

    async def _open(self, accepted: socket.socket, connection: HttpConnection) -> None:
        await self._loop.connect_accepted_socket(
            lambda: self._make_protocol(connection),
            accepted,
            ssl=self._tls,
            ssl_handshake_timeout=_HANDSHAKE_S if self._tls else None,
            ssl_shutdown_timeout=_SHUTDOWN_S if self._tls else None,
        )

    def _opened(self, task: asyncio.Task[None], accepted: socket.socket, connection: HttpConnection) -> None:
        del self._opening[task]
        # The client does not speak TLS or is too slow, or the connection was closed for another one, perhaps
        # before the task began.
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if error is not None:
            self._connections.forget(connection)
            accepted.close()
        if error is not None and not isinstance(error, OSError | asyncio.CancelledError):
            _log.error("a connection could not be opened", error=repr(error))
