"""What the tests of a program import whose logs are in a logstore (docs/processor.md 12).

`run_processor` runs a processor over logs that the test writes down. It needs no log service, no consumer
group and no time. The processor is called by the code that calls it in a consumer: batches are divided where
`process` raises, refused logs come again with their count, and a log that fails too often is rejected with
its reason. Pauses are skipped: a log that is refused for an hour comes again at once, and the run says how
long it would have taken.

For tests of whole programs the fixture ``loghub_service`` of pytest, which comes with this distribution, is
an embedded service (`ServiceProcess`).
"""

import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, Literal, TypeVar, cast

from loghub.backoff import without_jitter
from loghub.client.port import Credentials, LogHub
from loghub.contract.worker import OnFailure
from loghub.wire.compression import Packed
from loghub.wire.cursor import encode as encode_cursor
from loghub.wire.loggroup import wrap
from loghub_consumer import held_shard
from loghub_consumer.assignment import EPOCH, Assignment
from loghub_consumer.batch import PulledBody
from loghub_consumer.failure.dead_letter import Rejection
from loghub_consumer.failure.policy import FailingShards, failure_settings
from loghub_consumer.given_logs import GivenLog, GivenLogs, RejectedLog, contents_of, log_groups
from loghub_consumer.held_shard import HeldShardPhase, Pull, PullResult
from loghub_consumer.log_threads import FanOutFactory, check_fan_out
from loghub_consumer.membership.membership import MemberShard, ShardPhase
from loghub_consumer.membership.turns import OwnThreads, TakeTurn, Wait
from loghub_consumer.processor import Processor
from loghub_consumer.service_process import ServiceEndedError, ServiceProcess
from loghub_consumer.settings import ConsumerSettings, log_to_logging
from loghub_consumer.settlement import HANG_S, FailureSink
from loghub_consumer.shard_runner import RunnerParts, ShardRunner
from loghub_consumer.shard_table import HeldShardEntry, ShardTable
from loghub_consumer.shared_buffers import SharedBuffers

__all__ = [
    "GivenLog",
    "GivenLogs",
    "ProcessorRun",
    "RejectedLog",
    "ServiceEndedError",
    "ServiceProcess",
    "run_encoded",
    "run_processor",
]

P = TypeVar("P", bound=Processor)

MAX_ATTEMPTS = 5  # as `OnFailure.max_attempts`
# Of skipped pauses: twenty of the longest ones by default, four times as many as a log has attempts.
MAX_WAIT_S = 1_200.0
GUARD_S = 60.0  # of a test that hangs, such as a thread of `fan_out` that never returns


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessorRun(Generic[P]):
    """What a processor did with the logs.

    `processor` is the object, after its `shutdown`. `saved` is the checkpoint: so many of the log groups are
    before it. `unfinished` has the numbers of the log groups that were neither processed nor rejected: in a
    consumer they would come again, such as in an outage or while the shard is paused. `errors` are the
    exceptions of the processor's methods, in order. `waited_s` are the seconds of the pauses that were
    skipped.
    """

    processor: P
    rejected: tuple[RejectedLog, ...]
    saved: int
    unfinished: tuple[int, ...]
    errors: tuple[Exception, ...]
    waited_s: float


def run_processor(
    factory: Callable[[], P],
    logs: GivenLogs,
    *,
    acknowledge: Literal["batch", "log"] = "batch",
    max_logs: int | None = None,
    max_attempts: int = MAX_ATTEMPTS,
    guard_s: float = GUARD_S,
) -> ProcessorRun[P]:
    """Run the processor that the factory makes over the logs, in order, as the logs of one shard.

    A log is a dictionary of its fields or a text (the field ``line``), and may have ``__time__``,
    ``__topic__``, ``__source__`` and ``__tag__:NAME``, as `loghub pull` prints it. A list of logs is one log
    group. `acknowledge` and `max_logs` are settings of `ConsumerSettings`; without `max_logs` all logs are
    one batch, up to 4 MiB. Logs are rejected as with the failure policy ``Skip``, without its limits.

    Raises what `initialize` raises, what ends a consumer, such as `SystemExit`, `TypeError` and `ValueError`
    for what is no log, and `TimeoutError` if the run takes longer than `guard_s` seconds.
    """
    settings = ConsumerSettings(
        endpoint="http://127.0.0.1:1",  # is never called
        project="test",
        logstore="test",
        consumer_group="test",
        consumer="test",
        credentials=Credentials(access_key_id="", access_key_secret=""),
        acknowledge=acknowledge,
        max_logs=max_logs,
        on_failure=OnFailure(policy="Skip", max_attempts=max_attempts),
    )
    return run_encoded(factory, log_groups(logs), settings, guard_s=guard_s)


