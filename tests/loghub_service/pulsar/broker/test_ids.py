"""Message ids as positions: both forms, the three shapes of SEEK, and sets of acknowledgements."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loghub.domain.log_position import position_of
from loghub_service.pulsar.broker.ids import (
    BEFORE_FIRST,
    BadId,
    LogBound,
    ack_set_of,
    acknowledged,
    acknowledged_up_to,
    clear_runs,
    entry_id,
    first_set,
    seek_target,
    start_of,
)
from loghub_service.pulsar.wire.values import EARLIEST, LATEST, MessageIdData


def _id(ledger: int, entry: int, **fields: object) -> MessageIdData:
    return MessageIdData(ledger_id=ledger, entry_id=entry, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("shape", "target"),
    [
        (_id(7, 0), position_of(7)),  # Python: the entry
        (_id(7, 0, batch_index=2, batch_size=5), position_of(7, 2)),  # Go
        (_id(7, 0, ack_set=(0b11100,)), position_of(7, 2)),  # Java: what is left
        (_id(7, 3), position_of(7, 3)),  # the single form
        (_id(7, BEFORE_FIRST), position_of(7)),
        (_id(EARLIEST, EARLIEST), LogBound.EARLIEST),
        (_id(LATEST, LATEST), LogBound.LATEST),
    ],
)
def test_a_seek_is_understood_in_the_shape_of_each_client(shape: MessageIdData, target: object) -> None:
    assert seek_target(shape) == target


def test_a_reader_begins_at_the_entry_and_leaves_out_the_rest_itself() -> None:
    assert start_of(_id(7, 0, batch_index=2, batch_size=5)) == position_of(7)


def test_an_entry_is_acknowledged_whole_or_by_the_bits_that_are_clear() -> None:
    at = position_of(7)
    assert acknowledged(_id(7, 0), logs=5) == [(at, at + 5)]
    assert acknowledged(_id(7, 0, ack_set=(0b10101,)), logs=5) == [(at + 1, at + 2), (at + 3, at + 4)]
    assert acknowledged(_id(7, 0, ack_set=(0,)), logs=5) == [(at, at + 5)]


@pytest.mark.parametrize(
    ("message", "stop"),
    [
        (_id(7, 0), position_of(7, 5)),
        (_id(7, 0, ack_set=(0b11000,)), position_of(7, 3)),
        (_id(7, BEFORE_FIRST), position_of(7)),  # trap 5: it is not everything
    ],
)
def test_a_cumulative_acknowledgement_ends_behind_its_message(message: MessageIdData, stop: int) -> None:
    assert acknowledged_up_to(message, logs=5) == stop


@pytest.mark.parametrize("message", [_id(1 << 63, 0), _id(0, 1 << 40), _id(EARLIEST, EARLIEST)])
def test_an_id_that_no_log_group_has_is_refused(message: MessageIdData) -> None:
    with pytest.raises(BadId):
        acknowledged(message, logs=1)


INDEXES = st.sets(st.integers(min_value=0, max_value=199))


@given(INDEXES, st.integers(min_value=1, max_value=200))
def test_a_set_has_a_bit_for_each_message_that_is_left(indexes: set[int], logs: int) -> None:
    left = {index for index in indexes if index < logs}
    first = position_of(3, 10)
    words = ack_set_of([(first + index, first + index + 1) for index in left], first=first, logs=logs)
    bits = sum((word % (1 << 64)) << (64 * number) for number, word in enumerate(words))
    expected = set() if words == () and len(left) == logs else left
    assert {index for index in range(256) if bits >> index & 1} == expected
    assert first_set(words) == min(expected, default=None)
    if words:
        acked = {index for start, stop in clear_runs(words, size=logs) for index in range(start, stop)}
        assert acked == set(range(logs)) - left


def test_an_id_has_the_index_of_its_first_log_as_entry() -> None:
    found = entry_id(position_of(9, 4), partition=2, batch_index=1, batch_size=3)
    assert (found.ledger_id, found.entry_id, found.partition) == (9, 4, 2)
    assert (found.batch_index, found.batch_size) == (1, 3)
