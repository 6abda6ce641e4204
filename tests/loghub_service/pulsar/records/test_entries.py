"""Stored log groups become entries in both forms, as they were produced."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loghub.wire import loggroup
from loghub.wire.loggroup import Log, LogGroup
from loghub_service.kafka.records.record_forms import RecordForm
from loghub_service.pulsar.records.entries import EntryToSend, keys_of, ordered_entries, single_entries
from loghub_service.pulsar.wire.codec import encode
from loghub_service.pulsar.wire.frames import FRAME_MARGIN_BYTES, decode_entry, encode_entry
from loghub_service.pulsar.wire.producers import CompressionType
from loghub_service.storage import stored_group
from tests.loghub_service.pulsar.client_messages import (
    CODECS,
    ORDINAL,
    PUBLISHED_MS,
    RECEIVED_MS,
    TestMessage,
    alone,
    batch,
    metadata_of,
    received,
    sent,
    stored,
)

pytestmark = pytest.mark.usefixtures("tier")
LIMIT = 5 << 20
TEXTS = st.sampled_from(["", "a", "k1", "header.x", "日志", "x" * 200])
MESSAGES = st.lists(
    st.builds(
        TestMessage,
        value=st.none() | st.binary(max_size=30) | st.just(b"x" * 200),
        key=st.none() | TEXTS | st.binary(max_size=10),
        ordering_key=st.none() | st.binary(max_size=10),
        properties=st.lists(st.tuples(TEXTS, TEXTS), max_size=3).map(tuple),
        event_ms=st.none() | st.integers(1, (1 << 64) - 1),
    ),
    min_size=1,
    max_size=12,
)
NATIVE = loggroup.encode(
    LogGroup(
        logs=(
            Log(time=1_700_000_000, time_ns=9_000_000, contents=(("a", "1"), ("b", b'"'))),
            Log(time=1_700_000_001, contents=(("content", b"\xff"),)),
        )
    )
)


def noise(size: int) -> bytes:
    """Bytes that no codec makes smaller."""
    return random.Random(size).randbytes(size)


def messages_of(entries: list[EntryToSend]) -> list[TestMessage]:
    return [each.message for entry in entries for each in received(entry)]


@settings(max_examples=150)
@given(MESSAGES)
def test_a_batch_comes_back_as_a_batch_and_as_single_messages(messages: list[TestMessage]) -> None:
    group, logs, origin = sent(batch(messages), messages=len(messages))
    to_send = stored(group, origin)
    (entry,) = ordered_entries(to_send, max_message_bytes=LIMIT)
    assert (entry.ordinal, entry.first, entry.messages, entry.batch_size) == (ORDINAL, 0, logs, logs)
    whole = received(entry)
    assert [each.message for each in whole] == messages
    assert [each.batch_index for each in whole] == list(range(logs))
    assert {each.publish_ms for each in whole} == {PUBLISHED_MS}
    singles = [received(each)[0] for each in single_entries(to_send, range(logs), max_message_bytes=LIMIT)]
    assert [each.message for each in singles] == messages
    for one, other in zip(whole, singles, strict=True):
        assert (other.position, other.sequence, other.batch_index) == (one.position, one.sequence, -1)


@settings(max_examples=100)
@given(MESSAGES)
def test_a_message_alone_comes_back_alone(messages: list[TestMessage]) -> None:
    for message in messages:
        group, _, origin = sent(alone(message))
        to_send = stored(group, origin)
        (entry,) = ordered_entries(to_send, max_message_bytes=LIMIT)
        (found,) = received(entry)
        assert (entry.batch_size, found.message, found.position, found.sequence) == (None, message, 0, 5)
        assert list(single_entries(to_send, [0], max_message_bytes=LIMIT)) == [entry]


def test_a_batch_of_one_stays_a_batch_in_the_ordered_form_only() -> None:
    group, _, origin = sent(batch([TestMessage()]))
    (entry,) = ordered_entries(stored(group, origin), max_message_bytes=LIMIT)
    assert entry.batch_size == 1
    (single,) = single_entries(stored(group, origin), [0], max_message_bytes=LIMIT)
    assert single.batch_size is None


def test_only_the_logs_that_are_asked_for_become_entries() -> None:
    group, _, origin = sent(batch([TestMessage(value=b"%d" % number) for number in range(5)]), messages=5)
    entries = list(single_entries(stored(group, origin), [1, 4], max_message_bytes=LIMIT))
    assert [(each.first, received(each)[0].message.value) for each in entries] == [(1, b"1"), (4, b"4")]
    with pytest.raises(IndexError):
        list(single_entries(stored(group, origin), [5], max_message_bytes=LIMIT))


def test_the_origin_is_stored_with_the_group() -> None:
    """Also with a group that is stored as an LZ4 block."""
    for message in (TestMessage(key=b"k", event_ms=7), TestMessage(value=b"text " * 1000)):
        group, _, origin = sent(alone(message, schema_version=b"\0\7", deliver_at_time=5))
        kept = stored_group.with_pulsar_origin(stored_group.packed(group), origin)
        assert stored_group.pulsar_origin_of(kept) == origin
        assert stored_group.unpacked(kept) == group
        assert stored_group.raw_size(kept) == len(group)
        (entry,) = ordered_entries(stored(group, origin), max_message_bytes=LIMIT)
        assert entry.data is not None
        metadata, _ = decode_entry(entry.data)
        assert (metadata.schema_version, metadata.deliver_at_time) == (b"\0\7", 5)


def test_a_chunk_comes_back_as_it_was_sent_in_both_forms() -> None:
    piece = CODECS[CompressionType.LZ4](bytes(5000))[2:9]
    fields = {
        "uuid": "u",
        "chunk_id": 1,
        "num_chunks_from_msg": 2,
        "total_chunk_msg_size": 30,
        "compression": 1,
        "uncompressed_size": 5000,
        "partition_key": "k",
    }
    group, _, origin = sent(encode_entry(encode(metadata_of(**fields)), piece), is_chunk=True)
    (entry,) = ordered_entries(stored(group, origin), max_message_bytes=LIMIT)
    assert list(single_entries(stored(group, origin), [0], max_message_bytes=LIMIT)) == [entry]
    assert entry.data is not None
    assert entry.batch_size is None
    assert decode_entry(entry.data) == (metadata_of(**fields), piece)


def test_logs_of_other_producers_are_a_batch_if_there_are_several() -> None:
    (entry,) = ordered_entries(stored(NATIVE, None), max_message_bytes=LIMIT)
    one, other = received(entry)
    assert one.message == TestMessage(value=b'{"a":"1","b":"\\""}', event_ms=1_700_000_000_009)
    assert other.message == TestMessage(value=b"\xff", event_ms=1_700_000_001_000)
    assert (one.publish_ms, one.sequence, other.sequence) == (RECEIVED_MS, ORDINAL << 17, (ORDINAL << 17) + 1)
    single = loggroup.encode(LogGroup(logs=(Log(time=5, contents=(("content", "c"),)),)))
    (entry,) = ordered_entries(stored(single, None), max_message_bytes=LIMIT)
    assert (entry.batch_size, received(entry)[0].batch_index) == (None, -1)


def test_a_key_that_is_no_text_is_sent_as_bytes_by_any_writer() -> None:
    group = loggroup.encode(
        LogGroup(
            logs=(
                Log(time=5, contents=(("key", b"\xff"), ("header.\u00e9", b"\xff"), ("null_header.n", ""))),
            )
        )
    )
    (entry,) = ordered_entries(stored(group, None), max_message_bytes=LIMIT)
    message = received(entry)[0].message
    assert (message.key, message.value, message.properties) == (b"\xff", None, (("\u00e9", "\ufffd"),))


def sizes_in(entry: EntryToSend) -> list[int]:
    """What each message of a batch takes."""
    assert entry.data is not None
    payload, at, sizes = decode_entry(entry.data).payload, 0, []
    for each in received(entry):
        begin = at
        at += 4 + int.from_bytes(payload[at : at + 4], "big") + len(each.message.value or b"")
        sizes.append(at - begin)
    return sizes


@pytest.mark.parametrize("limit", [1, 99, 100, 150, 330, 331, 5000])
def test_a_group_that_is_too_large_is_cut_into_as_few_runs_as_fit(limit: int) -> None:
    values = [80, 10, 200, 1, 1, 1, 300, 20, 20, 20]
    group, _, origin = sent(batch([TestMessage(value=noise(each)) for each in values]), messages=len(values))
    (whole,) = ordered_entries(stored(group, origin), max_message_bytes=LIMIT)
    sizes = sizes_in(whole)
    entries = ordered_entries(stored(group, origin), max_message_bytes=limit)
    at = 0
    for entry in entries:
        assert entry.first == at
        at += entry.messages
        size = sum(sizes[entry.first : at])
        if entry.data is None:
            assert (entry.messages, size > limit) == (1, True)
        else:
            assert [each.position for each in received(entry)] == list(range(entry.first, at))
            assert size <= limit
        assert at == len(sizes) or size + sizes[at] > limit, "the next message has room in this run"
    assert at == len(sizes)


def test_a_log_that_no_frame_can_carry_has_no_data() -> None:
    long = TestMessage(value=b"", properties=(("p", noise(FRAME_MARGIN_BYTES).hex()),))
    group, _, origin = sent(batch([TestMessage(), TestMessage(value=noise(201)), long]), messages=3)
    for entries in (
        ordered_entries(stored(group, origin), max_message_bytes=200),
        list(single_entries(stored(group, origin), range(3), max_message_bytes=200)),
    ):
        assert [(each.first, each.messages, each.data is None) for each in entries] == [
            (0, 1, False),
            (1, 1, True),
            (2, 1, True),
        ]


@pytest.mark.parametrize("is_batch", [False, True])
def test_a_log_that_was_small_while_it_was_compressed_is_compressed_again(is_batch: bool) -> None:
    """A client may send a message that is larger than a frame if it compresses it."""
    messages = [TestMessage(value=b"a" * 5000, key="k", properties=(("p", "1"),))]
    how = CompressionType.ZLIB
    group, _, origin = sent(batch(messages, how) if is_batch else alone(messages[0], how))
    for entries in (
        ordered_entries(stored(group, origin), max_message_bytes=200),
        list(single_entries(stored(group, origin), [0], max_message_bytes=200)),
    ):
        assert len(entries[0].data or b"") < 400
        assert messages_of(entries) == messages


def test_keys_decide_who_gets_a_log() -> None:
    messages = [
        TestMessage(key="k", ordering_key=b"o"),
        TestMessage(key=b"\xff"),
        TestMessage(),
        TestMessage(),
    ]
    group, _, origin = sent(batch(messages), messages=4)
    assert keys_of(stored(group, origin)) == [b"o", b"\xff", b"producer-7", b"producer-8"]
    first = ORDINAL << 17
    assert keys_of(stored(NATIVE, None)) == [b"loghub-%d" % first, b"loghub-%d" % (first + 1)]
    fields = {"uuid": "u", "chunk_id": 0, "num_chunks_from_msg": 2}
    group, _, origin = sent(encode_entry(encode(metadata_of(**fields)), b""), is_chunk=True)
    assert keys_of(stored(group, origin)) == [b"u"]


def test_the_form_plain_gives_the_payload_back() -> None:
    group, _, origin = sent(alone(TestMessage(value=b"\xff\0", key="k")), RecordForm.PLAIN)
    (entry,) = ordered_entries(stored(group, origin, raw=False), max_message_bytes=LIMIT)
    assert received(entry)[0].message == TestMessage(value=b"\xff\0")
