"""Sends responses within a limit on total memory.

Clients that read slowly or not at all must not exhaust the service's memory. A response is therefore sent in
pieces, each after the client has accepted the previous one, and the bytes of all unsent responses are
counted. `loghub.service.http.protocol` limits how long a client may take to read.
"""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from loghub.service.api_errors import failure
from loghub.service.messages import ServiceResponse, error_response
from loghub.service.settings import Limits
from loghub.wire.errors import Code

Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_PIECE_BYTES = 64 << 10  # as much as a connection buffers before the sender has to wait


class ResponsesInFlight:
    """Counts the bytes of responses until they are sent. The number of threads bounds how many responses are
    being built."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.bytes = 0

    async def send(self, send: Send, response: ServiceResponse, *, method: str, request_id: str) -> None:
        """Send the response, or ServerBusy instead if too many bytes wait for clients.

        This replaces only responses to GET, which changed nothing and can be retried; all others are small.
        """
        if method == "GET" and self.bytes + len(response.body) > self._limits.response_bytes:
            response = error_response(failure(Code.SERVER_BUSY, "too many responses are not read yet"))
        self.bytes += len(response.body)
        try:
            await _send(send, response, request_id)
        finally:
            self.bytes -= len(response.body)


async def _send(send: Send, response: ServiceResponse, request_id: str) -> None:
    """Header names are lower case, and Content-Length is always present, even if it is 0
    (docs/sls-protocol.md 1.7)."""
    size = len(response.body)
    headers = [
        (b"x-log-requestid", request_id.encode()),
        (b"content-length", str(size).encode()),
        *((name.encode("latin-1"), value.encode("latin-1")) for name, value in response.headers),
    ]
    if response.body or response.headers:
        headers.append((b"content-type", response.content_type.encode()))
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    for start in range(0, max(size, 1), _PIECE_BYTES):
        end = start + _PIECE_BYTES
        await send({"type": "http.response.body", "body": response.body[start:end], "more_body": end < size})
