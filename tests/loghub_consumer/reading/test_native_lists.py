"""The native part makes the rows that Python makes, of whatever bytes. Without it nothing is compared."""

from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from loghub.wire import loggroup, native
from loghub.wire.errors import MalformedLogGroup
from loghub.wire.loggroup import Log, LogGroup
from loghub_consumer.reading.decoding import EVERYTHING, Body, Selection, decode


def wrapped(groups: Iterable[LogGroup]) -> bytes:
    return loggroup.wrap(loggroup.encode(group) for group in groups)


KEYS = st.sampled_from(["", "a", "b", "ü", "line"])
TIMES = st.integers(0, 2**32 - 1)
GROUPS = st.builds(
    LogGroup,
    logs=st.lists(
        st.builds(
            Log,
            time=TIMES,
            contents=st.lists(st.tuples(KEYS, st.text(max_size=200)), max_size=4).map(tuple),
            time_ns=st.none() | st.integers(0, 999_999_999),
        ),
        max_size=3,
    ).map(tuple),
    topic=st.text(max_size=9),
    source=st.text(max_size=9),
    tags=st.lists(st.tuples(KEYS, st.text(max_size=9)), max_size=2).map(tuple),
    category=st.sampled_from(["", "category"]),
)
LISTS = st.lists(st.lists(GROUPS, max_size=3).map(wrapped), min_size=1, max_size=3)
KEYED_SELECTION = Selection(view=("__time__", "__index__"), keys=("a", "ü", "none"))


def outcome(bodies: Sequence[bytes], selection: Selection) -> Any:
    try:
        decoded = decode([Body(5, one) for one in bodies], shard=1, selection=selection)
    except MalformedLogGroup:
        return "damaged"
    decoded.rows.validate(full=True)
    return decoded.rows, decoded.groups, decoded.first_rows, decoded.replaced


def outcome_in_python(bodies: Sequence[bytes], selection: Selection) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "decode_lists", native.left_to_python)
        return outcome(bodies, selection)


@given(lists=LISTS, selection=st.sampled_from([EVERYTHING, KEYED_SELECTION]))
def test_the_native_part_makes_the_same_rows(lists: list[bytes], selection: Selection) -> None:
    assert outcome(lists, selection) == outcome_in_python(lists, selection)
    wanted = list(selection.keys), "contents" in selection.view
    assert (native.decode_lists(lists, *wanted) is not None) == native.is_installed


# A pair without a key, one whose value is before its key, twice the same field, unknown fields, another wire
# type, a time of more than 32 bits, bytes that are not UTF-8.
@given(
    group=GROUPS.map(loggroup.encode),
    at=st.integers(0, 400),
    edit=st.binary(max_size=3),
    length=st.integers(0, 3),
    selection=st.sampled_from([EVERYTHING, KEYED_SELECTION]),
)
@example(b"\x0a\x07\x08\x05\x12\x03\x12\x01v", 400, b"", 0, EVERYTHING)
@example(b"\x0a\x0a\x08\x05\x12\x06\x12\x01v\x0a\x01a", 400, b"", 0, KEYED_SELECTION)
@example(b"\x0a\x0d\x08\x05\x12\x09\x0a\x01b\x12\x01v\x0a\x01a", 400, b"", 0, KEYED_SELECTION)
@example(b"\x0a\x04\x08\x05\x08\x06\x1a\x01t\x1a\x01u\x3a\x01x", 400, b"", 0, EVERYTHING)
@example(b"\x0a\x05\x0d\x05\x00\x00\x00", 400, b"", 0, EVERYTHING)
@example(b"\x0a\x06\x08\xff\xff\xff\xff\x1f", 400, b"", 0, EVERYTHING)
@example(b"\x0a\x0a\x08\x05\x12\x06\x0a\x01a\x12\x01\xff", 400, b"", 0, KEYED_SELECTION)
def test_damaged_and_unusual_lists_are_the_same_to_the_native_part(
    group: bytes, at: int, edit: bytes, length: int, selection: Selection
) -> None:
    edited = loggroup.wrap([group[:at] + edit + group[at + length :], group])
    assert outcome([edited], selection) == outcome_in_python([edited], selection)
    cut = loggroup.wrap([group])[: at + 1] + edit
    assert outcome([cut], selection) == outcome_in_python([cut], selection)
