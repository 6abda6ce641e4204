"""The validation of a log group before it is stored: every valid group can be decoded by all clients."""

from collections.abc import Callable

import pytest
from aliyun.log.proto import LogGroupRaw
from google.protobuf.message import DecodeError
from hypothesis import example, given
from hypothesis import strategies as st

from loghub.wire import loggroup, native
from loghub.wire.errors import MalformedLogGroup, TooLarge
from loghub.wire.loggroup import Log, LogGroup
from loghub.wire.loggroup_validation import scan, walk
from loghub.wire.protobuf import varint
from tests.loghub.wire.groups import groups, real_lines

ONE = loggroup.encode(LogGroup(logs=(Log(time=1_700_000_000, contents=(("key", "value"),)),)))


def log(*fields: bytes) -> bytes:
    """A group with one log of these raw fields."""
    return group_field(1, b"".join(fields))


def group_field(number: int, value: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(value)) + value


TIME = b"\x08\x05"
PAIR = group_field(2, group_field(1, b"k") + group_field(2, b"v"))


@given(groups)
def test_a_valid_group_has_as_many_logs_as_were_encoded(group: LogGroup) -> None:
    assert scan(loggroup.encode(group)) == walk(loggroup.encode(group)) == len(group.logs)


@given(groups)
def test_the_native_check_knows_what_clients_write(group: LogGroup) -> None:
    known = native.count_logs(loggroup.encode(group))
    assert known == (len(group.logs) if native.is_installed else None)


def test_real_lines_are_valid() -> None:
    logs = tuple(Log(time=n + 1, contents=(("content", line),)) for n, line in enumerate(real_lines()))
    assert scan(loggroup.encode(LogGroup(logs=logs))) == len(logs)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A real group with a few bytes changed, cut out or put in."""
    body = bytearray(loggroup.encode(draw(groups)))
    for _ in range(draw(st.integers(1, 3))):
        if not body:
            break
        at = draw(st.integers(0, len(body) - 1))
        how = draw(st.sampled_from(["change", "cut", "insert", "end"]))
        if how == "change":
            body[at] = draw(st.integers(0, 255))
        elif how == "cut":
            del body[at : at + draw(st.integers(1, 4))]
        elif how == "insert":
            body[at:at] = draw(st.binary(min_size=1, max_size=3))
        else:
            del body[at:]
    return bytes(body)


@given(damaged() | st.binary(max_size=80))
def test_the_native_check_accepts_nothing_that_the_walk_refuses(body: bytes) -> None:
    found = native.count_logs(body)
    assert found is None or found == walk(body)


def vendor_reads(body: bytes) -> int | None:
    """How many logs the vendor's reader finds, None if it cannot read the group."""
    message = LogGroupRaw()
    try:
        message.ParseFromString(body)
        return sum(1 for log in message.Logs for _ in [[(c.Key, c.Value) for c in log.Contents]])
    except (DecodeError, UnicodeDecodeError):
        return None


@pytest.mark.long
@given(damaged() | st.binary(max_size=80))
@example(b"")
@example(b"\x0a")
@example(b"\x0a\x80")
@example(b"\x0a\x05\x12\x03\x0a\x01k")
def test_every_valid_group_is_decoded_by_the_vendor_sdk_and_by_us(body: bytes) -> None:
    try:
        found = scan(body)
    except MalformedLogGroup:
        return
    assert vendor_reads(body) == found
    assert len(loggroup.decode(body).logs) == found


@given(damaged() | groups.map(loggroup.encode))
def test_scan_and_decoder_refuse_the_same(body: bytes) -> None:
    """The decoder parses every field, so it shows whether the faster validation misses something."""
    refused = _refuses(lambda: loggroup.decode(body))
    assert _refuses(lambda: scan(body)) == _refuses(lambda: walk(body)) == refused


@given(damaged() | groups.map(loggroup.encode))
def test_a_valid_group_is_read_for_rows_and_records_as_it_is_decoded(body: bytes) -> None:
    try:
        decoded = loggroup.decode(body)
    except MalformedLogGroup:
        return
    read = loggroup.read_group(body)
    assert list(loggroup.raw_logs(body)) == read.logs
    assert [(one.time, one.time_ns, _texts(one.contents)) for one in read.logs] == [
        (one.time, one.time_ns, list(one.contents)) for one in decoded.logs
    ]
    assert (read.topic.decode(), read.source.decode()) == (decoded.topic, decoded.source)
    assert [(key, value.decode()) for key, value in _texts(read.tags)] == list(decoded.tags)


