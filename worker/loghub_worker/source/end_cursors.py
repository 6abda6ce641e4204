"""The end cursors of the shards, requested no more often than needed.

The source must know an end to plan a batch, and an idle Spark query asks it for a plan many times a second
(docs/spark.md 5).
"""

from collections.abc import Mapping

from loghub.client.port import LogHub
from loghub.wire.errors import LogHubException
from loghub_worker.log_service import ReportedError, decode_cursor, to_reported_error


class EndWatch:
    """Remembers the end cursors of the held shards, and requests an end again once everything before it is
    read."""

    def __init__(self, client: LogHub, *, logstore: str, interval_s: float) -> None:
        self._client = client
        self._logstore = logstore
        self._interval_s = interval_s
        self._requested_s: dict[int, float] = {}
        self.known: dict[int, int] = {}
        self.error = ReportedError()

    def ends(self, positions: Mapping[int, int], *, now: float) -> dict[int, int]:
        """The cursor after the last log group of each shard whose end is known.

        If an end cannot be requested now, `error` is set and the old end stays; waiting loses nothing.
        """
        for gone in self._requested_s.keys() - positions.keys():
            self.known.pop(gone, None)
            del self._requested_s[gone]
            self.error = ReportedError()  # perhaps of this shard; others set it again when requested
        due = [shard for shard, position in sorted(positions.items()) if self._is_due(shard, position, now)]
        if due:
            self.error = ReportedError()
        for shard in due:
            self._requested_s[shard] = now
            self._request(shard)
            if self.error.reason == "EndpointUnreachable":
                break  # requests for the others would fail after the same wait
        return dict(self.known)

    def _is_due(self, shard: int, position: int, now: float) -> bool:
        if self.known.get(shard, position) > position:
            return False
        requested_s = self._requested_s.get(shard)
        return requested_s is None or now >= requested_s + self._interval_s

    def _request(self, shard: int) -> None:
        try:
            self.known[shard] = decode_cursor(self._client.get_cursor(self._logstore, shard, "end"))
        except LogHubException as error:
            self.error = to_reported_error(error)
