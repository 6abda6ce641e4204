"""Sending answers within bounds.

What for: readers that are slow, or never read, cannot fill the memory: an answer goes out in
pieces, each as the one before has gone, and all that wait are counted. What it must not know:
what an answer says. Read next: `protocol` (how long a reader may take), `app`.
"""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from loghub.service.api_errors import failure
from loghub.service.messages import Answer, error_answer
from loghub.service.settings import Limits
from loghub.wire.errors import Code

Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_PIECE_BYTES = 64 << 10  # as much as a connection buffers before it makes the sender wait


class AnswersInFlight:
    """Counts bytes of answers until they are sent; what is being made is bounded by the number of threads."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.bytes = 0

    async def send(self, send: Send, answer: Answer, *, method: str, request_id: str) -> None:
        """The answer, or ServerBusy in its place when too much waits for readers.

        Only a GET's: it did nothing and may be asked again; other answers are small.
        """
        if method == "GET" and self.bytes + len(answer.body) > self._limits.answer_bytes:
            answer = error_answer(failure(Code.SERVER_BUSY, "too many bytes of answers are on their way"))
        self.bytes += len(answer.body)
        try:
            await _send(send, answer, request_id)
        finally:
            self.bytes -= len(answer.body)


async def _send(send: Send, answer: Answer, request_id: str) -> None:
    """Lower-case names, a Content-Length always, also of 0 (docs/sls-protocol.md 1.7)."""
    size = len(answer.body)
    headers = [
        (b"x-log-requestid", request_id.encode()),
        (b"content-length", str(size).encode()),
        *((name.encode("latin-1"), value.encode("latin-1")) for name, value in answer.headers),
    ]
    if answer.body or answer.headers:
        headers.append((b"content-type", answer.content_type.encode()))
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    for start in range(0, max(size, 1), _PIECE_BYTES):
        end = start + _PIECE_BYTES
        await send({"type": "http.response.body", "body": answer.body[start:end], "more_body": end < size})
