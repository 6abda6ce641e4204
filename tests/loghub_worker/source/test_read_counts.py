"""The counts of ranges among the rows of a task."""

from itertools import pairwise

import pyarrow as pa

from loghub_worker.batch_plan import Range
from loghub_worker.source.arrow_decoder import SCHEMA
from loghub_worker.source.read_counts import (
    COUNTS,
    ReadCount,
    ReadFailure,
    as_logs,
    as_rows,
    counts_in,
    with_counts,
)

FIRST, SECOND = Range(0, 10, 20), Range(3, 5, 6)
FAILURE = ReadFailure(rejected=False, reason="WriteQuotaExceed", message="wait")


def texts(counts: dict[Range, ReadCount]) -> list[str]:
    column: list[str] = as_rows(counts, SCHEMA).column(COUNTS).to_pylist()
    return column


def test_counts_are_rows_of_the_schema_of_logs_and_one_column_more() -> None:
    counts = {FIRST: ReadCount(logs=7, bytes=9, missing=2), SECOND: ReadCount(logs=0, bytes=0)}
    logs = as_logs(pa.RecordBatch.from_pylist([{"__shard__": 0}], schema=SCHEMA))
    rows = as_rows(counts, SCHEMA)
    assert logs.schema == rows.schema == with_counts(SCHEMA)
    assert logs.column(COUNTS).to_pylist() == [None]
    assert [rows.column(name).null_count for name in SCHEMA.names] == [2] * len(SCHEMA.names)
    assert counts_in(texts(counts)) == counts


def test_a_range_that_two_tasks_have_read_counts_once() -> None:
    counts = {FIRST: ReadCount(logs=7, bytes=9)}
    assert counts_in(texts(counts) + texts(counts)) == counts


def test_of_two_readings_of_a_range_the_one_counts_that_has_lost_more() -> None:
    """The sink has the rows of one of them, and nothing may be counted as read that it has not."""
    ascending = [
        ReadCount(logs=7, bytes=9),
        ReadCount(logs=7, bytes=9, replaced=1),
        ReadCount(logs=5, bytes=6, missing=2),
        ReadCount(logs=5, bytes=6, end=15),
        ReadCount(logs=3, bytes=6, end=12),
        ReadCount(logs=0, bytes=0, failure=FAILURE),
    ]
    for less, more in pairwise(ascending):
        for readings in ([less, more], [more, less]):
            assert counts_in(text for one in readings for text in texts({FIRST: one})) == {FIRST: more}
