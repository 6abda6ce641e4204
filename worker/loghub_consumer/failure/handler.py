"""Carries out the failure policy: passes retries to the source, keeps the journal, writes the dead letter.
The query's thread reports the outcomes of batches; other threads read the state for the status and the
metrics.

A batch may end its process: memory runs out, or user code hangs and cannot be cancelled. The next process
would read the same logs and end as well, forever. So a file in the worker's state directory, the journal, has
the ranges of the running batch, the failing ranges and the skips. A worker that stops in order removes it.
The journal lives as long as the state directory. If that is new, as in a new pod, the next process begins
with the whole range again.
"""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Protocol

import msgspec
import structlog

from loghub.atomic_file import replace_file
from loghub.clock import Clock
from loghub.wire.cursor import encode as encode_cursor
from loghub.wire.errors import LogHubException
from loghub_consumer.batch_plan import Range
from loghub_consumer.exchange_files import ShardRetries
from loghub_consumer.failure.dead_letter import DEAD_LETTER_UNAVAILABLE, DeadLetters, Rejection
from loghub_consumer.failure.policy import (
    Cause,
    FailingRange,
    FailingShards,
    Failure,
    FailureSettings,
    PastSkips,
    RecentSkips,
    ShardTotals,
)
from loghub_consumer.log_service import ReportedError

log = structlog.get_logger()


ENDED = Failure(
    cause=Cause.ENDED,
    reason="WorkerEnded",
    message="an earlier process of this worker ended during the batch, perhaps because memory ran out",
)


class RanLogs(msgspec.Struct, frozen=True, kw_only=True):
    """Logs of one log group of a subscription, by index; None: all of them. ``attempts`` have failed because
    of these logs. They are handed over again in so many ``parts``. ``is_blamed``: the log has ended a
    process, and nobody else knows."""

    cursor: int
    only: tuple[int, ...] | None
    attempts: int
    parts: int = 1
    is_blamed: bool = False


class Journal(msgspec.Struct, frozen=True, kw_only=True):
    """The content of the file. Of a subscription, ``ran`` are the logs of the running batch, and ``ended``
    logs with which an earlier process has ended."""

    running: tuple[Range, ...] = ()
    ran: tuple[RanLogs, ...] = ()
    ended: tuple[RanLogs, ...] = ()
    failing: tuple[FailingRange, ...] = ()
    # Without these, the limits of skips would not hold for logs that end each process.
    skips: tuple[PastSkips, ...] = ()