def _texts(pairs: list[loggroup.RawPair]) -> list[tuple[str, bytes]]:
    return [(key.decode(), value) for key, value in pairs]


def _refuses(read: Callable[[], object]) -> bool:
    try:
        read()
    except MalformedLogGroup:
        return True
    return False


@pytest.mark.parametrize(
    ("body", "what"),
    [
        (b"\x0a", "pass the end"),
        (b"\x0a\x05\x08", "pass the end"),
        (b"\x0a\xff\xff\xff\xff\x7f", "pass the end"),
        (b"\x0a" + b"\xff" * 11, "varint"),
        (b"\x0a" + b"\x80" * 10 + b"\x01", "varint"),
        (b"\x0b\x0c", "wire type 3"),
        (b"\x02\x00", "field number 0"),
        (b"\x08\x01", "field 1 of the group has wire type 0"),
        (b"\x18\x01", "field 3 of the group has wire type 0"),
        (b"\x30\x01", "field 6 of the group has wire type 0"),
        (log(PAIR), "no time"),
        (log(), "no time"),
        (log(b"\x08\x80\x80\x80\x80\x10"), "no time"),
        (log(b"\x0a\x01x"), "field 1 of a log has wire type 2"),
        (log(TIME, b"\x10\x01"), "field 2 of a log has wire type 0"),
        (log(TIME, b"\x20\x01"), "field 4 of a log has wire type 0"),
        (log(TIME, group_field(2, group_field(1, b"k"))), "lacks its key or its value"),
        (log(TIME, group_field(2, group_field(2, b"v"))), "lacks its key or its value"),
        (log(TIME, group_field(2, b"\x08\x01" + group_field(2, b"v"))), "of a pair"),
        (log(TIME, group_field(2, group_field(1, b"\xff") + group_field(2, b"v"))), "not UTF-8"),
        (group_field(6, group_field(1, b"k")), "lacks its key or its value"),
        (group_field(6, group_field(1, b"k") + group_field(2, b"\xff")), "not UTF-8"),
        (group_field(3, b"\xff\xfe"), "not UTF-8"),
        (log(TIME, b"\x12\x05\x0a\x01k\x12\x05"), "pass the end"),
        (log(TIME, b"\x12\x05\x0a\x7fk\x12\x05"), "passes"),
        # The log ends inside its content; what is left over would pass for an empty topic.
        (log(TIME, b"\x12\x07\x0a\x01k\x12\x02") + b"\x1a\x00", "passes the end of its log"),
    ],
)
def test_known_kinds_of_damage_are_refused(body: bytes, what: str) -> None:
    with pytest.raises(MalformedLogGroup, match=what):
        scan(body)
    assert vendor_reads(body) is None or what not in ("pass the end", "varint")


@pytest.mark.parametrize(
    "body",
    [
        log(TIME),
        log(b"\x08\x00"),
        log(b"\x08\xff\xff\xff\xff\x0f"),
        log(PAIR, TIME),  # the time may come last
        log(TIME, TIME),
        log(TIME, group_field(2, group_field(2, b"v") + group_field(1, b"k"))),  # value first
        log(TIME, group_field(2, b"\x98\x06\x01" + group_field(1, b"k") + group_field(2, b"v"))),
        log(TIME, b"\x25\x01\x00\x00\x00"),
        log(TIME, group_field(15, b"unknown"), b"\x99\x06" + bytes(8)),
        log(TIME) + group_field(100, b"unknown"),
        log(TIME, group_field(2, group_field(1, b"") + group_field(2, b""))),
        log(TIME, group_field(2, group_field(1, "ключ".encode()) + group_field(2, b"\xff"))),
        group_field(3, "тема".encode()),
    ],
)
def test_unusual_but_valid_groups_are_accepted(body: bytes) -> None:
    assert scan(body) == (vendor_reads(body) or 0)
    assert scan(body + ONE) == walk(body + ONE) == scan(body) + 1


def test_too_many_logs() -> None:
    assert scan(ONE * 3, max_logs=3) == 3
    for check in (scan, walk):
        with pytest.raises(TooLarge):
            check(ONE * 4, max_logs=3)


def test_every_truncation_of_a_group_is_refused() -> None:
    for cut in range(1, len(ONE)):
        with pytest.raises(MalformedLogGroup):
            scan(ONE[:cut])
