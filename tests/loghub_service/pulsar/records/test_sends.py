"""What producers send becomes logs in the form of the topic, or is refused with one named error."""

import contextlib
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loghub.wire import loggroup
from loghub_service.kafka.records.record_forms import RecordForm
from loghub_service.kafka.wire.record_batch import MAX_FIELDS
from loghub_service.pulsar.origin import BASE64_KEY, EVENT_TIME, MessageChunk
from loghub_service.pulsar.wire.codec import encode
from loghub_service.pulsar.wire.errors import RefusedMessage, ServerError
from loghub_service.pulsar.wire.frames import encode_entry
from loghub_service.pulsar.wire.producers import CompressionType, EncryptionKeys, MessageMetadata
from tests.loghub_service.pulsar.client_messages import (
    CODECS,
    PUBLISHED_MS,
    TestMessage,
    alone,
    batch,
    entry_of,
    metadata_of,
    sent,
)
from tests.loghub_service.pulsar.wire.messages import messages_of

pytestmark = pytest.mark.usefixtures("tier")
KEYED = TestMessage(
    value=b"\xff\0",
    key="k",
    ordering_key=b"o",
    properties=(("b", "1"), ("a", "2"), ("b", "3")),
    event_ms=12_345,
)
EXAMPLES = pytest.mark.parametrize("examples", [150, pytest.param(10_000, marks=pytest.mark.deep)])


