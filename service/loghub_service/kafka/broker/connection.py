"""One connection of a Kafka client: frames in, answers out in the same order.

Requests are carried out one after the other, as Kafka does; only Produce requests overlap: the next one is
ordered while the one before becomes durable, so that one connection is not bound to one disk sync at a time.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Protocol

import structlog

from loghub_service.connections.frames import Admitted, Frame, FrameConnection, FrameResources, FrameSession
from loghub_service.kafka.broker.answer import Answer, BrokerCounts, Complete, Disconnect

_log = structlog.get_logger("loghub_service.kafka")


class BrokerSession(FrameSession, Protocol):
    """What a connection asks for."""

    def overlaps(self, frame: bytes) -> bool:
        """Whether the request may begin before the answers to earlier ones of its kind are complete."""

    async def begin(self, frame: bytes) -> Complete:
        """Order the request. Raises Disconnect, as completing it does."""


class KafkaConnection(FrameConnection):
    """``make_session`` is called when the connection is open."""

    session: BrokerSession

    def __init__(
        self,
        admitted: Admitted,
        *,
        resources: FrameResources,
        counts: BrokerCounts,
        make_session: Callable[["KafkaConnection"], BrokerSession],
        on_closed: Callable[[FrameConnection], None],
    ) -> None:
        super().__init__(admitted, resources=resources, on_closed=on_closed)
        self._counts = counts
        self._make_session = make_session
        self._answers: asyncio.Queue[tuple[Complete, Frame]] = asyncio.Queue(self.limits.queued_requests)
        self._last_overlaps = False

    def open_session(self) -> BrokerSession:
        return self._make_session(self)

    def work(self) -> tuple[Coroutine[None, None, None], ...]:
        return self._order(), self._answer()

    def lost(self) -> None:
        while not self._answers.empty():
            self.release(self._answers.get_nowait()[1])

    async def _order(self) -> None:
        """Begin the requests in the order in which they came."""
        try:
            while True:
                frame = await self.next_frame()
                try:
                    overlaps = self.session.overlaps(frame.data)
                    if not (overlaps and self._last_overlaps):
                        await self._answers.join()
                    self._last_overlaps = overlaps
                    complete = await self.session.begin(frame.data)
                    await self._answers.put((complete, frame))
                except BaseException:
                    self.release(frame)
                    raise
        except Disconnect as error:
            await self._answers.join()
            self._disconnect(error)
        except Exception:  # noqa: BLE001 - one connection must not stop the service
            self._failed()

    async def _answer(self) -> None:
        """Complete the requests and write the answers, in order."""
        try:
            while True:
                complete, frame = await self._answers.get()
                try:
                    answer = await complete()
                finally:
                    self.release(frame)
                try:
                    self._write(answer)
                    await self.writable.wait()
                finally:
                    answer.sent()
                self.answered()
                self._answers.task_done()
        except Disconnect as error:
            self._disconnect(error)
        except Exception:  # noqa: BLE001 - one connection must not stop the service
            self._failed()

    def _failed(self) -> None:
        """No request should be able to cause this."""
        _log.exception("request failed, the connection is closed", peer=self.admitted.peer)
        self._counts.failed_requests += 1
        self.close()

    def _write(self, answer: Answer) -> None:
        if answer.parts and not self.transport.is_closing():
            self.transport.writelines(answer.parts)

    def _disconnect(self, error: Disconnect) -> None:
        _log.info("connection closed", peer=self.admitted.peer, reason=str(error))
        self._write(error.answer)
        self.close()
