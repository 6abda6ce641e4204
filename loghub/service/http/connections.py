"""Which connections a listener keeps: bounded in total, and no client can have all places.

At the bound a new connection takes the place of another one, so that no client can occupy all places by
connecting first, or by requests that it does not complete. A part of the places is for connections that have
not sent an authenticated request yet: a client that opens a connection for each request needs one for the
time that its request needs to arrive. Beyond that part they go first, the oldest of the peer that has most
of them. Otherwise a connection of the key that has most of them goes: the one that has been without a
request, or with one that waits for its client or for news, for the longest time. A request that the service
works on is never interrupted; so a key that has such requests in all other places gets no more. A client
whose connection was closed opens another one. The listener reports what happens; nothing here knows a socket.
"""

from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address
from itertools import islice
from typing import Any

_NETWORK_BITS = 64  # of IPv6 addresses that one host may use
_UNAUTHENTICATED_SHARE = 4  # one in four places


@dataclass(slots=True, eq=False, kw_only=True)
class Connection:
    """One connection. ``abort`` closes it at once, or has no effect yet if it is being opened; then what
    opens it sees that it is ``evicted``."""

    peer: str
    abort: Callable[[], object]
    key_id: str = ""  # of the last authenticated request; "" before the first one
    evicted: bool = False
    busy: bool = False  # while a request is in progress
    waiting: bool = False  # for the client to send more of the request, or to read more of the response
    parked: bool = False  # while its request only waits for news

    def evict(self) -> None:
        """Close it for another one, or because the listener stops."""
        self.evicted = True
        self.abort()

    @property
    def may_go(self) -> bool:
        return not self.busy or self.waiting or self.parked


Group = dict[str, dict[Connection, None]]


class Connections:
    """The open connections of one listener, at most ``most``."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.unauthenticated_count = 0
        self.authenticated_count = 0
        self.evicted = 0
        self.refused = 0
        self._unauthenticated: Group = {}  # by peer, oldest first
        self._authenticated: Group = {}  # by key, that of the oldest request first
        self._reserve = max(1, most // _UNAUTHENTICATED_SHARE)

    def admit(self, new: Connection) -> bool:
        """Whether the connection may stay. Closes another one for it if there are too many."""
        if self.unauthenticated_count + self.authenticated_count >= self.most:
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

    def authenticated(self, connection: Connection, key_id: str) -> bool:
        """A request with this key arrived on the connection. False if it must not be served, because it would
        take a place that others need, and could not be interrupted."""
        if self._is_full_of_requests(key_id, connection):
            return False
        if self._remove(connection):
            connection.key_id = key_id
            self._authenticated.setdefault(key_id, {})[connection] = None
            self.authenticated_count += 1
        return True

    def _is_full_of_requests(self, key_id: str, new: Connection) -> bool:
        """Whether the key has requests that the service works on in all places but those for new clients."""
        members = self._authenticated.get(key_id, {})
        may_be_free = len(members) - (new in members) - max(1, self.most - self._reserve)
        if may_be_free < 0:
            return False
        # Those of the oldest requests come first, so that usually a few are looked at.
        free = (one for one in members if one is not new and one.may_go)
        return sum(1 for _ in islice(free, may_be_free + 1)) <= may_be_free

    def forget(self, connection: Connection) -> None:
        """The connection is closed."""
        self._remove(connection)

    def _remove(self, connection: Connection) -> bool:
        """False if it is not here: it was closed for another one, or closed twice."""
        if connection.key_id:
            found = _take(self._authenticated, connection.key_id, connection)
            self.authenticated_count -= found
        else:
            found = _take(self._unauthenticated, connection.peer, connection)
            self.unauthenticated_count -= found
        return found

    def _victim(self) -> Connection | None:
        if self.unauthenticated_count < self._reserve:
            of_keys = (one for members in _by_size(self._authenticated) for one in members if one.may_go)
            if (found := next(of_keys, None)) is not None:
                return found
        if self._unauthenticated:
            return next(iter(_by_size(self._unauthenticated)[0]))
        return None


def _by_size(group: Group) -> list[dict[Connection, None]]:
    """The largest first."""
    return sorted(group.values(), key=len, reverse=True)


def _take(group: Group, name: str, connection: Connection) -> bool:
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
