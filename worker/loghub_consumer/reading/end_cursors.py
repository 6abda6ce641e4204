"""The end cursors of the shards, requested no more often than needed, and new log groups of many shards
awaited with one request, where the log service has such a poll.

The source must know an end to plan a batch, and an idle Spark query requests a plan many times a second
(docs/spark.md 5).

A shard whose end lies before its position has nothing to read and looks idle, but it is not: the log service
has lost logs that were consumed already, or was restored. This is recognized only when an end was just
requested, because a shard that was lost and assigned again may be ahead of an end that is merely old. For the
same reason the end of a shard that does not advance is requested again: until a restored log service has that
many log groups, every attempt to read them fails.

Where the service has polls, a poll (`EndPoll`) watches the shards whose ends would be requested: an idle
worker then has one request under way, and learns of new log groups at once. A poll under way cannot be given
another shard, nor can its connection be closed from another thread. So the next one is sent in a thread of
its own, under the same name, and the service ends the one before (docs/sls-protocol.md 8). If a poll fails,
nothing is watched any more, and the ends are requested as on SLS until the next attempt.
"""

import secrets
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from loghub.backoff import Backoff, without_jitter
from loghub.client.port import LogHub, Poll, ShardEnds
from loghub.clock import Clock, SystemClock
from loghub.wire.cursor import decode as decode_cursor
from loghub.wire.cursor import encode as encode_cursor
from loghub.wire.errors import LogHubException
from loghub_consumer.log_service import ReportedError, to_reported_error

POLL_S = 20.0  # less than a client waits for the first byte of an answer
MAX_THREADS = 4  # more only if the service does not answer
FIRST_RETRY_S, MAX_RETRY_S = 1.0, 10.0
# After an early answer without a change: the service stops, or an earlier poll arrived later.
FIRST_PAUSE_S, MAX_PAUSE_S = 0.02, 1.0
MIN_PAUSE_S = 0.05  # after a change: shards that get log groups all the time must not cost a poll each


