"""How large the files of a batch become."""

from hypothesis import given
from hypothesis import strategies as st

from loghub_worker.sink.files.file_sizes import PARTS, RowSize, files_to_join


@given(st.lists(st.integers(1, 300), max_size=30), st.integers(1, 4000))
def test_files_are_joined_in_their_order_and_none_is_left_out(sizes: list[int], target: int) -> None:
    files = dict(enumerate(sizes))
    joined = files_to_join(files, target)
    assert [file for group in joined for file in group] == list(files)
    assert all(joined)


@given(st.lists(st.integers(15, 25), min_size=1, max_size=60))
def test_files_become_about_as_large_as_the_target(sizes: list[int]) -> None:
    """If Spark has written them as parts of it."""
    target = 25 * PARTS
    joined = files_to_join(dict(enumerate(sizes)), target)
    totals = [sum(sizes[file] for file in group) for group in joined]
    assert len(totals) == max(1, round(sum(sizes) / target))
    assert all(total <= 1.5 * target + 25 for total in totals)
    if len(totals) > 1:
        assert min(totals) > target / 2 - 25


def test_the_size_of_a_row_rises_at_once_and_falls_by_half() -> None:
    target = 1000 * PARTS
    size = RowSize()
    assert size.rows_of_a_part(target) == 0, "no limit before the first row"
    size = size.after(file_bytes=0, rows=0)
    assert size.rows_of_a_part(target) == 0
    size = size.after(file_bytes=1000, rows=100)
    assert size.rows_of_a_part(target) == 100
    size = size.after(file_bytes=4000, rows=100)
    assert size.rows_of_a_part(target) == 25
    size = size.after(file_bytes=2000, rows=100)
    assert size.rows_of_a_part(3 * target) == 100
    assert RowSize(1e9).rows_of_a_part(1) == 1
