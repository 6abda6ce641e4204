"""uvicorn's HTTP protocol with limits on a request's head, and on the time that a client has to read a
response.

The limits prevent a client from occupying memory or a connection with an endless or incomplete head, or with
a response that it does not read. `loghub.service.http.body` limits bodies, and `loghub.service.http.send`
limits the size of responses.
"""

import asyncio

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_HEAD_BYTES = 64 << 10
HEAD_TIMEOUT_S = 30.0
RESPONSE_TIMEOUT_S = 60.0  # since sending first had to wait for the client


class BoundedProtocol(HttpToolsProtocol):
    """Closes the connection if a request's head is too long or too slow, or a client reads too slowly."""

    _in_head = False
    _head_bytes = 0
    _head_timer: asyncio.TimerHandle | None = None
    _response_timer: asyncio.TimerHandle | None = None
    _response_complete = True

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head = True
        self._head_bytes = 0

    def on_headers_complete(self) -> None:
        self._end_head()
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if not self._in_head:  # the usual case: a head arrives in one piece
            return
        self._head_bytes += len(data)
        if self._head_bytes > MAX_HEAD_BYTES:
            self._end_head()
            self.transport.close()
        elif self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_TIMEOUT_S, self.transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_head()
        self._end_response()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._response_complete = False
        if self._response_timer is None:
            self._response_timer = self.loop.call_later(RESPONSE_TIMEOUT_S, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._response_complete:
            self._end_response()

    def on_response_complete(self) -> None:
        """Everything is written. The timer continues while the client has not read the last part."""
        super().on_response_complete()
        self._response_complete = True
        if not self.flow.write_paused:
            self._end_response()

    def _end_head(self) -> None:
        self._in_head = False
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _end_response(self) -> None:
        if self._response_timer is not None:
            self._response_timer.cancel()
            self._response_timer = None
