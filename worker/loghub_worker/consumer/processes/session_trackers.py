"""The trackers of the sessions, and what the processes ask of them."""

import threading
from collections.abc import Iterable
from contextlib import suppress

from loghub.wire.errors import EndpointUnreachable, LogHubError, LogHubException, MalformedCursor
from loghub.worker_contract import WorkerReason
from loghub_worker.consumer.processes.messages import (
    Acknowledge,
    AnsweredCall,
    Pause,
    Places,
    Refuse,
    Save,
    Seek,
    TrackerAnswer,
    TrackerCall,
    TrackerError,
)
from loghub_worker.consumer.processor import NotAssignedError, ShardLostError
from loghub_worker.consumer.received_log import LogPlace
from loghub_worker.consumer.tracker import ShardTracker
from loghub_worker.failure.skip_limits import Cause, Failure

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
    """Those of the sessions that are open. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sessions: dict[int, ShardTracker] = {}
        self._paused: set[int] = set()  # by their processors, which alone would resume them

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
        """Note a checkpoint that `carry_out` then sends. Call it in the order of the messages: without a
        cursor the checkpoint is that of the batch that runs now. The answer if it cannot be noted."""
        tracker = self._find(call.session)
        if tracker is None:
            return TrackerAnswer(call.number, "", LOST)
        try:
            tracker.save(persist=False, cursor=call.cursor)
        except (ShardLostError, LogHubException, ValueError) as raised:
            return TrackerAnswer(call.number, tracker.get(), _error_of(raised))
        return None

    def carry_out(self, call: TrackerCall) -> TrackerAnswer | None:
        """Do what was asked; of a checkpoint to send only that. None if nobody waits for an answer."""
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
            error = _error_of(raised)
        return TrackerAnswer(call.number, tracker.get(), error)

    def _note_pause(self, call: Pause) -> None:
        with self._lock:
            if call.is_paused:
                self._paused.add(call.session)
            else:
                self._paused.discard(call.session)

    def process_ended(self, sessions: Iterable[int], message: str) -> None:
        """Their process has ended: what they had, and neither acknowledged nor refused, comes again. Which
        log has caused it is not known."""
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
        case Seek():
            tracker.seek(call.to)
        case Pause(is_paused=True):
            tracker.pause()
        case Pause():
            tracker.resume()


def _places(places: Places) -> list[LogPlace]:
    return [LogPlace(cursor, index) for cursor, index in places]


def _error_of(error: Exception) -> TrackerError:
    if isinstance(error, LogHubError):
        return TrackerError("refused", error.message, error.code, error.status)
    if isinstance(error, EndpointUnreachable):
        return TrackerError("unreachable", error.reason, endpoint=error.endpoint, is_definite=error.definite)
    kind = next((name for cls, name in KINDS.items() if isinstance(error, cls)), "other")
    return TrackerError(kind, str(error))
