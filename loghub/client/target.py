"""Where requests of one endpoint and project go: address to connect to, Host, proxy.

What for: a project is a label of the host name, which no DNS serves for an IP address or for
localhost; there the connection goes to the endpoint itself and only the Host names the project
(docs/sls-protocol.md 1.1). What it must not know: requests. Read next: `transport`.
"""

from dataclasses import dataclass
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from loghub.wire import hosts


class BadEndpoint(ValueError):  # noqa: N818 - says what is wrong
    """The endpoint is not ``[http[s]://]host[:port]``; the message tells it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """``url`` is scheme, host and port to connect to; ``proxy`` is "" for a direct connection."""

    endpoint: str  # as given, for messages
    url: str
    host_header: str
    proxy: str


def parse(endpoint: str, project: str) -> Target:
    """The target of a project. Raises BadEndpoint.

    Proxies are taken from the environment (``HTTP_PROXY`` and the like, ``NO_PROXY``), but never
    for this machine itself.
    """
    scheme, host, port = split_endpoint(endpoint)
    named = hosts.host_of(project, host.strip("[]"))
    connect = host if hosts.is_direct(host) else named
    return Target(
        endpoint=endpoint,
        url=f"{scheme}://{connect}:{port}",
        host_header=named,
        proxy=proxy_for(scheme, connect),
    )


def split_endpoint(endpoint: str) -> tuple[str, str, int]:
    """Scheme, lower-case host, port of an endpoint. Raises BadEndpoint."""
    text = endpoint.strip()
    parts = urlsplit(text if "://" in text else f"http://{text}")
    try:
        port = parts.port
    except ValueError as error:
        raise BadEndpoint(f"{endpoint!r} has no valid port") from error
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise BadEndpoint(f"{endpoint!r} is not of the form http[s]://host[:port]")
    if parts.path.strip("/") or parts.query or parts.fragment or parts.username:
        raise BadEndpoint(f"{endpoint!r} has more than a host and a port")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return parts.scheme, host, port or (443 if parts.scheme == "https" else 80)


def proxy_for(scheme: str, host: str) -> str:
    """The environment's proxy for a host, "" for none."""
    if hosts.is_loopback(host):
        return ""
    proxies = getproxies()
    if proxy_bypass(host):
        return ""
    return proxies.get(scheme, proxies.get("all", ""))
