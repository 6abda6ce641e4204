"""The pulled log groups of a shard that were not handed to its processor yet."""

from collections import deque

from loghub_consumer.batch import BodySlice, LogBatch, PulledBody
from loghub_consumer.held_shard import NOTHING, Buffered, ReceiveLimits


class ShardBuffer:
    """The log groups of one shard in order. Not thread-safe: `loghub_consumer.shard_table` has the lock."""

    def __init__(self, shard: int, limits: ReceiveLimits) -> None:
        self._shard = shard
        self._limits = limits
        self._slices: deque[tuple[BodySlice, float]] = deque()  # with the time of arrival
        self.summary = NOTHING

    def add(self, body: PulledBody, *, now: float) -> None:
        """Append the log groups of an answer. If there is a limit of logs, the body must be decoded
        already."""
        self._slices.append((BodySlice(body, 0, body.count), now))
        self._sum_up()

    def put_back(self, batch: LogBatch) -> None:
        """Put log groups back that were taken last, so that they are taken next."""
        self._slices.extendleft((part, 0.0) for part in reversed(batch.slices))
        self._sum_up()

    def clear(self) -> None:
        self._slices.clear()
        self._sum_up()

    @property
    def first(self) -> int | None:
        """The cursor of the first log group."""
        return self._slices[0][0].first if self._slices else None

    def take(self, *, max_groups: int | None = None, end: int | None = None) -> LogBatch:
        """Remove and return the next batch: as much as the limits allow, at least one log group. The batch
        ends before the cursor `end`; the first log group lies before it."""
        parts: list[BodySlice] = []
        size = logs = groups = 0
        while self._slices:
            part, arrived_s = self._slices[0]
            fits = _fitting(part, self._limits, size=size, logs=logs, is_first=not parts)
            if max_groups is not None:
                fits = min(fits, max(max_groups - groups, 0 if parts else 1))
            if end is not None:
                # There may be gaps, because log groups have expired.
                fits = min(fits, max(0, end - part.first))
            if not fits:
                break
            taken = BodySlice(part.body, part.begin, part.begin + fits)
            parts.append(taken)
            self._slices.popleft()
            if fits < part.groups:
                self._slices.appendleft((BodySlice(part.body, taken.end, part.end), arrived_s))
                break
            size += taken.bytes
            groups += fits
            logs += taken.logs if self._limits.max_logs is not None else 0
        self._sum_up()
        return LogBatch(self._shard, tuple(parts))

    def _sum_up(self) -> None:
        if not self._slices:
            self.summary = NOTHING
            return
        counts_logs = self._limits.max_logs is not None
        self.summary = Buffered(
            groups=sum(part.groups for part, _ in self._slices),
            logs=sum(part.logs for part, _ in self._slices) if counts_logs else 0,
            bytes=sum(part.bytes for part, _ in self._slices),
            since_s=self._slices[0][1],
        )


def _fitting(part: BodySlice, limits: ReceiveLimits, *, size: int, logs: int, is_first: bool) -> int:
    """How many log groups of a slice still fit into a batch of this size. An answer that would have to be
    decompressed for that is divided only if it is larger than a batch."""
    has_limit = limits.max_logs is not None
    if not has_limit and size + part.bytes <= limits.max_bytes:
        return part.groups
    if not has_limit and not is_first and not part.body.is_unpacked:
        return 0
    low, high = 0, part.groups
    while low < high:  # the sizes grow with the number of log groups
        middle = (low + high + 1) // 2
        taken = BodySlice(part.body, part.begin, part.begin + middle)
        has_room = size + taken.bytes <= limits.max_bytes
        if limits.max_logs is not None:
            has_room = has_room and logs + taken.logs <= limits.max_logs
        low, high = (middle, high) if has_room else (low, middle - 1)
    return max(low, 1) if is_first else low