def run_encoded(
    factory: Callable[[], P],
    groups: Sequence[bytes],
    settings: ConsumerSettings,
    *,
    guard_s: float = GUARD_S,
) -> ProcessorRun[P]:
    """Run it over encoded log groups, as the settings say, of which the ones for a log service have no
    effect. Raises the errors of `run_processor`."""
    if isinstance(factory, FanOutFactory):
        check_fan_out(by_log=settings.acknowledge == "log", ack_timeout_s=settings.ack_timeout_s)
    log_to_logging()
    return _Run(factory, tuple(groups), settings, guard_s=guard_s).run()


class _TestClock:
    """Stands still while the processor works, so that a run says the same twice: it moves by the pauses, the
    skipped ones and those in which other threads had logs."""

    def __init__(self) -> None:
        self._began_s, self._began_unix_s = time.monotonic(), time.time()
        self.skipped_s = 0.0
        self.waited_s = 0.0

    def monotonic_s(self) -> float:
        return self._began_s + self.skipped_s + self.waited_s

    def unix_s(self) -> float:
        return self._began_unix_s + self.skipped_s + self.waited_s


class _CallersThread(OwnThreads):
    """The turns of the shard are taken by the thread that runs the test, one after the other."""

    def __init__(self) -> None:
        self.changed = threading.Event()
        self.take: TakeTurn = lambda: None
        self.wait: Wait = lambda wait: wait()

    def start(self, name: str, take: TakeTurn, *, wait: Wait | None = None) -> "_CallersThread":  # noqa: ARG002
        self.take, self.wait = take, wait or self.wait
        return self

    def wake(self) -> None:
        self.changed.set()

    def stop(self, timeout_s: float) -> None:
        """There is no thread."""


class _Runner(ShardRunner):
    """Keeps the exceptions of the user's code."""

    failed_to_begin: Exception | None = None

    def __init__(self, entry: HeldShardEntry, assignment: "_GivenShard", parts: RunnerParts) -> None:
        held = MemberShard(shard=0, epoch=EPOCH, phase=ShardPhase.OPEN, position=0, saved=0)
        super().__init__(entry, cast(Assignment, assignment), parts, held=held)
        self.errors: list[Exception] = []

    def _report(self, method: str, error: Exception) -> None:
        super()._report(method, error)
        self.errors.append(error)
        if method == "initialize":
            self.failed_to_begin = error


class _GivenShard:
    """The given log groups as a shard: what pulls, seeks and saves of a consumer would go to, and the target
    of a dead letter."""

    can_save = True

    def __init__(self, groups: tuple[bytes, ...]) -> None:
        self.groups = groups
        self.checkpoints = self
        self.saved = 0
        self.rejected: list[RejectedLog] = []

    # -- the part of `loghub_consumer.assignment.Checkpoints` and `Assignment` that a runner needs

    def note(self, shard: int, *, epoch: int, position: int) -> None:  # noqa: ARG002
        self.saved = position

    def send(self, shard: int, *, epoch: int) -> None:
        """What is noted is saved."""

    def require_place(self) -> None:
        """There is one."""

    def seek(self, entry: HeldShardEntry, to: int) -> None:
        entry.seek(min(to, len(self.groups)))

    # -- of `loghub.client.port.LogHub`

    def get_cursor(self, logstore: str, shard: int, where: str | int) -> str:  # noqa: ARG002
        """Every time of receipt is the beginning, since all logs are there from the start."""
        return encode_cursor(len(self.groups) if where == "end" else 0)

    def pull(self, pull: Pull) -> tuple[PullResult, PulledBody]:
        pulled = self.groups[pull.cursor : pull.cursor + pull.count]
        packed = Packed.plain(wrap(pulled))
        body = PulledBody(packed, shard=0, first=pull.cursor, count=len(pulled))
        is_end = body.after >= len(self.groups)
        result = PullResult(groups=len(pulled), bytes=packed.size, after=body.after, is_end=is_end)
        return result, body

    # -- `loghub_consumer.failure.dead_letter.DeadLetterTarget`

    def check(self) -> None:
        """Memory needs none."""

    def write(self, log_group: bytes, rejection: Rejection) -> None:
        self.rejected += [
            RejectedLog(
                log=log,
                number=rejection.cursor,
                reason=rejection.reason,
                message=rejection.message,
                attempts=rejection.attempts,
            )
            for log in contents_of(log_group)
        ]


