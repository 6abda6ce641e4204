"""Rows to log groups that the service takes."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from loghub.wire.loggroup import LogGroup, encode
from loghub_worker.sink.logstore import GROUP_CHARS, GROUP_LOGS, groups_of

SERVICE_TAKES = 5 << 20  # bytes of a log group (docs/sls-protocol.md 5)


def batch(*texts: str) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"a": list(texts)})


def test_a_large_row_is_not_put_on_top_of_what_nearly_fills_a_group() -> None:
    """Each of the two alone is taken; three bytes a letter, and together they would be refused for ever."""
    rows = batch("字" * (GROUP_CHARS - 1000), "字" * (GROUP_CHARS - 100_000))
    groups = list(groups_of(rows, now_s=1))
    assert [len(group) for group in groups] == [1, 1]
    assert all(len(encode(LogGroup(logs=tuple(group)))) < SERVICE_TAKES for group in groups)


@given(st.lists(st.integers(0, 3 * GROUP_CHARS // 2), max_size=12))
def test_every_row_is_in_one_group_in_its_order(sizes: list[int]) -> None:
    groups = list(groups_of(batch(*("x" * size for size in sizes)), now_s=7))
    assert [len(log.contents[0][1]) for group in groups for log in group] == sizes
    assert all(log.time == 7 for group in groups for log in group)
    for group in groups:
        assert 1 <= len(group) <= GROUP_LOGS
        assert len(group) == 1 or sum(len(log.contents[0][1]) for log in group) <= GROUP_CHARS


def test_many_small_rows_are_split_by_their_number() -> None:
    groups = list(groups_of(batch(*["x"] * (GROUP_LOGS + 1)), now_s=1))
    assert [len(group) for group in groups] == [GROUP_LOGS, 1]
