"""The checkpoint of one shard for its processor, the acknowledgement of its logs, and its position in the
user's database.

There are two modes of acknowledgement. By batch, which is the default, `process` acknowledges a batch by
returning, and only refused logs are kept. By log, everything that was handed over is kept until it is
acknowledged, which any thread may do at any time. The thread of the shard redelivers logs, in order and in
batches of logs with the same number of deliveries, while new logs continue.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import chain
from typing import Any

import structlog

from loghub.client.port import LogHub
from loghub.wire.cursor import decode as decode_cursor
from loghub.wire.cursor import encode as encode_cursor
from loghub.wire.subscriptions import MAX_DELAY_S
from loghub_consumer import held_shard
from loghub_consumer.assignment import Checkpoints
from loghub_consumer.batch import LogBatch, LogPlace, Logs, count_logs, has_logs, places_of
from loghub_consumer.checkpoint_store import CheckpointStore, FencedError, Owned, StoredShard
from loghub_consumer.failure.policy import PARTS_AFTER_A_HANG, PARTS_AFTER_AN_ERROR, Cause, Failure
from loghub_consumer.failure.retry_logstore import RetryMark, mark_of
from loghub_consumer.held_shard import HeldShardState
from loghub_consumer.membership.membership import MemberShard
from loghub_consumer.processor import ShardLostError
from loghub_consumer.shard_table import HeldShardEntry, Kept
from loghub_consumer.unacknowledged import FINAL, Due, RedeliveryRules, Unsettled, is_blamed

log = structlog.get_logger()


REFUSED = "Refused"
NO_SAVE = -1  # cursors are not negative


class Acknowledgement:
    """Acknowledges and refuses the logs of one assignment of a shard, under the lock of the table.
    Thread-safe."""

    def __init__(self, entry: HeldShardEntry, rules: RedeliveryRules) -> None:
        self._entry = entry
        self._rules = rules
        self._running: Kept | None = None
        self._saved_to = NO_SAVE  # the running batch has saved everything before this cursor
        self._has_acknowledged = False  # something was acknowledged since the checkpoint was last noted
        # By batch, the first and the last log group that came again and were processed since the last save.
        self._unsaved: tuple[int, int] | None = None

    # -- the thread of the shard

    def begin(self, kept: Kept) -> None:
        """`process` is called with this batch. Raises `ShortReadError`."""
        is_kept = self._rules.by_log and kept.again is None
        groups = list(kept.batch.raw_groups()) if is_kept else []
        # A log group without logs, which SLS may send, has none that a processor could acknowledge.
        kept_groups = [one for one in groups if has_logs(one[1])]
        with self._entry.lock:
            self._running, self._saved_to = kept, NO_SAVE
            self._has_acknowledged |= len(kept_groups) < len(groups)
            if kept.generation == self._entry.state.generation:
                again = self._rules.again(self._entry.now_s)
                due_s = None if again is None else again(1)
                for cursor, raw, _ in kept_groups:
                    self._entry.unacknowledged.add(Unsettled(cursor, raw, None, 1, True, due_s))
            self._changed()

    def defer(self, kept: Kept) -> None:
        """Keep the logs of a retry logstore until their time. Logs of another group are passed over, because
        that group reads them. Raises `ShortReadError`."""
        marked = [(cursor, raw, mark_of(raw)) for cursor, raw, _ in kept.batch.raw_groups()]
        groups = [one for one in marked if self._is_ours(one[2])]
        if len(groups) < len(marked):
            log.warning(
                "logs that wait for another consumer group are passed over; give each group a retry logstore"
                " of its own",
                shard=kept.batch.shard,
                log_groups=len(marked) - len(groups),
            )
        with self._entry.lock:
            if kept.generation != self._entry.state.generation:
                return
            now, unix_s = self._entry.now_s, self._entry.table.clock.unix_s()
            for cursor, raw, mark in groups:
                attempts, wait_s = (0, 0.0) if mark is None else (mark.attempts, mark.wait_s(unix_s))
                unsettled = Unsettled(cursor, raw, None, attempts, False, now + wait_s, mark=mark)
                unsettled.attempts = attempts
                unsettled.is_limited = True  # its attempts were made elsewhere
                self._entry.unacknowledged.add(unsettled)
            self._changed()

    def _is_ours(self, mark: RetryMark | None) -> bool:
        ours = self._rules.defers_for
        return mark is None or ours is None or mark.origin in ours

    def returned(self) -> bool:
        """`process` has returned: by batch, all logs that it did not refuse are acknowledged. Returns whether
        the whole batch was refused."""
        with self._entry.lock:
            running, unacknowledged = self._running, self._entry.unacknowledged
            assert running is not None
            if running.again is not None:
                refused_all = not any(one.is_out or one.is_gone for one in running.again)
                if not self._rules.by_log:
                    self._note_unsaved(one.cursor for one in running.again if one.is_out and not one.is_gone)
                    unacknowledged.acknowledge_out(running.again)
            else:
                groups = len(running.batch.groups)
                refused_all = len(unacknowledged) >= groups and all(
                    place.cursor in unacknowledged for place in running.batch.places()
                )
            self._changed()
            return refused_all

    def _note_unsaved(self, cursors: Iterable[int]) -> None:
        unsaved = [*cursors, *(self._unsaved or ())]
        self._unsaved = (min(unsaved), max(unsaved)) if unsaved else None

    def settled(self) -> None:
        """Logs were settled: the checkpoint may pass them."""
        with self._entry.lock:
            self._has_acknowledged = True
            self._changed()

    def raised(self, failure: Failure, *, was_alone: bool) -> bool:
        """`process` has raised; `was_alone`: no other batch ran in the worker. Returns whether the whole
        batch must be processed again, before anything else; otherwise the logs that it has not acknowledged
        are redelivered by themselves."""
        with self._entry.lock:
            running = self._running
            assert running is not None
            unacknowledged, batch = self._entry.unacknowledged, running.batch
            is_single = batch.is_single
            keeps_order = running.again is None and not self._rules.by_log
            if keeps_order:
                if running.generation == self._entry.state.generation:
                    unacknowledged.discard(batch.begin, batch.end)
            else:
                of_batch = [one for one in unacknowledged if _has(running, one)]
                is_known = is_single and (was_alone or failure.cause is not Cause.ENDED)
                self._blame(of_batch, failure, is_known=is_known, delivery=batch.delivery)
                unacknowledged.send_back(of_batch, self._rules, now=self._entry.now_s)
            self._changed()
            return keeps_order

    def _blame(
        self, of_batch: Sequence[Unsettled], failure: Failure, *, is_known: bool, delivery: int
    ) -> None:
        """Blame the failure of a batch on the log that caused it. Which of several logs it was is only known
        once each was handed over alone, and which ended a process only once nothing else ran in the worker.
        Until then it counts as no attempt of any of them."""
        unacknowledged, backoff = self._entry.unacknowledged, self._rules.backoff
        now = self._entry.now_s
        if not is_blamed(failure):
            unacknowledged.refuse_out(of_batch, due_s=now + backoff.pause_s(delivery), failure=failure)
        elif is_known:
            due_s = max((self._due_s(one.attempts + 1, None, now=now) for one in of_batch), default=now)
            unacknowledged.refuse_out(of_batch, due_s=due_s, failure=failure)
        else:
            is_cheap = failure.cause is Cause.REJECTED
            can_divide = unacknowledged.can_divide
            unacknowledged.suspect_out(
                of_batch,
                due_s=now if is_cheap and can_divide else now + backoff.pause_s(delivery),
                failure=replace(failure, cause=Cause.UNAVAILABLE),
                divisor=1 if not can_divide else PARTS_AFTER_AN_ERROR if is_cheap else PARTS_AFTER_A_HANG,
            )

    @property
    def is_by_batch(self) -> bool:
        """Whether the position alone, besides refused logs, says which logs are processed."""
        return not self._rules.by_log and not self._rules.defers

    def ended(self) -> None:
        """The position of the shard follows from how `process` ended."""
        with self._entry.lock:
            self._running = None

    # -- any thread

    def interrupted(self, failure: Failure) -> None:
        """The process that had the logs has ended. `raised` follows for a running batch."""
        with self._entry.lock:
            due_s = self._entry.now_s + self._rules.backoff.pause_s(1)
            running = self._running
            lost = [one for one in self._entry.unacknowledged if not _has(running, one)]
            self._entry.unacknowledged.refuse_out(lost, due_s=due_s, failure=failure)
            self._entry.unacknowledged.send_back(lost, self._rules, now=self._entry.now_s)
            self._changed()

    @property
    def floor(self) -> int | None:
        """The first cursor that a checkpoint must not pass; None: there is none."""
        with self._entry.lock:
            return self._entry.unacknowledged.floor

    @property
    def first_unsaved(self) -> int | None:
        """By batch, the first log group that came again and that the processor may have in its memory alone:
        no checkpoint passes it before the processor saves; None: there is none."""
        with self._entry.lock:
            return None if self._unsaved is None else self._unsaved[0]

    def saved(self, position: int) -> None:
        """The processor says that everything before `position` is done, including logs of the running batch:
        by batch, redelivered logs in it are acknowledged."""
        with self._entry.lock:
            self._pass(position)
            running = self._running
            if running is None or self._rules.by_log:
                return
            self._saved_to = max(self._saved_to, position)
            if running.again is not None:
                done = [one for one in running.again if one.cursor < position]
                self._entry.unacknowledged.acknowledge_out(done)
                self._changed()

    def committed(self, position: int) -> None:
        """The program says that everything before is done from which `process` has returned."""
        with self._entry.lock:
            self._pass(position)

    def _pass(self, position: int) -> None:
        first, last = self._unsaved or (position, position)
        self._unsaved = (max(first, position), last) if position <= last and self._unsaved else None

    def take_prefix(self) -> int | None:
        """By log, the cursor before which all is acknowledged; None if nothing was since the last call."""
        with self._entry.lock:
            if not self._has_acknowledged or not self._rules.by_log:
                return None
            self._has_acknowledged = False
            running, state = self._running, self._entry.state
            floor = self._entry.unacknowledged.floor
            if floor is not None:
                return floor
            is_next = running is not None and running.again is None and running.generation == state.generation
            return running.batch.end if running is not None and is_next else state.position

    def acknowledge(self, logs: Iterable[Logs]) -> None:
        """Acknowledge these logs; without any, the running batch."""
        with self._entry.lock:
            self._acknowledge(self._places(logs))

    def acknowledge_up_to(self, last: Logs) -> None:
        """Acknowledge this log and all logs before it in the shard that were handed over. Raises
        `ValueError`."""
        with self._entry.lock:
            deliveries = self._entry.unacknowledged.deliveries
            if deliveries is not None and not deliveries.keeps_refused:
                raise ValueError(
                    "in a Shared or KeyShared subscription other consumers may have logs before it;"
                    " acknowledge each log with tracker.ack, or use the type Exclusive or Failover"
                )
            self._acknowledge(self._places_up_to(self._places((last,))[-1]))

    def _acknowledge(self, places: Iterable[LogPlace]) -> None:
        for place in places:
            self._entry.unacknowledged.acknowledge(place.cursor, place.index)
        if self._entry.table.failures is not None:
            self._entry.table.failures.skips.succeeded(self._entry.state.shard)
        self._has_acknowledged = True
        self._changed()

    def refuse(
        self, logs: Iterable[Logs], delay_s: float | None, reason: str, *, is_final: bool = False
    ) -> None:
        """Redeliver these logs, after `delay_s` or after a pause that grows; without any, the running batch.
        `is_final`: settle them instead. Raises `ValueError` for logs that were acknowledged already."""
        with self._entry.lock:
            self._refuse_all(self._places(logs), delay_s, reason, is_final=is_final)

    def refuse_up_to(self, last: Logs, delay_s: float | None, reason: str) -> None:
        """Refuse this log and all logs before it in the shard that are not acknowledged."""
        with self._entry.lock:
            self._refuse_all(self._places_up_to(self._places((last,))[-1]), delay_s, reason)

    def _places_up_to(self, last: LogPlace) -> Iterable[LogPlace]:
        places = [LogPlace(*place) for place in self._entry.unacknowledged.up_to(last.cursor, last.index)]
        running = self._running
        if running is None or running.again is not None or self._rules.by_log:
            return places
        begin = max(running.batch.begin, self._saved_to)
        places = [place for place in places if place.cursor < begin]
        cursors = [place.cursor for place in running.batch.places() if begin <= place.cursor <= last.cursor]
        if last.index is None or last.cursor not in cursors:
            return places + [LogPlace(cursor) for cursor in cursors]
        places += [LogPlace(cursor) for cursor in cursors[:-1]]
        return chain(places, (LogPlace(last.cursor, index) for index in range(last.index + 1)))

    def _refuse_all(
        self, places: Iterable[LogPlace], delay_s: float | None, reason: str, *, is_final: bool = False
    ) -> None:
        if delay_s is not None and not delay_s >= 0:
            raise ValueError(f"the delay is {delay_s}; it must be at least 0")
        if (
            delay_s is not None
            and delay_s > MAX_DELAY_S
            and self._entry.unacknowledged.deliveries is not None
        ):
            raise ValueError(
                f"the delay is {delay_s}; a subscription allows at most {MAX_DELAY_S:g} s, which are 7 days"
            )
        if not isinstance(reason, str):
            raise TypeError(f"the reason is {type(reason).__name__}; it must be a text")
        now = self._entry.now_s
        failure = Failure(cause=Cause.REJECTED, reason=FINAL if is_final else REFUSED, message=reason)
        unacknowledged, cursors = self._entry.unacknowledged, dict[int, None]()
        for place in places:
            cursors[place.cursor] = None
            self._refuse(
                place, lambda attempts: self._due_s(attempts, delay_s, now=now, is_final=is_final), failure
            )
        refused = (part for cursor in cursors for part in unacknowledged.at(cursor))
        unacknowledged.send_back(refused, self._rules, now=now)
        self._changed()

    def _due_s(self, attempts: int, delay_s: float | None, *, now: float, is_final: bool = False) -> float:
        if self._rules.is_settled(attempts, is_final=is_final):
            return now
        return now + (self._rules.backoff.pause_s(attempts) if delay_s is None else delay_s)

    def _refuse(self, place: LogPlace, due: Due, failure: Failure) -> None:
        unacknowledged = self._entry.unacknowledged
        if place.cursor < self._saved_to:
            if unacknowledged.refuse(place.cursor, place.index, due=due, failure=failure):
                return  # it was refused before, so that the save stopped there
            raise ValueError(
                f"{place} was saved by this batch already; call nack before save, or save(cursor=..) with the"
                " cursor of the first log that is not done"
            )
        running = self._running
        if running is not None and running.again is None and not self._rules.by_log:
            if running.generation != self._entry.state.generation:
                return  # the position was sought, so the logs are pulled again
            raw_group = running.batch.raw_group(place.cursor)
            if raw_group is not None:
                if place.index is not None and place.index >= count_logs(raw_group[0]):
                    raise ValueError(
                        f"{place} does not exist: the log group has {count_logs(raw_group[0])} logs"
                    )
                unacknowledged.refuse_first(
                    place.cursor, place.index, raw=raw_group[0], due_s=due(1), failure=failure
                )
                return
        is_here = unacknowledged.refuse(place.cursor, place.index, due=due, failure=failure)
        if not is_here and not self._rules.by_log:
            raise ValueError(
                f"{place} is acknowledged, since process has returned; call nack before it returns, or set"
                " acknowledge='log'"
            )

    def _places(self, logs: Iterable[Logs]) -> list[LogPlace]:
        return places_of(logs, None if self._running is None else self._running.batch)

    def _changed(self) -> None:
        self._entry.apply_locked(
            lambda state, _: held_shard.retained(state, size=self._entry.unacknowledged.bytes)
        )
        self._entry.wake()  # the next redelivery may be earlier


def _has(running: Kept | None, unsettled: Unsettled) -> bool:
    """Whether the running batch has these logs."""
    if running is None or running.again is not None:
        return running is not None and running.again is not None and unsettled in running.again
    return running.batch.begin <= unsettled.cursor < running.batch.end


class StoredPosition:
    """The position of one assignment of a shard in the user's database. Used by the thread of the shard
    only."""

    def __init__(
        self,
        store: CheckpointStore,
        entry: HeldShardEntry,
        *,
        describe: Callable[[], StoredShard],
        on_fenced: Callable[[], None],
    ) -> None:
        """`describe` asks the log service for the shard's name; `on_fenced` is called if it has another
        owner."""
        self._store = store
        self._entry = entry
        self._describe = describe
        self._on_fenced = on_fenced
        self._owned: Owned | None = None
        # The generation of the shard's state when the position in the database was reached.
        self._generation = 0
        # Whether the position in the database is unknown, such as after a commit without an answer.
        self.is_uncertain = True

    def acquire(self) -> bool:
        """Own the shard in the database, and continue at its position there, unless another position was
        sought since. Returns whether the batch of the last transaction is committed, so that it must not be
        processed again."""
        before, state, since = self._owned, self._entry.state, self._generation
        shard, known_position = (
            (self._describe(), state.position) if before is None else (before.shard, before.position)
        )
        self._owned = owned = self._store.acquire(shard, position=state.position)
        self.is_uncertain = False
        if owned.position == known_position:
            return False

        def continued(state: HeldShardState, now: float) -> HeldShardState:
            return (
                state if state.generation != since else held_shard.sought(state, to=owned.position, now=now)
            )

        self._entry.apply(continued)
        return self._entry.kept is not None and self._entry.kept.generation == since

    @contextmanager
    def transaction(self, begin: int, end: int) -> Iterator[Any]:
        """A transaction for writes from the logs between two cursors, which saves their end. Raises
        `ShardLostError`, and the errors of the driver."""
        assert self._owned is not None
        if self.is_uncertain:
            raise ShardLostError("an earlier transaction of this batch failed; let process raise its error")
        state = self._entry.state
        generation = state.generation if self._entry.kept is None else self._entry.kept.generation
        was_sought = generation != self._generation
        self._generation, self.is_uncertain = generation, True
        if was_sought and end == self._owned.position:
            # The database has this position already, so it would not tell whether this one was committed.
            with self._saving(state.began_at if generation == state.generation else begin):
                pass
        with self._saving(end) as connection:
            yield connection
        self.is_uncertain = False

    @contextmanager
    def _saving(self, position: int) -> Iterator[Any]:
        assert self._owned is not None
        try:
            with self._store.transaction(self._owned, position=position) as connection:
                yield connection
        except FencedError as error:
            self._on_fenced()
            raise ShardLostError(str(error)) from error
        self._owned = replace(self._owned, position=position)


def cursor_of(client: LogHub, logstore: str, shard: int, to: str | int) -> int:
    """The cursor of ``"begin"``, ``"end"``, a time of receipt in unix seconds, or a cursor's text. Raises
    `MalformedCursor` and `LogHubException`."""
    if isinstance(to, int) or to in ("begin", "end"):
        return decode_cursor(client.get_cursor(logstore, shard, to))  # type: ignore[arg-type]
    return decode_cursor(to)


class ShardTracker:
    """The `loghub_consumer.processor.Tracker` of one assignment."""

    def __init__(
        self,
        checkpoints: Checkpoints,
        acknowledgement: Acknowledgement,
        stored: StoredPosition | None,
        entry: HeldShardEntry,
        *,
        held: MemberShard,
        seek: Callable[[str | int], None],
    ) -> None:
        """`seek` moves the shard."""
        position = held.position
        assert position is not None
        self.shard = held.shard
        self.pause, self.resume = entry.pause, entry.resume
        self._entry = entry
        self._seek = seek
        self._acknowledgement = acknowledgement
        self._stored = stored
        self._checkpoints = checkpoints
        self._epoch = held.epoch
        self._noting = threading.Lock()
        self._noted = position
        self._asked = position  # the position to be noted, even if something before it is not acknowledged
        self._handed_over = position  # the end of the last batch
        self._done = position  # what `save` means without a cursor
        self._ahead: int | None = None  # noted while a batch is being processed
        self._asked_in: int | None = None  # the generation of the shard's state
        self._reached: int | None = None  # noted last while a batch was, unless the position was sought since
        self._generation = 0  # the generation of the shard's state at the last batch

    def seek(self, to: str | int) -> None:
        self._entry.require_assigned()
        self._seek(to)

    def begin_batch(self, end: int, *, generation: int) -> None:
        """`process` is called with a batch that ends there."""
        with self._noting:
            self._done, self._ahead, self._handed_over = self._furthest(end, generation), None, end

    def passed(self, position: int) -> None:
        """A query has left out what lies before, so no processor saves it: note it if all that was handed
        over is saved. Raises `ShardLostError`."""
        with self._noting:
            if position > self._asked >= self._handed_over:
                self._note(position)

    def end_batch(self, state: HeldShardState) -> None:
        """No batch is being processed, and everything before the position was. If the batch failed, it may
        have saved more than that."""
        with self._noting:
            self._reached, self._ahead = self._reached if self._ahead is None else self._ahead, None
            self._done = self._furthest(state.position, state.generation)

    def _furthest(self, position: int, generation: int) -> int:
        """This position, or a position beyond it that was saved, unless another position was sought since."""
        if generation != self._generation:
            self._generation, self._reached = generation, None
        return position if self._reached is None else max(position, self._reached)

    def save(self, *, persist: bool = True, cursor: str | None = None) -> None:
        self._checkpoints.require_place()
        if cursor is not None and self._entry.unacknowledged.deliveries is not None:
            raise ValueError(
                "a subscription has no position to save; acknowledge logs with tracker.ack, and call save"
                " without a cursor to wait until the log service has that"
            )
        position = None if cursor is None else decode_cursor(cursor)
        with self._noting:
            self._saved(self._done if position is None else position)
        if persist:
            self.send()

    def send(self) -> None:
        """Send the noted position. Raises the errors of `save`."""
        self._checkpoints.send(self.shard, epoch=self._epoch)

    def _saved(self, position: int) -> None:
        self._acknowledgement.saved(position)
        self._ahead = self._note(position)

    def commit(self, present: Callable[[], HeldShardState]) -> None:
        """Save the processed position, or the position that a batch has saved already, which is further.
        Raises the errors of `save`."""
        self._checkpoints.require_place()
        with self._noting:
            state = present()
            position = (
                self._furthest(state.position, state.generation) if self._ahead is None else self._ahead
            )
            self._acknowledgement.committed(position)
            self._note(position)
        self._checkpoints.send(self.shard, epoch=self._epoch)

    def nack(self, *logs: Logs, delay_s: float | None = None, reason: str = "") -> None:
        self._require_order()
        self._acknowledgement.refuse(logs, delay_s, reason)

    def nack_up_to(self, last: Logs, *, delay_s: float | None = None, reason: str = "") -> None:
        self._require_order()
        self._acknowledgement.refuse_up_to(last, delay_s, reason)

    def reject(self, *logs: Logs, reason: str = "") -> None:
        self._require_order()
        self._acknowledgement.refuse(logs, None, reason, is_final=True)

    def _require_order(self) -> None:
        if self._stored is not None:
            raise ValueError("with a checkpoint store the logs stay in order; let process raise instead")

    @contextmanager
    def transaction(self, logs: LogBatch) -> Iterator[Any]:
        if self._stored is None:
            raise ValueError("there is no database; set ConsumerSettings.checkpoint_store")
        with self._stored.transaction(logs.begin, logs.end) as connection:
            yield connection
        with suppress(ShardLostError), self._noting:  # it is committed; the log service need not know
            self._saved(logs.end)

    @property
    def is_given_up(self) -> bool:
        """Whether only the `shutdown` of the processor is left."""
        return self._entry.is_given_up

    @property
    def is_held(self) -> bool:
        """False if another consumer may have the shard."""
        try:
            self.require_held()
        except ShardLostError:
            return False
        return True

    def require_held(self) -> None:
        """Raises `ShardLostError` if another consumer may have the shard."""
        with self._noting:
            self._checkpoints.note(self.shard, epoch=self._epoch, position=self._noted)

    def ack(self, *logs: Logs) -> None:
        self._acknowledgement.acknowledge(logs)

    def ack_up_to(self, last: Logs) -> None:
        self._acknowledgement.acknowledge_up_to(last)

    def interrupted(self, failure: Failure) -> None:
        """The processor is gone. Logs that it had, and neither acknowledged nor refused, are redelivered; by
        batch, logs that it has not saved as well, since it may have kept them in its memory."""
        self._acknowledgement.interrupted(failure)
        self._entry.roll_back(self.restart_before(self._entry.state.position))

    def is_settled_before(self, position: int) -> bool:
        """Whether nothing before is refused, or handed over and not acknowledged."""
        floor = self._acknowledgement.floor
        return floor is None or floor >= position

    def restart_before(self, position: int) -> int:
        """Where another processor must begin after the last one, which got everything before `position`. By
        batch, where that one has saved, or where the position was sought since, and at redelivered logs since
        then; by log, at `position`."""
        if not self._checkpoints.can_save:
            return position
        with self._noting:
            state, unsaved = self._entry.state, self._acknowledgement.first_unsaved
            position = position if unsaved is None else min(position, unsaved)
            if not self._acknowledgement.is_by_batch:
                return position
            return min(position, self._asked if self._asked_in == state.generation else state.began_at)

    def note_acknowledged(self) -> None:
        """Note the position of acknowledgement by log, up to the first log that is not acknowledged. Raises
        `ShardLostError`."""
        with self._noting:
            position = self._acknowledgement.take_prefix()
            if position is not None:
                self._note(position)

    def settled(self, begin: int, end: int) -> None:
        """These log groups were settled, so that no processor saves them. Raises `ShardLostError`."""
        self._acknowledgement.settled()
        with self._noting:
            if end > self._asked >= begin:  # the log groups before were saved
                self._note(end)
            else:
                self._note_asked()

    def _note(self, position: int) -> int:
        self._asked, self._asked_in = position, self._entry.state.generation
        return self._note_asked()

    def _note_asked(self) -> int:
        """As far as nothing before is refused, or not acknowledged, or may be in the processor's memory
        alone."""
        bounds = (self._asked, self._acknowledgement.floor, self._acknowledgement.first_unsaved)
        position = min(bound for bound in bounds if bound is not None)
        self._checkpoints.note(self.shard, epoch=self._epoch, position=position)
        self._noted = position
        return position

    def get(self) -> str:
        return encode_cursor(self._noted)
