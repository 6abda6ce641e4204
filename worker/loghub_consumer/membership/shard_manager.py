"""Manages the held shards: opens them, saves their checkpoints and measures their lag.

Every request about a shard that is neither a heartbeat nor part of a batch is sent from here, so that no such
request delays a heartbeat. One thread decides what is due (`loghub_consumer.membership.shard_attempts`) and
waits for nothing; the requests are tasks in a few threads (`ParallelTasks`), which run at the same time for
different shards and one after the other for one shard, so that no step overtakes another. A task may outlast
the assignment for which it was started, so it checks before each change whether that still holds.
`loghub_consumer.membership.shard_opening` determines where a shard continues.
"""

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence, Set
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

import structlog

from loghub.backoff import Backoff
from loghub.client.port import LogHub
from loghub.wire.cursor import encode as encode_cursor
from loghub.wire.errors import EndpointUnreachable, LogHubError, LogHubException
from loghub_consumer.exchange_files import Report
from loghub_consumer.log_context import inherited
from loghub_consumer.log_service import ConsumerIdentity, ReportedError, to_reported_error
from loghub_consumer.membership.membership import MemberShard, ShardPhase, ShutdownMode
from loghub_consumer.membership.shard_attempts import (
    NONE_YET,
    SavePace,
    ShardAttempts,
    openings_due,
    saves_due,
)
from loghub_consumer.membership.shard_opening import ShardOpening
from loghub_consumer.membership.shared_membership import ShardSettings, ShardTasks, SharedState
from loghub_consumer.membership.turns import OwnThreads, Turn, Turns

log = structlog.get_logger()


# Concurrent requests. Together with the pulls of a consumer they are as many as a client keeps connections.
PARALLEL = 12


class ParallelTasks:
    """A `loghub_consumer.membership.shared_membership.ShardTasks`. Threads are started when needed, and do
    not keep the program from ending."""

    def __init__(self, limit: int = PARALLEL) -> None:
        self._limit = limit
        self._changed = threading.Condition()
        self._busy: set[Hashable] = set()
        self._waiting: deque[tuple[frozenset[Hashable], Callable[[], None]]] = deque()
        self._threads: list[threading.Thread] = []
        self._idle = 0
        self._stopped = False

    def start(self, key: Hashable, task: Callable[[], None]) -> bool:
        return bool(self.start_together((key,), lambda _: task()))

    def start_together(
        self, keys: Collection[Hashable], task: Callable[[frozenset[Hashable]], None]
    ) -> frozenset[Hashable]:
        with self._changed:
            free = frozenset(keys) - self._busy
            if not free or self._stopped:
                return frozenset()
            self._busy |= free
            self._waiting.append((free, partial(task, free)))
            if self._idle < len(self._waiting) and len(self._threads) < self._limit:
                name = f"shard-requests-{len(self._threads)}"
                self._threads.append(threading.Thread(target=inherited(self._run), name=name, daemon=True))
                self._threads[-1].start()
            self._changed.notify_all()
            return free

    @contextmanager
    def alone(self, key: Hashable) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(lambda: key not in self._busy)
            self._busy.add(key)
        try:
            yield
        finally:
            self._end(frozenset((key,)))

    def wait_for(self, keys: Set[Hashable]) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._busy.isdisjoint(keys))

    def stop(self, timeout_s: float) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        self.cancel(lambda _: True, timeout_s)

    def cancel(self, concerns: Callable[[Hashable], bool], timeout_s: float) -> None:
        """Forget the tasks of these keys that have not begun, and wait for the running ones, but at most
        `timeout_s` seconds."""
        with self._changed:
            kept = deque(entry for entry in self._waiting if not any(map(concerns, entry[0])))
            for keys, _ in self._waiting:
                if any(map(concerns, keys)):
                    self._busy -= keys
            self._waiting = kept
            self._changed.notify_all()
            self._changed.wait_for(lambda: not any(map(concerns, self._busy)), timeout_s)

    def _run(self) -> None:
        while (following := self._next()) is not None:
            keys, task = following
            try:
                task()
            finally:
                self._end(keys)

    def _next(self) -> tuple[frozenset[Hashable], Callable[[], None]] | None:
        with self._changed:
            self._idle += 1
            self._changed.wait_for(lambda: self._waiting or self._stopped)
            self._idle -= 1
            return self._waiting.popleft() if self._waiting else None

    def _end(self, keys: frozenset[Hashable]) -> None:
        with self._changed:
            self._busy -= keys
            self._changed.notify_all()


