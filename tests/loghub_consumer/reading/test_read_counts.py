"""The counts of ranges that several tasks may have read."""

from itertools import pairwise

import pytest

from loghub_consumer.batch_plan import Range
from loghub_consumer.reading.shard_reader import ReadCount, ReadFailure
from loghub_worker.source import Counts, CountsByRange

FIRST, SECOND = Range(0, 10, 20), Range(3, 5, 6)
COUNT = ReadCount(logs=7, bytes=9)
FAILURE = ReadFailure(rejected=False, reason="WriteQuotaExceed", message="wait")


def joined(*tasks: Counts) -> Counts:
    """The counts of tasks, in the order in which they end."""
    param = CountsByRange()
    counts = param.zero({})
    for task in tasks:
        counts = param.addInPlace(counts, task)
    return counts


def test_each_range_has_its_own_counts() -> None:
    other = ReadCount(logs=2, bytes=1, missing=2)
    assert joined({FIRST: COUNT}, {SECOND: other}) == {FIRST: COUNT, SECOND: other}


def test_a_range_that_two_tasks_have_read_counts_once() -> None:
    assert joined({FIRST: COUNT}, {FIRST: COUNT, SECOND: COUNT}) == {FIRST: COUNT, SECOND: COUNT}


ASCENDING = [
    COUNT,
    ReadCount(logs=7, bytes=9, replaced=1),
    ReadCount(logs=5, bytes=6, missing=2),
    ReadCount(logs=5, bytes=6, end=15),
    ReadCount(logs=3, bytes=6, end=12),
    ReadCount(logs=0, bytes=0, failure=FAILURE),
]


@pytest.mark.parametrize(("less", "more"), list(pairwise(ASCENDING)))
def test_of_two_readings_of_a_range_the_one_counts_that_has_lost_more(
    less: ReadCount, more: ReadCount
) -> None:
    """The sink has the rows of one of them, and nothing may be counted as read that it has not."""
    assert joined({FIRST: less}, {FIRST: more}) == joined({FIRST: more}, {FIRST: less}) == {FIRST: more}
