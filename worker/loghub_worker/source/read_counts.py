"""What reading a range yielded.

Spark may run a task again, or the same task on two machines, and a query may read a range more than once. So
counts are kept by range, and those of two readings are never added up.
"""

from collections.abc import Mapping

import msgspec

from loghub_worker.batch_plan import Range


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
    ahead: int = 0  # logs of a time after their receipt, which got another one (stateful pipelines)
    missing: int = 0  # log groups of the range that expired before they were read
    oldest: int = 0  # cursor of the oldest group that still exists, if that is past the range's end
    end: int = 0  # cursor at which the reading ended, if that is before the range's end
    failure: ReadFailure | None = None  # if nothing was read; the batch's other ranges count nevertheless


def add_counts(counts: dict[Range, ReadCount], more: Mapping[Range, ReadCount]) -> None:
    """Add the counts of further readings. If a range was read more than once, with different results, those
    count that have lost more: nobody knows which reading the sink has."""
    for read, count in more.items():
        counts[read] = max(counts.get(read, count), count, key=_losses)


def _losses(count: ReadCount) -> tuple[bool, bool, int, int, int]:
    return count.failure is not None, count.end > 0, -count.end, count.missing, count.replaced
