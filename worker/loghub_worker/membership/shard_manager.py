"""The thread that manages the held shards: opens them, saves their checkpoints and measures their lag.

It sends every request about a shard that is neither a heartbeat nor part of a batch, so that none of them
delays a heartbeat. The record decides where a shard resumes (`loghub_worker.sink.shard_record`).
"""

import contextlib
import threading

import structlog

from loghub.client.port import LogHub, ShardInfo
from loghub.wire.errors import LogHubError, LogHubException
from loghub.worker_contract import first_position
from loghub_worker.backoff import Backoff
from loghub_worker.exchange_files import Report
from loghub_worker.log_service import (
    ConsumerIdentity,
    ReportedError,
    decode_cursor,
    encode_cursor,
    to_reported_error,
)
from loghub_worker.membership.membership import HeldShard, ShardPhase, ShutdownMode
from loghub_worker.membership.ports import ShardHistory, ShardSettings
from loghub_worker.membership.shared_membership import SharedState
from loghub_worker.sink.range_claims import ShardIncarnation
from loghub_worker.sink.shard_record import ShardRecord

log = structlog.get_logger()

STEP_S = 0.1  # how often the source's report is read while nothing else happens
# A shard that could not be opened or saved is retried after pauses from the first to the longest.
FIRST_RETRY_S, LONGEST_RETRY_S = 1.0, 10.0
READ_ONLY_CHECK_S = 10.0  # how often the list of read-only shards is requested
LAG_S = 2.0  # how often the age of the log group that a shard reads next is requested
# Another consumer holds the shard, or it no longer exists, so retries do not help (both spellings,
# docs/sls-protocol.md 2.4).
NOT_HELD = frozenset(
    {"ConsumerNotMatch", "ConsumerNotExist", "ConsumerNotExsit", "ShardNotExist", "ShardNotExsit"}
)


