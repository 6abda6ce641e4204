"""The trackers of the sessions whose processors are in other processes: each has the checkpoint and decides
about the calls of a `loghub_consumer.processes.trackers.ChildTracker`."""

import threading
from collections.abc import Iterable
from contextlib import suppress

from loghub.contract.worker import WorkerReason
from loghub.wire.errors import EndpointUnreachable, LogHubError, LogHubException, MalformedCursor
from loghub_consumer.batch import LogPlace
from loghub_consumer.failure.policy import Cause, Failure
from loghub_consumer.processes.messages import (
    Acknowledge,
    AcknowledgeUpTo,
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
