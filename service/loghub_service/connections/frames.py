"""One connection whose client sends frames, a length of four bytes and a request each, with bounds on all.

A length costs a client nothing, so memory is used only as bytes arrive. Some KiB of the requests that a
connection has sent and that are not answered are free. A further frame begins only once its whole length is
taken from the budget that all connections share, so that a frame that has begun can always be completed. When
that budget is used up for some seconds, one connection is closed: the connection that has held a part of the
budget for longest, in the middle of a frame, in a long poll or waiting for its client. Reading stops while
requests wait for their turn, or for memory. One deadline is always set while the client has to do something:
to log in, to complete a frame, to send the next request, to read an answer.

The protocol defines what the frames say and in which order they are answered: a subclass takes them with
`next_frame`, and reports with `answered` that one of them is done.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Protocol

import structlog

from loghub_service.connections.stalled import Budget, RequestMemory, StalledClients

_log = structlog.get_logger("loghub_service.connections")
_LENGTH_BYTES = 4  # the length before each frame of Kafka and of Pulsar
_RETRY_S = 0.05  # between attempts to get memory that other connections use: a commit takes less
# The default of asyncio lets a connection that waits have 256 KiB in its buffer.
_RECEIVED_BYTES = 16 << 10
KIB = 1 << 10
MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameLimits:
    """What a connection may occupy: sizes in bytes, durations in seconds. The defaults are for the embedded
    service; tests choose smaller ones."""

    connections: int = 2000  # open at the same time
    frame_bytes: int = 11 * MIB  # of a request: a batch of 10 MiB, and what surrounds it
    login_frame_bytes: int = 16 * KIB  # of a request before the login: a token has some hundred bytes
    free_bytes: int = 16 * KIB  # of a connection's requests; further bytes are taken from the shared budget
    queued_requests: int = 8  # of a connection: received, and not begun yet
    login_s: float = 15  # from the connection to the end of a successful login
    refusal_delay_s: float = 0.5  # before a refused login is answered
    frame_s: float = 60  # from the first byte of a request to its last
    send_grace_s: float = 5  # of a slow sender, once other requests find no memory
    memory_wait_s: float = 30  # for a part of the shared budget
    idle_s: float = 600  # without a request
    answer_s: float = 60  # for a client to read what was sent
    unread_grace_s: float = 5  # of a slow reader, once other answers find no memory
    close_s: float = 5  # for requests in progress when the service stops


class Admitted(Protocol):
    """The place of a connection in the list of its listener."""

    peer: str
    evicted: bool
    busy: bool
    waiting: bool


class _Step(Enum):
    """What the client has to do next."""

    LOG_IN = auto()
    COMPLETE_FRAME = auto()
    SEND_REQUEST = auto()


@dataclass(slots=True)
class Frame:
    data: bytes
    taken: int  # from the budget; 0 if it is free


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameResources:
    """What all connections share; ``budget`` is for large requests, and ``holders`` have a part of it."""

    limits: FrameLimits
    budget: Budget
    holders: StalledClients
    stalled: StalledClients
    # What one read has, which is copied at once. A view, since asyncio's TLS writes into slices of it.
    received: memoryview = field(default_factory=lambda: memoryview(bytearray(_RECEIVED_BYTES)))


class FrameSession(Protocol):
    """What a connection needs to know of its session."""

    @property
    def is_logged_in(self) -> bool: ...

    def close(self) -> None: ...


class FrameConnection(asyncio.BufferedProtocol):
    """``on_closed`` is called when the connection has ended. A subclass makes its session in `open_session`,
    when the connection is open, and works in the coroutines of `work`."""

    session: FrameSession

    def __init__(
        self,
        admitted: Admitted,
        *,
        resources: FrameResources,
        on_closed: Callable[["FrameConnection"], None],
    ) -> None:
        self.admitted = admitted
        self.transport: asyncio.Transport
        self.limits = resources.limits
        self.memory = RequestMemory(resources.budget, resources.holders, self.abort)
        self.writable = asyncio.Event()
        self.is_ending = False
        self._stalled = resources.stalled
        self._on_closed = on_closed
        self._loop = asyncio.get_running_loop()
        self._received = resources.received
        self._buffer = bytearray()
        self._size: int | None = None  # of the frame that is arriving, once memory is taken for it
        self._taken = 0  # from the budget for that frame
        self._free_bytes = 0  # of requests that took nothing from it
        self._wait_until_s: float | None = None  # until when it waits for memory
        self._frames: deque[Frame] = deque()
        self._arrived = asyncio.Event()
        self._deadline: asyncio.TimerHandle | None = None
        self._deadline_of: _Step | None = None
        self._answer_deadline: asyncio.TimerHandle | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._tasks: tuple[asyncio.Task[None], ...] = ()
        self._unanswered = 0  # requests that are received and not answered

    # What a subclass says

    def open_session(self) -> FrameSession:
        """The session of the connection, whose transport is open now."""
        raise NotImplementedError

    def work(self) -> tuple[Coroutine[None, None, None], ...]:
        """The tasks of the connection, as coroutines: they take the frames and answer them. The connection
        ends if one of them is cancelled."""
        raise NotImplementedError

    def idle(self) -> None:
        """No request has come for ``idle_s`` seconds."""
        self.transport.abort()

    def lost(self) -> None:
        """The connection has ended; release what the subclass holds."""

    # What asyncio calls

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport = transport
        self.writable.set()
        self.session = self.open_session()
        if self.admitted.evicted:  # while it was being opened
            transport.abort()
            return
        self._set_deadline()
        self._tasks = tuple(self._loop.create_task(work) for work in self.work())
        for task in self._tasks:
            task.add_done_callback(self._ended)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - the size is ours to choose
        return self._received

    def buffer_updated(self, nbytes: int) -> None:
        if self.is_ending:
            return
        self._buffer += self._received[:nbytes]
        self._parse()
        self._set_deadline()

    def eof_received(self) -> None:
        """The client sends no more. Closing is the default, because the client cannot use answers to requests
        in progress."""

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - why does not matter
        for timer in (self._deadline, self._answer_deadline, self._retry):
            if timer is not None:
                timer.cancel()
        for task in self._tasks:
            task.cancel()
        self._stalled.remove(self.abort)
        self.memory.close()
        self.memory.release(self._taken + sum(frame.taken for frame in self._frames))
        self.lost()
        self._taken = 0
        self._frames.clear()
        self.session.close()
        self._on_closed(self)

    def pause_writing(self) -> None:
        self.writable.clear()
        self._stalled.add(self.abort)
        self.memory.begin_waiting()
        self.admitted.waiting = True
        if self._answer_deadline is None:
            self._answer_deadline = self._loop.call_later(self.limits.answer_s, self.transport.abort)

    def resume_writing(self) -> None:
        self.writable.set()
        self._stalled.remove(self.abort)
        self.memory.end_waiting()
        self.admitted.waiting = False
        if self._answer_deadline is not None and not self.is_ending:
            self._answer_deadline.cancel()
            self._answer_deadline = None

    # Ending

    def finish(self) -> None:
        """Accept no more requests, and close once those in progress are answered."""
        self.is_ending = True
        if not self.transport.is_closing():
            self.transport.pause_reading()
        if self._unanswered == 0:
            self.close()

    def abort(self) -> None:
        self.transport.abort()

    def close(self) -> None:
        """Close once the client has read what was written, for which it has some seconds."""
        self.is_ending = True
        self.transport.close()
        if self._answer_deadline is None:
            self._answer_deadline = self._loop.call_later(self.limits.close_s, self.transport.abort)

    # Frames

    async def next_frame(self) -> Frame:
        """The next frame, in the order in which they came. `release` it, and call `answered` after that."""
        while not self._frames:
            self._arrived.clear()
            await self._arrived.wait()
        frame = self._frames.popleft()
        self._go_on()
        return frame

    def release(self, frame: Frame) -> None:
        """Return its memory."""
        self.memory.release(frame.taken)
        if not frame.taken:
            self._free_bytes -= len(frame.data)

    def answered(self) -> None:
        """A request is done."""
        self._unanswered -= 1
        if self._unanswered == 0:
            self.admitted.busy = False
            if self.is_ending:
                self.close()
        self._set_deadline()

    def _parse(self) -> None:
        while len(self._frames) < self.limits.queued_requests:
            if self._size is None and not self._begin_frame():
                return
            assert self._size is not None
            end = _LENGTH_BYTES + self._size
            if len(self._buffer) < end:
                return
            with memoryview(self._buffer) as view:
                frame = Frame(bytes(view[_LENGTH_BYTES:end]), self._taken)
            del self._buffer[:end]
            self._free_bytes += 0 if frame.taken else self._size
            self._size, self._taken = None, 0
            self.memory.arrived()
            self._frames.append(frame)
            self._unanswered += 1
            if self._deadline_of is _Step.COMPLETE_FRAME:
                self._end_deadline()  # the next frame has its own
            self.admitted.busy = True
            self._arrived.set()
        self.transport.pause_reading()

    def _begin_frame(self) -> bool:
        """Whether a frame's length is here, allowed, and taken from the budget if it is large."""
        if len(self._buffer) < _LENGTH_BYTES:
            return False
        size = int.from_bytes(self._buffer[:_LENGTH_BYTES], "big", signed=True)
        limits = self.limits
        maximum = limits.frame_bytes if self.session.is_logged_in else limits.login_frame_bytes
        if not 0 < size <= maximum:
            _log.info(
                "connection closed: a request of this size is not accepted",
                peer=self.admitted.peer,
                size=size,
            )
            self._give_up()
            return False
        if self._free_bytes + size > limits.free_bytes and not self._take(size):
            return False
        self._size, self._wait_until_s = size, None
        return True

    def _take(self, size: int) -> bool:
        """Whether memory for a frame is available; otherwise stop reading, and try again later."""
        if self.memory.take(size):
            self._taken = size
            return True
        now_s = self._loop.time()
        if self._wait_until_s is None:
            self._wait_until_s = now_s + self.limits.memory_wait_s
        if now_s >= self._wait_until_s:
            _log.warning("connection closed: no memory for its request", peer=self.admitted.peer, size=size)
            self._give_up()
            return False
        self.transport.pause_reading()
        self._retry = self._loop.call_later(_RETRY_S, self._try_again)
        return False

    def _try_again(self) -> None:
        self._retry = None
        self._go_on()
        self._set_deadline()

    def _go_on(self) -> None:
        """Take the frames that wait in the buffer, and read on unless requests wait for their turn or for
        memory."""
        if self.is_ending or self._retry is not None or self.transport.is_closing():
            return
        self._parse()
        if self._retry is None and len(self._frames) < self.limits.queued_requests:
            self.transport.resume_reading()

    def _give_up(self) -> None:
        """Close without an answer; what was answered before is still sent."""
        self._buffer.clear()
        self.close()

    # Deadlines

    def _set_deadline(self) -> None:
        """Set the deadline for what the client has to do next. Only a completed step moves it, not the
        arrival of bytes."""
        expected = self._expected()
        if expected is self._deadline_of:
            return
        self._end_deadline()
        if expected is not None:
            self._deadline_of = expected
            self._start_deadline(expected)

    def _start_deadline(self, step: _Step) -> None:
        match step:
            case _Step.LOG_IN:
                self._deadline = self._loop.call_later(self.limits.login_s, self.transport.abort)
            case _Step.COMPLETE_FRAME:
                self._deadline = self._loop.call_later(self.limits.frame_s, self.transport.abort)
            case _Step.SEND_REQUEST:
                self._deadline = self._loop.call_later(self.limits.idle_s, self.idle)

    def _expected(self) -> "_Step | None":
        if not self.session.is_logged_in:
            return _Step.LOG_IN
        if self._retry is not None or self._frames:
            return None
        if self._buffer:
            return _Step.COMPLETE_FRAME
        return None if self._unanswered else _Step.SEND_REQUEST

    def expect_again(self) -> None:
        """Give the client for its next request the whole time again."""
        self._end_deadline()
        self._set_deadline()

    def _end_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = self._deadline_of = None

    def _ended(self, task: "asyncio.Task[None]") -> None:
        """A connection that lacks one of its tasks would stay open without an answer."""
        if task.cancelled():
            self.abort()
