"""The slot of a log in KeyShared: by named fields of any log, or by the key with which it was written."""

import pytest

from loghub.wire.loggroup import Log, LogGroup, encode
from loghub_service.dispatch.keys import slots_of
from loghub_service.pulsar.records.entries import GroupToSend
from loghub_service.subscription.slots import slot_of

pytestmark = pytest.mark.usefixtures("tier")


def group(*contents: tuple[tuple[str, str], ...], raw: bool = False) -> GroupToSend:
    logs = tuple(Log(time=1, contents=fields) for fields in contents)
    encoded = encode(LogGroup(logs=logs))
    return GroupToSend(ordinal=3, group=encoded, origin=None, received_ms=0, raw=raw, logs=len(logs))


def test_named_fields_are_the_key_joined_by_a_zero_byte() -> None:
    logs = group(
        (("a", "x"), ("b", "y"), ("c", "z")),
        (("b", "y"), ("a", "x")),
        (("a", "xy"), ("b", "")),
        (("a", "x"),),
        (("a", "old"), ("a", "x")),
        (("other", "x"),),
    )
    expected = [b"x\0y", b"x\0y", b"xy\0", b"x\0", b"x\0", b"\0"]
    assert slots_of(logs, ("a", "b")) == tuple(map(slot_of, expected))


def test_without_names_it_is_the_key_that_the_log_was_written_with() -> None:
    raw = group((("key", "k"), ("value", "v")), (("key", "k"), ("value", "w")), raw=True)
    assert slots_of(raw, ()) == (slot_of(b"k"), slot_of(b"k"))
    plain = group(*(((("line"), "same"),) for _ in range(50)))
    assert len(set(slots_of(plain, ()))) > 40  # logs without a key are spread
