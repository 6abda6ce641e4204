"""One log by PutLogs, by Kafka in the form raw and by Pulsar, each read by all three."""

from collections.abc import Callable
from typing import NamedTuple

import pytest

from loghub.wire import loggroup
from loghub.wire.loggroup import Log, LogGroup
from loghub_service.kafka.producers import BatchOrigin
from loghub_service.kafka.records.record_forms import RecordForm
from loghub_service.kafka.records.records import batch_in_python, batch_of, logs_of
from loghub_service.kafka.wire.record_batch import Record
from loghub_service.pulsar.records.entries import GroupToSend, ordered_entries, single_entries
from loghub_service.storage import stored_group
from tests.loghub_service.kafka.records.test_to_batch import read
from tests.loghub_service.pulsar.client_messages import TestMessage, batch, received, sent

TIME_MS = 1_700_000_000_250
SENT = TestMessage(
    value=b"v", key="k", ordering_key=b"o", properties=(("h", "1"), ("h", "2")), event_ms=TIME_MS
)
PLAIN = TestMessage(value=b"w")  # which has no more than a value
RAW = [("key", b"k"), ("value", b"v"), ("header.h", b"1"), ("header.h", b"2"), ("ordering_key", b"o")]


def by_put_logs() -> bytes:
    logs = (("a", "1"), ("b", "2")), (("content", "c"),)
    times = {"time": TIME_MS // 1000, "time_ns": TIME_MS % 1000 * 1_000_000}
    return loggroup.encode(LogGroup(logs=tuple(Log(contents=contents, **times) for contents in logs)))


def by_kafka() -> bytes:
    records = [
        Record(b"k", b"v", (("h", b"1"), ("n", None)), TIME_MS),
        Record(None, None, (), TIME_MS),
    ]
    logs = tuple(logs_of(records, RecordForm.RAW, now_ms=0))
    origin = BatchOrigin(producer_id=1, epoch=0, partition=0, first=0)
    return stored_group.with_origin(loggroup.encode(LogGroup(logs=logs)), origin)


def by_pulsar() -> bytes:
    group, _, origin = sent(batch([SENT, PLAIN]), messages=2)
    return stored_group.with_pulsar_origin(group, origin)


def by_sls(stored: bytes) -> list[tuple[int, list[tuple[str, bytes]]]]:
    logs = loggroup.decode(stored_group.unpacked(stored)).logs
    return [
        (log.time * 1000 + (log.time_ns or 0) // 1_000_000, [(str(k), bytes(v)) for k, v in log.contents])  # type: ignore[arg-type]
        for log in logs
    ]


def in_kafka(stored: bytes) -> list[Record]:
    """By the native part, if it is there, and without it."""
    group = stored_group.unpacked(stored)
    assert batch_of(group, raw=True) == batch_in_python(group, raw=True)
    return read(batch_of(group, raw=True))


def in_pulsar(stored: bytes) -> list[TestMessage]:
    group = GroupToSend(
        ordinal=7,
        group=stored_group.unpacked(stored),
        origin=stored_group.pulsar_origin_of(stored),
        received_ms=9,
        raw=True,
        logs=len(loggroup.decode(stored_group.unpacked(stored)).logs),
    )
    (entry,) = ordered_entries(group, max_message_bytes=1000)
    ordered = [each.message for each in received(entry)]
    singles = single_entries(group, range(len(ordered)), max_message_bytes=1000)
    assert [received(each)[0].message for each in singles] == ordered
    return ordered


class Case(NamedTuple):
    """Who writes, and what each reader finds."""

    write: Callable[[], bytes]
    sls: list[list[tuple[str, bytes]]]
    kafka: list[tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]]
    pulsar: list[TestMessage]


CASES = {
    "PutLogs": Case(
        by_put_logs,
        sls=[[("a", b"1"), ("b", b"2")], [("content", b"c")]],
        kafka=[(None, b'{"a":"1","b":"2"}', ()), (b"content", b"c", ())],
        pulsar=[
            TestMessage(value=b'{"a":"1","b":"2"}', event_ms=TIME_MS),
            TestMessage(value=b"c", event_ms=TIME_MS),
        ],
    ),
    "Kafka": Case(
        by_kafka,
        sls=[[("key", b"k"), ("value", b"v"), ("header.h", b"1"), ("null_header.n", b"")], []],
        kafka=[(b"k", b"v", (("h", b"1"), ("n", None))), (None, None, ())],
        pulsar=[
            TestMessage(value=b"v", key="k", properties=(("h", "1"),), event_ms=TIME_MS),
            TestMessage(value=None, event_ms=TIME_MS),
        ],
    ),
    "Pulsar": Case(
        by_pulsar,
        sls=[RAW, [("value", b"w")]],
        kafka=[(b"k", b"v", (("h", b"1"), ("h", b"2"))), (None, b"w", ())],
        pulsar=[SENT, PLAIN],
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_every_reader_finds_what_every_writer_wrote(case: Case) -> None:
    stored = case.write()
    assert [fields for _, fields in by_sls(stored)] == case.sls
    assert [tuple(record)[:3] for record in in_kafka(stored)] == case.kafka
    assert in_pulsar(stored) == case.pulsar
    assert {time for time, _ in by_sls(stored)} <= {TIME_MS, 1_700_000_000_123}
    assert [record.timestamp for record in in_kafka(stored)] == [time for time, _ in by_sls(stored)]
