"""Reads ranges of shards, answer by answer: several ranges at the same time, and ahead of the task that takes
the answers.

Expired log groups are skipped and counted: the service then answers with its oldest log groups
(docs/sls-protocol.md 7.8), and the groups of an answer are numbered backwards from its next cursor.

A worker far from the log service would otherwise wait for one round trip after the other. The answers are
taken range by range, in order, so the rows of a batch have the same order as without reading ahead. The bytes
that are pulled and not yet taken are bounded over all ranges.

Spark may run a task again, or the same task on two machines, and a query may read a range more than once. So
counts are kept by range, and the counts of two readings are never added up.

A stateful pipeline needs the time of receipt, which is measured by the log service's own clock, one for all
shards, and never goes back in a shard (docs/sls-protocol.md 2.1). The time in a log may be anything. So
shards are levelled by receipt, and no log gets a time after its receipt: Spark's watermark follows the latest
time that it sees, and never goes back.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Generic, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from loghub.client.port import LogHub, Pulled
from loghub.wire.cursor import decode as decode_cursor
from loghub.wire.cursor import encode as encode_cursor
from loghub_consumer.batch_plan import BatchPlan, Range, levelled, ranges_to_date
from loghub_consumer.reading.answers import ShortReadError, require_count
from loghub_consumer.reading.decoding import EVERYTHING, TIME_TYPE, Body, Selection, decode

T = TypeVar("T")
THREADS = 16  # as many connections as the client keeps


class _RangeAnswers(Generic[T]):
    """The answers of one range."""

    def __init__(self, pulls: Iterator[T]) -> None:
        self.pulls = pulls
        self.answers: deque[T] = deque()  # not yet taken
        self.ended = False
        self.error: BaseException | None = None


class PullAhead(Generic[T]):
    """Use it as ``with PullAhead(...) as ahead: ...``, and take the answers of each range in order.

    Each of `ranges` pulls the answers of one range, one after the other; `size` returns the size of an answer
    in bytes. The next answer of a range is pulled while less than `max_bytes` wait to be taken. The range
    whose turn it is may always pull one answer.
    """

    def __init__(
        self,
        ranges: Sequence[Iterator[T]],
        *,
        size: Callable[[T], int],
        max_bytes: int,
        threads: int = THREADS,
    ) -> None:
        self._lanes = [_RangeAnswers(pulls) for pulls in ranges]
        self._size = size
        self._max_bytes = max_bytes
        self._waiting_bytes = 0
        self._turn = 0  # the lane from which answers are taken
        self._begun = 0
        self._closed = False
        self._changed = threading.Condition()
        # Daemons: a request that does not end must not keep the process from ending.
        self._threads = [
            threading.Thread(target=self._run, name="pull", daemon=True)
            for _ in range(min(threads, len(self._lanes)))
        ]

    def __enter__(self) -> "PullAhead[T]":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def answers(self, number: int) -> Iterator[T]:
        """The answers of the range with this number. Raises the errors of pulling."""
        lane = self._lanes[number]
        while True:
            with self._changed:
                self._turn = number
                self._changed.notify_all()
                self._changed.wait_for(lambda: lane.answers or lane.ended)
                if not lane.answers:
                    if lane.error is not None:
                        raise lane.error
                    return
                answer = lane.answers.popleft()
                self._waiting_bytes -= self._size(answer)
                self._changed.notify_all()
            yield answer

    def _run(self) -> None:
        """Pull one range after the other. They begin in order, so the range whose turn it is has begun once
        the ranges before it have ended."""
        while True:
            with self._changed:
                if self._closed or self._begun == len(self._lanes):
                    return
                number = self._begun
                self._begun += 1
            self._pull(number)

    def _pull(self, number: int) -> None:
        lane = self._lanes[number]
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._may_pull(number))
                if self._closed:
                    return
            try:
                answer = next(lane.pulls, None)
            except BaseException as error:  # noqa: BLE001 - it is raised where the answers are taken
                lane.error, answer = error, None
            with self._changed:
                if answer is None:
                    lane.ended = True
                else:
                    lane.answers.append(answer)
                    self._waiting_bytes += self._size(answer)
                self._changed.notify_all()
                if answer is None:
                    return

    def _may_pull(self, number: int) -> bool:
        is_next = number == self._turn and not self._lanes[number].answers
        return is_next or self._waiting_bytes < self._max_bytes


class ReadFailure(msgspec.Struct, frozen=True, kw_only=True):
    """Why nothing of a range could be read."""

    rejected: bool  # because of the content of its first log group; otherwise a later attempt may succeed
    reason: str  # in CamelCase
    message: str


class ReadCount(msgspec.Struct, frozen=True, kw_only=True):
    """What reading one range yielded."""

    logs: int
    bytes: int
    replaced: int = 0  # text values with invalid UTF-8, which was replaced
    ahead: int = 0  # logs with a time after their receipt, which was replaced (stateful pipelines)
    missing: int = 0  # log groups of the range that expired before they were read
    oldest: int = 0  # cursor of the oldest group that still exists, if that is past the range's end
    end: int = 0  # cursor at which the reading ended, if that is before the range's end
    failure: ReadFailure | None = None  # if nothing was read; the batch's other ranges count nevertheless


def add_counts(counts: dict[Range, ReadCount], more: Mapping[Range, ReadCount]) -> None:
    """Add the counts of further readings. If a range was read more than once, with different results, the
    reading with more losses counts, because the sink may contain either."""
    for read, count in more.items():
        counts[read] = max(counts.get(read, count), count, key=_losses)


def _losses(count: ReadCount) -> tuple[bool, bool, int, int, int]:
    return count.failure is not None, count.end > 0, -count.end, count.missing, count.replaced


PARALLEL = 16  # requests at the same time: as many connections as the client keeps
TIME, NANOSECONDS = "__time__", "__time_ns__"
SECOND_US = 1_000_000


class Receipts:
    """Asks a log service when log groups of a logstore were received."""

    def __init__(self, client: LogHub, *, logstore: str) -> None:
        self._client = client
        self._logstore = logstore
        self._pool = ThreadPoolExecutor(PARALLEL, thread_name_prefix="receipt")  # starts threads when needed

    def level(self, plan: BatchPlan, ends: Mapping[int, int]) -> BatchPlan:
        """The plan as `levelled` has it, of these ends as of now. Raises `LogHubException`."""
        lasts = {part.shard: part.end - 1 for part in ranges_to_date(plan, ends)}
        received = self._at_once(lasts, lambda shard: self._received_s(shard, lasts[shard]))
        return levelled(plan, ends, received=received, cursors=partial(self._cursors, plan))

    def _cursors(self, plan: BatchPlan, unix_s: int) -> dict[int, int]:
        shards = [part.shard for part in plan.ranges]
        return self._at_once(shards, lambda shard: self._cursor_at(shard, unix_s))

    def _received_s(self, shard: int, cursor: int) -> int:
        return self._client.get_cursor_time(self._logstore, shard, encode_cursor(cursor))

    def _cursor_at(self, shard: int, unix_s: int) -> int:
        return decode_cursor(self._client.get_cursor(self._logstore, shard, unix_s))

    def _at_once(self, shards: Iterable[int], ask: Callable[[int], int]) -> dict[int, int]:
        wanted = list(shards)
        return dict(zip(wanted, self._pool.map(ask, wanted), strict=True))


class TimesInBounds:
    """Bounds the times of the logs of one range, of which none was received after the second `latest_s`.

    A log with a later time gets the latest time of the logs before it or next to it with an earlier time. It
    then moves the watermark no further than they do, and is not late if they are not. If there are none, it
    gets `latest_s`.
    """

    def __init__(self, latest_s: int) -> None:
        self._latest_us = latest_s * SECOND_US
        self._known_us: int | None = None  # the latest time that lies within the bound
        self.ahead = 0  # logs whose times were replaced

    def bounded(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows that follow, in the order of receipt."""
        if TIME not in rows.schema.names:
            return rows
        times = rows.column(TIME).cast(pa.int64())
        ahead = pc.greater_equal(times, self._latest_us + SECOND_US)
        found_us = pc.max(times.filter(pc.invert(ahead))).as_py()
        self._known_us = max((us for us in (self._known_us, found_us) if us is not None), default=None)
        number = pc.sum(ahead).as_py() or 0
        if not number:
            return rows
        self.ahead += number
        time_us = self._latest_us if self._known_us is None else self._known_us
        instead = {TIME: pa.scalar(time_us, pa.int64()).cast(TIME_TYPE), NANOSECONDS: None}
        for place, field in enumerate(rows.schema):
            if field.name in instead:
                kept = pc.if_else(ahead, pa.scalar(instead[field.name], field.type), rows.column(place))
                rows = rows.set_column(place, field, kept)
        return rows


