"""How large the files of a batch become."""

from hypothesis import given
from hypothesis import strategies as st

from loghub_worker.sink.file_sizes import RowSize, files_to_join


@given(st.lists(st.integers(1, 300), max_size=30), st.integers(1, 400))
def test_files_are_joined_up_to_the_target_and_stay_in_order(sizes: list[int], target: int) -> None:
    files = dict(enumerate(sizes))
    joined = files_to_join(files, target)
    assert [file for group in joined for file in group] == list(files)
    totals = [sum(files[file] for file in group) for group in joined]
    assert all(total <= target or len(group) == 1 for total, group in zip(totals, joined, strict=True))
    for total, following in zip(totals, joined[1:], strict=False):
        assert total + files[following[0]] > target, "two groups would have been one file"


def test_the_size_of_a_row_rises_at_once_and_falls_by_half() -> None:
    size = RowSize()
    assert size.rows_of(1000) == 0, "no limit before the first row"
    size = size.after(file_bytes=0, rows=0)
    assert size.rows_of(1000) == 0
    size = size.after(file_bytes=1000, rows=100)
    assert size.rows_of(1000) == 100
    size = size.after(file_bytes=4000, rows=100)
    assert size.rows_of(1000) == 25
    size = size.after(file_bytes=2000, rows=100)
    assert size.rows_of(3000) == 100
    assert RowSize(1e9).rows_of(1) == 1
