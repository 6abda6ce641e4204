"""The tracker of a session in the process of its processor. Its counterpart in the worker is in
`loghub_consumer.processes.session_trackers`."""

import itertools
import queue
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from loghub.wire.cursor import decode as decode_cursor
from loghub.wire.errors import EndpointUnreachable, LogHubError, LogHubException, MalformedCursor
from loghub_consumer.batch import LogBatch, Logs, places_of
from loghub_consumer.processes.messages import (
    Acknowledge,
    AcknowledgeUpTo,
    AnsweredCall,
    Channel,
    Get,
    Initialize,
    Pause,
    Places,
    Refuse,
    Save,
    Seek,
    TrackerAnswer,
    TrackerError,
    checked,
)
from loghub_consumer.processor import NotAssignedError, ShardLostError


class TrackerCalls:
    """Asks the worker, and waits for the answers. Thread-safe."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._numbers = itertools.count()
        self._waiting: dict[int, queue.SimpleQueue[TrackerAnswer]] = {}

    def ask(self, make: Callable[[int], AnsweredCall]) -> TrackerAnswer:
        """`make` returns the call with this number."""
        number = next(self._numbers)
        call = checked(make(number))
        answers: queue.SimpleQueue[TrackerAnswer] = queue.SimpleQueue()
        self._waiting[number] = answers
        self._channel.send(call)
        return answers.get()

    def tell(self, message: Acknowledge) -> None:
        self._channel.send(checked(message))

    def answered(self, answer: TrackerAnswer) -> None:
        self._waiting.pop(answer.number).put(answer)


class ChildTracker:
    """The `loghub_consumer.processor.Tracker` of a session."""

    def __init__(self, calls: TrackerCalls, begin: Initialize) -> None:
        self.shard = begin.shard
        self._calls = calls
        self._session = begin.session
        self._noted = ""
        self._running: LogBatch | None = None

    @contextmanager
    def running(self, batch: LogBatch) -> Iterator[None]:
        """`process` has this batch."""
        self._running = batch
        try:
            yield
        finally:
            self._running = None

    def save(self, *, persist: bool = True, cursor: str | None = None) -> None:
        if cursor is not None:
            decode_cursor(cursor)
        self._ask(lambda number: Save(number, self._session, persist, cursor))

    def get(self) -> str:
        answer = self._calls.ask(lambda number: Get(number, self._session))
        if answer.error is None:
            self._noted = answer.noted
        return self._noted

    def nack(self, *logs: Logs, delay_s: float | None = None, reason: str = "") -> None:
        self._refuse(logs, delay_s, reason, is_final=False)

    def nack_up_to(self, last: Logs, *, delay_s: float | None = None, reason: str = "") -> None:
        places = self._places((last,))[-1:]
        self._ask(lambda number: Refuse(number, self._session, places, delay_s, reason, is_up_to=True))

    def reject(self, *logs: Logs, reason: str = "") -> None:
        self._refuse(logs, None, reason, is_final=True)

    def _refuse(self, logs: Iterable[Logs], delay_s: float | None, reason: str, *, is_final: bool) -> None:
        places = self._places(logs)
        self._ask(lambda number: Refuse(number, self._session, places, delay_s, reason, is_final))

    def seek(self, to: str | int) -> None:
        self._ask(lambda number: Seek(number, self._session, to))

    def pause(self) -> None:
        self._ask(lambda number: Pause(number, self._session, is_paused=True))

    def resume(self) -> None:
        self._ask(lambda number: Pause(number, self._session, is_paused=False))

    def ack(self, *logs: Logs) -> None:
        self._calls.tell(Acknowledge(self._session, self._places(logs)))

    def ack_up_to(self, last: Logs) -> None:
        place = self._places((last,))[-1]
        self._ask(lambda number: AcknowledgeUpTo(number, self._session, place))

    def transaction(self, logs: LogBatch) -> AbstractContextManager[Any]:  # noqa: ARG002 - the protocol
        raise ValueError(
            "a LogHubConsumerGroup has no checkpoint_store; consume in a program of your own for"
            " transactions, or write what repeated logs do not change"
        )

    def _places(self, logs: Iterable[Logs]) -> Places:
        return [(place.cursor, place.index) for place in places_of(logs, self._running)]

    def _ask(self, make: Callable[[int], AnsweredCall]) -> None:
        answer = self._calls.ask(make)
        if answer.error is not None:
            raise _exception_of(answer.error)
        self._noted = answer.noted


def _exception_of(error: TrackerError) -> Exception:
    match error.kind:
        case "lost":
            return ShardLostError(error.message)
        case "unassigned":
            return NotAssignedError(error.message)
        case "invalid":
            return ValueError(error.message)
        case "refused":
            return LogHubError(error.code, error.status, error.message)
        case "unreachable":
            return EndpointUnreachable(error.endpoint, error.message, definite=error.is_definite)
        case "malformed":
            return MalformedCursor(error.message)
        case _:
            return LogHubException(error.message)
