"""Reads ranges of shards, answer by answer.

Expired log groups are skipped and counted: the service then answers with the oldest that it has
(docs/sls-protocol.md 7.8), and the groups of an answer are numbered backwards from its next cursor.
"""

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa

from loghub.client.port import LogHub, Pulled
from loghub_worker.batch_plan import Range
from loghub_worker.log_service import decode_cursor, encode_cursor
from loghub_worker.source.arrow_decoder import EVERYTHING, Body, Selection, decode
from loghub_worker.source.pull_ahead import PullAhead
from loghub_worker.source.read_counts import ReadCount, ReadFailure
from loghub_worker.source.receipts import TimesInBounds

PULL_LOG_GROUPS = 1000  # the most that one PullLogs may request (docs/sls-protocol.md 5)


# What a reading process has pulled and not yet decoded, over all its ranges.
AHEAD_BYTES = 32 << 20
STEP_BYTES = 2 << 20  # decoded in one step


class ShortReadError(Exception):
    """The service returned fewer log groups than its own end cursor promised, or others than it says."""


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


def require_count(promised: int, found: int) -> None:
    """Raises `ShortReadError` if an answer has another number of log groups than it says: they are numbered
    by
    that number, and some may be missing."""
    if found != promised:
        raise ShortReadError(f"an answer has {found} log groups and says that it has {promised}")


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
    taken. The answers of several ranges are requested at the same time. No log group was received after the
    second `latest_s`, and no log has a later time then; None: each has its own."""
    counts = {one: RangeCounts() for one in ranges}
    pulls = [pull_range(client, logstore, one, counts[one]) for one in ranges]
    with PullAhead(pulls, size=_bytes_of, max_bytes=AHEAD_BYTES) as ahead:
        for number, one in enumerate(ranges):
            times = None if latest_s is None else TimesInBounds(latest_s)
            for answers in _joined(ahead.answers(number)):
                rows = _rows(one, answers, counts[one], selection)
                yield rows if times is None else times.bounded(rows)
            counts[one].ahead = 0 if times is None else times.ahead
            counted(one, counts[one].count())


def _bytes_of(answer: tuple[int, Pulled]) -> int:
    return len(answer[1].body)


def _joined(answers: Iterator[tuple[int, Pulled]]) -> Iterator[list[tuple[int, Pulled]]]:
    """Several answers at once, until they are of a size at which the costs of a step do not count."""
    joined: list[tuple[int, Pulled]] = []
    for answer in answers:
        joined.append(answer)
        if sum(map(_bytes_of, joined)) >= STEP_BYTES:
            yield joined
            joined = []
    if joined:
        yield joined


def _rows(
    shard_range: Range, answers: Sequence[tuple[int, Pulled]], counts: RangeCounts, selection: Selection
) -> pa.RecordBatch:
    bodies = [Body(first_cursor, pulled.body) for first_cursor, pulled in answers]
    decoded = decode(bodies, shard=shard_range.shard, selection=selection)
    for (_, pulled), found in zip(answers, decoded.groups, strict=True):
        require_count(pulled.count, found)
    # Only the last answer may have log groups after the range.
    last_cursor, last = answers[-1]
    beyond = max(0, min(last.count, last_cursor + last.count - shard_range.end))
    rows = decoded.until(sum(decoded.groups) - beyond)
    counts.logs += rows.num_rows
    counts.bytes += sum(len(body.content) for body in bodies)
    counts.replaced += decoded.replaced
    return rows
