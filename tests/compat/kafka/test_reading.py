"""What the scenarios hold against a group of consumers: each fault is found, and only faults."""

import pytest

from tests.compat.kafka.reading import Record, faults


def record(offset: int, value: str, partition: int = 0) -> Record:
    return ("topic", partition, offset, value, value)


SENT = [["a", "b", "c"], ["x"]]
A, B, C, X = record(0, "a"), record(1, "b"), record(2, "c"), record(0, "x", partition=1)


@pytest.mark.parametrize(
    "read",
    [
        [[A, B, C, X]],
        [[A, X], [B, C]],
        [[X, A], [B], [C]],
    ],
)
def test_each_record_once_and_in_order_is_right(read: list[list[Record]]) -> None:
    assert list(faults(SENT, read, crashed=False)) == []


@pytest.mark.parametrize(
    ("read", "fault"),
    [
        ([[A, B, X]], "c was not read"),
        ([[A, B, C, X, record(3, "d")]], "d was not sent"),
        ([[A, B, C, X], [record(1, "c")]], "offset 1 of topic/0 has c and b"),
        ([[A, C, B, X]], "member 0 read offset 1 of topic/0 after 2"),
        ([[record(0, "b"), record(1, "a"), C, X]], "a is stored in topic/0 after b, sent later"),
        ([[A, B, C, X, record(3, "b")]], "b is stored 2 times"),
        ([[A, B, C, X], [record(1, "b", partition=1)]], "b is stored 2 times"),
    ],
)
@pytest.mark.parametrize("crashed", [False, True])
def test_a_fault_is_found_whether_something_crashed_or_not(
    read: list[list[Record]], fault: str, crashed: bool
) -> None:
    assert fault in list(faults(SENT, read, crashed=crashed))


@pytest.mark.parametrize(
    "read",
    [
        [[A, B, A, B, C, X]],  # back to what was committed
        [[A, B], [B, C, X]],  # the next owner begins there
    ],
)
def test_records_are_repeated_only_after_a_crash(read: list[list[Record]]) -> None:
    assert list(faults(SENT, read, crashed=True)) == []
    assert any("times" in fault for fault in faults(SENT, read, crashed=False))


def test_the_order_of_two_partitions_of_a_producer_is_not_compared_where_they_are_one() -> None:
    read = [[record(0, "b"), record(1, "a"), C, X]]
    assert list(faults(SENT, read, crashed=False, in_sent_order=False)) == []
