"""The logs of a subscription with which processes of a worker have ended, so that the log that ends them is
found and settled.

A consumer of a group reads a shard in order, and its journal has ranges of cursors. Logs of a subscription
come in no such order, also to other workers meanwhile, so the journal has the logs of the running batch. When
they come again to this worker, they are handed over one after the other and with nothing else in the worker,
and the logs of one log group in smaller and smaller parts. A log that ran alone is the cause: that counts as
a refusal, which the log service remembers and reports to every consumer.

Pure: no clock, and the caller has the lock of the shard table.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace as changed

from msgspec.structs import replace

from loghub_consumer.failure.handler import ENDED, RanLogs
from loghub_consumer.failure.policy import PARTS_AFTER_A_HANG, Cause
from loghub_consumer.unacknowledged import Unsettled

# Of a shard: what does not come again, such as logs that another worker has processed, must not add up.
MAX_ENTRIES = 1_000
SUSPECTED = changed(ENDED, cause=Cause.UNAVAILABLE)  # the logs are not known to be the reason


def ran(parts: Iterable[Unsettled]) -> tuple[RanLogs, ...]:
    """The logs of a batch as the journal has them."""
    return tuple(
        RanLogs(
            cursor=part.cursor,
            only=None if part.only is None else tuple(sorted(part.only)),
            attempts=part.attempts,
        )
        for part in parts
    )


def blamed(running: Sequence[RanLogs], *, ended_alone: bool) -> tuple[RanLogs, ...]:
    """What the end of a process says about the logs of its batch; `ended_alone`: it ran no other batch."""
    if not ended_alone or len(running) > 1:
        return tuple(running)
    return tuple(
        replace(one, attempts=one.attempts + 1, is_blamed=True)
        if one.only is not None and len(one.only) == 1
        else replace(one, parts=PARTS_AFTER_A_HANG)
        for one in running
    )


class EndedLogs:
    """The logs of processes that have ended, by shard. Not thread-safe."""

    def __init__(self) -> None:
        self._of: dict[int, tuple[RanLogs, ...]] = {}

    def restore(self, shard: int, logs: Iterable[RanLogs]) -> None:
        """Restore the logs with which an earlier process has ended, the logs of its last batch first."""
        kept = tuple(logs)[:MAX_ENTRIES]
        if kept:
            self._of[shard] = kept

    def of(self, shard: int) -> tuple[RanLogs, ...]:
        """What the next process must know, besides the running batch."""
        return self._of.get(shard, ())

    def began(self, shard: int, parts: Iterable[Unsettled]) -> None:
        """Note that these logs are handed over: the journal has them as the running batch."""
        if shard in self._of:
            suspects = [part for part in parts if part.is_suspect]
            self._of[shard] = tuple(
                one for one in self._of[shard] if not any(_means(one, part) for part in suspects)
            )

    def sent_back(self, shard: int, part: Unsettled) -> None:
        """The log service counts the attempt now. The logs may come again, and are suspected then."""
        self._of[shard] = tuple(
            replace(one, is_blamed=False) if _means(one, part) else one for one in self.of(shard)
        )

    def marked(self, shard: int, part: Unsettled) -> list[Unsettled]:
        """Logs of one log group that have come, in the parts in which they are handed over."""
        ended = [one for one in self.of(shard) if one.cursor == part.cursor]
        if not ended:
            return [part]
        found: list[Unsettled] = []
        left: list[RanLogs] = []
        rest = set(range(part.logs)) if part.only is None else set(part.only)
        for one in ended:
            meant = sorted(rest if one.only is None else rest.intersection(one.only))
            rest.difference_update(meant)
            size = max(1, -(-len(meant) // one.parts))
            for begin in range(0, len(meant), size):
                only = meant[begin : begin + size]
                found.append(_suspect(part, only, one))
                left.append(replace(one, only=tuple(only), parts=1))
        others = (one for one in self.of(shard) if one.cursor != part.cursor)
        self._of[shard] = (*left, *others)[:MAX_ENTRIES]
        return [*found, _part_of(part, rest)] if rest else found


def _means(one: RanLogs, part: Unsettled) -> bool:
    """Whether the part has all of these logs."""
    is_whole = part.only is None or (one.only is not None and part.only.issuperset(one.only))
    return one.cursor == part.cursor and is_whole


def _suspect(part: Unsettled, only: Iterable[int], ended: RanLogs) -> Unsettled:
    made = _part_of(part, only)
    made.is_suspect = True
    made.failure = ENDED if ended.is_blamed else SUSPECTED
    if ended.is_blamed:  # `Unacknowledged.take_due` counts the attempt; it was made here
        made.is_limited = False
    made.attempts = max(part.attempts, ended.attempts - ended.is_blamed)
    return made


def _part_of(part: Unsettled, only: Iterable[int]) -> Unsettled:
    made = Unsettled(part.cursor, part.raw, set(only), part.delivery, False, logs=part.logs)
    made.attempts, made.is_limited = part.attempts, part.is_limited
    return made
