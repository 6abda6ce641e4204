"""The logs of one shard that are not acknowledged: which must be redelivered, and when.

A log group stays here from the moment at which it was refused, or handed over to a processor that
acknowledges each log itself, until all its logs are acknowledged. Parts of a log group may be refused with
different delays. The first log group here bounds the checkpoint (`floor`), so that the next consumer reads
every log group here again, whatever happens to this one.

With a subscription every log comes here as soon as it is delivered, with the number of its redeliveries, and
waits here for its first batch as well. What becomes of it is noted for the log service
(`loghub_consumer.acknowledgments`), which redelivers what is refused.

No threads or clocks: times are arguments, in seconds of the monotonic clock, and `loghub_consumer.tracker`
has the lock.
"""

import heapq
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import TypeAlias

from loghub.backoff import Backoff
from loghub_consumer.acknowledgments import Deliveries, Fate
from loghub_consumer.failure.policy import Cause, Failure
from loghub_consumer.failure.retry_logstore import Origin, RetryMark

TIMED_OUT = Failure(
    cause=Cause.REJECTED, reason="AckTimedOut", message="it was neither acknowledged nor refused in time"
)
FINAL = "Rejected"  # the reason of a failure after which another delivery would change nothing
# When logs are redelivered: after a refusal by the number of their attempts, otherwise by the number of their
# deliveries.
Due: TypeAlias = Callable[[int], float]
GRID_S = 0.05  # logs that are due within this time are redelivered together
ENTRY_BYTES = 500  # about what Python needs besides the bytes of a log group
# A heap is rebuilt when more than half of it is void, unless it has only a few entries.
FEW_ENTRIES = 64
MAX_PARTS = 1000  # of log groups that are divided to find the log that makes a batch fail
# The properties that logs of a log group must share to be redelivered together.
ALIKE = ("delivery", "attempts", "due_s", "failure", "is_suspect")


@dataclass(frozen=True, slots=True, kw_only=True)
class RedeliveryRules:
    """How logs are acknowledged, and when they are redelivered."""

    by_log: bool  # by `Tracker.ack`, and not by the return of `process`
    backoff: Backoff  # by the number of attempts
    # By the number of deliveries; None: logs are redelivered only after a refusal.
    ack_timeouts: Backoff | None
    max_unacknowledged: int  # log groups, from the first that is here to the last that was handed over

    # Every log is kept until its time, which is written with it, unless its origin is not among these, which
    # this group reads. None: no log is kept.
    defers_for: frozenset[Origin] | None = None
    max_attempts: int | None = None  # then the logs are settled; None: they are redelivered forever

    @property
    def defers(self) -> bool:
        return self.defers_for is not None

    def is_settled(self, attempts: int, *, is_final: bool) -> bool:
        """Whether logs are settled after this many attempts. `is_final`: another delivery would change
        nothing."""
        return self.max_attempts is not None and (is_final or attempts >= self.max_attempts)

    def again(self, now: float) -> Due | None:
        """When logs that are handed over now are redelivered unless something happens to them; None:
        never."""
        timeouts = self.ack_timeouts
        return None if timeouts is None else lambda delivery: now + timeouts.pause_s(delivery)

    def room(self, *, floor: int | None, position: int) -> int | None:
        """How many log groups may be handed over now; None: any number, since returning acknowledges them."""
        if floor is None:
            return self.max_unacknowledged if self.by_log or self.defers else None
        return max(0, self.max_unacknowledged - (position - floor))