PULL_LOG_GROUPS = 1000  # the most that one PullLogs may request (docs/sls-protocol.md 5)


# Bytes that a reading process has pulled and not yet decoded, over all its ranges.
AHEAD_BYTES = 32 << 20
STEP_BYTES = 2 << 20  # decoded in one step


class RangeCounts:
    """Counts of one range while it is read. `end` is set if the reading ended early, `failure` if nothing
    could be read."""

    def __init__(self) -> None:
        self.logs = self.bytes = self.replaced = self.ahead = self.missing = self.oldest = self.end = 0
        self.failure: ReadFailure | None = None

    def count(self) -> ReadCount:
        return ReadCount(
            logs=self.logs,
            bytes=self.bytes,
            replaced=self.replaced,
            ahead=self.ahead,
            missing=self.missing,
            oldest=self.oldest,
            end=self.end,
            failure=self.failure,
        )


def pull_range(
    client: LogHub, logstore: str, shard_range: Range, counts: RangeCounts
) -> Iterator[tuple[int, Pulled]]:
    """The answers for a range that have log groups, each with the cursor of its first one. The last answer
    may have log groups after the range. Each iteration advances the cursor. The caller, which takes an answer
    apart, calls `require_count`."""
    cursor = shard_range.begin
    while cursor < shard_range.end:
        pulled = client.pull_logs(
            logstore,
            shard_range.shard,
            cursor=encode_cursor(cursor),
            count=min(PULL_LOG_GROUPS, shard_range.end - cursor),
            end_cursor=encode_cursor(shard_range.end),
        )
        after = decode_cursor(pulled.next_cursor) if pulled.next_cursor else cursor
        if after <= cursor:
            raise ShortReadError(
                f"shard {shard_range.shard} returned nothing at cursor {cursor},"
                f" before its end cursor {shard_range.end}"
            )
        first = max(cursor, after - pulled.count)
        counts.missing += min(first, shard_range.end) - cursor
        counts.oldest = after if not pulled.count and after > shard_range.end else 0
        if pulled.count:
            yield first, pulled
        cursor = after


