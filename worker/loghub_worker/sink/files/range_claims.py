"""The records by which `loghub_worker.sink.files.commit_log` decides: its range claims, which say which batch
delivers a shard from which cursor; and its openings, which say which worker opened a shard last, because only
that worker may deliver it.

``<shard>-<created>-<begin>-<number>`` is the claim of the batch that delivers the shard from `begin`; the
number counts the attempts at one cursor, and the last attempt is in effect. All claims of a batch have one
content, which lists its ranges. In a folder they are links to one file, so a batch flushes one file and one
folder, however many shards it reads.

A process lists the folder when it resumes a shard, and remembers the names from then on. So the cost of a
batch and of an acknowledgement does not depend on how many claims are not yet acknowledged. A claim that
another process makes in the meantime is found when its name cannot be created.

Two workers can believe that they hold a shard: the service may have given it away while the session of the
first worker was still valid, because the copy of an earlier heartbeat arrived late
(docs/decisions/domain.md).
"""

import re
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

import msgspec

from loghub_consumer.resumption import ShardIncarnation
from loghub_worker.sink.files.storage import CreateRecords, LogStorage, damaged, decode_json

FOLDER = "range-claims"


class ClaimFile(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a claim, the same for all claims of a batch."""

    batch: str
    ranges: list[tuple[int, int, int, int]]  # shard, created, begin, end


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Attempt:
    """One claim of the range that begins at a cursor."""

    begin: int
    number: int
    batch: str
    end: int


class RangeClaims:
    """The claims in one storage, which several workers use at the same time. Thread-safe."""

    def __init__(self, storage: LogStorage) -> None:
        self._storage = storage
        self._lock = threading.Lock()
        self._known: dict[ShardIncarnation, dict[int, dict[int, Attempt]]] = {}  # by begin and number

    def read(self, incarnation: ShardIncarnation) -> dict[int, Attempt]:
        """The claims in effect by begin, read from the storage now."""
        claim = re.compile(rf"{_prefix(incarnation)}\d+-\d+")  # others may have put other files here
        names = [name for name in self._storage.names(FOLDER) if claim.fullmatch(name)]
        by_begin: dict[int, dict[int, Attempt]] = {}
        contents = self._storage.read([_path(name) for name in names])
        for name in names:
            content = contents.get(_path(name))
            if content is not None:  # it may have been acknowledged just now
                decoded = decode_json(self._storage, _path(name), content, ClaimFile)
                attempt = self._attempt(incarnation, name, decoded)
                by_begin.setdefault(attempt.begin, {})[attempt.number] = attempt
        with self._lock:
            self._known[incarnation] = by_begin
        return {begin: attempts[max(attempts)] for begin, attempts in by_begin.items()}

    def last(self, incarnation: ShardIncarnation, begin: int) -> Attempt | None:
        """The last attempt at a cursor that this process knows of."""
        if incarnation not in self._known:
            self.read(incarnation)
        with self._lock:
            attempts = self._known[incarnation].get(begin)
            return attempts[max(attempts)] if attempts else None

    def before(self, incarnation: ShardIncarnation, cursor: int) -> list[Attempt]:
        """All attempts of ranges that begin before a cursor, in ascending order."""
        if incarnation not in self._known:
            self.read(incarnation)
        with self._lock:
            claims = self._known[incarnation]
            return sorted(attempt for begin in claims if begin < cursor for attempt in claims[begin].values())

    def claim(
        self, create_as: CreateRecords, places: Iterable[tuple[ShardIncarnation, int, int]]
    ) -> Iterator[Attempt]:
        """Make the attempts of these shards, cursors and numbers, each unless it exists; `create_as` creates
        records with the `ClaimFile` of a batch. Yields the attempts that are there afterwards, perhaps of
        another batch. Raises `OSError` if that is not known."""
        named = [(i, begin, number, f"{_prefix(i)}{begin}-{number}") for i, begin, number in places]
        contents = create_as([_path(name) for *_, name in named])
        for (incarnation, begin, number, name), content in zip(named, contents, strict=True):
            claim = decode_json(self._storage, _path(name), content, ClaimFile)
            attempt = self._attempt(incarnation, name, claim)
            with self._lock:
                self._known.setdefault(incarnation, {}).setdefault(begin, {})[number] = attempt
            yield attempt

    def remove(self, incarnation: ShardIncarnation, attempts: Collection[Attempt]) -> None:
        """Remove claims that have no meaning any more. The last attempt at each cursor is removed last, so
        that it stays in effect if the process ends midway."""
        last = {attempt.begin: attempt for attempt in sorted(attempts)}
        earlier = [attempt for attempt in attempts if attempt != last[attempt.begin]]
        for removed in (earlier, list(last.values())):
            if removed:
                self._storage.remove([_path(claim_name(incarnation, attempt)) for attempt in removed])
                self._forget(incarnation, removed)

    def _forget(self, incarnation: ShardIncarnation, attempts: Iterable[Attempt]) -> None:
        with self._lock:
            claims = self._known[incarnation]
            for attempt in attempts:
                claims.get(attempt.begin, {}).pop(attempt.number, None)
                if not claims.get(attempt.begin):
                    claims.pop(attempt.begin, None)

    def existing(self, names: Collection[str]) -> frozenset[str]:
        """The claims among these that are not yet removed."""
        paths = {_path(name): name for name in names}
        return frozenset(paths[path] for path in self._storage.existing(paths.keys()))

    def _attempt(self, incarnation: ShardIncarnation, name: str, content: ClaimFile) -> Attempt:
        begin, number = (int(part) for part in name.removeprefix(_prefix(incarnation)).split("-"))
        key = (incarnation.shard, incarnation.created, begin)
        end = next((row[3] for row in content.ranges if row[:3] == key), None)
        if end is None:
            raise damaged(self._storage, _path(name), f"it has no range from cursor {begin} on")
        return Attempt(begin=begin, number=number, batch=content.batch, end=end)


def claim_name(incarnation: ShardIncarnation, attempt: Attempt) -> str:
    """The name of a claim."""
    return f"{_prefix(incarnation)}{attempt.begin}-{attempt.number}"


def _prefix(incarnation: ShardIncarnation) -> str:
    return f"{incarnation.shard}-{incarnation.created}-"


def _path(name: str) -> str:
    return f"{FOLDER}/{name}"


class ShardOpenings:
    """The openings in one storage, which several workers use at the same time. Thread-safe."""

    def __init__(self, storage: LogStorage) -> None:
        self._storage = storage
        self._ours: dict[ShardIncarnation, str] = {}

    def open(self, incarnation: ShardIncarnation) -> None:
        """Open a shard; a worker that opened it before can no longer deliver it. Raises `OSError`."""
        self._ours[incarnation] = self._storage.open(_name(incarnation))

    def ours(self, incarnations: Iterable[ShardIncarnation]) -> Mapping[ShardIncarnation, str | None]:
        """The tokens of this worker's last openings of these shards; None if it opened none."""
        return {incarnation: self._ours.get(incarnation) for incarnation in incarnations}

    def lost(self, openings: Mapping[ShardIncarnation, str | None]) -> ShardIncarnation | None:
        """One of these shards that was opened since, by any worker, if there is any. Raises `OSError`."""
        last = self._storage.last_openings(map(_name, openings))
        for incarnation, token in openings.items():
            if token is None or last.get(_name(incarnation)) != token:
                return incarnation
        return None


def _name(incarnation: ShardIncarnation) -> str:
    return f"{incarnation.shard}-{incarnation.created}"
