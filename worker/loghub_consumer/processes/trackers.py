"""The tracker of a session in the process of its processor, and its counterpart in the worker, which has the
checkpoint and decides."""

import itertools
import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any

from loghub.contract.worker import WorkerReason
from loghub.wire.cursor import decode as decode_cursor
from loghub.wire.errors import EndpointUnreachable, LogHubError, LogHubException, MalformedCursor
from loghub_consumer.batch import LogBatch, LogPlace, Logs, places_of
from loghub_consumer.failure.policy import Cause, Failure
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
    TrackerCall,
    TrackerError,
    checked,
)
from loghub_consumer.processor import NotAssignedError, ShardLostError
from loghub_consumer.tracker import ShardTracker

KINDS = {
    ShardLostError: "lost",
    NotAssignedError: "unassigned",
    MalformedCursor: "malformed",
    ValueError: "invalid",
}
LOST = TrackerError("lost", "the shard is no longer assigned to this consumer")


def may_block(call: TrackerCall) -> bool:
    """Whether it takes as long as the log service does."""
    return isinstance(call, Seek) or (isinstance(call, Save) and call.persist)


class SessionTrackers:
    """The trackers of the open sessions. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sessions: dict[int, ShardTracker] = {}
        # Sessions that their processors have paused; only these would resume them.
        self._paused: set[int] = set()

    def open(self, session: int, tracker: ShardTracker) -> None:
        with self._lock:
            self._sessions[session] = tracker

    def close(self, session: int) -> None:
        with self._lock:
            self._sessions.pop(session, None)
            self._paused.discard(session)

    def _find(self, session: int) -> ShardTracker | None:
        with self._lock:
            return self._sessions.get(session)

    def note(self, call: Save) -> TrackerAnswer | None:
        """Note a checkpoint, which `carry_out` then sends. Call it in the order of the messages: without a
        cursor the checkpoint is the one of the running batch. Returns the answer if it cannot be noted."""
        tracker = self._find(call.session)
        if tracker is None:
            return TrackerAnswer(call.number, "", LOST)
        try:
            tracker.save(persist=False, cursor=call.cursor)
        except (ShardLostError, LogHubException, ValueError) as raised:
            return TrackerAnswer(call.number, tracker.get(), _tracker_error(raised))
        return None

    def carry_out(self, call: TrackerCall) -> TrackerAnswer | None:
        """Carry out the call; for a checkpoint, only send it. Returns None if the call needs no answer."""
        tracker = self._find(call.session)
        if isinstance(call, Acknowledge):
            if tracker is not None:
                tracker.ack(*_places(call.places))
            return None
        if tracker is None:
            return TrackerAnswer(call.number, "", LOST)
        error = None
        try:
            _do(call, tracker)
            if isinstance(call, Pause):
                self._note_pause(call)
        except (ShardLostError, NotAssignedError, LogHubException, ValueError) as raised:
            error = _tracker_error(raised)
        return TrackerAnswer(call.number, tracker.get(), error)

    def _note_pause(self, call: Pause) -> None:
        with self._lock:
            if call.is_paused:
                self._paused.add(call.session)
            else:
                self._paused.discard(call.session)

    def process_ended(self, sessions: Iterable[int], message: str) -> None:
        """The process of these sessions has ended: logs that it had, and neither acknowledged nor refused,
        are redelivered. Which log has caused the end is unknown."""
        failure = Failure(cause=Cause.UNAVAILABLE, reason=WorkerReason.PROCESS_ENDED.value, message=message)
        for session in sessions:
            tracker = self._find(session)
            if tracker is not None:
                tracker.interrupted(failure)
                self._resume(session, tracker)

    def _resume(self, session: int, tracker: ShardTracker) -> None:
        with self._lock:
            was_paused = session in self._paused
            self._paused.discard(session)
        if was_paused:
            with suppress(NotAssignedError):
                tracker.resume()


def _do(call: AnsweredCall, tracker: ShardTracker) -> None:
    match call:
        case Save(persist=True):
            tracker.send()
        case Save():
            tracker.save(persist=False, cursor=call.cursor)
        case Refuse(is_final=True):
            tracker.reject(*_places(call.places), reason=call.reason)
        case Refuse(is_up_to=True):
            (last,) = _places(call.places)
            tracker.nack_up_to(last, delay_s=call.delay_s, reason=call.reason)
        case Refuse():
            tracker.nack(*_places(call.places), delay_s=call.delay_s, reason=call.reason)
        case AcknowledgeUpTo():
            tracker.ack_up_to(LogPlace(*call.last))
        case Seek():
            tracker.seek(call.to)
        case Pause(is_paused=True):
            tracker.pause()
        case Pause():
            tracker.resume()


def _places(places: Places) -> list[LogPlace]:
    return [LogPlace(cursor, index) for cursor, index in places]


def _tracker_error(error: Exception) -> TrackerError:
    if isinstance(error, LogHubError):
        return TrackerError("refused", error.message, error.code, error.status)
    if isinstance(error, EndpointUnreachable):
        return TrackerError("unreachable", error.reason, endpoint=error.endpoint, is_definite=error.definite)
    kind = next((name for cls, name in KINDS.items() if isinstance(error, cls)), "other")
    return TrackerError(kind, str(error))


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
