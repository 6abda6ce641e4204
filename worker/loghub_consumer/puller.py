"""Pulls log groups, with a bounded number of requests in flight, for whichever shard is due; and lets the log
service report new log groups of a shard, if it can, in place of pulls at its end.

A shard whose pull is due although the last one has reached its end is parked (`held_shard.parked`), and
watched by a poll (`loghub_consumer.reading.end_cursors`) until there are new log groups. If polls fail, all
shards are pulled at the fetch interval, as on SLS, until the next attempt.
"""

import math
import threading
from collections.abc import Callable
from functools import partial

import structlog

from loghub.client.port import LogHub, PackedPull
from loghub.wire.cursor import decode as decode_cursor
from loghub.wire.cursor import encode as encode_cursor
from loghub.wire.errors import Code, LogHubError, LogHubException
from loghub_consumer import held_shard
from loghub_consumer.batch import PulledBody
from loghub_consumer.held_shard import Pull, PullResult
from loghub_consumer.log_context import inherited
from loghub_consumer.log_service import ReportedError, to_reported_error
from loghub_consumer.membership.turns import Turn
from loghub_consumer.program_parts import ProgramParts
from loghub_consumer.reading.answers import ShortReadError
from loghub_consumer.reading.end_cursors import POSITION_BEYOND_END, EndPoll
from loghub_consumer.settings import ConsumerSettings
from loghub_consumer.shard_table import HeldShardEntry, ShardTable

log = structlog.get_logger()


STEP_S = 1.0  # how often it is checked whether polls work again
PAUSE_S = 0.05  # time in which shards are collected that are parked one after the other


