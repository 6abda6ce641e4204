"""Receiving a request body within bounds.

What for: a sender can fill neither the memory nor a connection's time. What it must not
know: what the body means. Read next: `app`.
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
    """The sender hung up before the whole request was here; there is nobody to answer."""


class InflightBudget:
    """Counts requests and body bytes between arrival and answer; refuses beyond the bound."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.requests = 0
        self.bytes = 0

    def enter(self) -> None:
        if self.requests >= self._limits.inflight_requests:
            raise failure(Code.SERVER_BUSY, "too many requests at once")
        self.requests += 1

    def take(self, size: int) -> None:
        if self.bytes + size > self._limits.inflight_bytes:
            raise failure(Code.SERVER_BUSY, "too many bytes in flight")
        self.bytes += size

    def leave(self, size: int) -> None:
        self.requests -= 1
        self.bytes -= size


async def read_body(
    receive: Receive, headers: Mapping[str, str], *, limits: Limits, take: Callable[[int], None]
) -> bytes:
    """The whole body. ``take`` is called with each number of bytes before they are kept.

    Raises LogHubError for a body too large, too slow or not as long as it said.
    """
    declared = _declared_length(headers)
    if declared > limits.body_bytes:
        raise failure(Code.POST_BODY_TOO_LARGE, f"the body has more than {limits.body_bytes} bytes")
    if declared:
        take(declared)
    try:
        async with asyncio.timeout(limits.body_timeout_s):
            return await _collect(receive, declared, limits=limits, take=take)
    except TimeoutError as error:
        raise failure(Code.SERVER_BUSY, "the body did not arrive in time") from error


async def _collect(receive: Receive, declared: int, *, limits: Limits, take: Callable[[int], None]) -> bytes:
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        part = message.get("body", b"")
        size += len(part)
        if size > limits.body_bytes:
            raise failure(Code.POST_BODY_TOO_LARGE, f"the body has more than {limits.body_bytes} bytes")
        if part:
            if size > declared:
                take(len(part))
            parts.append(part)
        if not message.get("more_body"):
            return parts[0] if len(parts) == 1 else b"".join(parts)


def _declared_length(headers: Mapping[str, str]) -> int:
    text = headers.get("content-length", "0")
    if not text.isascii() or not text.isdigit():
        raise failure(Code.MISSING_CONTENT_LENGTH, "Content-Length is not a number")
    return int(text)