def read_ranges(
    client: LogHub,
    logstore: str,
    ranges: Sequence[Range],
    *,
    counted: Callable[[Range, ReadCount], None],
    selection: Selection = EVERYTHING,
    latest_s: int | None = None,
) -> Iterator[pa.RecordBatch]:
    """The rows of these ranges, in order. `counted` gets the counts of each range once all of its rows were
    taken. The answers of several ranges are requested at the same time. If `latest_s` is set, no log group
    was received after that second, and no log gets a later time; None: each log has its own time."""
    counts = {one: RangeCounts() for one in ranges}
    pulls = [pull_range(client, logstore, one, counts[one]) for one in ranges]
    with PullAhead(pulls, size=_bytes_of, max_bytes=AHEAD_BYTES) as ahead:
        for number, shard_range in enumerate(ranges):
            times = None if latest_s is None else TimesInBounds(latest_s)
            for answers in joined(ahead.answers(number)):
                rows = rows_of(shard_range, answers, counts[shard_range], selection)
                yield rows if times is None else times.bounded(rows)
            counts[shard_range].ahead = 0 if times is None else times.ahead
            counted(shard_range, counts[shard_range].count())


def _bytes_of(answer: tuple[int, Pulled]) -> int:
    return len(answer[1].body)


def joined(answers: Iterator[tuple[int, Pulled]]) -> Iterator[list[tuple[int, Pulled]]]:
    """Several answers together, so large that the cost of a step does not matter."""
    joined: list[tuple[int, Pulled]] = []
    for answer in answers:
        joined.append(answer)
        if sum(map(_bytes_of, joined)) >= STEP_BYTES:
            yield joined
            joined = []
    if joined:
        yield joined


def rows_of(
    shard_range: Range, answers: Sequence[tuple[int, Pulled]], counts: RangeCounts, selection: Selection
) -> pa.RecordBatch:
    """The rows of consecutive answers of `pull_range`, without those after the range."""
    bodies = [Body(first_cursor, pulled.body) for first_cursor, pulled in answers]
    decoded = decode(bodies, shard=shard_range.shard, selection=selection)
    for (_, pulled), count in zip(answers, decoded.groups, strict=True):
        require_count(pulled.count, count)
    # Only the last answer may have log groups after the range.
    last_cursor, last = answers[-1]
    beyond = max(0, min(last.count, last_cursor + last.count - shard_range.end))
    rows = decoded.until(sum(decoded.groups) - beyond)
    counts.logs += rows.num_rows
    counts.bytes += sum(len(body.content) for body in bodies)
    counts.replaced += decoded.replaced
    return rows
