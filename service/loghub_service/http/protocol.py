"""uvicorn's HTTP protocol with limits on the bytes and the time of a client before its request is complete.

The limits prevent a client from occupying memory or a connection with silence, with an endless or incomplete
head or trailer, with many requests at once, or with a response that it does not read. One deadline is always
set while no request is in progress, and arriving bytes do not move it, unless they begin or complete a
request. `loghub_service.http.body` limits bodies, and `loghub_service.http.app` limits the size of responses.

A request that arrives in one piece while no other one is in progress need not be parsed by uvicorn
(`loghub_service.http.direct_put_logs`, `loghub_service.http.direct_calls`). To everything else it is a
request in progress like any other.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import cast

import uvicorn
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from loghub_service.connections.listener import HttpConnection, HttpConnections
from loghub_service.http.direct_calls import Call, DirectCalls
from loghub_service.http.direct_put_logs import DirectPuts
from loghub_service.http.moving_deadline import MovingDeadline
from loghub_service.messages import ServiceResponse, response_headers
from loghub_service.settings import Limits

AUTHENTICATED = "loghub.authenticated"  # in the state of an ASGI scope: call it with the key's id
GONE = "loghub.gone"  # in the same state: a call says whether the client has closed the connection
ARRIVED = "loghub.arrived"  # in the same state: a call says whether all of the request has arrived
PARKED = "loghub.parked"  # in the same state: a context manager around a long poll's wait
_HEADER_FRAMING = len(": \r\n")
_MAX_PIPELINED = 8  # requests sent before the response to the first; SLS clients send one


class TooMuch(Exception):  # noqa: N818 - the name states the problem
    """A longer head, more headers, or more requests at once, than accepted. uvicorn answers with 400 and
    disconnects."""


class _OpenTransport(asyncio.Transport):
    """What a response is written to: the transport while it is open.

    uvloop raises an error for a write to a transport that has just been closed, and reports only afterwards
    that the connection is lost.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        super().__init__()
        self._transport = transport

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self._transport.is_closing():
            self._transport.write(data)

    def close(self) -> None:
        self._transport.close()

    def is_closing(self) -> bool:
        return self._transport.is_closing()


@dataclass(slots=True)
class _DirectCycle:
    """A request that needs no ASGI, with what uvicorn asks of the request in progress: when the connection is
    lost, when the service stops, and when another request follows."""

    message_event: asyncio.Event = field(default_factory=asyncio.Event)
    response_complete: bool = False
    disconnected: bool = False
    keep_alive: bool = True


@dataclass(frozen=True, slots=True)
class Direct:
    """What serves requests without ASGI."""

    puts: DirectPuts
    calls: DirectCalls


