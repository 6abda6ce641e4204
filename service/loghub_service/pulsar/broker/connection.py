"""One connection of a Pulsar client: commands in, and out of it answers and messages, in no common order.

Commands are begun in the order in which they came. What has to wait, such as a message until it is durable,
is completed next to the others, at most a thousand at once. Messages wait in a queue as positions, which take
some bytes: a log group is read when its turn has come, within a budget that all connections share, and the
next one once the client has read enough of it. A client that reads nothing is not requested more either.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Protocol

import structlog
from msgspec import Struct

from loghub_service.connections.frames import Admitted, Frame, FrameConnection, FrameResources, FrameSession
from loghub_service.dispatch.ports import Unreadable
from loghub_service.pulsar.broker.call import PulsarBroker
from loghub_service.pulsar.broker.delivery import (
    Outgoing,
    by_group,
    frames_in_pieces,
    logs_in,
)
from loghub_service.pulsar.broker.refusals import PulsarDisconnect
from loghub_service.pulsar.wire.frames import encode_frame
from loghub_service.pulsar.wire.session import CommandPing

_log = structlog.get_logger("loghub_service.pulsar")
_NO_ROOM_WAIT_S = 0.05  # until memory for messages is free
Complete = Coroutine[None, None, None]


class CommandSession(FrameSession, Protocol):
    """What a connection asks for."""

    async def begin(self, frame: bytes) -> Complete | None:
        """Begin a command; what it returns completes it. Raises PulsarDisconnect, as that does."""

    def check_login(self) -> None:
        """Raises PulsarDisconnect if the key of the login is not valid any more."""


class PulsarConnection(FrameConnection):
    """``make_session`` is called when the connection is open."""

    session: CommandSession

    def __init__(
        self,
        admitted: Admitted,
        *,
        broker: PulsarBroker,
        resources: FrameResources,
        make_session: Callable[["PulsarConnection"], CommandSession],
        on_closed: Callable[[FrameConnection], None],
    ) -> None:
        super().__init__(admitted, resources=resources, on_closed=on_closed)
        self._broker = broker
        self._make_session = make_session
        self._in_progress: dict[asyncio.Task[None], Frame] = {}
        self._completed = asyncio.Event()
        self._outgoing: deque[Outgoing] = deque()
        self._has_outgoing = asyncio.Event()
        self._queued_runs = 0  # of ``_outgoing``
        self._has_queue_room = asyncio.Event()
        self._was_asked = False  # whether it is there
        self._heard = asyncio.Event()
        self._lost = asyncio.Event()
        self._asking: asyncio.Task[bool] | None = None

    def open_session(self) -> CommandSession:
        return self._make_session(self)

    def work(self) -> tuple[Coroutine[None, None, None], ...]:
        return self._order(), self._deliver()

    def idle(self) -> None:
        """Ask the client once whether it is there; clients that are, answer at once."""
        if self._was_asked:
            _log.info("connection closed: nothing came, not even PONG", peer=self.admitted.peer)
            self.transport.abort()
            return
        self._was_asked = True
        self.send(CommandPing())
        self.expect_again()

    def buffer_updated(self, nbytes: int) -> None:
        self._heard.set()
        super().buffer_updated(nbytes)

    async def is_alive(self) -> bool:
        """Ask the client whether it is there, and end the connection if nothing comes. Calls in the meantime
        get the same answer."""
        if self._asking is None or self._asking.done():
            self._asking = self._loop.create_task(self._ask())
        return await asyncio.shield(self._asking)

    async def _ask(self) -> bool:
        if self.writable.is_set() and len(self._frames) >= self.limits.queued_requests:
            return True  # nothing more is read before the service has answered
        self._heard.clear()
        self.send(CommandPing())
        try:
            async with asyncio.timeout(self._broker.limits.liveness_s):
                await self._heard.wait()
        except TimeoutError:
            _log.info("connection closed: no PONG, and others wait for it", peer=self.admitted.peer)
            self.transport.abort()
            await self._lost.wait()
        return not self._lost.is_set()

    def lost(self) -> None:
        self._lost.set()
        self._outgoing.clear()
        self._queued_runs = 0
        for task in tuple(self._in_progress):
            task.cancel()

    # Out

    def send(self, command: Struct) -> None:
        self.write(encode_frame(command))

    def write(self, data: bytes) -> None:
        self._broker.counts.sent_bytes += len(data)
        if not self.transport.is_closing():
            self.transport.write(data)

    def deliver(self, outgoing: Outgoing) -> None:
        """Send these messages when those before them are sent."""
        self._outgoing.append(outgoing)
        self._queued_runs += len(outgoing.runs)
        self._has_outgoing.set()

    # In

    async def _order(self) -> None:
        """Begin the commands in the order in which they came."""
        try:
            while True:
                await self.writable.wait()
                await self._queue_room()
                frame = await self.next_frame()
                self._was_asked = False
                while len(self._in_progress) >= self._broker.limits.in_progress:
                    self._completed.clear()
                    await self._completed.wait()
                try:
                    complete = await self.session.begin(frame.data)
                except BaseException:
                    self.release(frame)
                    raise
                if complete is None:
                    self.release(frame)
                    self.answered()
                else:
                    task = self._loop.create_task(complete)
                    self._in_progress[task] = frame
                    task.add_done_callback(self._complete)
        except PulsarDisconnect as error:
            self._disconnect(error)
        except Exception:  # noqa: BLE001 - one connection must not stop the service
            self._failed()

    async def _queue_room(self) -> None:
        """Return once few enough messages wait. Otherwise a client that wants messages again before it has
        read them could make the queue as long as it likes."""
        while self._queued_runs > self._broker.limits.queued_runs:
            self._has_queue_room.clear()
            await self._has_queue_room.wait()

    def _complete(self, task: "asyncio.Task[None]") -> None:
        self.release(self._in_progress.pop(task))
        self._completed.set()
        if self._lost.is_set() or task.cancelled():
            return
        error = task.exception()
        if isinstance(error, PulsarDisconnect):
            self._disconnect(error)
        elif error is not None:
            self._failed(error)
        else:
            self.answered()

    # Messages

    async def _deliver(self) -> None:
        try:
            while True:
                while not self._outgoing:
                    self._has_outgoing.clear()
                    await self._has_outgoing.wait()
                outgoing = self._outgoing.popleft()
                await self._send_messages(outgoing)
                self._queued_runs -= len(outgoing.runs)
                self._has_queue_room.set()
        except PulsarDisconnect as error:
            self._disconnect(error)
        except Exception:  # noqa: BLE001 - one connection must not stop the service
            self._failed()

    async def _send_messages(self, out: Outgoing) -> None:
        consumer, permits = out.consumer, out.permits
        for ordinal, runs in by_group(out.runs):
            if not out.is_wanted:
                consumer.give_back(permits)
                return
            self.session.check_login()
            try:
                entries = await consumer.entries_of(ordinal)
            except Unreadable as error:
                _log.error("messages left out: log data cannot be read", error=str(error), shard=out.shard)
                entries = None
            if entries is None:  # it has expired meanwhile
                permits -= logs_in(runs)
                consumer.give_back(logs_in(runs))
                continue
            enough = self._broker.limits.answer_bytes
            left = permits - logs_in(runs)
            for piece, logs in frames_in_pieces(out, ordinal, runs, entries, enough_bytes=enough):
                await self._write_messages(piece, logs)
                permits -= logs
            if consumer.is_ordered or permits > left:
                permits -= consumer.leave_out(runs, entries)

    async def _write_messages(self, piece: bytes, logs: int) -> None:
        """Return once the client has read most of it."""
        budget, size = self._broker.answer_budget, len(piece)
        while budget.used and budget.used + size > budget.limit:
            self._broker.stalled.end_oldest()
            with self.memory.waiting():
                await asyncio.sleep(_NO_ROOM_WAIT_S)
        budget.used += size
        try:
            self.write(piece)
            self._broker.counts.delivered_logs += logs
            await asyncio.sleep(0)  # others have their turn
            await self.writable.wait()
        finally:
            budget.used -= size

    # Ends

    def _failed(self, error: BaseException | None = None) -> None:
        """No command should be able to cause this."""
        _log.error(
            "request failed, the connection is closed", peer=self.admitted.peer, exc_info=error or True
        )
        self._broker.counts.failed_requests += 1
        self.close()

    def _disconnect(self, error: PulsarDisconnect) -> None:
        _log.info("connection closed", peer=self.admitted.peer, reason=str(error))
        if error.last:
            self.write(error.last)
        self.close()
