"""How far each shard reaches, asked no oftener than needed.

What for: the source must know an end to plan a batch, and Spark asks it many times a second when
idle (docs/spark.md 5). What it must not know: Spark, files. Read next: `loghub_worker.source.datasource`.
"""

from collections.abc import Mapping

from loghub.client.port import LogHub
from loghub.wire.errors import LogHubException
from loghub_worker.log_service import ServiceError, decode_cursor, trouble_of


class EndWatch:
    """Remembers the end cursors of the held shards and asks again where all known is taken."""

    def __init__(self, hub: LogHub, *, logstore: str, interval_s: float) -> None:
        self._hub = hub
        self._logstore = logstore
        self._interval_s = interval_s
        self._asked_s: dict[int, float] = {}
        self.known: dict[int, int] = {}
        self.trouble = ServiceError()

    def ends(self, positions: Mapping[int, int], *, now: float) -> dict[int, int]:
        """Shard -> cursor after its last log group, for the shards whose end is known.

        An end that cannot be asked now leaves `trouble` and the old end: nothing is lost by waiting.
        """
        for gone in self._asked_s.keys() - positions.keys():
            self.known.pop(gone, None)
            del self._asked_s[gone]
            self.trouble = ServiceError()  # perhaps its; the others' comes back when they are asked
        due = [shard for shard, position in sorted(positions.items()) if self._is_due(shard, position, now)]
        if due:
            self.trouble = ServiceError()
        for shard in due:
            self._asked_s[shard] = now
            self._ask(shard)
            if self.trouble.reason == "EndpointUnreachable":
                break  # the others would wait in vain as long
        return dict(self.known)

    def _is_due(self, shard: int, position: int, now: float) -> bool:
        if self.known.get(shard, position) > position:
            return False
        asked_s = self._asked_s.get(shard)
        return asked_s is None or now >= asked_s + self._interval_s

    def _ask(self, shard: int) -> None:
        try:
            self.known[shard] = decode_cursor(self._hub.get_cursor(self._logstore, shard, "end"))
        except LogHubException as error:
            self.trouble = trouble_of(error)
