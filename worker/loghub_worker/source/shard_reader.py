"""Reads a range of a shard, answer by answer.

Expired log groups are skipped and counted: the service then answers with the oldest that it has
(docs/sls-protocol.md 7.8), and the groups of an answer are numbered backwards from its next cursor.
"""

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from loghub.client.port import LogHub, Pulled
from loghub_worker.batch_plan import Range
from loghub_worker.exchange_files import ReadCount, ReadFailure
from loghub_worker.log_service import decode_cursor, encode_cursor
from loghub_worker.source.arrow_decoder import EVERYTHING, Selection, decode

PULL_LOG_GROUPS = 1000  # the most that one PullLogs may request (docs/sls-protocol.md 5)


class ShortReadError(Exception):
    """The service returned fewer log groups than its own end cursor promised, or others than it says."""


class RangeCounts:
    """Counts of one range while it is read. `end` is set if the reading ended early, `failure` if nothing
    could be read."""

    def __init__(self) -> None:
        self.logs = self.bytes = self.replaced = self.missing = self.oldest = self.end = 0
        self.failure: ReadFailure | None = None

    def count(self) -> ReadCount:
        return ReadCount(
            logs=self.logs,
            bytes=self.bytes,
            replaced=self.replaced,
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


def read_range(
    client: LogHub,
    logstore: str,
    shard_range: Range,
    counts: RangeCounts,
    *,
    selection: Selection = EVERYTHING,
) -> Iterator[pa.RecordBatch]:
    """The rows of one range, one record batch for each answer. `selection` must have ``__cursor__``."""
    for first_cursor, pulled in pull_range(client, logstore, shard_range, counts):
        decoded = decode(pulled.body, shard=shard_range.shard, first_cursor=first_cursor, selection=selection)
        require_count(pulled.count, decoded.groups)
        rows = decoded.rows.filter(pc.less(decoded.rows.column("__cursor__"), shard_range.end))
        counts.logs += rows.num_rows
        counts.bytes += len(pulled.body)
        counts.replaced += decoded.replaced
        yield rows
