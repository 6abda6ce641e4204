"""Which worker opened a shard last: only that one may deliver it.

Two workers can believe that they hold a shard: the service may have given it away while the session of the
first was still good, because the copy of an earlier heartbeat arrived late (docs/decisions/domain.md). The
file ``<shard>-<created>`` has the token of the last opening. It is written in place, never replaced: NFS
shows a file's new content to everyone who opens it afterwards, but not always at once a new file under an
old name (nfs(5), close-to-open cache consistency).
"""

import os
import secrets
from pathlib import Path

from loghub_worker.sink.range_claims import ShardIncarnation

_TOKEN_BYTES = 16  # all tokens have the same length, so that one write replaces another


class ShardOpenings:
    """The openings in one folder, which several workers use at the same time. Thread-safe."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ours: dict[ShardIncarnation, bytes] = {}
        folder.mkdir(parents=True, exist_ok=True)

    def open(self, incarnation: ShardIncarnation) -> None:
        """Open a shard; a worker that opened it before can no longer deliver it. Raises `OSError`."""
        token = secrets.token_hex(_TOKEN_BYTES).encode()
        handle = os.open(self._path(incarnation), os.O_WRONLY | os.O_CREAT, 0o666)
        try:
            os.pwrite(handle, token, 0)
            os.ftruncate(handle, len(token))  # it may be a foreign or damaged file
        finally:
            os.close(handle)
        self._ours[incarnation] = token

    def is_last(self, incarnation: ShardIncarnation) -> bool:
        """Whether nobody has opened the shard since this worker did. Raises `OSError`."""
        try:
            return self._path(incarnation).read_bytes() == self._ours.get(incarnation)
        except FileNotFoundError:
            return False

    def _path(self, incarnation: ShardIncarnation) -> Path:
        return self._folder / f"{incarnation.shard}-{incarnation.created}"
