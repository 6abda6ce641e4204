"""Which worker opened a shard last: only that one may deliver it.

Two workers can believe that they hold a shard: the service may have given it away while the session of the
first was still good, because the copy of an earlier heartbeat arrived late (docs/decisions/domain.md).
"""

from collections.abc import Iterable, Mapping

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