class TasksOfOne:
    """The tasks of one logstore, as a `loghub_consumer.membership.shared_membership.ShardTasks`, in the
    threads of all logstores."""

    def __init__(self, tasks: ParallelTasks, owner: Hashable) -> None:
        self._tasks = tasks
        self._owner = owner
        self._stopped = False

    def start(self, key: Hashable, task: Callable[[], None]) -> bool:
        return bool(self.start_together((key,), lambda _: task()))

    def start_together(
        self, keys: Collection[Hashable], task: Callable[[frozenset[Hashable]], None]
    ) -> frozenset[Hashable]:
        if self._stopped:
            return frozenset()
        run = inherited(task)  # the threads have the context of no logstore
        started = self._tasks.start_together(self._owned(keys), lambda free: run(_keys_of(free)))
        return _keys_of(started)

    def alone(self, key: Hashable) -> AbstractContextManager[None]:
        return self._tasks.alone((self._owner, key))

    def wait_for(self, keys: Set[Hashable]) -> None:
        self._tasks.wait_for(self._owned(keys))

    def stop(self, timeout_s: float) -> None:
        self._stopped = True
        self._tasks.cancel(lambda key: isinstance(key, tuple) and key[0] == self._owner, timeout_s)

    def _owned(self, keys: Iterable[Hashable]) -> frozenset[Hashable]:
        return frozenset((self._owner, key) for key in keys)


def _keys_of(owned: Iterable[Hashable]) -> frozenset[Hashable]:
    return frozenset(key[1] for key in owned if isinstance(key, tuple))


STEP_S = 0.1  # how often the source's report is read while nothing else happens
# The pauses before a shard is opened or saved again after a failure, from the first to the longest one.
FIRST_RETRY_S, MAX_RETRY_S = 1.0, 10.0
READ_ONLY_CHECK_S = 10.0  # how often the list of read-only shards is requested
LAG_S = 2.0  # how often the age of the log group that a shard reads next is requested
# Another consumer holds the shard, or it no longer exists, so retries do not help (both spellings,
# docs/sls-protocol.md 2.4).
NOT_HELD = frozenset(
    {"ConsumerNotMatch", "ConsumerNotExist", "ConsumerNotExsit", "ShardNotExist", "ShardNotExsit"}
)


