"""Carries out the group's failure policy for logs that a processor has refused too often, and keeps the facts
about failed logs for the next process of a worker.

`loghub_consumer.failure` decides and writes, as for the workers on Spark. The thread of the shard waits for
the write, so that other shards continue, and its checkpoint does not pass logs that are not written. Each
shard has a journal of its own, since each has a thread: `loghub_consumer.failure.handler` describes it.
"""

import re
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import structlog
from msgspec.structs import replace as replaced

from loghub.client.port import LogHub
from loghub.clock import Clock
from loghub.contract.processor import RetryLogstore
from loghub.contract.worker import WorkerReason
from loghub.wire.cursor import encode as encode_cursor
from loghub.wire.errors import LogHubException
from loghub_consumer import held_shard
from loghub_consumer.batch import select_logs, without_last_tags
from loghub_consumer.batch_plan import Range
from loghub_consumer.ended_logs import EndedLogs, blamed, ran
from loghub_consumer.failure.dead_letter import (
    DEAD_LETTER_UNAVAILABLE,
    DeadLetterTarget,
    LogstoreTarget,
    Rejection,
    make_target,
)
from loghub_consumer.failure.handler import ENDED, AttemptJournal, FailureReport, Journal
from loghub_consumer.failure.policy import (
    Cause,
    FailingRange,
    FailingShards,
    Failure,
    WaitState,
    failure_settings,
)
from loghub_consumer.failure.retry_logstore import FIRST_TAG, RETRY_PREFIX, RetryMark
from loghub_consumer.log_service import ReportedError
from loghub_consumer.running_batches import BatchTurn, RunningBatches
from loghub_consumer.settings import ConsumerSettings, WorkerOptions, connect
from loghub_consumer.shard_table import HeldShardEntry, Kept, ShardTable, Waiting, kept_again
from loghub_consumer.unacknowledged import FINAL, TIMED_OUT, RedeliveryRules, Unsettled

log = structlog.get_logger()


FILE_NAME = re.compile(r"attempts-(\d+)\.json")


def journal_of(policy: FailingShards, shard: int, running: tuple[Range, ...] = (), *, now: float) -> Journal:
    """The facts about a shard for the next process."""
    return Journal(
        running=running,
        failing=tuple(one for one in policy.failing if one.shard == shard),
        skips=tuple(one for one in policy.skips.past_skips(now) if one.shard == shard),
    )


