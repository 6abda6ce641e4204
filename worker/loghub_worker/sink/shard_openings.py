"""Which worker opened a shard last: only that one may deliver it.

Two workers can believe that they hold a shard: the service may have given it away while the session of the
first was still good, because the copy of an earlier heartbeat arrived late (docs/decisions/domain.md).
"""

from collections.abc import Iterable

from loghub_worker.sink.log_storage import LogStorage
from loghub_worker.sink.range_claims import ShardIncarnation


class ShardOpenings:
    """The openings in one storage, which several workers use at the same time. Thread-safe."""

    def __init__(self, storage: LogStorage) -> None:
        self._storage = storage
        self._ours: dict[ShardIncarnation, str] = {}

    def open(self, incarnation: ShardIncarnation) -> None:
        """Open a shard; a worker that opened it before can no longer deliver it. Raises `OSError`."""
        self._ours[incarnation] = self._storage.open(_name(incarnation))

    def lost(self, incarnations: Iterable[ShardIncarnation]) -> ShardIncarnation | None:
        """One of these shards that another worker has opened since this worker did, if there is any. Raises
        `OSError`."""
        asked = list(incarnations)
        last = self._storage.last_openings(map(_name, asked))
        for incarnation in asked:
            ours = self._ours.get(incarnation)
            if ours is None or last.get(_name(incarnation)) != ours:
                return incarnation
        return None


def _name(incarnation: ShardIncarnation) -> str:
    return f"{incarnation.shard}-{incarnation.created}"