class EndPoll:
    """Watches the ends of shards. Thread-safe. `on_change` is called, in a thread of the poll, after the
    result of `take` or `watched` has changed."""

    def __init__(
        self,
        client: LogHub,
        *,
        logstore: str,
        clock: Clock,
        on_change: Callable[[], None],
        random: Callable[[], float] = without_jitter,
    ) -> None:
        self._client = client
        self._logstore = logstore
        self._clock = clock
        self._on_change = on_change
        self._name = secrets.token_hex(8)
        self._retries = Backoff(first_s=FIRST_RETRY_S, max_s=MAX_RETRY_S, random=random)
        self._pauses = Backoff(first_s=FIRST_PAUSE_S, max_s=MAX_PAUSE_S, random=random)
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._watched: dict[int, int | None] = {}  # with the known ends
        self._changed_ends: dict[int, int | None] = {}
        self._newest = 0  # the number of the poll that must wait
        self._threads = 0
        self._is_unsent = False  # there were too many threads for the newest poll
        self._failures = 0  # consecutive
        self._not_before_s = float("-inf")
        self.answers = 0

    @property
    def watched(self) -> frozenset[int]:
        with self._lock:
            return frozenset(self._watched)

    def is_usable(self) -> bool:
        """Whether shards may be watched: the service has polls, and the last one did not fail just now."""
        if self._stop.is_set() or self._clock.monotonic_s() < self._not_before_s:
            return False
        try:
            return self._client.has_polls()
        except LogHubException:
            self._fail()
            return False

    def watch(self, known_ends: Mapping[int, int | None]) -> None:
        """Watch these shards too, whose ends are known to be these; None: not known."""
        with self._lock:
            if not known_ends or (known_ends.items() <= self._watched.items()):
                return
            self._watched |= known_ends
            self._newest += 1
            if self._threads >= MAX_THREADS:
                self._is_unsent = True
                return
            self._threads += 1
            number = self._newest
        threading.Thread(target=self._run, args=(number,), name="end-poll", daemon=True).start()

    def forget(self, shards: Collection[int]) -> None:
        """Watch these shards no longer. The poll under way does so until it ends."""
        with self._lock:
            for shard in shards:
                self._watched.pop(shard, None)
                self._changed_ends.pop(shard, None)

    def take(self) -> dict[int, int | None]:
        """The changes since the last call: the new end of each shard, or None for a shard that does not
        exist. These shards are not watched any more."""
        with self._lock:
            changed, self._changed_ends = self._changed_ends, {}
            return changed

    def stop(self) -> None:
        """Send no further poll. One that is under way ends by itself."""
        self._stop.set()
        with self._lock:
            self._watched.clear()

    def _run(self, number: int) -> None:
        try:
            self._send_all(number)
        except BaseException:  # not an error of the service: callers must not wait for this thread
            self._fail()
            with self._lock:
                self._threads -= 1
            raise

    def _send_all(self, number: int) -> None:
        empty = 0
        while (known_ends := self._next(number)) is not None:
            number, ends = known_ends
            since_s = self._clock.monotonic_s()
            try:
                answer = self._client.await_ends(self._logstore, _texts(ends), poll=self._poll())
                has_changed = self._note(ends, answer)
            except LogHubException:
                self._fail()
                continue
            is_early = self._clock.monotonic_s() < since_s + POLL_S / 2
            empty = empty + 1 if is_early and not has_changed else 0
            self._stop.wait(self._pauses.pause_s(empty) if empty else has_changed * MIN_PAUSE_S)

    def _poll(self) -> Poll:
        # The first one after a failure only finds out whether the service is there again.
        return Poll(name=self._name, wait_s=0.0 if self._failures else POLL_S)

    def _next(self, number: int) -> tuple[int, dict[int, int | None]] | None:
        """The number and the watched ends of the next poll of this thread; None: the thread ends."""
        with self._lock:
            if self._is_unsent:
                self._is_unsent, number = False, self._newest
            if number == self._newest and self._watched and not self._stop.is_set():
                return number, dict(self._watched)
            self._threads -= 1
            return None

    def _note(self, known_ends: Mapping[int, int | None], answer: Collection[ShardEnds]) -> bool:
        ends = {one.shard: decode_cursor(one.end) for one in answer}
        with self._lock:
            self.answers += 1
            self._failures = 0
            changed = [
                shard
                for shard, end in known_ends.items()
                if ends.get(shard) != end or shard not in ends
                if shard in self._watched and self._watched[shard] == end
            ]
            for shard in changed:
                del self._watched[shard]
                self._changed_ends[shard] = ends.get(shard)
        if changed:
            self._on_change()
        return bool(changed)

    def _fail(self) -> None:
        with self._lock:
            self._failures += 1
            self._not_before_s = self._clock.monotonic_s() + self._retries.pause_s(self._failures)
            self._watched.clear()
        self._on_change()


def _texts(ends: Mapping[int, int | None]) -> dict[int, str]:
    return {shard: "" if end is None else encode_cursor(end) for shard, end in ends.items()}


PARALLEL = 16  # requests at the same time: as many connections as the client keeps
STUCK_S = 30  # how often to request the end of a shard that does not advance although it has log groups
POSITION_BEYOND_END = "PositionBeyondEnd"


class EndWatch:
    """Remembers the end cursors of the held shards, and requests an end again once all log groups before it
    are read, or if the shard does not advance."""

    def __init__(
        self,
        client: LogHub,
        *,
        logstore: str,
        interval_s: float,
        waits: bool = False,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        """`waits`: log groups are left waiting on purpose, so an end grows old before they are read.
        `on_change` is called, by another thread, when `ends` may have something new without a request."""
        self._poll = EndPoll(client, logstore=logstore, clock=SystemClock(), on_change=on_change)
        # Shards that a poll did not find, or whose end it found before their position; a request says why.
        self._to_request: set[int] = set()
        self._answers = 0  # the number of answers of the poll when a request failed last
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
        """The ends of `ends`, which was called just before, all requested at this moment; None if one cannot
        be requested."""
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
        """The shards whose ends to request now. The poll watches the other ones."""
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