class ShardManager:
    """One thread with a connection of its own."""

    def __init__(
        self,
        shared_state: SharedState,
        client: LogHub,
        record: ShardRecord,
        identity: ConsumerIdentity,
        *,
        config: ShardSettings,
        history: ShardHistory | None = None,
    ) -> None:
        self._shared_state = shared_state
        self._client = client
        self._record = record
        self._history = history
        self._exchange = shared_state.exchange
        self._clock = shared_state.clock
        self._logstore = identity.logstore
        self._group = identity.group
        self._consumer = identity.consumer
        self._start_position = config.start_position
        self._last_initial_shard = config.last_initial_shard
        # While a shard is consumed, its checkpoint is saved at most once in this time.
        self._checkpoint_interval_s = config.checkpoint_interval_s
        self._saved_s: dict[int, float] = {}
        self._read_only: frozenset[int] = frozenset()  # as last requested
        self._ends: dict[int, int] = {}  # as last reported
        self._not_before_s: dict[int, float] = {}
        self._failures: dict[int, int] = {}  # consecutive, by shard
        self._retries = Backoff(first_s=FIRST_RETRY_S, longest_s=LONGEST_RETRY_S, random=shared_state.random)
        self._next_check_s = 0.0
        self._stop = threading.Event()
        self._saving = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="shard-manager", daemon=True)
        self.error = ReportedError()
        self.source_error = ReportedError()
        self.failure: BaseException | None = None
        self._lag_requested_s: dict[int, float] = {}
        # Shard -> unix time at which the log group to be read next was received; None if none is left.
        self.oldest_unix_s: dict[int, float | None] = {}
        self.beyond_end: dict[int, int] = {}  # as last reported

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_s: float = 10.0) -> None:
        self._stop.set()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self.step()
                # This does not wait for changes of the shared state: this thread's step wakes the heartbeat
                # thread, whose step would wake this one, and the two would never be idle.
                self._stop.wait(STEP_S)
        except BaseException as failure:
            self.failure = failure
            raise

    def step(self) -> None:
        """One iteration of the thread's loop."""
        report = self._exchange.report()
        self._note_source_error(report)
        self._ends = report.ends
        with self._shared_state.use() as (membership, now):
            membership.source_saw(report.version)
            shards = membership.shards
        for shard in shards:
            if shard.phase is ShardPhase.OPENING and now >= self._not_before_s.get(shard.shard, now):
                self._open(shard)
        self.save_all()
        self._clear_error()
        self._measure_lags(shards, report.ends, now=now)
        if now >= self._next_check_s:
            self._next_check_s = now + READ_ONLY_CHECK_S
            self._check_read_only()

    def _note_source_error(self, report: Report) -> None:
        error = ReportedError(report.reason, report.message)
        if error.reason and error != self.source_error:
            log.warning("shard cannot be read", reason=error.reason, message=error.message)
        self.source_error = error
        self.beyond_end = report.beyond_end

    def _clear_error(self) -> None:
        """Clear the error once its cause is gone, also if its shard is now assigned to another consumer."""
        with self._shared_state.use() as (membership, _):
            pending = membership.unsaved() or any(s.phase is ShardPhase.OPENING for s in membership.shards)
        if not pending:
            self.error = ReportedError()

    # -- opening

    def _open(self, shard: HeldShard) -> None:
        try:
            saved, position = self._find_position(shard)
        except (LogHubException, OSError) as error:
            self._postpone(shard, error)
            return
        with self._shared_state.use() as (membership, _):
            membership.opened(shard.shard, epoch=shard.epoch, position=position, saved=saved)
        self._succeeded(shard)
        log.info("shard opened", shard=shard.shard, position=position, checkpoint=saved)

    def _find_position(self, held: HeldShard) -> tuple[int, int]:
        """The checkpoint that the service has now, and the position to continue from. The two are equal at
        the end: a position that was determined is saved before anything is delivered from it, so that the
        next consumer finds the same one. A checkpoint without a consumer's name was moved on purpose. Whether
        the real SLS always reports the name has not been observed, so a checkpoint in SLS never counts as
        moved."""
        shard = held.shard
        incarnation = ShardIncarnation(shard=shard, created=self._shard_info(shard).created_unix_s)
        self._record.open_shard(incarnation)
        checkpoints = self._client.get_checkpoints(self._logstore, self._group, shard)
        last = next((c for c in checkpoints if c.shard == shard and c.cursor), None)
        moved = last is not None and not last.consumer and self._client.has_extensions()
        cursor = last.cursor if last else self._first_cursor(shard)
        checkpoint = decode_cursor(cursor)
        position = self._record.resume(
            incarnation, checkpoint, confirm=lambda: self._require_held(held), moved=moved
        )
        position = max(position, self._oldest(shard, position))
        if self._history is not None:
            is_first = self._is_initial(shard) and (last is None or self._is_unread(shard, position))
            position = self._history.continue_at(
                incarnation, position, is_first=is_first and not moved, moved=moved
            )
        # Save it under this worker's name immediately. Otherwise the next consumer treats the checkpoint as
        # moved again, and delivers a third time what this worker commits from it.
        if last is None or moved or position != checkpoint:
            self._require_held(held)
            self._save(shard, position)
        self._record.acknowledge(shard, position)
        return position, position

    def _is_initial(self, shard: int) -> bool:
        return self._last_initial_shard is None or shard <= self._last_initial_shard

    def _is_unread(self, shard: int, position: int) -> bool:
        """Whether nobody has read any log of the shard that still exists."""
        return position == decode_cursor(self._first_cursor(shard))

    def _first_cursor(self, shard: int) -> str:
        position = first_position(shard, self._start_position, last_initial_shard=self._last_initial_shard)
        return self._client.get_cursor(self._logstore, shard, position)

    def _oldest(self, shard: int, position: int) -> int:
        oldest = decode_cursor(self._client.get_cursor(self._logstore, shard, "begin"))
        if oldest > position:
            log.warning(
                "log groups expired before they were read", shard=shard, position=position, oldest=oldest
            )
        return oldest

    def _shard_info(self, shard: int) -> ShardInfo:
        for info in self._client.list_shards(self._logstore):
            if info.shard == shard:
                return info
        raise LogHubError("ShardNotExist", 400, f"the logstore no longer has shard {shard}")

    def _postpone(self, shard: HeldShard, error: LogHubException | OSError) -> None:
        is_sink_error = isinstance(error, OSError)  # a full disk or a lost mount may recover
        self.error = (
            ReportedError("SinkUnavailable", str(error)) if is_sink_error else to_reported_error(error)
        )
        failures = self._failures.get(shard.shard, 0) + 1
        self._failures[shard.shard] = failures
        self._not_before_s[shard.shard] = self._clock.monotonic_s() + self._retries.pause_s(failures)
        log.warning(
            "shard not opened or saved, will retry",
            shard=shard.shard,
            reason=self.error.reason,
            message=str(error),
        )
        if isinstance(error, LogHubError) and error.code in NOT_HELD:
            with self._shared_state.use() as (membership, _):
                membership.refused(shard.shard, epoch=shard.epoch)

    def _succeeded(self, shard: HeldShard) -> None:
        self.error = ReportedError()
        self._failures.pop(shard.shard, None)

    # -- checkpoints

    def save_all(self) -> None:
        """Save every position that the sink has and the service does not have, if it is due. The job calls
        this after each batch; this thread retries what fails."""
        with self._saving:
            with self._shared_state.use() as (membership, now):
                serving = membership.shutdown_mode is ShutdownMode.SERVE
                unsaved = [s for s in membership.unsaved() if not serving or self._is_due(s, now=now)]
            for shard in unsaved:
                if now >= self._not_before_s.get(shard.shard, now) and self._is_current(shard):
                    self._try_save(shard)

    def save_now(self, shard: int, *, epoch: int) -> None:
        """Save the position of this assignment of a shard. Raises `LogHubException`; ``ConsumerNotMatch`` if
        the assignment has ended."""
        with self._saving:
            with self._shared_state.use() as (membership, _):
                held = next((s for s in membership.shards if (s.shard, s.epoch) == (shard, epoch)), None)
            if held is None or held.position is None:
                raise LogHubError("ConsumerNotMatch", 400, f"shard {shard} is no longer assigned here")
            if held.saved != held.position:
                self._require_held(held)
                self._try_save(held, retried=False)

    def _is_due(self, shard: HeldShard, *, now: float) -> bool:
        """Whether to save now. Another consumer waits for a shard that is being released, and for the end of
        a read-only shard, so these are saved immediately."""
        number = shard.shard
        is_end = number in self._read_only and self._ends.get(number) == shard.position
        interval_s = self._checkpoint_interval_s
        is_interval_over = now >= self._saved_s.get(number, now - interval_s) + interval_s
        return is_interval_over or is_end or shard.phase is not ShardPhase.OPEN

    def _is_current(self, shard: HeldShard) -> bool:
        """Whether the position is still current. Earlier requests may have taken long, and a shard that was
        lost and assigned again in the meantime must not be moved back."""
        with self._shared_state.use() as (membership, now):
            is_same = any((s.epoch, s.position) == (shard.epoch, shard.position) for s in membership.shards)
            # After a stall of the whole process this thread may be the first to check the time.
            return is_same and membership.session_left_s(now) > 0

    def _require_held(self, shard: HeldShard) -> None:
        if not self._is_current(shard):
            raise LogHubError(
                "ConsumerNotMatch",
                400,
                f"shard {shard.shard} was assigned to another consumer while it was opened",
            )

    def _try_save(self, shard: HeldShard, *, retried: bool = True) -> None:
        assert shard.position is not None
        try:
            self._save(shard.shard, shard.position)
            self._record.acknowledge(shard.shard, shard.position)
        except (LogHubException, OSError) as error:
            self._postpone(shard, error)
            if not retried:
                raise
            return
        self._succeeded(shard)
        with self._shared_state.use() as (membership, _):
            membership.saved(shard.shard, epoch=shard.epoch, cursor=shard.position)

    def _save(self, shard: int, position: int) -> None:
        self._client.update_checkpoint(
            self._logstore,
            self._group,
            shard=shard,
            cursor=encode_cursor(position),
            consumer=self._consumer,
            force=False,
        )
        self._saved_s[shard] = self._clock.monotonic_s()
        log.debug("checkpoint saved", shard=shard, position=position)

    # -- read-only shards and lag

    def _check_read_only(self) -> None:
        with self._shared_state.use() as (membership, _):
            shards = [s for s in membership.shards if s.phase is ShardPhase.OPEN and s.position is not None]
        try:
            infos = self._client.list_shards(self._logstore) if shards else ()
            self._read_only = frozenset(info.shard for info in infos if info.read_only)
            for shard in shards:
                assert shard.position is not None
                at_end = self._ends.get(shard.shard) == shard.position
                if at_end and shard.shard in self._read_only:
                    # The shard became read-only after its end was saved. Only a checkpoint makes the service
                    # mark it as over (docs/sls-protocol.md 4.3), and no further batch will save one.
                    self._save_end(shard, shard.position)
        except LogHubException as error:
            log.info("list of shards not requested, will retry", reason=to_reported_error(error).reason)

    def _save_end(self, shard: HeldShard, position: int) -> None:
        with self._saving:  # a batch may have advanced the shard, and its checkpoint must not move back
            if self._is_current(shard):
                self._save(shard.shard, position)

    def _measure_lags(self, shards: tuple[HeldShard, ...], ends: dict[int, int], *, now: float) -> None:
        for shard in shards:
            number, position = shard.shard, shard.position
            if position is None or number not in ends or position > ends[number]:
                self.oldest_unix_s.pop(number, None)
            elif position == ends[number]:
                self.oldest_unix_s[number] = None
            elif now >= self._lag_requested_s.get(number, now - LAG_S) + LAG_S:
                self._lag_requested_s[number] = now
                with contextlib.suppress(LogHubException):  # only a metric; the next attempt follows soon
                    cursor = encode_cursor(position)
                    received_s = self._client.get_cursor_time(self._logstore, number, cursor)
                    self.oldest_unix_s[number] = received_s
