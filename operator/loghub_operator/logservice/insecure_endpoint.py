"""Refuses endpoints over which an access key and logs would be readable on the public internet."""

from collections.abc import Iterable

from loghub.wire import hosts
from loghub_operator.model.observed import ServiceErrorReason, Unavailable


def insecure_endpoint(endpoint: str, allowed_http_hosts: Iterable[str], *, remedy: str) -> Unavailable | None:
    """Why no request may be sent to the endpoint; None if requests may be sent. ``remedy`` says how the
    host can be allowed."""
    if not hosts.is_exposed(endpoint, allowed_http_hosts):
        return None
    message = (
        f"{endpoint} is not encrypted, and its host is neither inside the cluster nor a private address; "
        f"no request is sent to it. Use https, or {remedy}"
    )
    return Unavailable(reason=ServiceErrorReason.INSECURE_ENDPOINT, message=message)