def logs_of(group: bytes) -> list[tuple[int, list[tuple[str, bytes]]]]:
    return [
        (log.time * 1000 + (log.time_ns or 0) // 1_000_000, [(str(k), bytes(v)) for k, v in log.contents])  # type: ignore[arg-type]
        for log in loggroup.decode(group).logs
    ]


def test_a_message_in_the_form_raw_keeps_everything() -> None:
    group, logs, origin = sent(alone(KEYED, schema_version=b"\0\1", deliver_at_time=99))
    fields = [
        ("key", b"k"),
        ("value", b"\xff\0"),
        ("header.b", b"1"),
        ("header.a", b"2"),
        ("header.b", b"3"),
        ("ordering_key", b"o"),
    ]
    assert (logs_of(group), logs) == ([(12_345, fields)], 1)
    assert (origin.producer, origin.sequence, origin.highest, origin.partition) == ("producer", 5, 5, 3)
    assert (origin.publish_ms, origin.schema_version, origin.deliver_at_ms) == (PUBLISHED_MS, b"\0\1", 99)
    assert (origin.is_batch, origin.chunk, origin.flags_of(0)) == (False, None, EVENT_TIME)


@pytest.mark.parametrize("event_ms", [(1 << 32) * 1000, 1 << 45, (1 << 64) - 1])
def test_an_event_time_that_no_log_can_have_is_kept_with_the_origin(event_ms: int) -> None:
    """The time of a log ends in the year 2106. A client whose message is refused sends it again forever."""
    latest_ms = (1 << 32) * 1000 - 1
    group, _, origin = sent(alone(TestMessage(event_ms=event_ms)))
    assert logs_of(group) == [(latest_ms, [("value", b"value")])]
    assert origin.late_event_ms == {0: event_ms}
    mixed = [TestMessage(event_ms=7), TestMessage(event_ms=event_ms), TestMessage()]
    group, _, origin = sent(batch(mixed), messages=3)
    assert [time for time, _ in logs_of(group)] == [7, latest_ms, PUBLISHED_MS]
    assert origin.late_event_ms == {1: event_ms}


def test_a_message_from_after_2106_has_the_last_time_of_a_log() -> None:
    entry = alone(TestMessage(), publish_time=1 << 45)
    assert [time for time, _ in logs_of(sent(entry).group)] == [(1 << 32) * 1000 - 1]


def test_what_a_message_lacks_is_no_field() -> None:
    assert logs_of(sent(alone(TestMessage(value=None))).group) == [(PUBLISHED_MS, [])]
    assert logs_of(sent(alone(TestMessage(value=b""))).group) == [(PUBLISHED_MS, [("value", b"")])]
    assert logs_of(sent(alone(TestMessage(key=""))).group) == [
        (PUBLISHED_MS, [("key", b""), ("value", b"value")])
    ]


def test_a_key_of_bytes_is_stored_as_its_bytes() -> None:
    group, _, origin = sent(alone(TestMessage(key=b"\0\xff")))
    assert dict(logs_of(group)[0][1])["key"] == b"\0\xff"
    assert origin.flags_of(0) == BASE64_KEY


@pytest.mark.parametrize("how", CODECS)
@pytest.mark.parametrize("payload", [b"", b"x", b"abc" * 5000])
def test_every_codec_of_the_clients_is_read(how: CompressionType, payload: bytes) -> None:
    group, _, _ = sent(alone(TestMessage(value=payload), how))
    assert logs_of(group)[0][1] == [("value", payload)]
    messages = [TestMessage(value=payload), TestMessage(key="k", value=payload)]
    group, logs, origin = sent(batch(messages, how), messages=2)
    assert [dict(fields)["value"] for _, fields in logs_of(group)] == [payload, payload]
    assert (logs, origin.is_batch, origin.sequence, origin.highest) == (2, True, 5, 6)


@pytest.mark.parametrize("how", list(CODECS)[1:])
def test_the_announced_size_bounds_the_work_of_every_codec(how: CompressionType) -> None:
    payload = bytes(100_000)
    entry = entry_of(metadata_of(), payload, how)
    with pytest.raises(RefusedMessage, match="at most 99999 are accepted"):
        sent(entry, max_bytes=99_999)
    for wrong in (99_999, 100_001, 0, 2**32 - 1):
        metadata = encode(metadata_of(compression=int(how), uncompressed_size=wrong))
        with pytest.raises(RefusedMessage) as caught:
            sent(encode_entry(metadata, CODECS[how](payload)), max_bytes=1 << 33 if wrong else 1 << 20)
        assert caught.value.code is ServerError.NOT_ALLOWED_ERROR
    with pytest.raises(RefusedMessage):
        sent(encode_entry(encode(metadata_of(compression=int(how), uncompressed_size=9)), b"no codec"))


def test_the_log_group_is_bounded() -> None:
    with pytest.raises(RefusedMessage, match="a log group of more than 1000 bytes"):
        sent(batch([TestMessage(value=bytes(320))] * 3), messages=3, max_bytes=1000)
    with pytest.raises(RefusedMessage, match=f"at most {MAX_FIELDS} are accepted"):
        sent(alone(TestMessage(properties=(("n", ""),) * (MAX_FIELDS + 1))))


def test_a_batch_has_a_flag_for_each_message_if_they_differ() -> None:
    same = sent(batch([TestMessage(event_ms=1000)] * 3), messages=3).origin
    assert same.flags == bytes((EVENT_TIME,))
    mixed = sent(batch([TestMessage(event_ms=1000), TestMessage(key=b"k")]), messages=2).origin
    assert [mixed.flags_of(0), mixed.flags_of(1)] == [EVENT_TIME, BASE64_KEY]


def test_the_number_of_the_last_message_is_taken_from_the_batch() -> None:
    """Clients in C++ and Python give the first number only with the command."""
    origin = sent(batch([TestMessage()] * 3), messages=1).origin
    assert (origin.sequence, origin.highest) == (5, 7)


def test_the_other_forms_keep_what_they_have_a_place_for() -> None:
    message = TestMessage(value=json.dumps({"a": "1", "b": 2}).encode(), key="k")
    assert logs_of(sent(alone(message), RecordForm.PLAIN).group)[0][1] == [("content", message.value)]
    assert logs_of(sent(alone(message), RecordForm.JSON).group)[0][1] == [("a", b"1"), ("b", b"2")]
    for form in (RecordForm.PLAIN, RecordForm.JSON):
        with pytest.raises(RefusedMessage, match="a null value"):
            sent(alone(TestMessage(value=None)), form)


def test_a_chunk_is_one_log_as_it_was_sent() -> None:
    whole = CODECS[CompressionType.ZSTD](bytes(5000))
    chunked = metadata_of(
        uuid="u",
        chunk_id=1,
        num_chunks_from_msg=3,
        total_chunk_msg_size=9,
        compression=3,
        uncompressed_size=5000,
        partition_key="k",
    )
    group, logs, origin = sent(encode_entry(encode(chunked), whole[3:7]), is_chunk=True)
    assert logs_of(group) == [(PUBLISHED_MS, [("key", b"k"), ("value", whole[3:7])])]
    chunk = MessageChunk(uuid="u", number=1, count=3, total_size=9, compression=3, uncompressed_size=5000)
    assert (logs, origin.chunk, origin.is_batch) == (1, chunk, False)


@pytest.mark.parametrize(
    "fields",
    [
        {"uuid": "u", "num_chunks_from_msg": 3},
        {"uuid": "u", "num_chunks_from_msg": 3, "chunk_id": 3},
        {"uuid": "u", "num_chunks_from_msg": 3, "chunk_id": -1},
        {"num_chunks_from_msg": 3, "chunk_id": 1},
        {"uuid": "u", "num_chunks_from_msg": 3, "chunk_id": 1, "num_messages_in_batch": 2},
    ],
)
def test_a_chunk_without_its_place_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(RefusedMessage, match="without what all chunks have"):
        sent(encode_entry(encode(metadata_of(**fields)), b""), is_chunk=True)


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        (entry_of(metadata_of(encryption_keys=(EncryptionKeys(key="k", value=b"v"),)), b"?"), "encrypted"),
        (entry_of(metadata_of(encryption_algo="AES"), b"?"), "encrypted"),
        (entry_of(metadata_of(txnid_most_bits=0, txnid_least_bits=1), b""), "transaction"),
        (entry_of(metadata_of(marker_type=1), b""), "marker"),
        (encode_entry(encode(metadata_of(compression=5)), b""), "compression 5"),
        (entry_of(metadata_of(partition_key="&", partition_key_b64_encoded=True), b""), "not base64"),
        (entry_of(metadata_of(num_messages_in_batch=0), b""), "a batch of 0 messages"),
        (entry_of(metadata_of(num_messages_in_batch=-1), b""), "a batch of -1 messages"),
        (entry_of(metadata_of(num_messages_in_batch=131_073), b""), "at most 131072"),
        (entry_of(metadata_of(num_messages_in_batch=1), b"\0\0\0\x09"), "message 0 of 1 passes"),
        (entry_of(metadata_of(num_messages_in_batch=1), b"\0\0\0\2\x18\x09"), "message 0 of 1 passes"),
        (entry_of(metadata_of(num_messages_in_batch=1), b"\0\0\0\x0b\x18" + b"\xff" * 9 + b"\1"), "0 of 1"),
        (entry_of(metadata_of(num_messages_in_batch=1), b"\0\0\0\2\x18\0?"), "1 bytes follow"),
        (entry_of(metadata_of(num_messages_in_batch=1), b"\0\0\0\0"), "metadata of the message is wrong"),
        (encode_entry(b"\x0a\x01p", b""), "metadata of the message is wrong"),
    ],
)  # fmt: skip
def test_what_cannot_be_stored_is_refused_in_words(entry: bytes, words: str) -> None:
    with pytest.raises(RefusedMessage, match=words) as caught:
        sent(entry)
    assert caught.value.code is ServerError.NOT_ALLOWED_ERROR


