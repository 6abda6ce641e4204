"""Sends responses within a limit on their total memory.

Clients that read slowly or not at all must not exhaust the service's memory. A response is therefore sent in
pieces, each after the client has accepted the previous one, and the bytes of all unsent responses are
counted. `loghub_service.http.protocol` limits how long a client may take to read.
"""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from loghub.wire.errors import Code
from loghub_service.errors import failure
from loghub_service.messages import RawHeader, ServiceResponse, error_response, response_headers
from loghub_service.settings import Limits

Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_PIECE_BYTES = 64 << 10  # the amount that a connection buffers before the sender has to wait


class ResponsesInFlight:
    """Counts the bytes of responses until they are sent. The number of threads bounds how many responses are
    being built at a time."""

    name = "responses"

    def __init__(self, limits: Limits) -> None:
        self.limit = limits.response_bytes
        self.used = 0

    def admitted(self, response: ServiceResponse, *, method: str) -> ServiceResponse:
        """The response, or ServerBusy instead if too many bytes wait for clients.

        ServerBusy replaces only responses that the same request gets again, as all to GET; all others are
        small.
        """
        is_repeatable = method == "GET" or response.is_repeatable
        if is_repeatable and self.used + len(response.body) > self.limit:
            return error_response(failure(Code.SERVER_BUSY, "too many responses are not read yet"))
        return response

    async def send(
        self, send: Send, response: ServiceResponse, *, method: str, request_id: str
    ) -> tuple[int, int]:
        """Send what is `admitted`; return the status and the size of the sent response."""
        response = self.admitted(response, method=method)
        self.used += len(response.body)
        try:
            await send_response(send, response, (b"x-log-requestid", request_id.encode()))
        finally:
            self.used -= len(response.body)
        return response.status, len(response.body)


async def send_response(send: Send, response: ServiceResponse, *more: RawHeader) -> None:
    """Send a response with further headers."""
    size = len(response.body)
    headers = response_headers(response, *more)
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    for start in range(0, max(size, 1), _PIECE_BYTES):
        end = start + _PIECE_BYTES
        await send({"type": "http.response.body", "body": response.body[start:end], "more_body": end < size})