class ShardJournals:
    """The journals. Thread-safe; the thread of a shard writes the shard's journal."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self.ended = EndedLogs()  # under the lock of the table
        self._files: dict[int, AttemptJournal] = {}
        self._is_closed = False
        self._lock = threading.Lock()

    def restore(self, policy: FailingShards, *, ended_alone: bool, now: float) -> None:
        """Restore the policy's state from an earlier process, and note that it ended in the batches that ran.
        The end counts against the logs only if a single batch ran."""
        for path in sorted(self._folder.iterdir()):
            name = FILE_NAME.fullmatch(path.name)
            if name is None:
                continue
            shard = int(name[1])
            left = self._file(shard).read()
            policy.restore(left.failing, left.skips, now=now)
            self.ended.restore(shard, (*blamed(left.ran, ended_alone=ended_alone), *left.ended))
            for part in left.running:
                log.warning("an earlier process ended during a batch", range=part)
                if left.ran:
                    pass  # single logs, which may come in any order
                elif ended_alone:
                    policy.failed((part,), ENDED, now=now)
                else:
                    policy.suspected(part, ENDED, now=now)
            self.write(shard, replaced(journal_of(policy, shard, now=now), ended=self.ended.of(shard)))

    def write(self, shard: int, journal: Journal) -> None:
        with self._lock:
            if self._is_closed:
                return
            file = self._file(shard)
        file.write(journal)

    def close(self) -> None:
        """The worker stops in order: the next process has nothing to learn from this one."""
        with self._lock:
            self._is_closed = True
            for file in self._files.values():
                file.write(Journal())

    def _file(self, shard: int) -> AttemptJournal:
        if shard not in self._files:
            self._files[shard] = AttemptJournal(self._folder / f"attempts-{shard}.json")
        return self._files[shard]


HANG_S = 60.0  # for pauses of the policy after a batch that hung, because a consumer does not cancel batches


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureSink:
    """The policy, which all shards of a consumer share, the dead letter, and the retry logstore. Only a
    worker has `journals` and `running`."""

    policy: FailingShards
    target: DeadLetterTarget | None
    retry: RetryLogstore | None = None
    retry_target: DeadLetterTarget | None = None
    clients: tuple[LogHub, ...] = ()
    journals: ShardJournals | None = None
    running: RunningBatches | None = None

    @property
    def ended(self) -> EndedLogs | None:
        """The logs of a subscription with which processes of the worker have ended; None in a program."""
        return None if self.journals is None else self.journals.ended

    def forget(self) -> None:
        """The consumer ends in order, so no later process needs the attempts."""
        if self.journals is not None:
            self.journals.close()

    def close(self) -> None:
        for client in self.clients:
            client.close()

    def check(self) -> None:
        """Raises `OSError` if nothing can be written."""
        if self.target is not None:
            self.target.check()

    def report(self, table: ShardTable) -> FailureReport:
        """The report on shards at their present positions."""
        entries = table.working()
        with table.lock:
            positions = {shard: entry.state.position for shard, entry in entries.items()}
            alone = (one for one in self.policy.failing if one.isolated)
            failing = [one for one in alone if positions.get(one.shard) == one.begin]
            waiting = (entry.waiting for entry in entries.values() if entry.waiting is not None)
            failing += [one.failing for one in waiting if not one.logs.is_gone]
            return FailureReport(
                failing=tuple(failing),
                skips=self.policy.skips.recent_skips(table.clock.monotonic_s()),
                totals={shard: replace(totals) for shard, totals in self.policy.totals.items()},
                dead_lettered=self.target is not None,
            )


def make_failure_sink(
    settings: ConsumerSettings, worker: WorkerOptions | None, clock: Clock, *, random: Callable[[], float]
) -> FailureSink | None:
    """The failure sink of a consumer. None with the policy ``Retry`` where processors run in this process:
    nothing is divided or settled then. Raises `OSError` if the journals have no place."""
    if settings.on_failure.policy == "Retry" and worker is None:
        return None
    hang_s = HANG_S if worker is None else worker.batch_timeout_s
    rules = failure_settings(settings.on_failure, batch_timeout_s=hang_s)
    if settings.is_of_retries:
        rules = replace(rules, max_consecutive=None)
    journals = None
    if worker is not None:
        rules = replace(rules, restart_s=worker.restart_s)
    if worker is not None and worker.state_dir is not None:
        journals = ShardJournals(worker.state_dir)
    policy = FailingShards(rules, random=random)
    if worker is not None and journals is not None:
        journals.restore(policy, ended_alone=worker.running.ended_alone, now=clock.monotonic_s())
    clients: list[LogHub] = []

    def connected(project: str) -> LogHub:
        clients.append(connect(settings, project=project))
        return clients[-1]

    target, retry_target, retry = None, None, settings.retry
    if settings.on_failure.dead_letter is not None:
        target = make_target(settings.on_failure.dead_letter, settings.origin, connected)
    if retry is not None:
        client = connected(settings.project)
        retry_target = LogstoreTarget(client, retry.logstore, settings.origin, prefix=RETRY_PREFIX)
    return FailureSink(
        policy=policy,
        target=target,
        retry=retry,
        retry_target=retry_target,
        clients=tuple(clients),
        journals=journals,
        running=None if worker is None else worker.running,
    )


class Settlement:
    """Settles the logs of one assignment of a shard; used by its thread only."""

    def __init__(self, entry: HeldShardEntry, sink: FailureSink, rules: RedeliveryRules) -> None:
        self._entry = entry
        self._shard = entry.state.shard
        self._sink = sink
        self._rules = rules
        self._running: BatchTurn | None = None

    # -- what the next process must know, and what runs with it

    def begin(self, kept: Kept) -> bool:
        """The logs of `kept` are processed, or settled, next. Logs that may have ended a process wait until
        nothing else runs in the worker. False if the shard was given up meanwhile."""
        if self._sink.running is not None:
            self._running = self._sink.running.begin(self._stays, alone=self._is_suspect(kept))
            if self._running is None:
                return False
        is_subscribed = self._entry.unacknowledged.deliveries is not None
        again = (kept.again or ()) if is_subscribed else ()
        self._write_journal((Range(self._shard, kept.batch.begin, kept.batch.end),), again)
        return True

    def _stays(self) -> bool:
        return not self._entry.is_given_up

    def end(self) -> None:
        """The batch has ended."""
        self._write_journal(())
        if self._sink.running is not None and self._running is not None:
            self._sink.running.end(self._running)

    @property
    def was_alone(self) -> bool:
        """Whether no other batch has run in the worker since this one began."""
        return self._running is None or self._running.was_alone

    def _is_suspect(self, kept: Kept) -> bool:
        with self._entry.lock:
            if kept.again is None:
                return self._sink.policy.is_suspect(self._shard, kept.batch.begin)
            return any(one.is_suspect and _has_ended_a_process(one) for one in kept.again)

    def _write_journal(self, running: tuple[Range, ...], again: Sequence[Unsettled] = ()) -> None:
        journals = self._sink.journals
        if journals is None:
            return
        with self._entry.lock:
            now = self._entry.now_s
            journals.ended.began(self._shard, again)
            journal = journal_of(self._sink.policy, self._shard, running, now=now)
            journal = replaced(journal, ran=ran(again), ended=journals.ended.of(self._shard))
        journals.write(self._shard, journal)

    # -- logs that come again

    def settle(self, kept: Kept, again: Sequence[Unsettled]) -> Kept | None:
        """Settle the logs that were refused too often. Returns the logs that must be handed over now."""
        with self._entry.lock:
            for mark in (one.mark for one in again if one.failure is not None):
                self._sink.policy.refused(self._shard_of(mark))
        left = [one for one in again if not self._has_settled(one)]
        with self._entry.lock:  # any thread may acknowledge them
            left = [one for one in left if not one.is_gone]
            if len(left) == len(again):
                return kept
            return kept_again(self._entry.state, left) if left else None

    def _has_settled(self, unsettled: Unsettled) -> bool:
        """Settle logs whose attempts are used up. Returns False if they are delivered again instead.

        1. Decide under the lock of the shard.
        2. Write to the dead letter or the retry logstore without it, because that may take long.
        3. Note the outcome under the lock.
        """
        limits, shard = self._sink.policy.skips, self._shard_of(unsettled.mark)
        failure = unsettled.failure or TIMED_OUT
        with self._entry.lock:
            if unsettled.is_gone:  # acknowledged meanwhile, such as while other parts were written
                return True
            now = self._entry.now_s
            next_s = now + self._rules.backoff.pause_s(unsettled.attempts)
            if not self._rules.is_settled(unsettled.attempts, is_final=failure.reason == FINAL):
                return False
            counted = max(unsettled.attempts, limits.settings.max_attempts)
            wait_state, due_s = limits.decide(shard, counted, failure.cause, not_before_s=next_s, now=now)
            if wait_state is WaitState.RETRYING or unsettled.is_limited:
                unsettled.is_limited = False
                return False
            if wait_state is not WaitState.SETTLING:
                self._wait(unsettled, wait_state, due_s, failure)
                return True
            self._entry.waiting = None
            raw, only = unsettled.raw, None if unsettled.only is None else tuple(sorted(unsettled.only))
        rejection = self._rejection(unsettled.cursor, failure, unsettled.attempts, unsettled.mark)
        raw = select_logs(raw, only)
        if unsettled.mark is not None:
            raw = without_last_tags(raw, first=FIRST_TAG, prefix=RETRY_PREFIX)
        error = self._write(raw, replace(rejection, part=self._part(unsettled, only)))
        with self._entry.lock:
            now = self._entry.now_s
            if error is not None:
                unsettled.settle_failures += 1
                pause_s = self._rules.backoff.pause_s(unsettled.settle_failures)
                self._entry.unacknowledged.put_back(unsettled, now + pause_s)
            else:
                waits = rejection.delay_s is not None
                self._sink.policy.settled_apart(shard, rejection.cursor, waits=waits, now=now)
                for index in (None,) if only is None else only:  # also if it was refused meanwhile
                    self._entry.unacknowledged.acknowledge(unsettled.cursor, index)
        return True

    def _part(self, unsettled: Unsettled, only: tuple[int, ...] | None) -> str:
        """Which logs of their log group these are; for logs that waited in the retry logstore, with their
        place there."""
        logs = "" if only is None else ",".join(map(str, only))
        return logs if unsettled.mark is None else f"{self._shard}-{unsettled.cursor}-{logs}"

    def _wait(
        self, unsettled: Unsettled, wait_state: WaitState, due_s: float | None, failure: Failure
    ) -> None:
        """Too much was skipped, or the policy stops. A shard that stopped continues after `resume`."""
        unsettled.is_limited = True
        due = self._entry.now_s if due_s is None else due_s
        self._entry.unacknowledged.put_back(unsettled, due)
        failing = FailingRange(
            shard=self._shard,
            begin=unsettled.cursor,
            until=unsettled.cursor + 1,
            failed_end=unsettled.cursor + 1,
            log_groups=1,
            attempts=unsettled.delivery,
            state=wait_state,
            not_before_s=due_s,
            failure=failure,
        )
        self._entry.waiting = Waiting(unsettled, failing)
        if wait_state is WaitState.STOPPED:
            self._entry.apply_locked(lambda state, _: held_shard.paused(state))
        self._report(wait_state, unsettled.cursor, failure)

    # -- a batch that failed, in order

    def is_due(self, kept: Kept) -> bool:
        """Whether the batch is one log group that failed too often, alone."""
        batch = kept.batch
        part = Range(self._shard, batch.begin, batch.end)
        with self._entry.lock:
            return kept.again is None and self._sink.policy.to_settle((part,)) is not None

    def settle_alone(self, kept: Kept) -> bool:
        """Settle this log group. False if it is not written; it is tried again later."""
        begin = kept.batch.begin
        with self._entry.lock:
            failing = self._failing()
        ((_, raw, _),) = kept.batch.raw_groups()
        rejection = self._rejection(begin, failing.failure, failing.attempts, None)
        error = self._write(raw, rejection)
        with self._entry.lock:
            now = self._entry.now_s
            if error is None:
                self._sink.policy.settled(self._shard, waits=rejection.delay_s is not None, now=now)
                return True
            failure = Failure(cause=Cause.REJECTED, reason=error.reason, message=error.message)
            self._sink.policy.settling_failed(self._shard, failure, now=now)
            return False

    def failed(self, kept: Kept, failure: Failure) -> None:
        """`process` raised with these logs."""
        part = Range(self._shard, kept.batch.begin, kept.batch.end)
        with self._entry.lock:
            policy, now = self._sink.policy, self._entry.now_s
            if failure.cause is Cause.ENDED and not self.was_alone:
                policy.suspected(part, failure, now=now)
            else:
                policy.failed((part,), failure, now=now)
            wait_state = self._failing().state
        if wait_state in (WaitState.STOPPED, WaitState.LIMITED):
            self._report(wait_state, kept.batch.begin, failure)

    def divide(self, kept: Kept) -> None:
        """The shard waits at a batch that failed: next are fewer of these logs, down to one log group."""
        with self._entry.lock:
            failing = self._failing()
            if not self._entry.state.keeps_batch or failing.begin != kept.batch.begin:
                return  # the position was sought, or the shard is given up
            first, rest = kept.batch.divided(failing.log_groups)
            self._entry.kept = Kept(first, kept.generation)
            if rest is not None:
                self._entry.buffer.put_back(rest)
            at_s = failing.not_before_s
            self._entry.apply_locked(lambda state, _: held_shard.postponed(state, due_s=at_s))

    def _failing(self) -> FailingRange:
        return next(one for one in self._sink.policy.failing if one.shard == self._shard)

    def succeeded(self, kept: Kept, *, refused_all: bool) -> None:
        """`process` returned. Refused logs of a new batch are settled on their own, if at all."""
        with self._entry.lock:
            policy = self._sink.policy
            if not refused_all:
                policy.skips.succeeded(self._shard)
            if kept.again is None:
                part = Range(self._shard, kept.batch.begin, kept.batch.end)
                policy.passed((part,), now=self._entry.now_s)

    # -- both

    def _shard_of(self, mark: RetryMark | None) -> int:
        """The shard of the logstore that the group consumes, also for logs that wait in the retry
        logstore."""
        return self._shard if mark is None else mark.shard

    def _rejection(self, cursor: int, failure: Failure, attempts: int, mark: RetryMark | None) -> Rejection:
        retries = 0 if mark is None else mark.retries
        is_final = failure.reason == FINAL
        delays_s = () if self._sink.retry is None or is_final else self._sink.retry.delays_s[retries:]
        return Rejection(
            shard=self._shard_of(mark),
            cursor=cursor if mark is None else mark.cursor,
            reason=failure.reason,
            message=failure.message,
            attempts=attempts,
            rejected_unix_s=self._entry.table.clock.unix_s(),
            origin=None if mark is None else mark.origin,
            retries=retries + 1 if delays_s else retries,
            delay_s=delays_s[0] if delays_s else None,
        )

    def _write(self, raw: bytes, rejection: Rejection) -> ReportedError | None:
        """None if the log group is settled."""
        place = {"shard": rejection.shard, "cursor": encode_cursor(rejection.cursor)}
        waits = rejection.delay_s is not None
        target = self._sink.retry_target if waits else self._sink.target
        if target is not None:
            try:
                target.write(raw, rejection)
            except (LogHubException, OSError) as error:
                log.warning("dead letter not written, will retry", **place, message=str(error))
                self._entry.failure_error = ReportedError(DEAD_LETTER_UNAVAILABLE, str(error))
                return self._entry.failure_error
        self._entry.failure_error = ReportedError()
        done = "put into the retry logstore" if waits else "dead-lettered" if target else "skipped"
        log.warning(
            f"logs {done}",
            **place,
            attempts=rejection.attempts,
            reason=rejection.reason,
            message=rejection.message,
        )
        return None

    def _report(self, wait_state: WaitState, cursor: int, failure: Failure) -> None:
        message = f"shard {self._shard} at cursor {encode_cursor(cursor)}, {wait_state}: {failure.message}"
        self._entry.failure_error = ReportedError(failure.reason, message)
        log.warning("logs wait", shard=self._shard, cursor=encode_cursor(cursor), state=str(wait_state))


def _has_ended_a_process(unsettled: Unsettled) -> bool:
    reasons = (WorkerReason.PROCESS_ENDED.value, ENDED.reason)
    return unsettled.failure is not None and unsettled.failure.reason in reasons
