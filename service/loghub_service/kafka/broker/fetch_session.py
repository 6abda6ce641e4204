"""Fetch sessions (KIP-227): a consumer names what changes, and the broker remembers the rest.

A session knows which partitions may have something to tell: those that the client has named, those that it
has not read up to their end, and those in which something has arrived. Only they are looked at, so an idle
partition costs nothing. A request without a session has one for its own time.

A session lives with its connection. All sessions together remember a bounded number of partitions; a client
that finds no room is answered without a session, and names every partition as before.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from loghub_service.connections.service_ports import Watch
from loghub_service.kafka.wire.errors import ErrorCode
from loghub_service.kafka.wire.logs import FetchPartition, FetchRequest, PartitionData

Key = tuple[str, int]  # topic and partition
_NO_SESSION, _CLOSED, _FIRST, _LAST_EPOCH = 0, -1, 0, 0x7FFF_FFFF


@dataclass(slots=True)
class SessionEntries:
    """How many partitions all sessions remember; some 400 bytes each."""

    limit: int
    used: int = 0


class FetchSession:
    """The partitions of one client. ``due`` are those to look at next, in their order."""

    def __init__(self, watch: Watch) -> None:
        self.id = _NO_SESSION
        self.epoch = 1  # of the next request
        self.asked: dict[Key, FetchPartition] = {}
        self.watch = watch
        self._due: dict[Key, None] = {}
        self._shown: dict[Key, tuple[int, int]] = {}  # the end and the start that the client knows

    def update(self, body: FetchRequest) -> None:
        for topic in body.topics:
            for one in topic.partitions:
                self.asked[topic.topic, one.partition] = one
                self._due[topic.topic, one.partition] = None
        for gone in body.forgotten_topics_data:
            for number in gone.partitions:
                key = (gone.topic, number)
                self.watch.remove(key)
                self.asked.pop(key, None)
                self._due.pop(key, None)
                self._shown.pop(key, None)

    def take_due(self) -> list[Key]:
        """Forget what is due: `looked` says what still is."""
        self._due.update((key, None) for key in self.watch.take_marked() if key in self.asked)
        due, self._due = list(self._due), {}
        return due

    def looked(self, found: Iterable[tuple[Key, PartitionData]]) -> None:
        """What has more, or an error, is due again; what had its turn comes last."""
        behind = [
            (bool(data.records), key)
            for key, data in found
            if data.error_code or self.asked[key].fetch_offset < data.high_watermark
        ]
        self._due = dict.fromkeys(key for _, key in sorted(behind, key=lambda one: one[0])) | self._due

    def changed(self, found: dict[Key, PartitionData]) -> dict[Key, PartitionData]:
        """What the client does not know yet."""
        return {
            key: data
            for key, data in found.items()
            if data.records or data.error_code or self._shown.get(key) != _bounds(data)
        }

    def answered(self, news: dict[Key, PartitionData]) -> None:
        self._shown.update((key, _bounds(data)) for key, data in news.items())


def _bounds(data: PartitionData) -> tuple[int, int]:
    return data.high_watermark, data.log_start_offset


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """What a request continues or begins. ``whole``: the answer names every partition; ``kept``: the session
    goes on after it."""

    session: FetchSession
    whole: bool
    kept: bool


class FetchSessions:
    """The session of one connection, if it has one."""

    def __init__(
        self, entries: SessionEntries, new_watch: Callable[[], Watch], new_id: Callable[[], int]
    ) -> None:
        self._entries, self._new_watch, self._new_id = entries, new_watch, new_id
        self._session: FetchSession | None = None

    def begin(self, body: FetchRequest) -> Begun | ErrorCode:
        if body.session_epoch in (_CLOSED, _FIRST):
            self.close()
            session = FetchSession(self._new_watch())
            session.update(body)
            kept = body.session_epoch == _FIRST and self._keep(session)
            return Begun(session=session, whole=True, kept=kept)
        found = self._session
        if found is None or found.id != body.session_id:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if found.epoch != body.session_epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        found.epoch = 1 if found.epoch == _LAST_EPOCH else found.epoch + 1
        before = len(found.asked)
        found.update(body)
        self._entries.used += len(found.asked) - before
        if self._entries.used > self._entries.limit:
            self.close()
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        return Begun(session=found, whole=False, kept=True)

    def _keep(self, session: FetchSession) -> bool:
        if self._entries.used + len(session.asked) > self._entries.limit:
            return False
        self._entries.used += len(session.asked)
        session.id, self._session = self._new_id(), session
        return True

    def close(self) -> None:
        if self._session is not None:
            self._entries.used -= len(self._session.asked)
            self._session.watch.close()
            self._session = None
