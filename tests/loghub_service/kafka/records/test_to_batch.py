"""Stored log groups as batches, read by aiokafka and compared with a plain reading of what SLS documents.

The tests run with the implementation in Python, and with the native part where that is built.
"""

import importlib
import json
import sys
import time
from types import ModuleType
from typing import Protocol

import pytest
from aiokafka.record.default_records import DefaultRecordBatch
from hypothesis import given, settings
from hypothesis import strategies as st

from loghub.wire import native
from loghub.wire.errors import MalformedLogGroup
from loghub.wire.loggroup import Log, LogGroup, decode, encode, wrap
from loghub.wire.loggroup_validation import scan
from loghub.wire.protobuf import BYTES, FIXED32, VARINT, delimited, tag, varint
from loghub_service.kafka.records.records import batch_in_python, batch_of
from loghub_service.kafka.wire.record_batch import MAX_RECORDS, Record

IMPORTED = ("kafka_topic", "kafka_partition", "kafka_offset", "key", "value")
NAMES = st.sampled_from(["url", "method", 'with "quotes"', "日志", "value", "key", "", "a" * 200])
# 0x12 and 0x0a are tags of fields, 0x25 that of the nanoseconds.
VALUES = st.one_of(
    st.binary(max_size=12),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=12).map(str.encode),
    st.sampled_from(
        [b"/", b"x" * 127, b"x" * 128, b"y" * 20_000, b"\x12\x05\n\x03url\x12\x00", b"%1234", b'"\\\n']
    ),
)
LOGS = st.builds(
    Log,
    time=st.one_of(st.integers(0, 2**32 - 1), st.integers(1_700_000_000, 1_700_000_003)),
    time_ns=st.none() | st.integers(0, 999_999_999),
    contents=st.lists(st.tuples(NAMES, VALUES), max_size=4).map(tuple),
)
SHAPES = st.lists(NAMES, min_size=1, max_size=5)


class BatchOf(Protocol):
    def __call__(self, group: bytes, *, raw: bool, base_offset: int = 0) -> bytes: ...


IMPLEMENTATIONS: dict[str, BatchOf] = {"python": batch_in_python}
if native.is_installed:
    IMPLEMENTATIONS["native"] = batch_of
with_each = pytest.mark.parametrize("to_records", IMPLEMENTATIONS.values(), ids=IMPLEMENTATIONS)


@st.composite
def groups(draw: st.DrawFn) -> LogGroup:
    """Logs with the same fields, as those of one program, with others between them."""
    names = draw(SHAPES)
    alike = st.builds(
        lambda time_s, time_ns, values: Log(
            time=time_s, time_ns=time_ns, contents=tuple(zip(names, values, strict=True))
        ),
        st.integers(1_700_000_000, 1_700_000_003),
        st.none() | st.integers(0, 999_999_999),
        st.lists(VALUES, min_size=len(names), max_size=len(names)),
    )
    logs = draw(st.lists(st.one_of(alike, alike, alike, LOGS), min_size=1, max_size=25))
    return LogGroup(logs=tuple(logs), topic=draw(st.sampled_from(["", "topic"])), tags=(("a", "b"),))


def read(batch: bytes) -> list[Record]:
    found = DefaultRecordBatch(batch)
    assert found.validate_crc()
    records = [
        (each.offset, Record(each.key, each.value, tuple(each.headers), each.timestamp)) for each in found
    ]
    assert [offset for offset, _ in records] == list(range(len(records)))
    assert found.max_timestamp == max(record.timestamp for _, record in records)
    return [record for _, record in records]


