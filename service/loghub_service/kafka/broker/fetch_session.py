"""Fetch sessions (KIP-227): a consumer names only changes, and the broker remembers the other partitions.

A session knows which partitions may have records to return: the partitions that the client has just named,
the ones that it has not read up to their end, and the ones with an append since. Only these are read, so an
idle partition costs nothing. A request without a session has one for its own time.

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
    """The partitions of one client. ``due`` has the partitions to read next, in their order."""

    def __init__(self, watch: Watch) -> None:
        self.id = _NO_SESSION
        self.epoch = 1  # of the next request
        self.asked: dict[Key, FetchPartition] = {}
        self.watch = watch
        self._due: dict[Key, None] = {}
        self._shown: dict[Key, tuple[int, int]] = {}  # the end and the start that the client knows

    def update(self, body: FetchRequest) -> None:
        for topic in body.topics:
            for partition in topic.partitions:
                self.asked[topic.topic, partition.partition] = partition
                self._due[topic.topic, partition.partition] = None
        for gone in body.forgotten_topics_data:
            for number in gone.partitions:
                key = (gone.topic, number)
                self.watch.remove(key)
                self.asked.pop(key, None)
                self._due.pop(key, None)
                self._shown.pop(key, None)

    def take_due(self) -> list[Key]:
        """Empty the list of due partitions, and return it: `looked` puts back the ones that are still due."""
        self._due.update((key, None) for key in self.watch.take_marked() if key in self.asked)
        due, self._due = list(self._due), {}
        return due

    def looked(self, partitions: Iterable[tuple[Key, PartitionData]]) -> None:
        """Note that partitions were read: one with more records, or with an error, is due again, after the
        others."""
        behind = [
            (bool(data.records), key)
            for key, data in partitions
            if data.error_code or self.asked[key].fetch_offset < data.high_watermark
        ]
        self._due = dict.fromkeys(key for _, key in sorted(behind, key=lambda pair: pair[0])) | self._due

    def changed(self, partitions: dict[Key, PartitionData]) -> dict[Key, PartitionData]:
        """The partitions with records, errors or bounds that the client does not know yet."""
        return {
            key: data
            for key, data in partitions.items()
            if data.records or data.error_code or self._shown.get(key) != _bounds(data)
        }

    def answered(self, changed: dict[Key, PartitionData]) -> None:
        self._shown.update((key, _bounds(data)) for key, data in changed.items())


def _bounds(data: PartitionData) -> tuple[int, int]:
    return data.high_watermark, data.log_start_offset


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """The session that a request continues or begins. ``whole``: the answer names every partition; ``kept``:
    the session continues after the request."""

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
        current = self._session
        if current is None or current.id != body.session_id:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if current.epoch != body.session_epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        current.epoch = 1 if current.epoch == _LAST_EPOCH else current.epoch + 1
        before = len(current.asked)
        current.update(body)
        self._entries.used += len(current.asked) - before
        if self._entries.used > self._entries.limit:
            self.close()
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        return Begun(session=current, whole=False, kept=True)

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
