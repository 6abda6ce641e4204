"""The address, Host header and proxy for the requests of one endpoint and project.

A project is a label of the host name, and no DNS serves such a name for an IP address or for localhost. In
these cases the connection goes to the endpoint itself, and only the Host header names the project
(docs/sls-protocol.md 1.1). An `EndpointAt` is reached in the same way, for every project.
"""

from dataclasses import dataclass
from urllib.parse import urlsplit

from loghub.wire import names


class BadEndpoint(ValueError):  # noqa: N818 - says what is wrong
    """The endpoint is not ``[http[s]://]host[:port]``; the message quotes it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointAt:
    """An endpoint whose projects are all reached at ``address``, a ``host:port``, where their own host names
    may not resolve. Requests are still addressed to the project's host, and the certificate must be valid for
    that host."""

    url: str
    address: str

    def __str__(self) -> str:
        return f"{self.url} at {self.address}"


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpTarget:
    """``url`` has scheme, host and port of the connection; ``proxy`` is "" for a direct connection.
    ``server_name`` is the name that the server's certificate must have, "" for the host of ``url``."""

    endpoint: str  # as given, for messages
    url: str
    server_name: str
    host_header: str
    proxy: str


def parse(endpoint: str | EndpointAt, project: str) -> HttpTarget:
    """The target of a project. Raises BadEndpoint.

    The proxy comes from the environment (``HTTP_PROXY`` and similar variables, ``NO_PROXY``), but this
    machine itself is never reached through a proxy.
    """
    address = endpoint.address if isinstance(endpoint, EndpointAt) else ""
    scheme, host, port = split_endpoint(endpoint.url if isinstance(endpoint, EndpointAt) else endpoint)
    named = names.host_of(project, host)
    connect = host if names.is_direct(host) else named
    if address:
        _, connect, port = split_endpoint(address)
    return HttpTarget(
        endpoint=str(endpoint),
        url=f"{scheme}://{connect}:{port}",
        server_name=named if address else "",
        host_header=named,
        proxy=proxy_for(scheme, connect),
    )


def split_endpoint(endpoint: str) -> tuple[str, str, int]:
    """The scheme, lower-case host and port of an endpoint, which may lack the scheme (`hosts.with_scheme`).
    Raises BadEndpoint."""
    try:
        parts = urlsplit(names.with_scheme(endpoint))
        port = parts.port
    except ValueError as error:
        raise BadEndpoint(f"{endpoint!r} has no valid host and port: {error}") from error
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise BadEndpoint(f"{endpoint!r} is not of the form http[s]://host[:port]")
    if parts.path.strip("/") or parts.query or parts.fragment or parts.username:
        raise BadEndpoint(f"{endpoint!r} must contain only scheme, host and port")
    return parts.scheme, names.bracketed(parts.hostname), port or (443 if parts.scheme == "https" else 80)


def proxy_for(scheme: str, host: str) -> str:
    """The proxy that the environment sets for a host; "" for a direct connection."""
    if names.is_loopback(host):
        return ""
    # It loads Python's HTTP client, which nothing else of a process that runs user code needs.
    from urllib.request import getproxies, proxy_bypass

    proxies = getproxies()
    if proxy_bypass(host) or proxy_bypass(host.strip("[]")):  # NO_PROXY has an address of IPv6 either way
        return ""
    return proxies.get(scheme, proxies.get("all", ""))
