"""A long log group becomes several that have all of its logs, in order, and each what is not a log."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loghub.wire.errors import TooLarge
from loghub.wire.loggroup import Log, LogGroup, cut, decode, encode


@given(count=st.integers(1, 40), maximum=st.integers(1, 12))
def test_the_parts_of_a_group_have_its_logs_in_order_and_all_else(count: int, maximum: int) -> None:
    logs = tuple(Log(time=number, contents=(("n", str(number).encode()),)) for number in range(count))
    group = LogGroup(logs=logs, topic="t", source="s", tags=(("a", "b"), ("c", "d")))
    parts = cut(encode(group), maximum=maximum, max_bytes=1 << 20)
    assert [number for _, number in parts] == [len(decode(part).logs) for part, _ in parts]
    assert all(number <= maximum for _, number in parts)
    assert len(parts) == -(-count // maximum)
    found = [decode(part) for part, _ in parts]
    assert tuple(log for part in found for log in part.logs) == logs
    assert {(part.topic, part.source, part.tags) for part in found} == {("t", "s", group.tags)}


def test_fields_between_logs_keep_their_place_among_the_rest() -> None:
    first, second = (encode(LogGroup(logs=(Log(time=n, contents=()),))) for n in (1, 2))
    topic, unknown = encode(LogGroup(logs=(), topic="t")), b"\x98\x06\x01"  # an unknown field 99
    parts = cut(first + topic + second + unknown, maximum=1, max_bytes=1 << 20)
    assert parts == [(first + topic + unknown, 1), (second + topic + unknown, 1)]


def test_a_group_whose_parts_are_too_large_together_is_refused() -> None:
    """Each part repeats the topic, so the parts may have many times the bytes that were sent."""
    logs = tuple(Log(time=number, contents=()) for number in range(8))
    body = encode(LogGroup(logs=logs, topic="t" * 1000))
    size = sum(len(part) for part, _ in cut(body, maximum=1, max_bytes=1 << 20))
    assert size > 7 * len(body)
    assert len(cut(body, maximum=1, max_bytes=size)) == 8
    with pytest.raises(TooLarge, match="at most 1 logs in a group"):
        cut(body, maximum=1, max_bytes=size - 1)