class AttemptJournal:
    """The file. The worker works without it as well, so an error of the disk is only logged."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._last: Journal | None = None

    def read(self) -> Journal:
        """The journal of the previous process; empty if it stopped in order, or left no readable file."""
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=Journal)
        except FileNotFoundError:
            return Journal()
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
            log.warning("the journal of attempts cannot be read", message=str(error))
            return Journal()

    def write(self, journal: Journal) -> None:
        """Replace the content; an empty journal has no file."""
        if journal == self._last:
            return
        try:
            if journal == Journal():
                self._path.unlink(missing_ok=True)
            else:
                replace_file(self._path, msgspec.json.encode(journal))
        except OSError as error:
            log.warning("the journal of attempts was not written", message=str(error))
            return
        self._last = journal


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureReport:
    """The failing shards of one worker, for the status and the metrics."""

    failing: tuple[FailingRange, ...] = ()  # the shards that wait at one log group
    skips: tuple[RecentSkips, ...] = ()
    totals: Mapping[int, ShardTotals] = field(default_factory=dict)
    dead_lettered: bool = False  # whether the skipped log groups are in a dead letter

    def with_retries(self, other: "FailureReport") -> "FailureReport":
        """The report including the logs that have waited in the retry logstore. Both name the shards of the
        logstore that the group consumes."""
        totals = {shard: replace(one) for shard, one in self.totals.items()}
        for shard, counts in other.totals.items():
            totals[shard] = totals.get(shard, ShardTotals()).plus(counts)
        skips = {one.shard: one for one in self.skips}
        for skipped in other.skips:
            before = skips.get(skipped.shard, RecentSkips(shard=skipped.shard, log_groups=0, last_cursor=0))
            skips[skipped.shard] = RecentSkips(
                shard=skipped.shard,
                log_groups=before.log_groups + skipped.log_groups,
                last_cursor=max(before.last_cursor, skipped.last_cursor),
            )
        return replace(self, skips=tuple(skips[shard] for shard in sorted(skips)), totals=totals)

    @property
    def error(self) -> ReportedError:
        """The error of the first shard that waits; empty if none does."""
        if not self.failing:
            return ReportedError()
        first = self.failing[0]
        place = f"shard {first.shard} at cursor {encode_cursor(first.begin)}"
        state = f"{first.state} after {first.attempts} attempts"
        return ReportedError(first.failure.reason, f"{place}, {state}: {first.failure.message}")


class RetryExchange(Protocol):
    """How the retries reach the planner of the next batch."""

    def write_retries(self, retries: ShardRetries) -> None:
        """Publish the retries that are in effect now."""


class SettledAs(StrEnum):
    """How a log group was settled by skipping or dead-lettering it."""

    DONE = "done"  # its shard may continue after it
    EXPIRED = "expired"  # it no longer exists, so its shard may continue, too
    FAILED = "failed"  # it is not in the dead letter: the shard waits


class FailureHandler:
    """The failing shards of one worker."""

    def __init__(
        self,
        settings: FailureSettings,
        *,
        exchange: RetryExchange,
        clock: Clock,
        journal: Path,
        dead_letters: DeadLetters | None,
        random: Callable[[], float],
    ) -> None:
        self._policy = FailingShards(settings, random=random)
        self._exchange = exchange
        self._clock = clock
        self._journal = AttemptJournal(journal)
        self._dead_letters = dead_letters
        self._running: tuple[Range, ...] = ()
        self._closed = False
        self._written: ShardRetries | None = None
        self._lock = threading.Lock()
        self._restore()

    def _restore(self) -> None:
        left = self._journal.read()
        with self._lock:
            now = self._clock.monotonic_s()
            self._policy.restore(left.failing, left.skips, now=now)
            if left.running:
                log.warning("an earlier process ended during a batch", ranges=left.running)
                self._policy.failed(left.running, ENDED, now=now)
            self._store()

    # -- the query's thread

    def begin(self, ranges: tuple[Range, ...]) -> FailingRange | None:
        """A batch of these ranges begins. Returns the log group that it must skip or dead-letter instead of
        reading it; None if there is none."""
        with self._lock:
            self._running = ranges
            self._store()
            return self._policy.to_settle(ranges)

    def end(self) -> None:
        """The batch has ended, whatever its outcome."""
        with self._lock:
            self._running = ()
            self._store()

    def succeeded(self, ranges: tuple[Range, ...]) -> None:
        """The sink has these ranges."""
        with self._lock:
            self._policy.succeeded(ranges, now=self._clock.monotonic_s())

    def failed(self, ranges: tuple[Range, ...], failure: Failure) -> None:
        """The batch of these ranges failed."""
        with self._lock:
            if self._closed:
                return
            self._policy.failed(ranges, failure, now=self._clock.monotonic_s())
            alone = {f.shard: f for f in self._policy.failing}[ranges[0].shard] if len(ranges) == 1 else None
        log.warning(
            "batch failed, its ranges are retried alone" if alone is None else "range failed",
            ranges=ranges,
            reason=failure.reason,
            message=failure.message,
            **({} if alone is None else {"state": alone.state, "attempts": alone.attempts}),
        )

    def write_dead_letter(self, failing: FailingRange) -> SettledAs:
        """Put the log group into the dead letter if the policy says so, and if it is not there already."""
        if self._dead_letters is None or failing.dead_lettered:
            return SettledAs.DONE
        failure = failing.failure
        rejection = Rejection(
            shard=failing.shard,
            cursor=failing.begin,
            reason=failure.reason,
            message=failure.message,
            attempts=failing.attempts,
            rejected_unix_s=self._clock.unix_s(),
        )
        try:
            if not self._dead_letters.write(rejection):
                return SettledAs.EXPIRED
        except (LogHubException, OSError) as error:
            log.warning("dead letter not written, will retry", shard=failing.shard, message=str(error))
            self._settling_failed(failing, str(error))
            return SettledAs.FAILED
        with self._lock:
            self._policy.dead_lettered(failing.shard)
        return SettledAs.DONE

    def _settling_failed(self, failing: FailingRange, message: str) -> None:
        failure = Failure(cause=failing.failure.cause, reason=DEAD_LETTER_UNAVAILABLE, message=message)
        with self._lock:
            now = self._clock.monotonic_s()
            self._policy.settling_failed(failing.shard, failure, now=now)

    def pipeline_failed(self, failing: FailingRange, failure: Failure) -> None:
        """The pipeline or the sink fails without any logs."""
        log.warning(
            "the pipeline fails without any logs, so no log group is skipped",
            reason=failure.reason,
            message=failure.message,
        )
        with self._lock:
            now = self._clock.monotonic_s()
            self._policy.pipeline_failed(failing.shard, failure, now=now)

    def settled(self, failing: FailingRange, settlement: SettledAs) -> None:
        """The shard continues after the log group."""
        with self._lock:
            now = self._clock.monotonic_s()
            if settlement is SettledAs.EXPIRED:
                self._policy.expired(failing.shard, now=now)
            else:
                self._policy.settled(failing.shard, now=now)
        done = "skipped" if self._dead_letters is None else "dead-lettered"
        log.warning(
            f"log group {done if settlement is SettledAs.DONE else settlement}",
            shard=failing.shard,
            cursor=encode_cursor(failing.begin),
            attempts=failing.attempts,
            reason=failing.failure.reason,
            message=failing.failure.message,
        )

    # -- any thread

    def give_up(self, ranges: tuple[Range, ...], failure: Failure) -> None:
        """The batch of these ranges does not end, and this process will. The next process continues from
        here, and nothing that the batch still does changes that."""
        self.failed(ranges, failure)
        with self._lock:
            self._running = ()
            self._store()
            self._closed = True

    def close(self) -> None:
        """The worker stops in order, so the next process needs no journal."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._journal.write(Journal())

    def report(self, positions: Mapping[int, int]) -> FailureReport:
        """The report on shards that are at these positions now."""
        with self._lock:
            now = self._clock.monotonic_s()
            failing = tuple(
                f for f in self._policy.failing if f.isolated and positions.get(f.shard) == f.begin
            )
            return FailureReport(
                failing=failing,
                skips=self._policy.skips.recent_skips(now),
                totals={shard: replace(totals) for shard, totals in self._policy.totals.items()},
                dead_lettered=self._dead_letters is not None,
            )

    def _store(self) -> None:
        if self._closed:
            return
        retries = ShardRetries(shards=self._policy.retries)
        if retries != self._written:
            self._exchange.write_retries(retries)
            self._written = retries
        skips = self._policy.skips.past_skips(self._clock.monotonic_s())
        self._journal.write(Journal(running=self._running, failing=self._policy.failing, skips=skips))
