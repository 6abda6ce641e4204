"""Produced records as log groups, and back through the bytes of the group."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loghub.wire.loggroup import Log, LogGroup, decode, encode
from loghub.wire.loggroup_validation import scan
from loghub_service.kafka.records.record_forms import RecordForm
from loghub_service.kafka.records.records import batch_of, logs_of
from loghub_service.kafka.wire.errors import BadBatch, ErrorCode
from loghub_service.kafka.wire.record_batch import Record
from tests.loghub_service.kafka.records.test_to_batch import read

CONTENTS = st.none() | st.binary(max_size=30) | st.sampled_from([b"", b"\xff\xfe", b"x" * 300])
RECORDS = st.lists(
    st.builds(
        Record,
        key=CONTENTS,
        value=CONTENTS,
        headers=st.lists(
            st.tuples(st.sampled_from(["trace", "", "header.x", "日志", "key"]), CONTENTS), max_size=3
        ).map(tuple),
        timestamp=st.integers(0, 2**32 * 1000 - 1),
    ),
    min_size=1,
    max_size=15,
)


def stored(records: list[Record], form: RecordForm) -> bytes:
    body = encode(LogGroup(logs=tuple(logs_of(records, form, now_ms=1_700_000_000_123))))
    assert scan(body) == len(records), "PutLogs would accept it"
    return body


def fields(record: Record, form: RecordForm) -> dict[str, bytes]:
    (log,) = decode(stored([record], form)).logs
    return {str(name): bytes(value) for name, value in log.contents}  # type: ignore[arg-type]


@pytest.mark.long
@given(records=RECORDS)
@settings(max_examples=300, deadline=None)
def test_raw_keeps_key_value_headers_and_time_exactly(records: list[Record]) -> None:
    assert read(batch_of(stored(records, RecordForm.RAW), raw=True)) == records


@given(records=RECORDS)
@settings(deadline=None)
def test_raw_keeps_records_that_look_alike_apart(records: list[Record]) -> None:
    """Many of a shape in a row are read another way than the first ones."""
    many = [record for record in records[:3] for _ in range(10)]
    assert read(batch_of(stored(many, RecordForm.RAW), raw=True)) == many


def test_logs_that_were_not_produced_in_raw_are_read_as_sls_documents() -> None:
    logs = (
        Log(time=1, contents=(("url", "/"), ("value", "v"))),
        Log(time=1, contents=(("url", "/"),)),
        Log(time=1, contents=(("key", "a"), ("key", "b"))),
    )
    records = read(batch_of(encode(LogGroup(logs=logs)), raw=True))
    assert [(record.key, record.value) for record in records] == [
        (None, b'{"url":"/","value":"v"}'),
        (b"url", b"/"),
        (None, b'{"key":"b"}'),
    ]


def test_plain_keeps_the_value_in_one_field() -> None:
    record = Record(b"key", b"\xff line", (("header", b"x"),), 5)
    assert fields(record, RecordForm.PLAIN) == {"content": b"\xff line"}
    (back,) = read(batch_of(stored([record], RecordForm.PLAIN), raw=False))
    assert back == Record(b"content", b"\xff line", (), 5)


def test_json_makes_a_field_of_each_member() -> None:
    value = '{"s": "a \\u65e5\\"", "n": 1.50, "big": 123456789012345678901, "o": {"x": [1, 2]}, "z": null}'
    assert fields(Record(None, value.encode(), (), 5), RecordForm.JSON) == {
        "s": 'a 日"'.encode(),
        "n": b"1.50",
        "big": b"123456789012345678901",
        "o": b'{"x": [1, 2]}',
        "z": b"null",
    }


@pytest.mark.parametrize(
    "value", [b"", b"text", b"[1]", b'"text"', b"{", b'{"a": 1} x', b"\xff", b'{"\xff": 1}']
)
def test_a_value_that_is_no_object_is_kept_whole(value: bytes) -> None:
    assert fields(Record(None, value, (), 5), RecordForm.JSON) == {"content": value}


@given(
    document=st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
        st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
        min_size=2,
        max_size=6,
    )
)
@settings(deadline=None)
def test_texts_of_an_object_come_back(document: dict[str, str]) -> None:
    value = json.dumps(document).encode()
    (back,) = read(batch_of(stored([Record(None, value, (), 5)], RecordForm.JSON), raw=False))
    assert back.value is not None
    assert json.loads(back.value) == document


@pytest.mark.parametrize("form", [RecordForm.PLAIN, RecordForm.JSON])
def test_a_null_value_needs_raw(form: RecordForm) -> None:
    with pytest.raises(BadBatch) as caught:
        tuple(logs_of([Record(b"k", None, (), 5)], form, now_ms=0))
    assert caught.value.code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("timestamp", [-2, 2**32 * 1000, 2**63 - 1])
def test_a_time_that_no_log_can_have_is_refused(timestamp: int) -> None:
    with pytest.raises(BadBatch) as caught:
        tuple(logs_of([Record(None, b"v", (), timestamp)], RecordForm.PLAIN, now_ms=0))
    assert caught.value.code is ErrorCode.INVALID_TIMESTAMP


def test_a_record_without_a_time_has_that_of_its_arrival() -> None:
    (record,) = read(batch_of(stored([Record(None, b"v", (), -1)], RecordForm.PLAIN), raw=False))
    assert record.timestamp == 1_700_000_000_123
