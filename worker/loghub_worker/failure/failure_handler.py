"""Carries out the failure policy: passes retries to the source, keeps the journal, writes the dead letter.

The query's thread reports the outcomes of batches; the status and the metrics are read from other threads.
"""

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Protocol

import structlog

from loghub.clock import Clock
from loghub.wire.errors import LogHubException
from loghub_worker.batch_plan import Range
from loghub_worker.exchange_files import Retries
from loghub_worker.failure.attempt_journal import ENDED, AttemptJournal, Journal
from loghub_worker.failure.dead_letter import DEAD_LETTER_UNAVAILABLE, DeadLetters, Rejection
from loghub_worker.failure.failure_policy import FailingRange, FailurePolicy
from loghub_worker.failure.failure_report import FailureReport
from loghub_worker.failure.skip_limits import Failure, FailureSettings
from loghub_worker.log_service import encode_cursor

log = structlog.get_logger()


class RetryExchange(Protocol):
    """How the retries reach what plans the next batch."""

    def write_retries(self, retries: Retries) -> None:
        """These are in effect now."""


class Settlement(StrEnum):
    """What became of a log group that is skipped or dead-lettered."""

    DONE = "done"  # its shard may continue after it
    EXPIRED = "expired"  # it no longer exists, so its shard may continue too
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
        self._policy = FailurePolicy(settings, random=random)
        self._exchange = exchange
        self._clock = clock
        self._journal = AttemptJournal(journal)
        self._dead_letters = dead_letters
        self._running: tuple[Range, ...] = ()
        self._closed = False
        self._written: Retries | None = None
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
        reading it, if there is one."""
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

    def write_dead_letter(self, failing: FailingRange) -> Settlement:
        """Put the log group into the dead letter if the policy says so, and if it is not there already."""
        if self._dead_letters is None or failing.dead_lettered:
            return Settlement.DONE
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
                return Settlement.EXPIRED
        except (LogHubException, OSError) as error:
            log.warning("dead letter not written, will retry", shard=failing.shard, message=str(error))
            self._settling_failed(failing, str(error))
            return Settlement.FAILED
        with self._lock:
            self._policy.dead_lettered(failing.shard)
        return Settlement.DONE

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

    def settled(self, failing: FailingRange, settlement: Settlement) -> None:
        """The shard continues after the log group."""
        with self._lock:
            now = self._clock.monotonic_s()
            if settlement is Settlement.EXPIRED:
                self._policy.expired(failing.shard, now=now)
            else:
                self._policy.settled(failing.shard, now=now)
        done = "skipped" if self._dead_letters is None else "dead-lettered"
        log.warning(
            f"log group {done if settlement is Settlement.DONE else settlement}",
            shard=failing.shard,
            cursor=encode_cursor(failing.begin),
            attempts=failing.attempts,
            reason=failing.failure.reason,
            message=failing.failure.message,
        )

    # -- any thread

    def give_up(self, ranges: tuple[Range, ...], failure: Failure) -> None:
        """The batch of these ranges does not end, and this process will. The next one continues from here,
        and nothing that the batch still does changes that."""
        self.failed(ranges, failure)
        with self._lock:
            self._running = ()
            self._store()
            self._closed = True

    def close(self) -> None:
        """The worker stops in order: the next process has nothing to learn from this one."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._journal.write(Journal())

    def report(self, positions: Mapping[int, int]) -> FailureReport:
        """What concerns the shards that are at these positions now."""
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
        retries = Retries(shards=self._policy.retries)
        if retries != self._written:
            self._exchange.write_retries(retries)
            self._written = retries
        skips = self._policy.skips.past_skips(self._clock.monotonic_s())
        self._journal.write(Journal(running=self._running, failing=self._policy.failing, skips=skips))
