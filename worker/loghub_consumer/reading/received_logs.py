"""What a logstore received between two times, as one table of the view `logs`, within limits.

No consumer group is needed, and nothing is saved. The shards are read evenly. If a limit ends the reading,
the table is cut to a time of receipt up to which all shards were read: a count by minute of such a table is
right for every minute that it has, while with shards of which one was read and the other was not, it would be
wrong for all.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal

import pyarrow as pa

from loghub.client.port import LogHub, Position, Pulled
from loghub.clock import Clock
from loghub.wire.cursor import decode as decode_cursor
from loghub.wire.cursor import encode as encode_cursor
from loghub.wire.errors import Code, LogHubError
from loghub_consumer.batch_plan import Range
from loghub_consumer.reading.decoding import EVERYTHING, table
from loghub_consumer.reading.shard_reader import PARALLEL, RangeCounts, joined, pull_range, rows_of

Cut = Literal["bytes", "time"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadBounds:
    """From one position up to, not including, another; "end" is now. The reading ends after the first step
    with which it has so many bytes, decompressed, or so many seconds. A step has 2 MiB of one shard, and at
    most one answer of the service."""

    begin: Position
    end: Position
    max_bytes: int
    max_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedLogs:
    """The rows, and what was read for them. Times are times of receipt, in unix seconds."""

    rows: pa.Table
    shards: tuple[int, ...]
    begin_s: int | None  # None: the first log that exists
    # Everything that was received before this time was read. None: a limit ended the reading within the first
    # second, so the table has the first logs of each shard, and no time up to which it is complete.
    end_s: int | None
    cut: Cut | None  # the limit that ended the reading before the requested end
    bytes: int  # of the log groups that were read, decompressed
    missing: int  # log groups that expired while they were read
    replaced: int  # texts with invalid UTF-8, which was replaced by U+FFFD

    def summary(self, logstore: str, *, more: str) -> str:
        """What was read and whether it is all, in one line; `more` names the limit of bytes."""
        begin = "the first log" if self.begin_s is None else _utc(self.begin_s)
        shards = f"{len(self.shards)} {'shard' if len(self.shards) == 1 else 'shards'}"
        parts = [
            f"{self.rows.num_rows:,} logs of {logstore}, received from {begin}"
            + (", only the first ones of each shard" if self.end_s is None else f" to {_utc(self.end_s)}"),
            f"{shards}, {self.bytes / 2**20:.1f} MiB read",
        ]
        if self.cut == "bytes":
            parts.append(f"the limit of bytes ended it there: {more}; raise it, or read a shorter time")
        elif self.cut == "time":
            parts.append("the limit of time ended it there; read a shorter time")
        if self.missing:
            parts.append(f"{self.missing:,} log groups expired before they were read")
        if self.replaced:
            parts.append(f"{self.replaced:,} texts were not UTF-8: U+FFFD is in place of the wrong bytes")
        return "; ".join(parts)


def _utc(unix_s: int) -> str:
    return datetime.fromtimestamp(unix_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(slots=True)
class _Shard:
    """One shard while it is read."""

    range: Range
    position: int
    counts: RangeCounts = field(default_factory=RangeCounts)
    batches: list[pa.RecordBatch] = field(default_factory=list)

    @property
    def is_read(self) -> bool:
        return self.position >= self.range.end

    @property
    def share(self) -> float:
        """How much of the range was read, from 0 to 1."""
        return (self.position - self.range.begin) / self.range.groups

    def read(self, client: LogHub, logstore: str) -> Iterator[None]:
        """Read one step with each iteration."""
        for answers in joined(self._noted(pull_range(client, logstore, self.range, self.counts))):
            self.batches.append(rows_of(self.range, answers, self.counts, EVERYTHING))
            yield

    def _noted(self, answers: Iterator[tuple[int, Pulled]]) -> Iterator[tuple[int, Pulled]]:
        for first, pulled in answers:
            self.position = decode_cursor(pulled.next_cursor)
            yield first, pulled
        self.position = self.range.end

    def until(self, cursor: int) -> list[pa.RecordBatch]:
        """The rows before this cursor."""
        import pyarrow.compute as pc  # takes 0.05 s of CPU time, and few readings are cut

        return [rows.filter(pc.less(rows.column("__cursor__"), cursor)) for rows in self.batches]


def read_received(
    client: LogHub,
    logstore: str,
    *,
    bounds: ReadBounds,
    clock: Clock,
    read: Callable[[int, int], None] = lambda _logs, _bytes: None,
) -> ReceivedLogs:
    """What all shards received within the bounds. `read` is called after each step with the logs and bytes so
    far. Raises `LogHubException`."""
    started_s, now_s = clock.monotonic_s(), int(clock.unix_s())
    shards = _shards(client, logstore, bounds)
    steps = {shard.range.shard: shard.read(client, logstore) for shard in shards if shard.range.groups > 0}
    cut: Cut | None = None
    while steps and cut is None:
        behind = min((one for one in shards if one.range.shard in steps), key=lambda one: one.share)
        if next(steps[behind.range.shard], _ENDED) is _ENDED:
            del steps[behind.range.shard]
        size = sum(one.counts.bytes for one in shards)
        read(sum(one.counts.logs for one in shards), size)
        if size >= bounds.max_bytes:
            cut = "bytes"
        elif clock.monotonic_s() - started_s >= bounds.max_s:
            cut = "time"
    end_s: int | None = bounds.end if isinstance(bounds.end, int) else now_s
    batches = [rows for one in shards for rows in one.batches]
    if all(one.is_read for one in shards):
        cut = None
    else:
        end_s, batches = _levelled(client, logstore, shards)
    return ReceivedLogs(
        rows=table(batches),
        shards=tuple(one.range.shard for one in shards),
        begin_s=bounds.begin if isinstance(bounds.begin, int) else None,
        end_s=end_s,
        cut=cut,
        bytes=sum(one.counts.bytes for one in shards),
        missing=sum(one.counts.missing for one in shards),
        replaced=sum(one.counts.replaced for one in shards),
    )


_ENDED = object()


def _shards(client: LogHub, logstore: str, bounds: ReadBounds) -> list[_Shard]:
    """All shards, those that were split or merged, too, with what they received between the two."""

    def found(shard: int) -> Range | None:
        try:
            ends = (client.get_cursor(logstore, shard, at) for at in (bounds.begin, bounds.end))
            first, last = map(decode_cursor, ends)
        except LogHubError as error:
            if error.code != Code.SHARD_NOT_EXIST:
                raise
            return None  # its last log expired since the shards were listed
        return Range(shard, first, last)

    numbers = sorted(info.shard for info in client.list_shards(logstore))
    with ThreadPoolExecutor(PARALLEL) as pool:
        ranges = [one for one in pool.map(found, numbers) if one is not None]
    return [_Shard(one, one.begin) for one in ranges]


def _levelled(client: LogHub, logstore: str, shards: list[_Shard]) -> tuple[int | None, list[pa.RecordBatch]]:
    """The time up to which all shards were read, and the rows that were received before it."""
    level_s = min(
        client.get_cursor_time(logstore, one.range.shard, encode_cursor(one.position))
        for one in shards
        if not one.is_read
    )
    after = {
        one.range.shard: decode_cursor(client.get_cursor(logstore, one.range.shard, level_s))
        for one in shards
    }
    if all(after[one.range.shard] <= one.range.begin for one in shards):
        return None, [rows for one in shards for rows in one.batches]
    return level_s, [rows for one in shards for rows in one.until(after[one.range.shard])]