@dataclass(slots=True, eq=False)
class Unsettled:
    """Logs of one log group that are not acknowledged. Compared by identity."""

    cursor: int
    raw: bytes  # the whole log group as it was written
    only: set[int] | None  # the logs that are meant, by index; None: all
    delivery: int  # how often they were handed over
    is_out: bool  # handed over, and neither acknowledged nor refused since
    due_s: float | None = None  # when they are redelivered; None: nothing is planned
    failure: Failure | None = None  # why it was refused last; None: it was not
    settle_failures: int = 0  # consecutive, of the dead letter
    is_limited: bool = False  # it is not settled before it was handed over once more
    mark: RetryMark | None = None  # of logs that waited in a retry logstore
    attempts: int = 0  # deliveries that have failed because of these logs
    is_gone: bool = False  # acknowledged or discarded
    is_suspect: bool = False  # one of several for which a batch failed: handed over with no others
    logs: int = 0  # of the whole log group; counted only if a subscription delivered it

    @property
    def meant_logs(self) -> int:
        """The number of the logs that are meant, which is counted only with a subscription."""
        return self.logs if self.only is None else len(self.only)


class Unacknowledged:
    """The logs of one assignment of a shard. Not thread-safe."""

    def __init__(self, count_logs: Callable[[bytes], int]) -> None:
        """`count_logs` says how many logs a log group has, given its bytes."""
        self._count_logs = count_logs
        self._by_cursor: dict[int, list[Unsettled]] = {}
        self._cursors: list[int] = []  # a heap, with cursors that are no longer here
        self._due: list[tuple[float, int, Unsettled]] = []  # a heap, with times that hold no longer
        self._numbers = count()
        self._parts = 0
        self.bytes = 0
        self.deliveries: Deliveries | None = None  # of a subscription
        self._unbegun: dict[Unsettled, None] = {}  # delivered, and not handed over

    def __len__(self) -> int:
        """The number of log groups."""
        return len(self._by_cursor)

    def __contains__(self, cursor: int) -> bool:
        return cursor in self._by_cursor

    def __iter__(self) -> Iterator[Unsettled]:
        return (one for parts in tuple(self._by_cursor.values()) for one in tuple(parts))

    @property
    def floor(self) -> int | None:
        """The first cursor that a checkpoint must not pass; None if nothing is here."""
        while self._cursors and self._cursors[0] not in self._by_cursor:
            heapq.heappop(self._cursors)
        return self._cursors[0] if self._cursors else None

    @property
    def due_s(self) -> float | None:
        """When the next logs are redelivered; None: nothing is planned."""
        while self._due and not _holds(*self._due[0]):
            heapq.heappop(self._due)
        return self._due[0][0] if self._due else None

    # -- what happens to logs

    def add(self, part: Unsettled) -> None:
        """Logs were handed over for the first time, or refused in a batch that returning acknowledges."""
        parts = self._by_cursor.get(part.cursor)
        if parts is None:
            self._by_cursor[part.cursor] = parts = []
            heapq.heappush(self._cursors, part.cursor)
            self.bytes += len(part.raw)
        else:
            part.raw = parts[0].raw  # the parts of a log group have its bytes once
        parts.append(part)
        self._parts += 1
        self.bytes += ENTRY_BYTES
        self._enqueue(part)

    def acknowledge(self, cursor: int, index: int | None = None) -> bool:
        """A log, or all of a log group, is done. False if it was not here."""
        if index is None:
            whole = tuple(self._by_cursor.get(cursor, ()))
            for one in whole:
                self._settle(one, Fate.ACKNOWLEDGED)
            return self._remove(whole)
        part = self._find(cursor, index)
        if part is None:
            return False
        if part.only == {index}:
            self._settle(part, Fate.ACKNOWLEDGED)
            return self._remove((part,))
        self._logs_of(part).remove(index)
        if self.deliveries is not None:
            self.deliveries.settle(Fate.ACKNOWLEDGED, cursor, (index,), logs=1)
        return True

    def refuse(self, cursor: int, index: int | None, *, due: Due, failure: Failure | None = None) -> bool:
        """A log, or all of a log group, is handed over again at the time that `due` returns for the
        number of its attempts, this one included. False if it was not here."""
        if index is not None:
            part = self._find(cursor, index)
            if part is None:
                return False
            self._refuse_log(part, index, due_s=_on_grid(due(part.attempts + 1)), failure=failure)
            return True
        parts = tuple(self._by_cursor.get(cursor, ()))
        for part in parts:
            part.is_out, part.failure = False, failure
            self._set_due(part, _on_grid(due(part.attempts + 1)))
        return bool(parts)

    def refuse_first(
        self, cursor: int, index: int | None, *, raw: bytes, due_s: float, failure: Failure | None = None
    ) -> None:
        """Keep a log, or all of a log group, of a batch whose other logs are acknowledged."""
        due_s = _on_grid(due_s)
        if index is None:
            self.discard(cursor, cursor + 1)
            self.add(Unsettled(cursor, raw, None, 1, False, due_s, failure))
            return
        if (part := self._find(cursor, index)) is not None:
            self._refuse_log(part, index, due_s=due_s, failure=failure)
        else:
            self._join(Unsettled(cursor, raw, {index}, 1, False, due_s, failure))

    def _refuse_log(self, part: Unsettled, index: int, *, due_s: float, failure: Failure | None) -> None:
        if part.only == {index}:
            part.is_out, part.failure = False, failure
            self._set_due(part, due_s)
            return
        self._logs_of(part).remove(index)
        self._join(_part_of(part, {index}, due_s, failure))

    def _join(self, refused: Unsettled) -> None:
        """Add logs to the part of their log group that is redelivered at the same time, if there is one."""
        for other in self._by_cursor.get(refused.cursor, ()):
            if other.only is not None and not other.is_out and _alike(other, refused):
                other.only |= refused.only or set()
                return
        self.add(refused)

    def refuse_out(self, some: Iterable[Unsettled], *, due_s: float, failure: Failure | None = None) -> None:
        """Redeliver the parts of these that are neither acknowledged nor refused."""
        for part in some:
            if part.is_out and not part.is_gone:
                part.is_out, part.failure = False, failure
                self._set_due(part, due_s)

    @property
    def can_divide(self) -> bool:
        """Whether there are few parts of log groups. With a processor that fails for all logs, each log would
        become a part, and take more memory than its bytes."""
        return self._parts - len(self._by_cursor) < MAX_PARTS

    def suspect_out(self, some: Iterable[Unsettled], *, due_s: float, failure: Failure, divisor: int) -> None:
        """A batch failed with these: the parts that are neither acknowledged nor refused are redelivered,
        each alone. If only logs of one log group are left, they are divided into `divisor` parts."""
        out = [one for one in some if one.is_out and not one.is_gone]
        for suspect in out:
            suspect.is_suspect = True
            for part in self._divided(suspect, divisor) if len(out) == 1 else (suspect,):
                part.is_out, part.failure = False, failure
                self._set_due(part, due_s)

    def _divided(self, whole: Unsettled, divisor: int) -> list[Unsettled]:
        logs = sorted(self._logs_of(whole))
        size = max(1, -(-len(logs) // divisor))  # a log group that SLS sends may have no log
        whole.only = set(logs[:size])
        parts = [whole]
        for begin in range(size, len(logs), size):
            part = _part_of(whole, set(logs[begin : begin + size]), None, None)
            part.is_suspect = True
            self.add(part)
            parts.append(part)
        return parts

    def put_back(self, part: Unsettled, due_s: float | None) -> None:
        """A part was taken and not handed over after all: try that again later."""
        part.delivery -= 1
        part.attempts -= 1
        if not part.is_gone:
            part.is_out = False
            self._set_due(part, due_s)

    def acknowledge_out(self, some: Iterable[Unsettled]) -> None:
        """The parts of these that are neither acknowledged nor refused are done."""
        self._remove([one for one in some if one.is_out and not one.is_gone])

    def discard(self, begin: int, end: int | None = None) -> None:
        """Forget the log groups from one cursor to another: they are read again from the shard."""
        if end == begin + 1:
            cursors = [begin] if begin in self._by_cursor else []
        else:
            cursors = [c for c in self._by_cursor if c >= begin and (end is None or c < end)]
        for cursor in cursors:
            self._remove(self._by_cursor[cursor])

    # -- logs of a subscription

    def deliver(self, part: Unsettled) -> bool:
        """The log service has delivered these logs, which wait for a batch. What is here already is left out;
        returns whether anything is left."""
        assert self.deliveries is not None
        for other in self._by_cursor.get(part.cursor, ()):
            part.only = self._logs_of(part) - self._logs_of(other)
            if not part.only:
                return False
        self.deliveries.deliver(part.meant_logs, is_again=part.delivery > 0)
        self._unbegun[part] = None
        self.add(part)
        return True

    @property
    def unbegun(self) -> tuple[int, int]:
        """The number of logs that wait for their first batch, and of their bytes."""
        logs = sum(part.meant_logs for part in self._unbegun)
        return logs, sum(len(part.raw) for part in self._unbegun)

    def hasten(self, now: float) -> None:
        """The logs that wait for their first batch are one: they wait no longer."""
        for part in self._unbegun:
            self._set_due(part, min(now, part.due_s or now))

    def release_unbegun(self) -> None:
        """The logs that wait for their first batch go to other consumers."""
        unbegun = tuple(self._unbegun)
        for part in unbegun:
            self._settle(part, Fate.RELEASED)
        self._remove(unbegun)

    def send_back(self, refused: Iterable[Unsettled], rules: RedeliveryRules, *, now: float) -> None:
        """The log service redelivers what was refused here at its time, unless it is settled now."""
        if self.deliveries is None or self.deliveries.keeps_refused:
            return
        for part in tuple(refused):
            if part.is_gone or part.is_out or not is_blamed(part.failure):
                continue
            assert part.failure is not None
            if not rules.is_settled(part.attempts + 1, is_final=part.failure.reason == FINAL):
                self._settle(part, Fate.REFUSED, due_s=now if part.due_s is None else part.due_s)
                self._remove((part,))

    def time_out(self, rules: RedeliveryRules, *, now: float) -> bool:
        """Logs that were neither acknowledged nor refused in time are refused. Returns whether there were
        any."""
        late: list[Unsettled] = []
        others: list[tuple[float, int, Unsettled]] = []
        while (due_s := self.due_s) is not None and due_s <= now:
            entry = heapq.heappop(self._due)
            if entry[2].is_out:
                late.append(entry[2])
            else:
                others.append(entry)
        for entry in others:
            heapq.heappush(self._due, entry)
        for part in late:
            part.is_out, part.failure = False, TIMED_OUT
            self._enqueue(part)
        self.send_back(late, rules, now=now)
        return bool(late)

    def at(self, cursor: int) -> tuple[Unsettled, ...]:
        """The parts of one log group."""
        return tuple(self._by_cursor.get(cursor, ()))

    def _settle(self, part: Unsettled, fate: Fate, *, due_s: float = 0.0) -> None:
        if self.deliveries is not None:
            self.deliveries.settle(fate, part.cursor, part.only, logs=part.meant_logs, due_s=due_s)

    # -- the next batch of logs that come again, or that a subscription has delivered

    def take_due(
        self, *, max_bytes: int, now: float, again: Due | None, max_logs: int | None = None
    ) -> list[Unsettled]:
        """Redeliver the parts that are due: logs with the same number of deliveries, in order, at least one
        part. If nothing happens to them, that is repeated at `again`. `max_logs` is for a subscription."""
        taken: list[Unsettled] = []
        later: list[tuple[float, int, Unsettled]] = []
        size = logs = 0
        while (due_s := self.due_s) is not None and due_s <= now:
            entry = heapq.heappop(self._due)
            part = entry[2]
            is_too_large = size + len(part.raw) > max_bytes or part.is_suspect
            is_too_large |= max_logs is not None and logs + part.meant_logs > max_logs
            if taken and (part.delivery != taken[0].delivery or is_too_large):
                later.append(entry)
                if part.delivery == taken[0].delivery:
                    break
                continue
            taken.append(part)
            part.due_s = None  # another entry of it, of a time that it had before and has again, is void
            size, logs = size + len(part.raw), logs + part.meant_logs
            if part.is_suspect:
                break
        for entry in later:
            heapq.heappush(self._due, entry)
        for part in taken:
            if part.is_out:
                part.failure = TIMED_OUT
            part.delivery += 1
            part.attempts += is_blamed(part.failure)
            part.is_out = True
            self._unbegun.pop(part, None)
            self._set_due(part, None if again is None else again(part.delivery))
        return sorted(taken, key=lambda part: (part.cursor, min(part.only or (0,))))

    def up_to(self, cursor: int, index: int | None) -> list[tuple[int, int | None]]:
        """The log groups, or logs of the last log group, that are here up to a log; without an index, up to
        the end of a log group. Logs that still wait for their first delivery are left out."""
        came = [at for at, parts in self._by_cursor.items() if at <= cursor and any(map(_has_come, parts))]
        whole = [(at, None) for at in sorted(came) if at < cursor or index is None]
        if index is None or cursor not in came:
            return [*whole]
        parts = self._by_cursor[cursor]
        logs = sorted(number for one in parts for number in self._logs_of(one) if number <= index)
        return [*whole, *((cursor, number) for number in logs)]

    # -- parts of a log group

    def _logs_of(self, part: Unsettled) -> set[int]:
        if part.only is None:
            part.only = set(range(self._count_logs(part.raw)))
        return part.only

    def _find(self, cursor: int, index: int) -> Unsettled | None:
        parts = self._by_cursor.get(cursor, ())
        return next((one for one in parts if index in self._logs_of(one)), None)

    def _remove(self, some: Iterable[Unsettled]) -> bool:
        removed = tuple(some)
        for part in removed:
            part.is_gone = True
            self._unbegun.pop(part, None)
            self._parts -= 1
            self.bytes -= ENTRY_BYTES
            parts = self._by_cursor[part.cursor]
            parts.remove(part)
            if not parts:
                del self._by_cursor[part.cursor]
                self.bytes -= len(part.raw)
            part.raw = b""  # others may keep it for long, such as the heap until its time
        self._drop_void()
        return bool(removed)

    def _drop_void(self) -> None:
        if len(self._due) > 2 * self._parts + FEW_ENTRIES:
            self._due = list({id(entry[2]): entry for entry in self._due if _holds(*entry)}.values())
            heapq.heapify(self._due)
        if len(self._cursors) > 2 * len(self._by_cursor) + FEW_ENTRIES:
            self._cursors = list(self._by_cursor)
            heapq.heapify(self._cursors)

    def _set_due(self, part: Unsettled, due_s: float | None) -> None:
        if due_s != part.due_s:  # a second entry with the same time would hand it over twice
            part.due_s = due_s
            self._enqueue(part)
            self._drop_void()

    def _enqueue(self, part: Unsettled) -> None:
        if part.due_s is not None:
            heapq.heappush(self._due, (part.due_s, next(self._numbers), part))


def is_blamed(failure: Failure | None) -> bool:
    """Whether logs have failed because of what they are."""
    return failure is not None and failure.cause is not Cause.UNAVAILABLE


def _part_of(part: Unsettled, only: set[int], due_s: float | None, failure: Failure | None) -> Unsettled:
    """Some of the logs, with a time of their own."""
    return Unsettled(
        part.cursor,
        part.raw,
        only,
        part.delivery,
        False,
        due_s,
        failure,
        mark=part.mark,
        attempts=part.attempts,
    )


def _alike(part: Unsettled, other: Unsettled) -> bool:
    return all(getattr(part, name) == getattr(other, name) for name in ALIKE)


def _has_come(part: Unsettled) -> bool:
    return part.is_out or part.failure is not None


def _on_grid(due_s: float) -> float:
    """Let logs that are refused shortly after each other be redelivered together."""
    grids = due_s / GRID_S
    return due_s if math.isinf(grids) else math.ceil(grids) * GRID_S


def _holds(due_s: float, _: int, part: Unsettled) -> bool:
    return not part.is_gone and part.due_s == due_s
