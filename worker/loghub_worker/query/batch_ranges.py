"""The ranges of a batch: what it is planned to read, and what of it was read.

The plan is in Spark's log of the batch; the counts are those that the source has made of each range."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from loghub_worker.batch_plan import BatchPlan, Range
from loghub_worker.failure.skip_limits import Cause, Failure
from loghub_worker.source.read_counts import ReadCount

UNKNOWN = ReadCount(logs=0, bytes=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class RangesRead:
    """What was read of the ranges of a batch: `consumed` is done once the sink has the batch, and of each
    range in `failed` nothing was read."""

    consumed: tuple[Range, ...]
    failed: tuple[tuple[Range, Failure], ...]


def ranges_read(plan: BatchPlan, counts: Mapping[int, ReadCount], *, only_counted: bool) -> RangesRead:
    """The outcome of reading a batch, with the counts by shard. A range without counts is consumed all the
    same, because a query need not read all of it, unless `only_counted`: then nothing is known of it, and it
    is read again."""
    consumed, failed = [], []
    for part in plan.ranges:
        if part.shard not in counts and only_counted:
            continue
        count = counts.get(part.shard, UNKNOWN)
        failure = count.failure
        if failure is None:
            consumed.append(consumed_range(part, count))
        else:
            cause = Cause.REJECTED if failure.rejected else Cause.UNAVAILABLE
            failed.append((part, Failure(cause=cause, reason=failure.reason, message=failure.message)))
    return RangesRead(consumed=tuple(consumed), failed=tuple(failed))


def consumed_range(shard_range: Range, count: ReadCount) -> Range:
    """What is done once the range is read. If the reading ended early, that is what was read; if all of it
    has expired, everything before the oldest log group that exists: between two incarnations of a logstore
    lie more cursors than batches could ever work through."""
    end = count.end or max(shard_range.end, count.oldest)
    return Range(shard_range.shard, shard_range.begin, end)


def plan_of_batch(scratch: Path, number: int) -> BatchPlan:
    """The plan of a batch from Spark's log of it: a version line, a line of Spark's own, then one line for
    each source."""
    return BatchPlan.from_json(json.loads(_lines(scratch, number)[-1]))


def watermark_of_batch(scratch: Path, number: int) -> int:
    """The watermark during a batch in milliseconds, from the same log; 0: there is none yet."""
    return int(json.loads(_lines(scratch, number)[1])["batchWatermarkMs"])


def _lines(scratch: Path, number: int) -> list[str]:
    return (scratch / "offsets" / str(number)).read_text(encoding="utf-8").splitlines()
