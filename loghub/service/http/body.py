"""Receives request bodies within limits on size, total memory and time.

The limits prevent a client from exhausting the service's memory or keeping a connection busy indefinitely.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

from loghub.service.api_errors import failure
from loghub.service.faults import ServiceFault
from loghub.service.settings import Limits
from loghub.wire.errors import Code

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]


class ClientGone(ServiceFault):
    """The client closed the connection before it had sent the whole request, so no response is possible."""


class InflightBudget:
    """Counts the requests in progress and the bytes of their bodies; rejects requests beyond the limits."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.requests = 0
        self.bytes = 0

    def enter(self) -> None:
        if self.requests >= self._limits.inflight_requests:
            raise failure(Code.SERVER_BUSY, "too many concurrent requests")
        self.requests += 1

    def reserve(self, size: int) -> None:
        if self.bytes + size > self._limits.inflight_bytes:
            raise failure(Code.SERVER_BUSY, "the bodies of the concurrent requests are too large")
        self.bytes += size

    def leave(self, size: int) -> None:
        self.requests -= 1
        self.bytes -= size


async def read_body(
    receive: Receive, headers: Mapping[str, str], *, limits: Limits, reserve: Callable[[int], None]
) -> bytes:
    """The whole body. ``reserve`` is called with each number of bytes before they are stored in memory.

    Raises LogHubError for a body that is too large or too slow, or for an invalid Content-Length.
    """
    declared = _declared_length(headers)
    if declared > limits.body_bytes:
        raise failure(Code.POST_BODY_TOO_LARGE, f"a body may have at most {limits.body_bytes} bytes")
    if declared:
        reserve(declared)
    try:
        async with asyncio.timeout(limits.body_timeout_s):
            return await _collect(receive, declared, limits=limits, reserve=reserve)
    except TimeoutError as error:
        raise failure(Code.SERVER_BUSY, "the body did not arrive in time") from error


async def _collect(
    receive: Receive, declared: int, *, limits: Limits, reserve: Callable[[int], None]
) -> bytes:
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        part = message.get("body", b"")
        size += len(part)
        if size > limits.body_bytes:
            raise failure(Code.POST_BODY_TOO_LARGE, f"a body may have at most {limits.body_bytes} bytes")
        if part:
            if size > declared:
                reserve(len(part))
            parts.append(part)
        if not message.get("more_body"):
            return parts[0] if len(parts) == 1 else b"".join(parts)


def _declared_length(headers: Mapping[str, str]) -> int:
    text = headers.get("content-length", "0")
    if not text.isascii() or not text.isdigit():
        raise failure(Code.MISSING_CONTENT_LENGTH, "Content-Length is not a number")
    return int(text)