class ArrivalWatch:
    """One thread; the poll has its own."""

    def __init__(
        self, table: ShardTable, client: LogHub, *, logstore: str, random: Callable[[], float]
    ) -> None:
        self._table = table
        self._changed = threading.Event()
        self._stop = threading.Event()
        self._poll = EndPoll(
            client, logstore=logstore, clock=table.clock, on_change=self._changed.set, random=random
        )
        self._thread = threading.Thread(target=inherited(self._run), name="arrivals", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._changed.set()
        self._poll.stop()

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self._step()
                if self._changed.wait(STEP_S):
                    self._changed.clear()
        except BaseException as failure:
            self._table.fail(failure)
            raise

    def _step(self) -> None:
        is_usable = self._poll.is_usable()
        for shard in self._poll.take():
            self._table.arrived(shard)
        parked = self._table.parked(self._changed.set if is_usable else None)
        watched = self._poll.watched
        self._poll.forget(watched - parked.keys())
        if parked.keys() - watched:
            self._poll.watch(parked)
            self._stop.wait(PAUSE_S)


class Puller:
    """Pulls for every shard of the table. One of its turns is on duty: it waits for the time of the next
    pull, and lets another turn wait once it has one."""

    def __init__(
        self, table: ShardTable, client: LogHub, settings: ConsumerSettings, parts: ProgramParts
    ) -> None:
        self._table = table
        self._client = client
        self._logstore = settings.logstore
        self._query = settings.query or None
        self._fetch_interval_s = settings.fetch_interval_s
        self._min_interval_s = parts.min_interval_s
        self._max_bytes = settings.max_bytes
        self._counts_logs = settings.max_logs is not None
        # Their log groups are kept one by one.
        self._divides = settings.acknowledge == "log" or settings.is_of_retries
        self._threads = parts.requests
        self._max_pulls = settings.max_pulls
        self._lock = threading.Lock()  # guards all fields below; nothing else is done under it
        self._turns: dict[int, Turn] = {}
        self._on_duty: int | None = None
        self._off_duty: set[int] = set()
        self._stopped = False

    def start(self) -> None:
        self._table.call_on_pull(self._wake)
        for number in range(self._max_pulls):
            turn = self._threads.start(f"pull-{number}", partial(self._take_turn, number))
            with self._lock:
                self._turns[number] = turn
        self._wake()

    def stop(self) -> None:
        """Begin no further pull; the pulls in flight end by themselves."""
        self._table.stop_pulls()
        with self._lock:
            self._stopped = True
            turns = tuple(self._turns.values())
        for turn in turns:
            turn.wake()

    def _wake(self) -> None:
        """Let the turn on duty look again, or another one if there is none."""
        with self._lock:
            number = self._on_duty if self._on_duty is not None else next(iter(self._off_duty), None)
            turn = None if number is None else self._turns.get(number)
        if turn is not None:
            turn.wake()

    def _take_turn(self, number: int) -> float | None:
        with self._lock:
            if self._stopped:
                return None
            if self._on_duty not in (None, number):
                self._off_duty.add(number)
                return math.inf
            self._on_duty = number
            self._off_duty.discard(number)
        try:
            due = self._table.begin_pull()
            if not isinstance(due, tuple):
                return due
            with self._lock:
                self._on_duty = None
            self._wake()
            self._pull(*due)
        except BaseException as failure:
            self._table.fail(failure)
            raise
        return 0.0

    def _pull(self, entry: HeldShardEntry, pull: Pull) -> None:
        try:
            pulled = self._client.pull_packed(
                self._logstore,
                pull.shard,
                cursor=encode_cursor(pull.cursor),
                count=pull.count,
                query=self._query,
            )
            self._received(entry, pull, pulled)
        except LogHubError as error:
            if error.code != Code.INVALID_CURSOR or not self._skipped_expired(entry, pull):
                self._failed(entry, pull, self._reason_of(pull, error))
        except (LogHubException, ShortReadError) as error:
            self._failed(entry, pull, to_reported_error(error))

    def _received(self, entry: HeldShardEntry, pull: Pull, pulled: PackedPull) -> None:
        after = decode_cursor(pulled.next_cursor) if pulled.next_cursor else pull.cursor
        first = after - pulled.count
        is_expired = first > pull.cursor and self._query is None
        if first < pull.cursor:
            raise ShortReadError(
                f"an answer at cursor {pull.cursor} has {pulled.count} log groups and ends at cursor {after}"
            )
        # Which log groups a query has left out is unknown. The returned ones are numbered from the first
        # cursor on, which lies before all of them, so that a checkpoint between them passes no log.
        body = PulledBody(
            pulled.body,
            shard=pull.shard,
            first=first if self._query is None else pull.cursor,
            count=pulled.count,
            after=after,
        )
        # Here, and not under the lock of the table.
        if self._counts_logs and pulled.count:
            _ = body.decoded
        elif self._divides or body.size > self._max_bytes:
            _ = body.ends
        result = PullResult(
            groups=pulled.count,
            bytes=pulled.body.size,
            after=after,
            is_end=pulled.end_of_shard or after == pull.cursor,
        )
        if is_expired:
            self._log_expired(pull, oldest=first)
        interval_s = max(self._fetch_interval_s, self._min_interval_s())
        self._table.receive(entry, pull, result, body, interval_s=interval_s)

    def _log_expired(self, pull: Pull, *, oldest: int) -> None:
        log.warning(
            "log groups expired before they were read",
            shard=pull.shard,
            position=pull.cursor,
            log_groups=oldest - pull.cursor,
        )

    def _skipped_expired(self, entry: HeldShardEntry, pull: Pull) -> bool:
        """Whether the cursor was invalid because its log group has expired: the shard then continues with the
        oldest one."""
        try:
            oldest = decode_cursor(self._client.get_cursor(self._logstore, pull.shard, "begin"))
        except LogHubException:
            return False
        if oldest <= pull.cursor:
            return False
        self._log_expired(pull, oldest=oldest)
        entry.apply(lambda state, now: held_shard.expired(state, pull, oldest=oldest, now=now))
        return True

    def _reason_of(self, pull: Pull, error: LogHubError) -> ReportedError:
        if error.code != Code.INVALID_CURSOR:
            return to_reported_error(error)
        try:
            end = decode_cursor(self._client.get_cursor(self._logstore, pull.shard, "end"))
        except LogHubException as unknown:
            return to_reported_error(unknown)
        if pull.cursor <= end:
            return to_reported_error(error)
        return ReportedError(
            POSITION_BEYOND_END,
            f"the position {encode_cursor(pull.cursor)} lies {pull.cursor - end} log groups beyond the"
            f" shard's end {encode_cursor(end)}: the log service has lost logs that were consumed, or was"
            " restored, or the consumer sought the position. Seek to another position",
        )

    def _failed(self, entry: HeldShardEntry, pull: Pull, error: ReportedError) -> None:
        if error.reason != entry.pull_error.reason:
            log.warning(
                "shard not read, will retry", shard=pull.shard, reason=error.reason, message=error.message
            )
        entry.pull_error = error
        retries = self._table.retries
        entry.apply(lambda state, now: held_shard.pull_failed(state, retries=retries, now=now))
