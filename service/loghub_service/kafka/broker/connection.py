"""One connection of a Kafka client: frames in, answers out in the same order, and everything bounded.

A frame is a length of four bytes and a request. A length costs a client nothing, so memory is used only as
bytes arrive. Of the requests that a connection has sent and that are not answered, some KiB are free; a frame
beyond them begins only once its whole length is taken from the budget that all connections share, so that one
that has begun can always be completed. While that budget is used up, the connection that has held a part of
it for longest, in the middle of a frame or waiting for news or for its client, is closed, after some seconds.
Reading stops while requests wait for their turn, or for memory. One deadline is always set while the client
has to do something: to log in, to complete a frame, to send the next request, to read an answer.

Requests are carried out one after the other, as Kafka does; only Produce requests overlap: the next one is
ordered while the one before becomes durable, so that one connection is not bound to one disk sync at a time.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Protocol

import structlog

from loghub_service.kafka.broker.answer import Answer, BrokerCounts, BrokerLimits, Complete, Disconnect
from loghub_service.kafka.broker.call import RequestMemory, StalledClients
from loghub_service.kafka.broker.store import Budget

_log = structlog.get_logger("loghub_service.kafka")
_LENGTH_BYTES = 4
_RETRY_S = 0.05  # between attempts to get memory that others use
# The default of asyncio lets a connection that waits have 256 KiB in its buffer.
_RECEIVED_BYTES = 16 << 10


class Admitted(Protocol):
    """The place of a connection among those that its listener keeps."""

    peer: str
    evicted: bool
    busy: bool
    waiting: bool


class BrokerSession(Protocol):
    """What a connection asks for."""

    @property
    def is_logged_in(self) -> bool: ...

    def overlaps(self, frame: bytes) -> bool:
        """Whether the request may begin before the answers to earlier ones of its kind are complete."""

    async def begin(self, frame: bytes) -> Complete:
        """Order the request. Raises Disconnect, as completing it does."""

    def close(self) -> None: ...


class _Step(Enum):
    """What the client has to do next."""

    LOG_IN = auto()
    COMPLETE_FRAME = auto()
    SEND_REQUEST = auto()


@dataclass(slots=True)
class _Frame:
    data: bytes
    taken: int  # from the budget; 0 if it is free


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerResources:
    """What all connections share; ``budget`` is for large requests, and ``holders`` have a part of it."""

    limits: BrokerLimits
    budget: Budget
    holders: StalledClients
    stalled: StalledClients
    counts: BrokerCounts
    # What one read has, which is copied at once. A view, since asyncio's TLS writes into slices of it.
    received: memoryview = field(default_factory=lambda: memoryview(bytearray(_RECEIVED_BYTES)))


class KafkaConnection(asyncio.BufferedProtocol):
    """``make_session`` is called when the connection is open, and ``on_closed`` when it has ended."""

    def __init__(
        self,
        admitted: Admitted,
        *,
        resources: BrokerResources,
        make_session: Callable[["KafkaConnection"], BrokerSession],
        on_closed: Callable[["KafkaConnection"], None],
    ) -> None:
        self.admitted = admitted
        self.transport: asyncio.Transport
        self._limits = resources.limits
        self.memory = RequestMemory(resources.budget, resources.holders, self.abort)
        self._stalled = resources.stalled
        self._counts = resources.counts
        self._make_session = make_session
        self._on_closed = on_closed
        self._loop = asyncio.get_running_loop()
        self._session: BrokerSession
        self._received = resources.received
        self._buffer = bytearray()
        self._size: int | None = None  # of the frame that is arriving, once memory is taken for it
        self._taken = 0  # from the budget for that frame
        self._free_bytes = 0  # of requests that took nothing from it
        self._wait_until_s: float | None = None  # for that memory
        self._frames: deque[_Frame] = deque()
        self._arrived = asyncio.Event()
        self._answers: asyncio.Queue[tuple[Complete, _Frame]] = asyncio.Queue(self._limits.queued_requests)
        self._writable = asyncio.Event()
        self._deadline: asyncio.TimerHandle | None = None
        self._deadline_of: _Step | None = None
        self._answer_deadline: asyncio.TimerHandle | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._tasks: tuple[asyncio.Task[None], ...] = ()
        self._last_overlaps = False
        self._unanswered = 0  # requests that are received and not answered
        self._ending = False

    # What asyncio calls

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport = transport
        self._writable.set()
        self._session = self._make_session(self)
        if self.admitted.evicted:  # while it was being opened
            transport.abort()
            return
        self._set_deadline()
        self._tasks = (self._loop.create_task(self._order()), self._loop.create_task(self._answer()))
        for task in self._tasks:
            task.add_done_callback(self._ended)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - the size is ours to choose
        return self._received

    def buffer_updated(self, nbytes: int) -> None:
        if self._ending:
            return
        self._buffer += self._received[:nbytes]
        self._parse()
        self._set_deadline()

    def eof_received(self) -> None:
        """The client sends no more. Closing is the default, and what is in progress is of no use to it."""

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - why does not matter
        for timer in (self._deadline, self._answer_deadline, self._retry):
            if timer is not None:
                timer.cancel()
        for task in self._tasks:
            task.cancel()
        self._stalled.remove(self.abort)
        self.memory.close()
        self.memory.release(self._taken + sum(frame.taken for frame in self._frames))
        while not self._answers.empty():
            self._release(self._answers.get_nowait()[1])
        self._taken = 0
        self._frames.clear()
        self._session.close()
        self._on_closed(self)

    def pause_writing(self) -> None:
        self._writable.clear()
        self._stalled.add(self.abort)
        self.memory.begin_waiting()
        self.admitted.waiting = True
        if self._answer_deadline is None:
            self._answer_deadline = self._loop.call_later(self._limits.answer_s, self.transport.abort)

    def resume_writing(self) -> None:
        self._writable.set()
        self._stalled.remove(self.abort)
        self.memory.end_waiting()
        self.admitted.waiting = False
        if self._answer_deadline is not None and not self._ending:
            self._answer_deadline.cancel()
            self._answer_deadline = None

    # Ending

    def finish(self) -> None:
        """Accept no more requests, and close once those in progress are answered."""
        self._ending = True
        if not self.transport.is_closing():
            self.transport.pause_reading()
        if self._unanswered == 0:
            self._close()

    def abort(self) -> None:
        self.transport.abort()

    def _close(self) -> None:
        """Close once the client has read what was written, for which it has some seconds."""
        self._ending = True
        self.transport.close()
        if self._answer_deadline is None:
            self._answer_deadline = self._loop.call_later(self._limits.close_s, self.transport.abort)

    # Frames

    def _parse(self) -> None:
        while len(self._frames) < self._limits.queued_requests:
            if self._size is None and not self._begin_frame():
                return
            assert self._size is not None
            end = _LENGTH_BYTES + self._size
            if len(self._buffer) < end:
                return
            with memoryview(self._buffer) as view:
                frame = _Frame(bytes(view[_LENGTH_BYTES:end]), self._taken)
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
        limits = self._limits
        maximum = limits.frame_bytes if self._session.is_logged_in else limits.login_frame_bytes
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
            self._wait_until_s = now_s + self._limits.memory_wait_s
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
        """Take what waits in the buffer, and read on unless requests wait for their turn or for memory."""
        if self._ending or self._retry is not None or self.transport.is_closing():
            return
        self._parse()
        if self._retry is None and len(self._frames) < self._limits.queued_requests:
            self.transport.resume_reading()

    def _give_up(self) -> None:
        """Close without an answer; what was answered before is still sent."""
        self._buffer.clear()
        self._close()

    # Deadlines

    def _set_deadline(self) -> None:
        """For what the client has to do next. What arrives does not move it, only what is complete."""
        expected = self._expected()
        if expected is self._deadline_of:
            return
        self._end_deadline()
        after_s = {
            _Step.LOG_IN: self._limits.login_s,
            _Step.COMPLETE_FRAME: self._limits.frame_s,
            _Step.SEND_REQUEST: self._limits.idle_s,
        }
        if expected is not None:
            self._deadline_of = expected
            self._deadline = self._loop.call_later(after_s[expected], self.transport.abort)

    def _expected(self) -> "_Step | None":
        if not self._session.is_logged_in:
            return _Step.LOG_IN
        if self._retry is not None or self._frames:
            return None
        if self._buffer:
            return _Step.COMPLETE_FRAME
        return None if self._unanswered else _Step.SEND_REQUEST

    def _end_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = self._deadline_of = None

    # Requests

    async def _order(self) -> None:
        """Begin the requests in the order in which they came."""
        try:
            while True:
                frame = await self._next_frame()
                try:
                    overlaps = self._session.overlaps(frame.data)
                    if not (overlaps and self._last_overlaps):
                        await self._answers.join()
                    self._last_overlaps = overlaps
                    complete = await self._session.begin(frame.data)
                    await self._answers.put((complete, frame))
                except BaseException:
                    self._release(frame)
                    raise
        except Disconnect as error:
            await self._answers.join()
            self._disconnect(error)
        except Exception:  # noqa: BLE001 - one connection must not stop the service
            self._failed()

    async def _next_frame(self) -> _Frame:
        while not self._frames:
            self._arrived.clear()
            await self._arrived.wait()
        frame = self._frames.popleft()
        self._go_on()
        return frame

    async def _answer(self) -> None:
        """Complete the requests and write the answers, in order."""
        try:
            while True:
                complete, frame = await self._answers.get()
                try:
                    answer = await complete()
                finally:
                    self._release(frame)
                try:
                    self._write(answer)
                    await self._writable.wait()
                finally:
                    answer.sent()
                self._answered()
                self._answers.task_done()
        except Disconnect as error:
            self._disconnect(error)
        except Exception:  # noqa: BLE001 - one connection must not stop the service
            self._failed()

    def _ended(self, task: "asyncio.Task[None]") -> None:
        """A connection that lacks one of its tasks would stay open without an answer."""
        if task.cancelled():
            self.abort()

    def _failed(self) -> None:
        """No request should be able to cause this."""
        _log.exception("request failed, the connection is closed", peer=self.admitted.peer)
        self._counts.failed_requests += 1
        self._close()

    def _release(self, frame: _Frame) -> None:
        self.memory.release(frame.taken)
        if not frame.taken:
            self._free_bytes -= len(frame.data)

    def _answered(self) -> None:
        self._unanswered -= 1
        if self._unanswered == 0:
            self.admitted.busy = False
            if self._ending:
                self._close()
        self._set_deadline()

    def _write(self, answer: Answer) -> None:
        if answer.parts and not self.transport.is_closing():
            self.transport.writelines(answer.parts)

    def _disconnect(self, error: Disconnect) -> None:
        _log.info("connection closed", peer=self.admitted.peer, reason=str(error))
        self._write(error.answer)
        self._close()
