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

    name = "responses"

    def __init__(self, limits: Limits) -> None:
        self.limit = limits.response_bytes
        self.used = 0

    async def send(
        self, send: Send, response: ServiceResponse, *, method: str, request_id: str
    ) -> tuple[int, int]:
        """Send the response, or ServerBusy instead if too many bytes wait for clients; return the status and
        the size of what was sent.

        This replaces only responses to GET, which changed nothing and can be retried; all others are small.
        """
        if method == "GET" and self.used + len(response.body) > self.limit:
            response = error_response(failure(Code.SERVER_BUSY, "too many responses are not read yet"))
        self.used += len(response.body)
        try:
            await send_response(send, response, (b"x-log-requestid", request_id.encode()))
        finally:
            self.used -= len(response.body)
        return response.status, len(response.body)


async def send_response(send: Send, response: ServiceResponse, *more: tuple[bytes, bytes]) -> None:
    """Send a response with further headers. Header names are lower case, and Content-Length is always
    present, even if it is 0 (docs/sls-protocol.md 1.7)."""
    size = len(response.body)
    headers = [
        *more,
        (b"content-length", str(size).encode()),
        *((name.encode("latin-1"), value.encode("latin-1")) for name, value in response.headers),
    ]
    if response.body or response.headers:
        headers.append((b"content-type", response.content_type.encode()))
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    for start in range(0, max(size, 1), _PIECE_BYTES):
        end = start + _PIECE_BYTES
        await send({"type": "http.response.body", "body": response.body[start:end], "more_body": end < size})
