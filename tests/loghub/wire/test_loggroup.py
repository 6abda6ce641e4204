"""The LogGroup codec (docs/sls-protocol.md 3), against the vendor SDK's protobuf classes.

A long log group becomes several, which have all of its logs in order. What is validated before it is stored
can be decoded by all clients.
"""

from collections.abc import Callable
from typing import Any

import pytest
from aliyun.log.proto import LogGroupList, LogGroupListRaw, LogGroupRaw
from google.protobuf.message import DecodeError
from hypothesis import example, given
from hypothesis import strategies as st

from loghub.wire import loggroup, native
from loghub.wire.errors import MalformedLogGroup, TooLarge
from loghub.wire.loggroup import Log, LogGroup, cut, decode, encode
from loghub.wire.loggroup_validation import scan, walk
from loghub.wire.protobuf import varint
from tests.loghub.wire.groups import groups, real_lines


def to_vendor(group: LogGroup) -> Any:
    message = LogGroupRaw()
    for log in group.logs:
        created = message.Logs.add()
        created.Time = log.time
        for key, value in log.contents:
            content = created.Contents.add()
            content.Key, content.Value = key, value
        if log.time_ns is not None:
            created.Time_ns = log.time_ns
    for name, text in (
        ("Reserved", group.category),
        ("Topic", group.topic),
        ("Source", group.source),
        ("MachineUUID", group.machine_uuid),
    ):
        if text:
            setattr(message, name, text)
    for key, value in group.tags:
        tag = message.LogTags.add()
        tag.Key, tag.Value = key, value
    return message


@given(groups)
def test_a_log_group_is_equal_after_decoding(group: LogGroup) -> None:
    assert loggroup.decode(loggroup.encode(group)) == group


@given(groups)
def test_encoded_bytes_equal_those_of_the_vendor_sdk(group: LogGroup) -> None:
    assert loggroup.encode(group) == to_vendor(group).SerializeToString()


def test_real_lines_are_equal_after_both_codecs() -> None:
    logs = tuple(Log(time=n, contents=(("content", line),)) for n, line in enumerate(real_lines()))
    body = loggroup.encode(LogGroup(logs=logs, topic="access"))
    assert [value for log in loggroup.decode(body).logs for _, value in log.contents] == real_lines()
    vendor = LogGroupRaw()
    vendor.ParseFromString(body)
    assert [content.Value for log in vendor.Logs for content in log.Contents] == real_lines()


def test_text_and_bytes_may_both_be_given() -> None:
    as_text = Log(time=1, contents=(("ключ", "значение"),))
    as_bytes = Log(time=1, contents=(("ключ".encode(), "значение".encode()),))
    assert loggroup.encode(LogGroup(logs=(as_text,))) == loggroup.encode(LogGroup(logs=(as_bytes,)))


@pytest.mark.parametrize("time", [-1, 2**32])
def test_time_must_fit_32_bits(time: int) -> None:
    with pytest.raises(MalformedLogGroup, match="32 bits"):
        loggroup.encode(LogGroup(logs=(Log(time=time, contents=()),)))


@pytest.mark.parametrize("time_ns", [-1, 1_000_000_000])
def test_time_ns_is_below_a_second(time_ns: int) -> None:
    with pytest.raises(MalformedLogGroup, match="below one second"):
        loggroup.encode(LogGroup(logs=(Log(time=0, contents=(), time_ns=time_ns),)))


# --- lists -----------------------------------------------------------------------------------


@given(st.lists(groups, max_size=4))
def test_a_list_equals_that_of_the_vendor_sdk_and_splits_into_the_same_bytes(created: list[LogGroup]) -> None:
    bodies = [loggroup.encode(group) for group in created]
    listed = loggroup.wrap(bodies)
    vendor = LogGroupListRaw()
    vendor.ParseFromString(listed)
    assert [g.SerializeToString() for g in vendor.LogGroups] == bodies
    assert [bytes(view) for view in loggroup.split(listed)] == bodies
    assert loggroup.wrap(memoryview(body) for body in bodies) == listed


@given(st.integers(0, 2**40))
def test_header_of_a_list_is_what_wrap_writes(size: int) -> None:
    header = loggroup.list_header(size)
    assert header[0] == 0x0A
    assert len(header) <= 8
    if size < 1000:
        assert loggroup.wrap([bytes(size)]) == header + bytes(size)


def test_text_list_reads_what_is_text() -> None:
    """Python reads with text values first (docs/sls-protocol.md 3)."""
    group = LogGroup(logs=(Log(time=1, contents=(("k", "v"),)),))
    vendor = LogGroupList()
    vendor.ParseFromString(loggroup.wrap([loggroup.encode(group)]))
    assert vendor.LogGroups[0].Logs[0].Contents[0].Value == "v"


@given(st.binary(max_size=60))
def test_arbitrary_bytes_are_malformed_and_never_crash(body: bytes) -> None:
    for read in (loggroup.decode, lambda raw: list(loggroup.split(raw))):
        try:
            read(body)
        except MalformedLogGroup:
            continue


@given(groups, st.data())
def test_truncated_list_is_malformed(group: LogGroup, data: st.DataObject) -> None:
    listed = loggroup.wrap([loggroup.encode(group)])
    cut = data.draw(st.integers(1, len(listed) - 1))
    with pytest.raises(MalformedLogGroup):
        list(loggroup.split(listed[:cut]))


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
    for end in range(1, len(ONE)):
        with pytest.raises(MalformedLogGroup):
            scan(ONE[:end])
