"""Rows become log groups that the service accepts."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from loghub.wire.loggroup import LogGroup, encode
from loghub_worker.sink.logstore import GROUP_CHARS, GROUP_LOGS, groups_of

MAX_GROUP_BYTES = 5 << 20  # the largest log group that SLS accepts (docs/sls-protocol.md 5)


def batch(*texts: str) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"a": list(texts)})


def test_a_large_row_begins_a_new_group() -> None:
    """Each of the two alone is accepted. A letter has three bytes, and together they would always be
    refused."""
    rows = batch("字" * (GROUP_CHARS - 1000), "字" * (GROUP_CHARS - 100_000))
    groups = list(groups_of(rows, now_s=1))
    assert [len(group) for group in groups] == [1, 1]
    assert all(len(encode(LogGroup(logs=tuple(group)))) < MAX_GROUP_BYTES for group in groups)


@given(st.lists(st.integers(0, 3 * GROUP_CHARS // 2), max_size=12))
def test_every_row_is_in_exactly_one_group_and_in_order(sizes: list[int]) -> None:
    groups = list(groups_of(batch(*("x" * size for size in sizes)), now_s=7))
    assert [len(log.contents[0][1]) for group in groups for log in group] == sizes
    assert all(log.time == 7 for group in groups for log in group)
    for group in groups:
        assert 1 <= len(group) <= GROUP_LOGS
        assert len(group) == 1 or sum(len(log.contents[0][1]) for log in group) <= GROUP_CHARS


def test_a_group_has_a_maximum_number_of_rows() -> None:
    groups = list(groups_of(batch(*["x"] * (GROUP_LOGS + 1)), now_s=1))
    assert [len(group) for group in groups] == [GROUP_LOGS, 1]
