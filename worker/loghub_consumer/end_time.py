"""Ends a consumer once all logs that were received before a given time are processed.

The time may lie ahead: logs that are received until then are processed normally. From then on no shard hands
over log groups behind the cursor of that time. The consumer does not end when only its own shards are
processed, since shards of other consumers may become its own, for example after a crash, or as the children
of a shard in an ordered group. It ends when the checkpoints of all other shards have reached that cursor,
too.
"""

import threading
from collections.abc import Callable, Mapping

import structlog

from loghub.client.port import LogHub
from loghub.clock import Clock
from loghub.wire.cursor import decode as decode_cursor
from loghub.wire.errors import LogHubException
from loghub_consumer import held_shard
from loghub_consumer.assignment import Assignment
from loghub_consumer.log_context import inherited
from loghub_consumer.log_service import ReportedError, to_reported_error
from loghub_consumer.settings import ConsumerSettings
from loghub_consumer.shard_table import HeldShardEntry, ShardTable

log = structlog.get_logger()

# The end is noticed this late at most, and each look takes a request for the checkpoints.
INTERVAL_S = 0.5
# A log group gets its time before it is written, and the clocks of machines differ. This long after the time,
# its cursor is final.
SETTLE_S = 2.0


class EndTime:
    """Watches for the end of one consumer, in a thread."""

    def __init__(
        self,
        table: ShardTable,
        client: LogHub,
        assignment: Assignment,
        settings: ConsumerSettings,
        clock: Clock,
        on_reached: Callable[[], None],
    ) -> None:
        """`on_reached` is called once, when there is nothing left to process."""
        assert settings.end_time_s is not None
        self._table = table
        self._client = client
        self._assignment = assignment
        self._settings = settings
        self._end_time_s = settings.end_time_s
        self._clock = clock
        self._on_reached = on_reached
        self._ends: dict[int, int] = {}  # the cursors of the time, which do not change once it has passed
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=inherited(self._run), name="end-time", daemon=True)
        self.error = ReportedError()

    def start(self) -> None:
        """To be called before the first shard is begun."""
        self._table.end_time_s = self._end_time_s
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()

    def _run(self) -> None:
        try:
            while not self._stopped.wait(INTERVAL_S):
                if self._is_reached():
                    log.info("everything before the end time is processed", logstore=self._settings.logstore)
                    self._on_reached()
                    return
        except BaseException as failure:  # noqa: BLE001 - `run` raises it
            self._table.fail(failure)

    def _is_reached(self) -> bool:
        passed_s = self._clock.unix_s() - self._end_time_s
        entries = self._table.working()
        if passed_s < 0:
            self._unbind(entries)
        if passed_s < SETTLE_S:
            return False
        try:
            self._bound(entries)
            is_reached = self._are_processed(entries) and self._are_others_saved(entries)
        except LogHubException as error:
            reported = to_reported_error(error)
            if reported.reason != self.error.reason:
                log.warning("end not known, will retry", reason=reported.reason, message=reported.message)
            self.error = reported
            return False
        self.error = ReportedError()
        return is_reached

    def _unbind(self, entries: Mapping[int, HeldShardEntry]) -> None:
        """Remove the bounds, because the clock was wrong when the time seemed to have passed."""
        self._ends.clear()
        for entry in entries.values():
            entry.apply(lambda state, _: held_shard.bounded(state, end=None))

    def _bound(self, entries: Mapping[int, HeldShardEntry]) -> None:
        for shard, entry in entries.items():
            if entry.state.end is None:
                end = self._end_of(shard)
                entry.apply(lambda state, _, end=end: held_shard.bounded(state, end=end))  # type: ignore[misc]

    def _end_of(self, shard: int) -> int:
        if shard not in self._ends:
            cursor = self._client.get_cursor(self._settings.logstore, shard, self._end_time_s)
            self._ends[shard] = decode_cursor(cursor)
        return self._ends[shard]

    def _are_processed(self, entries: Mapping[int, HeldShardEntry]) -> bool:
        """Whether this consumer has begun all its shards, and processed all their logs."""
        is_known = self._assignment.has_joined
        if not is_known or {held.shard for held in self._assignment.held()} != set(entries):
            return False
        with self._table.lock:
            return all(_is_processed(entry) for entry in entries.values())

    def _are_others_saved(self, entries: Mapping[int, HeldShardEntry]) -> bool:
        settings = self._settings
        if settings.shards is not None:
            return True
        others = [info.shard for info in self._client.list_shards(settings.logstore)]
        others = [shard for shard in others if shard not in entries]
        if not others:
            return True
        saved = self._client.get_checkpoints(settings.logstore, settings.consumer_group)
        cursors = {one.shard: one.cursor for one in saved if one.cursor}
        return all(self._is_saved(shard, cursors.get(shard)) for shard in others)

    def _is_saved(self, shard: int, cursor: str | None) -> bool:
        """Whether the checkpoint has reached the end. Without a checkpoint no consumer has begun the shard
        yet, wherever it will begin."""
        end = self._end_of(shard)
        if cursor is not None and decode_cursor(cursor) >= end:
            return True
        return decode_cursor(self._client.get_cursor(self._settings.logstore, shard, "begin")) >= end


def _is_processed(entry: HeldShardEntry) -> bool:
    state = entry.state
    if state.end is None or not state.is_initialized or state.is_busy or state.keeps_batch:
        return False
    return entry.next_cursor >= state.end and not len(entry.unacknowledged)
