"""Refuses endpoints over which an access key and logs would be readable on the public internet, or at which a
node keeps what is not for the author of an object."""

from collections.abc import Iterable

from loghub.wire import hosts
from loghub_operator.model.observed import ServiceErrorReason, Unavailable


def insecure_endpoint(endpoint: str, allowed_http_hosts: Iterable[str], *, remedy: str) -> Unavailable | None:
    """Why no request may be sent to the endpoint; None if requests may be sent. ``remedy`` says how the
    host can be allowed."""
    allowed = tuple(allowed_http_hosts)
    message = _why_not(endpoint, allowed)
    if not message:
        return None
    return Unavailable(reason=ServiceErrorReason.INSECURE_ENDPOINT, message=f"{message}, or {remedy}")


def _why_not(endpoint: str, allowed: tuple[str, ...]) -> str:
    """A pattern such as ``*`` is meant for the log services of a company, so it allows no node's address."""
    try:
        host = hosts.host_in(endpoint)
    except ValueError:
        host = ""
    if hosts.serves_a_node(host) and host not in allowed:
        return (
            f"{endpoint} is an address of the node (link-local, or its cloud's metadata), where no log "
            "service is; no request is sent to it. Use the host name of the log service"
        )
    if hosts.is_exposed(endpoint, allowed):
        return (
            f"{endpoint} is not encrypted, and its host is neither inside the cluster nor a private address; "
            "no request is sent to it. Use https"
        )
    return ""
