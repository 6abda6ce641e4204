"""The end cursors of the shards, requested no more often than needed.

The source must know an end to plan a batch, and an idle Spark query asks it for a plan many times a second
(docs/spark.md 5).

A shard whose end lies before its position has nothing to read and looks idle, but it is not: the log service
has lost logs that were consumed already, or was restored. This is recognized only when an end was just
requested, because a shard that was lost and assigned again may be ahead of an end that is merely old. For the
same reason the end of a shard that does not advance is requested again: while a restored log service has not
that many log groups, every attempt to read them fails.

Where the service has polls, a shard whose end would be requested is watched by one instead
(`loghub_worker.source.end_poll`): an idle worker then has one request under way, and hears of new log
groups at once.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from loghub.client.port import LogHub
from loghub.clock import SystemClock
from loghub.wire.errors import LogHubException
from loghub_worker.log_service import ReportedError, decode_cursor, encode_cursor, to_reported_error
from loghub_worker.source.end_poll import EndPoll

PARALLEL = 16  # requests at the same time: as many connections as the client keeps
STUCK_S = 30  # how often the end of a shard is requested that does not advance although it has log groups
POSITION_BEYOND_END = "PositionBeyondEnd"


class EndWatch:
    """Remembers the end cursors of the held shards, and requests an end again once everything before it is
    read, or if the shard does not advance."""

    def __init__(
        self,
        client: LogHub,
        *,
        logstore: str,
        interval_s: float,
        waits: bool = False,
        on_news: Callable[[], None] = lambda: None,
    ) -> None:
        """`waits`: log groups are left waiting on purpose, so an end grows old before they are read.
        `on_news` is called, by another thread, when `ends` may have something new without a request."""
        self._poll = EndPoll(client, logstore=logstore, clock=SystemClock(), on_news=on_news)
        # Shards that a poll did not find, or whose end it found before their position; a request says why.
        self._to_request: set[int] = set()
        self._answers = 0  # of the poll, when a request failed last
        self._waits = waits
        self._client = client
        self._logstore = logstore
        self._interval_s = interval_s
        self._pool = ThreadPoolExecutor(PARALLEL, thread_name_prefix="end")  # starts threads when needed
        self._requested_s: dict[int, float] = {}
        self._seen: dict[int, tuple[int, float]] = {}  # shard -> its position, and since when it is there
        self.known: dict[int, int] = {}
        self._failure = ReportedError()
        self._beyond_end: dict[int, tuple[int, int]] = {}  # shard -> its position and its end

    @property
    def error(self) -> ReportedError:
        """Why some shard cannot be read now."""
        return self._failure if self._failure.reason else self._position_error()

    @property
    def beyond_end(self) -> dict[int, int]:
        """The log groups by which the positions of shards lie beyond their ends."""
        return {shard: position - end for shard, (position, end) in self._beyond_end.items()}

    def _position_error(self) -> ReportedError:
        if not self._beyond_end:
            return ReportedError()
        shard, (position, end) = min(self._beyond_end.items())
        others = f" (and {len(self._beyond_end) - 1} more shards)" if len(self._beyond_end) > 1 else ""
        return ReportedError(
            POSITION_BEYOND_END,
            f"shard {shard}{others}: the position {encode_cursor(position)} lies {position - end} log groups"
            f" beyond the shard's end {encode_cursor(end)}: the log service has lost logs that were consumed,"
            " or was restored. Log groups that are written before the position are not read; reset the"
            " checkpoints (spec.resetCheckpoints)",
        )

    def ends(self, positions: Mapping[int, int], *, now: float) -> dict[int, int]:
        """The cursor after the last log group of each shard whose end is known.

        If an end cannot be requested now, `error` is set and the old end stays; waiting loses nothing.
        """
        self._beyond_end = {
            shard: (position, end)
            for shard, (position, end) in self._beyond_end.items()
            if positions.get(shard) == position
        }
        for gone in self._requested_s.keys() - positions.keys():
            self.known.pop(gone, None)
            del self._requested_s[gone]
            self._to_request.discard(gone)
            self._poll.forget((gone,))
            self._failure = ReportedError()  # perhaps of this shard; others set it again when requested
        self._take_news(positions, now=now)
        arrived = {shard: (position, now) for shard, position in positions.items()}
        stays = {shard: seen for shard, seen in self._seen.items() if seen[0] == positions.get(shard)}
        self._seen = arrived | stays
        due = self._request_or_watch(positions, now=now)
        self._request_all(due, positions, now=now)
        return dict(self.known)

    def ends_of_now(self, positions: Mapping[int, int], *, now: float) -> dict[int, int] | None:
        """As `ends`, which was called just before, but each as of now; None if one cannot be requested."""
        watched = self._poll.watched
        self._request_all([shard for shard in sorted(positions) if shard not in watched], positions, now=now)
        is_known = not self._failure.reason and positions.keys() <= self.known.keys()
        return dict(self.known) if is_known else None

    def note_failure(self, error: LogHubException) -> None:
        """Another request about the shards has failed."""
        self._failure, self._answers = to_reported_error(error), self._poll.answers

    def _request_all(self, due: Sequence[int], positions: Mapping[int, int], *, now: float) -> None:
        if due:
            self._failure = ReportedError()
        for at_once in (due[first : first + PARALLEL] for first in range(0, len(due), PARALLEL)):
            self._requested_s |= dict.fromkeys(at_once, now)
            for shard, end in zip(at_once, self._pool.map(self._request, at_once), strict=True):
                self._note(shard, end, position=positions[shard])
            if self._failure.reason == "EndpointUnreachable":
                break  # requests for the others would fail after the same wait

    def _take_news(self, positions: Mapping[int, int], *, now: float) -> None:
        if self._failure.reason and self._poll.answers > self._answers:
            self._failure = ReportedError()
        for shard, end in self._poll.take().items():
            if shard not in positions:
                continue
            if end is None or end < positions[shard]:
                # An end from before a pause of this process may be older than the position, too.
                self._to_request.add(shard)
                self._requested_s.pop(shard, None)
            else:
                self._requested_s[shard] = now
                self._note(shard, end, position=positions[shard])

    def _request_or_watch(self, positions: Mapping[int, int], *, now: float) -> list[int]:
        """The shards whose ends to request now. Those of which a poll will tell are watched by it."""
        watched = self._poll.watched
        due = [
            shard
            for shard, position in sorted(positions.items())
            if shard not in watched and self._is_due(shard, position, now)
        ]
        if not due or not self._poll.is_usable():
            return due
        to_watch = [shard for shard in due if shard not in self._to_request]
        self._requested_s |= dict.fromkeys(to_watch, now)
        self._poll.watch({shard: self.known.get(shard) for shard in to_watch})
        return [shard for shard in due if shard in self._to_request]

    def _is_due(self, shard: int, position: int, now: float) -> bool:
        requested_s = self._requested_s.get(shard)
        if requested_s is None:
            return True
        if self.known.get(shard, position) > position and not self._waits:
            return now >= max(requested_s, self._seen[shard][1]) + STUCK_S
        return now >= requested_s + self._interval_s

    def _request(self, shard: int) -> int | ReportedError:
        try:
            return decode_cursor(self._client.get_cursor(self._logstore, shard, "end"))
        except LogHubException as error:
            return to_reported_error(error)

    def _note(self, shard: int, end: int | ReportedError, *, position: int) -> None:
        if isinstance(end, ReportedError):
            self._failure, self._answers = end, self._poll.answers
            return
        self._to_request.discard(shard)
        self.known[shard] = end
        if end < position:
            self._beyond_end[shard] = (position, end)
        else:
            self._beyond_end.pop(shard, None)