class _Run(Generic[P]):
    def __init__(
        self,
        factory: Callable[[], P],
        groups: tuple[bytes, ...],
        settings: ConsumerSettings,
        *,
        guard_s: float,
    ) -> None:
        self._guard_s, self._end_s = guard_s, time.monotonic() + guard_s
        self._shard, self._clock, self._turns = _GivenShard(groups), _TestClock(), _CallersThread()
        self._made: list[P] = []
        # How many logs of a test may fail is for the test to say.
        most = sum(len(contents_of(group)) for group in groups)
        rules = replace(
            failure_settings(settings.on_failure, batch_timeout_s=HANG_S),
            max_consecutive=None,
            max_per_hour=max(1, most),
        )
        sink = FailureSink(policy=FailingShards(rules), target=self._shard)
        self._table = table = ShardTable(
            settings.limits,
            settings.redelivery,
            self._clock,
            SharedBuffers(settings.max_buffered_bytes),
            random=without_jitter,
        )
        table.failures = sink.policy
        self._entry = table.add(0, epoch=EPOCH, position=0)
        parts = RunnerParts(
            settings=settings,
            client=cast(LogHub, self._shard),
            factory=lambda: self._make(factory),
            failure_sink=sink,
            processors=self._turns,
        )
        self._runner = _Runner(self._entry, self._shard, parts)

    def _make(self, factory: Callable[[], P]) -> P:
        made: object = factory()
        if not isinstance(made, Processor):
            raise TypeError(f"the factory returned {type(made).__name__}, not a loghub_consumer.Processor")
        self._made.append(cast(P, made))
        return self._made[-1]

    def run(self) -> ProcessorRun[P]:
        self._runner.start()
        unfinished: tuple[int, ...] = ()
        goes_on = True
        while True:
            self._pull()
            if not self._entry.is_given_up and (not goes_on or self._is_done()):
                unfinished = self._unfinished()
                self._entry.apply(lambda state, _: held_shard.revoked(state))
                self._entry.apply(lambda state, _: held_shard.announced(state))
            pause_s = self._turns.take()
            self._raise_failures()
            if pause_s is None:
                break
            goes_on = pause_s <= 0 or self._pause(pause_s)
        return ProcessorRun(
            processor=self._made[-1],
            rejected=tuple(self._shard.rejected),
            saved=self._shard.saved,
            unfinished=unfinished,
            errors=tuple(self._runner.errors),
            waited_s=self._clock.skipped_s,
        )

    def _pull(self) -> None:
        while isinstance(due := self._table.begin_pull(), tuple):
            entry, pull = due
            self._table.receive(entry, pull, *self._shard.pull(pull), interval_s=math.inf)

    def _is_done(self) -> bool:
        state = self._entry.state
        is_idle = state.phase is HeldShardPhase.PULLING and not state.keeps_batch
        return is_idle and not self._unfinished()

    def _unfinished(self) -> tuple[int, ...]:
        with self._entry.lock:
            apart = {one.cursor for one in self._entry.unacknowledged}
            return tuple(sorted(apart | set(range(self._entry.state.position, len(self._shard.groups)))))

    def _raise_failures(self) -> None:
        failure = self._table.failure or self._runner.failure or self._runner.failed_to_begin
        if failure is not None:
            raise failure
        if time.monotonic() > self._end_s:
            raise TimeoutError(
                f"the run has taken longer than guard_s, {self._guard_s:g} s, and the log groups"
                f" {self._unfinished()} are not done"
            )

    def _pause(self, pause_s: float) -> bool:
        """Wait for other threads that have logs, or skip the pause if none have any. Returns whether anything
        more can happen."""
        with self._entry.lock:
            is_out = any(one.is_out for one in self._entry.unacknowledged)
        if is_out:
            timeout_s = min(pause_s, max(0.0, self._end_s - time.monotonic()))
            began_s = time.monotonic()
            self._turns.wait(lambda: self._turns.changed.wait(timeout_s))
            self._clock.waited_s += time.monotonic() - began_s
        elif not self._turns.changed.is_set():
            if self._clock.skipped_s + pause_s > MAX_WAIT_S:
                return False
            self._clock.skipped_s += pause_s
        self._turns.changed.clear()
        return True
