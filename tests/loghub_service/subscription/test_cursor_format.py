"""What is durable of a cursor is equal when it is read, whatever was acknowledged in whichever order."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loghub.domain.log_position import position_of
from loghub_service.subscription.acked import Acked
from loghub_service.subscription.cursor_format import BadSavedCursor, pack_cursor, pack_delta, unpack
from loghub_service.subscription.state import SavedCursor

RUNS = st.tuples(st.integers(0, 1 << 62), st.integers(1, 1 << 30)).map(lambda run: (run[0], sum(run)))


def cursor_of(acked: Acked, backlog: tuple[int, int]) -> SavedCursor:
    return SavedCursor(mark=acked.mark, ranges=acked.ranges, high=backlog[0], unacked_below=backlog[1])


@given(
    st.integers(0, 1 << 62),
    st.lists(st.lists(RUNS, max_size=5), max_size=4),
    st.tuples(*[st.integers(0, 1 << 62)] * 2),
)
def test_a_cursor_and_its_deltas_are_what_was_acknowledged(
    mark: int, batches: list[list[tuple[int, int]]], backlog: tuple[int, int]
) -> None:
    acked = Acked(mark)
    for first, stop in batches[0] if batches else ():
        acked.add(first, stop)
    packed = pack_cursor(cursor_of(acked, backlog))
    deltas = []
    for batch in batches[1:]:
        for first, stop in batch:
            acked.add(first, stop)
        deltas.append(pack_delta(batch, backlog))
    assert unpack(packed, deltas) == cursor_of(acked, backlog)


def test_the_newest_backlog_counts() -> None:
    packed = pack_cursor(SavedCursor(mark=1, high=2, unacked_below=3))
    assert unpack(packed, [pack_delta([], (4, 5)), pack_delta([], (6, 7))]) == SavedCursor(
        mark=1, high=6, unacked_below=7
    )


def test_a_number_takes_a_byte_for_each_seven_bits() -> None:
    assert pack_cursor(SavedCursor(mark=127)) == b"\x7f\0\0"
    assert pack_cursor(SavedCursor(mark=128)) == b"\x80\x01\0\0"
    assert unpack(b"\x80\x01\0\0", []) == SavedCursor(mark=128)


def test_a_range_takes_few_bytes() -> None:
    """Every second log of groups of one."""
    ranges = tuple((position_of(n), position_of(n + 1)) for n in range(1, 20_001, 2))
    packed = pack_cursor(SavedCursor(mark=0, ranges=ranges, high=0, unacked_below=0))
    assert len(packed) < 6.1 * len(ranges)


@pytest.mark.parametrize(
    ("packed", "deltas"),
    [
        (b"", []),
        (b"\1\1", []),
        (b"\1\1\x80", []),  # ends within a number
        (b"\1\1\0\1", []),  # a range without its size
        (b"\1\1\0\1\0", []),  # an empty one
        (b"\1\1\0", [b"\1"]),
        (b"\1\1\0", [b"\1\0\1"]),
    ],
)
def test_bytes_that_no_release_has_written_are_refused(packed: bytes, deltas: list[bytes]) -> None:
    with pytest.raises(BadSavedCursor):
        unpack(packed, deltas)