class ShardManager:
    """Manages the held shards. `tasks` runs the requests, on the connections of `client`."""

    def __init__(
        self,
        shared_state: SharedState,
        client: LogHub,
        opening: ShardOpening,
        identity: ConsumerIdentity,
        *,
        config: ShardSettings,
        tasks: ShardTasks,
    ) -> None:
        self._shared_state = shared_state
        self._client = client
        self.opening = opening
        self._exchange = shared_state.exchange
        self._clock = shared_state.clock
        self._logstore = identity.logstore
        self._group = identity.group
        self._consumer = identity.consumer
        # While a shard is consumed, its checkpoint is saved at most once in this time.
        self._checkpoint_interval_s = config.checkpoint_interval_s
        self._tasks = tasks
        self._read_only: frozenset[int] = frozenset()  # at the last request
        self._unconfirmed: frozenset[int] = frozenset()  # read-only shards whose ends must be saved again
        self._ends: dict[int, int] = {}  # at the last report
        self._attempts: dict[int, ShardAttempts] = {}  # only the tasks of a shard change its entry
        self._errors: dict[int, ReportedError] = {}  # of shards that could not be opened or saved
        self._retries = Backoff(first_s=FIRST_RETRY_S, max_s=MAX_RETRY_S, random=shared_state.random)
        self._next_check_s = 0.0
        # Whether the service can save several checkpoints at once, at the last request.
        self._has_polls = False
        self._turn: Turn | None = None
        self._step_s = STEP_S
        self.source_error = ReportedError()
        self.failure: BaseException | None = None
        self._lag_requested_s: dict[int, float] = {}
        # Shard -> unix time at which the log group to be read next was received; None if none is left.
        self.oldest_unix_s: dict[int, float | None] = {}
        self.beyond_end: dict[int, int] = {}  # at the last report

    def start(self, turns: Turns | None = None, *, step_s: float = STEP_S) -> None:
        """Begin in `turns`; None: in a thread of its own. `step_s` is how often to look for due requests."""
        self._step_s = step_s
        self._turn = (turns or OwnThreads()).start("shard-manager", self._take_turn)

    def stop(self, timeout_s: float = 10.0) -> None:
        if self._turn is not None:
            self._turn.stop(timeout_s)
        self._tasks.stop(timeout_s)

    @property
    def error(self) -> ReportedError:
        """Why a shard cannot be opened or saved now."""
        return min(tuple(self._errors.items()), default=(0, ReportedError()), key=lambda pair: pair[0])[1]

    def _take_turn(self) -> float:
        try:
            self.step()
        except BaseException as failure:
            self.failure = failure
            raise
        # Changes of the shared state do not wake it: its step wakes the heartbeats, whose step would wake it,
        # and the two would never be idle.
        return self._step_s

    def step(self) -> None:
        """Begin the due requests, without waiting for them."""
        report = self._exchange.report()
        self._note_source_error(report)
        self._ends = report.ends
        with self._shared_state.use() as (membership, now):
            membership.source_saw(report.version)
            shards = membership.shards
        for shard in openings_due(shards, self._attempts, now=now):
            self._start(shard.shard, partial(self._open, shard))
        self._begin_saves()
        self._clear_errors()
        self._measure_lags(shards, report.ends, now=now)
        if now >= self._next_check_s:
            self._next_check_s = now + READ_ONLY_CHECK_S
            self._start("read-only", self._request_read_only)
        self._confirm_ends()

    def _start(self, key: Hashable, task: Callable[[], None]) -> bool:
        """False if another task of this key runs; the next step tries again."""
        return bool(self._start_together((key,), lambda _: task()))

    def _start_together(
        self, keys: Collection[Hashable], task: Callable[[frozenset[Any]], None]
    ) -> frozenset[Any]:
        """Begin one task for the keys without a running task, and return these; the next step tries again
        with the others."""

        def run(free: frozenset[Hashable]) -> None:
            try:
                task(free)
            except BaseException as failure:
                self.failure = failure
                raise

        return self._tasks.start_together(keys, run)

    def _note_source_error(self, report: Report) -> None:
        error = ReportedError(report.reason, report.message)
        if error.reason and error != self.source_error:
            log.warning("shard cannot be read", reason=error.reason, message=error.message)
        self.source_error = error
        self.beyond_end = report.beyond_end

    def _clear_errors(self) -> None:
        """Clear an error once its cause is gone, also if its shard is now assigned to another consumer."""
        with self._shared_state.use() as (membership, _):
            pending = {s.shard for s in membership.unsaved()}
            pending |= {s.shard for s in membership.shards if s.phase is ShardPhase.OPENING}
        for shard in self._errors.keys() - pending:
            self._errors.pop(shard, None)

    # -- opening

    def _open(self, shard: MemberShard) -> None:
        held = self._find(shard.shard, shard.epoch)
        if held is None or held.phase is not ShardPhase.OPENING:
            return  # an earlier task, which ran when this was decided, has opened it
        try:
            position = self.opening.open(
                shard.shard, confirm=lambda: self._require_held(shard), save=partial(self._save, shard.shard)
            )
        except (LogHubException, OSError) as error:
            self._postpone(shard, error)
            return
        with self._shared_state.use() as (membership, _):
            membership.opened(shard.shard, epoch=shard.epoch, position=position, saved=position)
        self._succeeded(shard)
        log.info("shard opened", shard=shard.shard, position=position)

    def _postpone(self, shard: MemberShard, error: LogHubException | OSError) -> None:
        if not self._is_held(shard):
            log.info("shard given up meanwhile", shard=shard.shard, message=str(error))
            return  # another assignment need not wait
        is_sink_error = isinstance(error, OSError)  # a full disk or a lost mount may recover
        reported = ReportedError("SinkUnavailable", str(error)) if is_sink_error else to_reported_error(error)
        self._errors[shard.shard] = reported
        now = self._clock.monotonic_s()
        self._attempts[shard.shard] = self._attempts_of(shard.shard).failed(self._retries, now=now)
        log.warning(
            "shard not opened or saved, will retry",
            shard=shard.shard,
            reason=reported.reason,
            message=str(error),
        )
        if isinstance(error, LogHubError) and error.code in NOT_HELD:
            with self._shared_state.use() as (membership, _):
                membership.refused(shard.shard, epoch=shard.epoch)

    def _succeeded(self, shard: MemberShard) -> None:
        self._errors.pop(shard.shard, None)
        self._attempts[shard.shard] = self._attempts_of(shard.shard).succeeded()

    def _attempts_of(self, shard: int) -> ShardAttempts:
        return self._attempts.get(shard, NONE_YET)

    # -- checkpoints

    def save_all(self) -> None:
        """Save every position that the sink has and the service does not have, if it is due. The job calls
        this after each batch and continues once all are saved or have failed, so that with an interval of 0
        sinks without a record repeat no more than a batch; the manager's thread retries failed ones."""
        started, busy = self._begin_saves()
        self._tasks.wait_for(started | busy)
        if busy:
            started, _ = self._begin_saves()
            self._tasks.wait_for(started)

    def _begin_saves(self) -> tuple[frozenset[int], frozenset[int]]:
        """Begin the due saves. Returns the shards, and the shards with another running task."""
        with self._shared_state.use() as (membership, now):
            unsaved = membership.unsaved()
            is_stopping = membership.shutdown_mode is not ShutdownMode.SERVE
        pace = SavePace(
            interval_s=self._checkpoint_interval_s,
            ended=frozenset(s.shard for s in unsaved if s.shard in self._read_only and self._is_at_end(s)),
            is_stopping=is_stopping,
        )
        due = saves_due(unsaved, self._attempts, pace, now=now)
        shards = {shard.shard: shard for shard in due}
        if self._has_polls and len(due) > 1:
            started = self._start_together(
                shards, lambda free: self._save_together([shards[number] for number in sorted(free)])
            )
        else:
            started = frozenset(
                shard.shard for shard in due if self._start(shard.shard, partial(self._save_newest, shard))
            )
        return started, frozenset(shards) - started

    def _save_newest(self, shard: MemberShard) -> None:
        """Save the present position of this assignment, which may have advanced since the decision."""
        held = self._find(shard.shard, shard.epoch)
        if held is not None and held.saved != held.position and self._is_current(held):
            self._try_save(held)

    def _save_together(self, shards: Sequence[MemberShard]) -> None:
        """Save the present positions of these assignments with one request."""
        present = [self._find(shard.shard, shard.epoch) for shard in shards]
        held = [s for s in present if s is not None and s.saved != s.position and self._is_current(s)]
        cursors = {s.shard: encode_cursor(s.position) for s in held if s.position is not None}
        try:
            rejected = self._client.save_checkpoints(
                self._logstore, self._group, cursors, consumer=self._consumer
            )
        except LogHubException as error:
            # An older service may have been installed; it is asked again later.
            self._has_polls = self._has_polls and isinstance(error, EndpointUnreachable)
            for shard in held:
                self._postpone(shard, error)
            return
        for shard in held:
            if shard.shard in rejected:
                self._postpone(shard, rejected[shard.shard])
            else:
                self._note_save(shard.shard, cursors[shard.shard])
                self._try_acknowledge(shard)

    def _try_acknowledge(self, shard: MemberShard) -> None:
        try:
            self._acknowledge(shard)
        except OSError as error:
            self._postpone(shard, error)

    def _acknowledge(self, shard: MemberShard) -> None:
        """Note that the service has accepted the checkpoint."""
        assert shard.position is not None
        self.opening.record.acknowledge(shard.shard, shard.position)
        self._succeeded(shard)
        with self._shared_state.use() as (membership, _):
            membership.saved(shard.shard, epoch=shard.epoch, cursor=shard.position)

    def save_now(self, shard: int, *, epoch: int) -> None:
        """Save the position of this assignment of a shard. Raises `LogHubException`; ``ConsumerNotMatch`` if
        the assignment has ended."""
        with self._tasks.alone(shard):
            held = self._find(shard, epoch)
            if held is None or held.position is None:
                raise LogHubError("ConsumerNotMatch", 400, f"shard {shard} is no longer assigned here")
            if held.saved != held.position:
                self._require_held(held)
                self._try_save(held, retried=False)

    def _find(self, shard: int, epoch: int) -> MemberShard | None:
        with self._shared_state.use() as (membership, _):
            return next((s for s in membership.shards if (s.shard, s.epoch) == (shard, epoch)), None)

    def _is_held(self, shard: MemberShard) -> bool:
        return self._find(shard.shard, shard.epoch) is not None

    def _is_at_end(self, shard: MemberShard) -> bool:
        return shard.position is not None and self._ends.get(shard.shard) == shard.position

    def _is_current(self, shard: MemberShard) -> bool:
        """Whether the position is still current. Earlier requests may have taken long, and a shard that was
        lost and assigned again in the meantime must not be moved back."""
        with self._shared_state.use() as (membership, now):
            is_same = any((s.epoch, s.position) == (shard.epoch, shard.position) for s in membership.shards)
            # After a stall of the whole process this thread may be the first to check the time.
            return is_same and membership.session_left_s(now) > 0

    def _require_held(self, shard: MemberShard) -> None:
        if not self._is_current(shard):
            raise LogHubError(
                "ConsumerNotMatch",
                400,
                f"shard {shard.shard} was assigned to another consumer while it was opened",
            )

    def _try_save(self, shard: MemberShard, *, retried: bool = True) -> None:
        assert shard.position is not None
        try:
            self._save(shard.shard, shard.position)
            self._acknowledge(shard)
        except (LogHubException, OSError) as error:
            self._postpone(shard, error)
            if not retried:
                raise

    def _save(self, shard: int, position: int) -> None:
        cursor = encode_cursor(position)
        self._client.update_checkpoint(
            self._logstore, self._group, shard=shard, cursor=cursor, consumer=self._consumer, force=False
        )
        self._note_save(shard, cursor)

    def _note_save(self, shard: int, cursor: str) -> None:
        self._attempts[shard] = self._attempts_of(shard).saved(now=self._clock.monotonic_s())
        log.debug("checkpoint saved", shard=shard, cursor=cursor)

    # -- read-only shards and lag

    def _request_read_only(self) -> None:
        with self._shared_state.use() as (membership, _):
            is_needed = any(s.phase is ShardPhase.OPEN for s in membership.shards)
        try:
            self._has_polls = self._client.has_polls()
            infos = self._client.list_shards(self._logstore) if is_needed else ()
        except LogHubException as error:
            log.info("list of shards not requested, will retry", reason=to_reported_error(error).reason)
            return
        self._unconfirmed = self._read_only = frozenset(info.shard for info in infos if info.read_only)

    def _confirm_ends(self) -> None:
        """Save the ends of read-only shards once more. A shard may have become read-only after its end was
        saved. Only a checkpoint makes the service mark the shard as over (docs/sls-protocol.md 4.3), and no
        further batch will save one."""
        unconfirmed, self._unconfirmed = self._unconfirmed, frozenset()
        if not unconfirmed:
            return
        with self._shared_state.use() as (membership, _):
            shards = [s for s in membership.shards if s.phase is ShardPhase.OPEN and s.shard in unconfirmed]
        for shard in shards:
            if self._is_at_end(shard) and not self._start(shard.shard, partial(self._save_end, shard)):
                self._unconfirmed |= {shard.shard}

    def _save_end(self, shard: MemberShard) -> None:
        # A batch may have advanced the shard, and its checkpoint must not move back.
        if shard.position is not None and self._is_current(shard):
            try:
                self._save(shard.shard, shard.position)
            except LogHubException as error:
                reason = to_reported_error(error).reason
                log.info("end of a shard not saved, will retry", shard=shard.shard, reason=reason)

    def _measure_lags(self, shards: tuple[MemberShard, ...], ends: dict[int, int], *, now: float) -> None:
        for shard in shards:
            number, position = shard.shard, shard.position
            if position is None or number not in ends or position > ends[number]:
                self.oldest_unix_s.pop(number, None)
            elif position == ends[number]:
                self.oldest_unix_s[number] = None
            elif now >= self._lag_requested_s.get(number, now - LAG_S) + LAG_S:
                self._lag_requested_s[number] = now
                self._start(("lag", number), partial(self._request_lag, number, position))

    def _request_lag(self, shard: int, position: int) -> None:
        with contextlib.suppress(LogHubException):  # only a metric; the next attempt follows soon
            received_s = self._client.get_cursor_time(self._logstore, shard, encode_cursor(position))
            self.oldest_unix_s[shard] = received_s
