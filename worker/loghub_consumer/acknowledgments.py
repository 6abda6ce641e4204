"""What a consumer of a subscription has to tell the log service about logs: that they are acknowledged, that
they were refused and come again later, or that they are given back unprocessed.

Logs are collected here and sent together. After an error the same logs are sent again, as they were: the log
service knows them by their number, and does not count a refused log twice. Each entry names the session in
which its log was delivered: the log service takes the acknowledgments of a session that is over where the
order of logs does not matter (docs/subscriptions-protocol.md 2).

No threads or clocks: times are arguments, in seconds of the monotonic clock, and the shard table has the
lock.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import groupby
from typing import NamedTuple

from loghub.domain.log_position import position_of
from loghub.wire.subscriptions import MAX_DELAY_S, MAX_EXCHANGE_BYTES, MAX_IDS, Nack, Run

# What MessagePack needs at most: for a run two numbers of 9 bytes, for a shard its number and the length of
# an array, and for refused logs the names of three fields besides, since each may have a time of its own.
RUN_BYTES, SHARD_BYTES, NACK_BYTES = 20, 9, 40
OTHER_BYTES = 4096  # of an exchange: names of 128 characters, and numbers


class Fate(Enum):
    """What has become of logs that were delivered."""

    ACKNOWLEDGED = "acknowledged"
    REFUSED = "refused"  # delivered again, and counted
    RELEASED = "released"  # delivered again at once, and not counted


class SettledRun(NamedTuple):
    """Logs of one log group with one fate. ``due_s`` is when refused logs are delivered again."""

    number: int  # in the order in which logs were settled
    session: str
    fate: Fate
    shard: int
    first: int
    stop: int
    due_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SettledLogs:
    """The part of an exchange that settles logs, for one session."""

    session: str
    runs: tuple[SettledRun, ...]

    @property
    def number(self) -> int:
        """Higher than of all that was sent before."""
        return self.runs[-1].number

    @property
    def acks(self) -> dict[int, tuple[Run, ...]]:
        return _by_shard(self.runs, Fate.ACKNOWLEDGED)

    @property
    def release(self) -> dict[int, tuple[Run, ...]]:
        return _by_shard(self.runs, Fate.RELEASED)

    def nacks(self, now: float) -> tuple[Nack, ...]:
        """Logs of a shard that come again at the same time are together. A pause that has grown beyond what
        the log service takes is cut."""
        refused = sorted(
            (one for one in self.runs if one.fate is Fate.REFUSED),
            key=lambda one: (one.shard, one.due_s, one.first),
        )
        return tuple(
            Nack(
                shard=shard,
                runs=_joined((one.first, one.stop) for one in some),
                delay_s=min(MAX_DELAY_S, max(0.0, due_s - now)),
            )
            for (shard, due_s), some in groupby(refused, key=lambda one: (one.shard, one.due_s))
        )


def _by_shard(runs: Sequence[SettledRun], fate: Fate) -> dict[int, tuple[Run, ...]]:
    of_fate = sorted((one.shard, one.first, one.stop) for one in runs if one.fate is fate)
    return {
        shard: _joined((first, stop) for _, first, stop in some)
        for shard, some in groupby(of_fate, key=lambda one: one[0])
    }


def _bytes_of(run: SettledRun, *, is_first: bool) -> int:
    """What a run takes of an exchange at most; `is_first`: nothing else of its shard has its fate."""
    if run.fate is Fate.REFUSED:
        return RUN_BYTES + SHARD_BYTES + NACK_BYTES
    return RUN_BYTES + (SHARD_BYTES if is_first else 0)


def _joined(runs: Iterable[Run]) -> tuple[Run, ...]:
    """Sorted runs, with neighbors joined."""
    joined: list[Run] = []
    for first, stop in runs:
        if joined and first <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(stop, joined[-1][1]))
        else:
            joined.append((first, stop))
    return tuple(joined)


@dataclass(slots=True)
class DeliveryCounts:
    """Numbers of logs since the consumer was made; `redelivered` are a part of `delivered`."""

    delivered: int = 0
    redelivered: int = 0
    acknowledged: int = 0
    refused: int = 0


class Outbox:
    """The settled logs of one consumer that the log service does not know yet."""

    def __init__(self, on_first: Callable[[], None] = lambda: None) -> None:
        """`on_first` is called when something waits and nothing did before. It must not block."""
        self._on_first = on_first
        self.counts = DeliveryCounts()
        self._waiting: deque[SettledRun] = deque()
        self._unanswered: SettledLogs | None = None
        self._last = 0  # the number of the run that was put here last

    def __len__(self) -> int:
        return len(self._waiting) + (0 if self._unanswered is None else len(self._unanswered.runs))

    @property
    def last(self) -> int:
        """The number of the run that was put here last."""
        return self._last

    def put(self, session: str, fate: Fate, shard: int, runs: Iterable[Run], *, due_s: float = 0.0) -> None:
        """Note logs that are settled."""
        was_empty = not len(self)
        for first, stop in runs:
            self._last += 1
            self._waiting.append(SettledRun(self._last, session, fate, shard, first, stop, due_s))
        if was_empty:
            self._on_first()

    def take(self) -> SettledLogs | None:
        """Remove what one exchange can carry; None: nothing waits. One exchange is under way at a time."""
        if self._unanswered is not None:
            sent, self._unanswered = self._unanswered, None
            return sent
        if not self._waiting:
            return None
        session = self._waiting[0].session
        runs: list[SettledRun] = []
        shards: set[tuple[Fate, int]] = set()
        left = MAX_EXCHANGE_BYTES - OTHER_BYTES
        while self._waiting and len(runs) < MAX_IDS and self._waiting[0].session == session:
            run = self._waiting[0]
            left -= _bytes_of(run, is_first=(run.fate, run.shard) not in shards)
            if left < 0:
                break
            shards.add((run.fate, run.shard))
            runs.append(self._waiting.popleft())
        return SettledLogs(session=session, runs=tuple(runs))

    def put_back(self, sent: SettledLogs) -> None:
        """Note that it is open whether the log service knows of these."""
        self._unanswered = sent


@dataclass(slots=True, kw_only=True, eq=False)
class Deliveries:
    """One assignment of a shard. ``open_logs`` is the number of logs that were delivered in it and are not
    settled.

    ``begin`` is the cursor of the log group with the ordinal 0, which follows from each delivery.
    ``keeps_refused``: logs that are refused stay with this consumer until their time, because the order of
    the shard allows no other consumer to have them.
    """

    outbox: Outbox
    session: str
    shard: int
    keeps_refused: bool
    begin: int = 0
    open_logs: int = 0

    def deliver(self, logs: int, *, is_again: bool) -> None:
        """Note that this many logs have arrived."""
        self.open_logs += logs
        self.outbox.counts.delivered += logs
        self.outbox.counts.redelivered += logs if is_again else 0

    def settle(
        self, fate: Fate, cursor: int, only: Iterable[int] | None, *, logs: int, due_s: float = 0.0
    ) -> None:
        """Note that this many logs of a log group are settled, given by index; None: all of them."""
        self.open_logs -= logs
        self.outbox.counts.acknowledged += logs if fate is Fate.ACKNOWLEDGED else 0
        self.outbox.counts.refused += logs if fate is Fate.REFUSED else 0
        self.outbox.put(self.session, fate, self.shard, self._runs(cursor, only), due_s=due_s)

    def _runs(self, cursor: int, only: Iterable[int] | None) -> tuple[Run, ...]:
        ordinal = cursor - self.begin
        if only is None:
            return ((position_of(ordinal), position_of(ordinal + 1)),)
        return _joined(
            (position_of(ordinal, index), position_of(ordinal, index + 1)) for index in sorted(only)
        )