def expected(log: Log) -> Record:
    fields = [(str(name), bytes(value)) for name, value in log.contents]  # type: ignore[arg-type]
    key: bytes | None = None
    if {name for name, _ in fields} >= set(IMPORTED):
        first = dict(reversed(fields))
        key, value = first["key"], first["value"]
    elif len(fields) == 1:
        key, value = fields[0][0].encode(), fields[0][1]
    else:
        document = {name: content.decode(errors="replace") for name, content in fields}
        value = json.dumps(document, ensure_ascii=False).encode()
    return Record(key, value, (), log.time * 1000 + (log.time_ns or 0) // 1_000_000)


def comparable(record: Record) -> Record:
    """Two JSON objects are equal whatever their spaces are."""
    if record.key is None and record.value is not None:
        return record._replace(value=json.dumps(json.loads(record.value)).encode())
    return record


def check_records(to_records: BatchOf, group: LogGroup) -> None:
    body = encode(group)
    records = read(to_records(body, raw=False))
    assert list(map(comparable, records)) == [comparable(expected(log)) for log in decode(body).logs]


@pytest.mark.long
@given(group=groups())
@settings(deadline=None)
@with_each
def test_a_log_is_the_record_that_sls_documents(to_records: BatchOf, group: LogGroup) -> None:
    check_records(to_records, group)


@pytest.mark.deep
@given(group=groups())
@settings(max_examples=2000, deadline=None)
@with_each
def test_a_log_is_the_record_that_sls_documents_deep(to_records: BatchOf, group: LogGroup) -> None:
    check_records(to_records, group)


@pytest.mark.long
@given(group=st.lists(LOGS, min_size=1, max_size=12).map(lambda logs: LogGroup(logs=tuple(logs))))
@settings(deadline=None)
@with_each
def test_logs_of_any_shapes_are_read(to_records: BatchOf, group: LogGroup) -> None:
    check_records(to_records, group)


def log(*fields: tuple[str, str | bytes]) -> Log:
    return Log(time=1_700_000_000, contents=fields, time_ns=5_999_999)


@pytest.mark.parametrize(
    ("fields", "key", "value"),
    [
        ([("content", b"\xff a line")], b"content", b"\xff a line"),
        ([("url", "/"), ("method", "get")], None, b'{"url":"/","method":"get"}'),
        ([("a", b"\xff"), ("b", "\u65e5")], None, '{"a":"\ufffd","b":"\u65e5"}'.encode()),
        ([("a", '"\\\n\x01')] * 2, None, b'{"a":"\\"\\\\\\n\\u0001"}'),
        ([], None, b"{}"),
        ([(name, name.upper()) for name in IMPORTED], b"KEY", b"VALUE"),
        ([(name, "") for name in ("more", *IMPORTED)], b"", b""),
        ([("key", "k"), ("value", "v")], None, b'{"key":"k","value":"v"}'),
    ],
)
@pytest.mark.parametrize("times", [1, 30])
@with_each
def test_examples(
    to_records: BatchOf, fields: list[tuple[str, str | bytes]], key: bytes | None, value: bytes, times: int
) -> None:
    """The first log has fields that are new, the thirtieth those of the log before it."""
    batch = to_records(encode(LogGroup(logs=(log(*fields),) * times)), raw=False)
    assert read(batch) == [Record(key, value, (), 1_700_000_000_005)] * times


@with_each
def test_other_writers_may_order_the_fields_as_they_like(to_records: BatchOf) -> None:
    """Nanoseconds, contents, an unknown field, then the time; twice a value, of which the last counts."""
    pair = (
        delimited(tag(2, BYTES), b"old") + delimited(tag(1, BYTES), b"k") + delimited(tag(2, BYTES), b"new")
    )
    body = delimited(
        tag(1, BYTES),
        tag(4, FIXED32)
        + (7_000_000).to_bytes(4, "little")
        + delimited(tag(2, BYTES), pair)
        + delimited(tag(9, BYTES), b"?")
        + tag(1, VARINT)
        + varint(5),
    )
    usual = encode(LogGroup(logs=(log(("k", "v")),) * 9, topic="t"))
    records = read(to_records(usual + body + usual, raw=False))
    assert records[9] == Record(b"k", b"new", (), 5007)
    assert {record.value for record in records[:9] + records[10:]} == {b"v"}


@with_each
def test_what_looks_like_a_field_of_a_log_is_none(to_records: BatchOf) -> None:
    """A second value inside a field, and a category of the group between two logs, have the same tag."""
    pair_a, pair_b = (
        delimited(tag(1, BYTES), name) + delimited(tag(2, BYTES), value)
        for name, value in ((b"a", b"1"), (b"b", b"2"))
    )
    time_s = tag(1, VARINT) + varint(1_700_000_000)
    usual = delimited(
        tag(1, BYTES), time_s + delimited(tag(2, BYTES), pair_a) + delimited(tag(2, BYTES), pair_b)
    )
    repeated = delimited(
        tag(1, BYTES), time_s + delimited(tag(2, BYTES), pair_a + delimited(tag(2, BYTES), pair_b))
    )
    category = delimited(tag(1, BYTES), time_s + delimited(tag(2, BYTES), pair_a)) + delimited(
        tag(2, BYTES), pair_b
    )
    for odd, value in ((repeated, pair_b), (category, b"1")):
        assert len(odd) == len(usual)
        records = read(to_records(usual * 20 + odd * 20 + usual, raw=False))
        assert records[20:40] == [Record(b"a", value, (), 1_700_000_000_000)] * 20
        assert {record.value for record in records[:20] + records[40:]} == {b'{"a":"1","b":"2"}'}


@with_each
def test_a_value_that_contains_the_next_field_is_not_cut(to_records: BatchOf) -> None:
    """The lure is as long as what follows it, so that the log ends where it should in either case."""
    usual = log(("a", b"1"), ("b", b"2"))
    lure = delimited(tag(2, BYTES), delimited(tag(1, BYTES), b"b") + delimited(tag(2, BYTES), bytes(8)))[:-8]
    odd = log(("a", b"x" + lure), ("b", b"2"))
    records = read(to_records(encode(LogGroup(logs=(usual,) * 20 + (odd,) * 20 + (usual,) * 20)), raw=False))
    assert list(map(comparable, records)) == [
        comparable(expected(each)) for each in (usual,) * 20 + (odd,) * 20 + (usual,) * 20
    ]


@with_each
def test_a_group_without_logs_is_no_batch(to_records: BatchOf) -> None:
    assert to_records(b"", raw=False) == b""
    assert to_records(encode(LogGroup(logs=(), topic="t")), raw=False) == b""


@with_each
def test_no_more_logs_than_offsets_are_read(to_records: BatchOf) -> None:
    one = encode(LogGroup(logs=(log(("k", "v")),)))
    batch = to_records(one * (MAX_RECORDS + 5), raw=False, base_offset=7 << 17)
    found = DefaultRecordBatch(batch)
    assert (found.base_offset, found.last_offset_delta) == (7 << 17, MAX_RECORDS - 1)


@pytest.mark.long
@given(st.data())
@settings(max_examples=300, deadline=None)
@with_each
def test_damaged_groups_raise_nothing_but_their_error(to_records: BatchOf, data: st.DataObject) -> None:
    """Stored groups are validated; a file that was damaged since is another matter."""
    body = bytearray(encode(LogGroup(logs=(log(("a", "1"), ("b", "x" * 200)),) * 12)))
    for _ in range(data.draw(st.integers(1, 5))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    damaged = bytes(body[: data.draw(st.integers(0, len(body)))])
    try:
        batch = to_records(damaged, raw=False)
    except MalformedLogGroup:
        return
    assert batch == batch_in_python(damaged, raw=False)


@pytest.mark.parametrize(
    "names", [("value",), ("key",), ("key", "value"), ("value", "key"), ("key", "header.a")]
)
@with_each
def test_records_of_the_form_raw_are_read_alike_together_and_alone(
    to_records: BatchOf, names: tuple[str, ...]
) -> None:
    """The third byte of the nanoseconds is the tag of a field in some of the logs."""
    logs = [
        Log(
            time=1_700_000_000 + number % 7,
            time_ns=0x12_0000 + (number % 3 << 24),
            contents=tuple((name, bytes([number]) * (number * 3)) for name in names),
        )
        for number in range(100)
    ]
    alone = [read(to_records(encode(LogGroup(logs=(each,))), raw=True))[0] for each in logs]
    assert read(to_records(encode(LogGroup(logs=tuple(logs), topic="t")), raw=True)) == alone


@pytest.mark.long
@given(group=groups(), raw=st.booleans())
@settings(deadline=None)
def test_the_native_part_makes_the_same_bytes(group: LogGroup, raw: bool) -> None:
    body = encode(group)
    assert batch_of(body, raw=raw) == batch_in_python(body, raw=raw)
    assert (native.records_of(body, raw, MAX_RECORDS) is not None) == native.is_installed


@pytest.mark.parametrize(
    "value", [*map(chr, range(0x20)), '"', "\\", "\x7f", "\u2028", b"\xe2\x28\xa1\xf0\x90"]
)
def test_the_native_part_escapes_alike(value: str | bytes) -> None:
    body = encode(LogGroup(logs=(log(("a", value), ("b", "c")),)))
    assert batch_of(body, raw=False) == batch_in_python(body, raw=False)


def test_a_log_of_very_many_fields_costs_the_native_part_no_more_than_python() -> None:
    """No name is looked for among all others."""
    fields = ((f"name-{number}", "v") for number in range(30_000))
    body = encode(LogGroup(logs=(log(*fields),)))
    seconds = []
    for implementation in (batch_of, batch_in_python):
        begin = time.process_time()
        implementation(body, raw=False)
        seconds.append(time.process_time() - begin)
    assert seconds[0] < 2 * seconds[1]


def test_without_its_wheel_there_is_no_native_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """All is left to Python, as it is where the wheel is of an older checkout and lacks a function."""
    group = encode(LogGroup(logs=(log(("k", "v")),)))
    before = vars(native).copy()
    for wheel in (None, ModuleType("loghub_native")):
        monkeypatch.setitem(sys.modules, "loghub_native", wheel)
        try:
            importlib.reload(native)
            assert not native.is_installed
            assert native.count_logs(group) is native.decode_lists([wrap([group])], [], True) is None
            assert native.records_of(group, False, 1) is None
            assert native.acked_entries(b"", 17, 1) is native.slots_of_fields(group, []) is None
            assert read(batch_of(group, raw=False))
            assert scan(group) == 1
        finally:
            vars(native).update(before)
