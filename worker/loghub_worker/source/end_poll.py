"""Waits for new log groups of many shards with one request, where the log service has such a poll.

Instead of requesting the end of a shard, a caller lets it be watched, and hears of it once the end has
changed. A poll under way cannot be given another shard, nor can its connection be closed from another thread.
So the next one is sent in a thread of its own, under the same name, and the service ends the one before
(docs/sls-protocol.md 8). If a poll fails, nothing is watched any more, and the ends are requested as on SLS
until the next attempt.
"""

import secrets
import threading
from collections.abc import Callable, Collection, Mapping

from loghub.client.port import LogHub, Poll, ShardEnds
from loghub.clock import Clock
from loghub.wire.errors import LogHubException
from loghub_worker.backoff import Backoff, without_jitter
from loghub_worker.log_service import decode_cursor, encode_cursor

POLL_S = 20.0  # less than a client waits for the first byte of an answer
MOST_THREADS = 4  # more only if the service does not answer
FIRST_RETRY_S, LONGEST_RETRY_S = 1.0, 10.0
# After an answer without news that came early: the service stops, or a poll that was sent before came later.
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.02, 1.0
LEAST_PAUSE_S = 0.05  # after news: shards that get more all the time must not cost a poll each


class EndPoll:
    """Thread-safe. `on_news` is called, in a thread of the poll, after `take` or `watched` has changed."""

    def __init__(
        self,
        client: LogHub,
        *,
        logstore: str,
        clock: Clock,
        on_news: Callable[[], None],
        random: Callable[[], float] = without_jitter,
    ) -> None:
        self._client = client
        self._logstore = logstore
        self._clock = clock
        self._on_news = on_news
        self._name = secrets.token_hex(8)
        self._retries = Backoff(first_s=FIRST_RETRY_S, longest_s=LONGEST_RETRY_S, random=random)
        self._pauses = Backoff(first_s=FIRST_PAUSE_S, longest_s=LONGEST_PAUSE_S, random=random)
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._watched: dict[int, int | None] = {}  # with the known ends
        self._news: dict[int, int | None] = {}
        self._newest = 0  # number of the poll that must wait
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

    def watch(self, known: Mapping[int, int | None]) -> None:
        """Watch these shards too, whose ends are known to be these; None: not known."""
        with self._lock:
            if not known or (known.items() <= self._watched.items()):
                return
            self._watched |= known
            self._newest += 1
            if self._threads >= MOST_THREADS:
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
                self._news.pop(shard, None)

    def take(self) -> dict[int, int | None]:
        """What has changed since the last call: the new end of each shard, or None for one that does not
        exist. These shards are not watched any more."""
        with self._lock:
            news, self._news = self._news, {}
            return news

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
        while (known := self._next(number)) is not None:
            number, ends = known
            since_s = self._clock.monotonic_s()
            try:
                found = self._client.await_ends(self._logstore, _texts(ends), poll=self._poll())
                has_news = self._note(ends, found)
            except LogHubException:
                self._fail()
                continue
            is_early = self._clock.monotonic_s() < since_s + POLL_S / 2
            empty = empty + 1 if is_early and not has_news else 0
            self._stop.wait(self._pauses.pause_s(empty) if empty else has_news * LEAST_PAUSE_S)

    def _poll(self) -> Poll:
        # The first one after a failure only finds out whether the service is there again.
        return Poll(name=self._name, wait_s=0.0 if self._failures else POLL_S)

    def _next(self, number: int) -> tuple[int, dict[int, int | None]] | None:
        """What the thread of this poll asks for next; None: nothing, and it ends."""
        with self._lock:
            if self._is_unsent:
                self._is_unsent, number = False, self._newest
            if number == self._newest and self._watched and not self._stop.is_set():
                return number, dict(self._watched)
            self._threads -= 1
            return None

    def _note(self, known: Mapping[int, int | None], found: Collection[ShardEnds]) -> bool:
        ends = {one.shard: decode_cursor(one.end) for one in found}
        with self._lock:
            self.answers += 1
            self._failures = 0
            changed = [
                shard
                for shard, end in known.items()
                if ends.get(shard) != end or shard not in ends
                if shard in self._watched and self._watched[shard] == end
            ]
            for shard in changed:
                del self._watched[shard]
                self._news[shard] = ends.get(shard)
        if changed:
            self._on_news()
        return bool(changed)

    def _fail(self) -> None:
        with self._lock:
            self._failures += 1
            self._not_before_s = self._clock.monotonic_s() + self._retries.pause_s(self._failures)
            self._watched.clear()
        self._on_news()


def _texts(ends: Mapping[int, int | None]) -> dict[int, str]:
    return {shard: "" if end is None else encode_cursor(end) for shard, end in ends.items()}