@pytest.mark.parametrize("fields", [{"txnid_most_bits": 1}, {"marker": True}])
def test_a_send_of_brokers_and_of_transactions_is_refused(fields: dict[str, int]) -> None:
    with pytest.raises(RefusedMessage):
        sent(alone(TestMessage()), **fields)


@EXAMPLES
def test_hostile_payloads_are_stored_or_refused(examples: int) -> None:
    """Whatever the metadata says of the payload."""

    @settings(max_examples=examples)
    @given(
        messages_of(MessageMetadata), st.binary(max_size=60), st.integers(0, 4), st.sampled_from(RecordForm)
    )
    def check(metadata: MessageMetadata, payload: bytes, count: int, form: RecordForm) -> None:
        bare = metadata_of(
            compression=metadata.compression,
            uncompressed_size=metadata.uncompressed_size,
            num_messages_in_batch=count,
            properties=metadata.properties,
            event_time=metadata.event_time,
        )
        for tried in (metadata, bare):
            with contextlib.suppress(RefusedMessage):
                sent(encode_entry(encode(tried), payload), form)

    check()


@EXAMPLES
def test_damaged_batches_are_stored_or_refused(examples: int) -> None:
    whole = batch([KEYED, TestMessage(key=b"k"), TestMessage(value=None)])

    @settings(max_examples=examples)
    @given(st.lists(st.tuples(st.integers(6, len(whole) - 1), st.integers(0, 255)), max_size=4))
    def check(changes: list[tuple[int, int]]) -> None:
        body = bytearray(whole[6:])  # without the checksum, which clients may leave out
        for at, byte in changes:
            body[at - 6] = byte
        with contextlib.suppress(RefusedMessage):
            sent(bytes(body))

    check()