class BoundedProtocol(HttpToolsProtocol):
    """Closes the connection if a head is too long or too slow, if it is idle, or if a client reads too
    slowly."""

    def __init__(
        self,
        config: uvicorn.Config,
        state: ServerState,
        connections: HttpConnections,
        connection: HttpConnection,
        limits: Limits,
        direct: Callable[[], Direct | None],
    ) -> None:
        app_state = {
            AUTHENTICATED: self.authenticated,
            GONE: self.is_gone,
            ARRIVED: self.has_arrived,
            PARKED: self.parked,
        }
        super().__init__(config, state, app_state, asyncio.get_running_loop())
        self._connections = connections
        self._connection = connection
        self._limits = limits
        self._direct = direct
        self._in_head = False
        self._in_body = False
        self._head_bytes = 0  # received: of the head, and since the last bytes of the body
        self._parsed_bytes = 0  # of the head and trailers that were parsed
        self._body_bytes = 0  # among the bytes that were received last
        self._deadline = MovingDeadline(self.loop, self._expire)
        self._response_deadline: asyncio.TimerHandle | None = None
        self._response_complete = True
        self._unanswered: deque[RequestResponseCycle] = deque()  # in the order of the requests

    # Connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._open_transport = _OpenTransport(transport)
        self._connection.abort = transport.abort
        if self._connection.evicted:  # while it was being opened
            transport.abort()
            return
        self._deadline.expect(self._limits.head_timeout_s)

    def authenticated(self, key_id: str) -> bool:
        """The request in progress was signed with this key. False if the key has too many in progress."""
        return self._connections.authenticated(self._connection, key_id)

    def is_gone(self) -> bool:
        return bool(self.transport.is_closing())

    def has_arrived(self) -> bool:
        """Of pipelined requests the last one may be incomplete; then this is false for those before, too."""
        return not self._in_body

    @contextmanager
    def parked(self) -> Iterator[None]:
        """Meanwhile the connection may be closed for another one."""
        self._connection.parked = True
        try:
            yield
        finally:
            self._connection.parked = False

    def connection_lost(self, exc: Exception | None) -> None:
        self._deadline.close()
        self._end_response()
        self._connections.forget(self._connection)
        for cycle in self._unanswered:  # uvicorn lets only the last one know
            cycle.disconnected = True
            cycle.message_event.set()
        super().connection_lost(exc)

    def _expire(self) -> None:
        # A client without a key gets no time to take leave; TLS would allow it some. Closing waits until the
        # client has read what was written, which it may never do.
        if self._connection.key_id and not self.transport.is_closing():
            self.transport.close()
            self._deadline.expect(self._limits.linger_s)
        else:
            self.transport.abort()

    # Requests

    def data_received(self, data: bytes) -> None:
        if self._begin_direct(data):
            return
        self._body_bytes = 0
        super().data_received(data)
        if self._in_body and self._body_bytes:
            self._head_bytes = 0  # small chunks may be more framing than body
        elif self._in_head or self._in_body:  # a part of a head, of a chunk's extension or of a trailer
            self._head_bytes += len(data) - self._body_bytes
            if self._head_bytes > self._limits.head_bytes:
                self.transport.abort()

    def on_message_begin(self) -> None:
        if len(self.pipeline) >= _MAX_PIPELINED:
            raise TooMuch
        super().on_message_begin()
        self._in_head = True
        self._head_bytes = self._parsed_bytes = 0
        self._deadline.expect(self._limits.head_timeout_s)

    def on_url(self, url: bytes) -> None:
        self._parsed_bytes += len(url)
        self._check_parsed()
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._parsed_bytes += len(name) + len(value) + _HEADER_FRAMING
        self._check_parsed()
        super().on_header(name, value)

    def _check_parsed(self) -> None:
        """A whole head may arrive at once, so its end says nothing about its length."""
        if self._parsed_bytes > self._limits.head_bytes or len(self.headers) >= self._limits.headers:
            raise TooMuch

    def on_headers_complete(self) -> None:
        self._deadline.end()
        self._in_head = False
        self._in_body = True
        self._connection.busy = True
        super().on_headers_complete()
        self.cycle.transport = self._open_transport
        self._unanswered.append(self.cycle)
        self._note_waiting()

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._in_body = False
        super().on_message_complete()
        self._note_waiting()
        if not self._connection.busy:  # the rest of a body that was refused
            self._expect_request()

    def _note_waiting(self) -> None:
        """A request with an incomplete body waits for its client, unless the one before is in progress."""
        in_body = self._in_body and not self.pipeline
        self._connection.waiting = in_body or self.flow.write_paused

    # Requests without ASGI

    def _is_occupied(self) -> bool:
        """Whether the next bytes may not begin a request that is served at once."""
        is_reading = self._in_head or self._in_body or bool(self.pipeline)
        is_answering = self.cycle is not None and not self.cycle.response_complete
        return is_reading or is_answering or self.flow.write_paused or self.transport.is_closing()

    def _begin_direct(self, data: bytes) -> bool:
        direct = self._direct()
        if direct is None or self._is_occupied():
            return False
        return self._begin_put(direct.puts, data) or self._begin_call(direct.calls, data)

    def _begin_put(self, puts: DirectPuts, data: bytes) -> bool:
        request = puts.read(data)
        if request is None:
            return False
        cycle = _DirectCycle()
        if not puts.begin(request, self.authenticated, partial(self._answer, cycle)):
            return False
        self._occupy(cycle)
        return True

    def _begin_call(self, calls: DirectCalls, data: bytes) -> bool:
        call = calls.begin(data, self.authenticated)
        if call is None:
            return False
        if isinstance(call.outcome, ServiceResponse):
            self._write(*calls.finish(call), keep_alive=True)
            self.server_state.total_requests += 1
            self._response_complete = True
            self._expect_request()
        else:
            cycle = _DirectCycle()
            call.outcome.add_done_callback(partial(self._finish_call, cycle, calls, call))
            self._occupy(cycle)
        return True

    def _finish_call(
        self, cycle: _DirectCycle, calls: DirectCalls, call: Call, outcome: "asyncio.Future[ServiceResponse]"
    ) -> None:
        if not outcome.cancelled():  # the event loop ends
            self._answer(cycle, *calls.finish(call))

    def _occupy(self, cycle: _DirectCycle) -> None:
        self._deadline.end()
        self._connection.busy = True
        self.cycle = cast("RequestResponseCycle", cycle)
        self._unanswered.append(self.cycle)

    def _answer(self, cycle: _DirectCycle, response: ServiceResponse, request_id: str) -> None:
        if cycle.disconnected:
            return
        self._write(response, request_id, keep_alive=cycle.keep_alive)
        cycle.response_complete = True
        if not cycle.keep_alive:
            self.transport.close()
        self.on_response_complete()

    def _write(self, response: ServiceResponse, request_id: str, *, keep_alive: bool) -> None:
        headers = response_headers(response, (b"x-log-requestid", request_id.encode()))
        parts = [STATUS_LINE[response.status]]
        for name, value in (*self.server_state.default_headers, *headers):
            parts += (name, b": ", value, b"\r\n")
        parts.append(b"\r\n" if keep_alive else b"connection: close\r\n\r\n")
        parts.append(response.body)
        self._open_transport.write(b"".join(parts))

    # Responses

    def pause_writing(self) -> None:
        super().pause_writing()
        self._response_complete = False
        self._note_waiting()
        if self._response_deadline is None:
            self._response_deadline = self.loop.call_later(
                self._limits.response_timeout_s, self.transport.abort
            )

    def resume_writing(self) -> None:
        super().resume_writing()
        self._note_waiting()
        if self._response_complete:
            self._end_response()

    def on_response_complete(self) -> None:
        """Everything is written. The timer continues while the client has not read the last part.

        As uvicorn's, without its timer of idle connections, since there is one deadline.
        """
        more = bool(self.pipeline)
        closing = self.transport.is_closing()  # then nothing more is served
        self._unanswered.popleft()
        self.server_state.total_requests += 1
        if not closing:
            self.flow.resume_reading()
            if more:
                self._start_asgi_task(*self.pipeline.pop())
        self._response_complete = True
        if not self.flow.write_paused:
            self._end_response()
        self._note_waiting()  # of the next request, a part may be missing
        if more and not closing:
            return
        self._connection.busy = False
        if closing:
            self._deadline.expect(self._limits.response_timeout_s)
        elif self._in_body:  # discarded as it comes, so that the client can read why it was refused
            self._deadline.expect(self._limits.linger_s)
        elif not self._in_head:
            self._expect_request()

    def _expect_request(self) -> None:
        kept_s, head_s = self.timeout_keep_alive, self._limits.head_timeout_s
        self._deadline.expect(kept_s if self._connection.key_id else min(kept_s, head_s))

    def _end_response(self) -> None:
        if self._response_deadline is not None:
            self._response_deadline.cancel()
            self._response_deadline = None
