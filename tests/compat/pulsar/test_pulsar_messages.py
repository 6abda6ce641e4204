"""What is in a message for unmodified Pulsar clients: its fields, codecs, chunks and sequence."""

import re
import time
from typing import Any

import pytest

from loghub_service.pulsar.wire.codec import encode
from loghub_service.pulsar.wire.frames import encode_entry
from loghub_service.pulsar.wire.producers import (
    CommandProducer,
    CommandProducerSuccess,
    CommandSend,
    CommandSendReceipt,
    MessageMetadata,
)
from tests.compat.pulsar.client_programs import LANGUAGES
from tests.compat.pulsar.clients import long_value, values
from tests.compat.pulsar.cutting_proxy import cutting_proxy
from tests.compat.pulsar.places import Place
from tests.compat.representatives import representative
from tests.loghub.expensive_pulsar import PulsarConnection
from tests.loghub_service.pulsar.client_messages import entry_frame

pytestmark = pytest.mark.long
MIB = 1 << 20
CODECS = ("LZ4", "ZLIB", "ZSTD", "SNAPPY")
EVENT_MS = 1_700_000_000_123


@representative("language", LANGUAGES, "java")
@pytest.mark.parametrize("batch", [0, 3], ids=["alone", "batched"])
def test_each_field_of_a_message_is_read_by_each_client(place: Place, language: str, batch: int) -> None:
    topic, client = place.partition(), place.client(language)
    producer = client.producer(topic, batch=batch, name=f"by {language}")
    fields = {
        "value": "with all fields",
        "key": "the key",
        "orderingKey": "the order",
        "properties": {"one": "1", "two": "zwei ☃"},
        "eventMs": EVENT_MS,
    }
    producer.send(fields, {"value": "plain ☃"}, "last")
    readers = LANGUAGES if place.is_real else ("python", "go")
    for reading in {language, *readers}:
        reader = place.client(reading).consumer(topic, reading)
        full, plain, _ = reader.receive(3)
        assert (full.value, full.key, full.ordering_key) == ("with all fields", "the key", "the order")
        assert full.properties == fields["properties"]
        assert full.event_ms == EVENT_MS
        assert full.producer == f"by {language}"
        assert full.publish_ms > EVENT_MS
        assert (plain.value, plain.key, plain.ordering_key) == ("plain ☃", None, None)
        assert (plain.properties, plain.event_ms) == ({}, 0)


@representative("language", LANGUAGES, "go")
def test_each_codec_is_read_alone_and_in_a_batch(place: Place, language: str) -> None:
    topic, client = place.partition(), place.client(language)
    sent = []
    for codec in ("NONE", *CODECS):
        for batch in (0, 2):
            producer = client.producer(topic, codec=codec, batch=batch)
            names = [f"{codec} {batch} {number} {'x' * 200}" for number in range(2)]
            producer.send(*names)
            producer.close()
            sent += names
    assert values(client.consumer(topic).receive(len(sent))) == sent
    shared = client.consumer(topic, "shared", type="Shared")
    assert values(shared.receive(len(sent))) == sent


@representative("language", LANGUAGES, "java")
@pytest.mark.parametrize("kind", ["Exclusive", "Shared"])
def test_a_chunked_message_is_joined_and_settled_as_one(place: Place, language: str, kind: str) -> None:
    topic, client = place.partition(), place.client(language)
    producer = client.producer(topic, chunking=True, codec="LZ4" if kind == "Shared" else "NONE")
    producer.send({"value": "large ", "size": 12 * MIB}, "small")
    consumer = client.consumer(topic, type=kind)
    large, small = consumer.receive(2)
    assert values([large, small]) == [long_value("large ", 12 * MIB), "small"]
    consumer.ack(large)
    consumer.close()
    producer.send("the last")
    assert values(client.consumer(topic, type=kind).receive_until("the last")) == ["small"]


def chunk_of(name: str, number: int, *, producer: int) -> bytes:
    """One of two chunks of a message as a frame."""
    metadata = MessageMetadata(
        producer_name=f"producer {producer}",
        sequence_id=0,
        publish_time=time.time_ns() // 1_000_000,  # a client gives up what is old
        uuid=name,
        chunk_id=number,
        num_chunks_from_msg=2,
        total_chunk_msg_size=2 * len(name),
        uncompressed_size=2 * len(name),
    )
    # Without the numbers of a transaction, even 0.
    no_transaction: Any = {"txnid_least_bits": None, "txnid_most_bits": None}
    send = CommandSend(producer_id=producer, sequence_id=0, is_chunk=True, **no_transaction)
    return entry_frame(send, encode_entry(encode(metadata), name.encode()))


@representative("language", ("python", "java"), "python")
@pytest.mark.parametrize("acked", [False, True], ids=["comes again", "is acknowledged"])
def test_of_two_messages_in_alternating_chunks_a_client_with_room_for_one_gives_up_the_older(
    place: Place, language: str, acked: bool
) -> None:
    """The setting of the client says what becomes of the older one; in Go it always comes again."""
    topic, client = place.partition(), place.client(language)
    client.producer(topic).close()  # a real broker serves a topic once a client has looked it up
    with PulsarConnection(place.url.removeprefix("pulsar://"), place.token) as writer:
        for producer in (1, 2):
            wanted = CommandProducer(
                topic=f"persistent://public/default/{topic}", producer_id=producer, request_id=producer
            )
            writer.exchange(wanted, CommandProducerSuccess)
        for name, number, producer in (("older", 0, 1), ("newer", 0, 2), ("newer", 1, 2), ("older", 1, 1)):
            writer.exchange(chunk_of(name, number, producer=producer), CommandSendReceipt)
    consumer = client.consumer(topic, type="Shared", maxChunked=1, ackChunked=acked)
    (joined,) = consumer.receive()
    assert joined.value == "newernewer"
    consumer.ack(joined)
    consumer.close()
    client.producer(topic).send("the last")
    rest = values(client.consumer(topic, type="Shared").receive_until("the last"))
    assert rest == ([] if acked else ["olderolder"])


@representative("language", LANGUAGES, "go")
def test_a_message_whose_consumer_is_killed_between_its_chunks_is_joined_by_the_next_one(
    place: Place, language: str
) -> None:
    topic, client, doomed = place.partition(), place.client(language), place.client(language, own=True)
    first = doomed.consumer(topic, type="Shared")
    with PulsarConnection(place.url.removeprefix("pulsar://"), place.token) as writer:
        wanted = CommandProducer(topic=f"persistent://public/default/{topic}", producer_id=1, request_id=1)
        writer.exchange(wanted, CommandProducerSuccess)
        writer.exchange(chunk_of("cut", 0, producer=1), CommandSendReceipt)
        client.producer(topic).send("between")
        assert values(first.receive()) == ["between"]  # so it has the first chunk
        doomed.program.kill()
        second = client.consumer(topic, type="Shared")
        writer.exchange(chunk_of("cut", 1, producer=1), CommandSendReceipt)
    assert sorted(map(str, values(second.receive(2)))) == ["between", "cutcut"]


@representative("language", LANGUAGES, "python")
def test_a_message_that_is_too_large_is_refused_and_the_next_one_is_not(place: Place, language: str) -> None:
    topic, client = place.partition(), place.client(language)
    producer = client.producer(topic)
    outcomes = producer.outcomes({"value": "too large", "size": 6 * MIB}, "small")
    assert isinstance(outcomes[0], str)
    assert re.search("(?i)large|big|exceeds", outcomes[0])
    producer.send("the last")
    assert values(client.consumer(topic).receive_until("the last"))[:1] == ["small"]


@representative("language", LANGUAGES, "go")
def test_a_producer_with_a_name_goes_on_with_its_sequence(place: Place, language: str) -> None:
    """A message with a sequence id that the topic has had from this producer is answered and not stored."""
    topic, client = place.partition(), place.client(language)
    first = client.producer(topic, name="writer")
    assert (first.producer_name, first.last_sequence) == ("writer", -1)
    first.send({"value": "one", "sequence": 1}, {"value": "five", "sequence": 5})
    first.close()
    second = client.producer(topic, name="writer")
    assert second.last_sequence == (-1 if language == "go" else 5)  # Go's library does not take it over
    second.send({"value": "again", "sequence": 5}, {"value": "six", "sequence": 6})
    client.producer(topic, name="another").send({"value": "the last", "sequence": 1})
    assert values(client.consumer(topic).receive_until("the last")) == ["one", "five", "six"]


@representative("language", LANGUAGES, "python")
@pytest.mark.parametrize("batch", [0, pytest.param(20, marks=pytest.mark.deep)], ids=["alone", "batched"])
def test_a_producer_that_is_cut_off_at_its_receipts_stores_each_message_once_and_in_order(
    place: Place, language: str, batch: int
) -> None:
    """It sends again what is stored already, as it cannot know that."""
    topic = place.partition()
    cuts = (300, 600) if not batch else (15, 30)
    with cutting_proxy(place.url, receipts=cuts) as proxy:
        client = place.client(language, url=proxy.url)
        producer = client.producer(topic, name="writer", batch=batch, delayMs=1, sendTimeoutMs=180_000)
        names = [f"{number}" for number in range(1000)]
        producer.send(*names)
        assert proxy.cuts == 2
        producer.send("the last")
        consumer = place.client("python").consumer(topic)
        assert values(consumer.receive_until("the last", most=2000)) == names


@representative("language", LANGUAGES, "java")
def test_two_producers_of_one_name_are_refused(place: Place, language: str) -> None:
    topic, client = place.partition(), place.client(language)
    client.producer(topic, name="writer")
    other = place.client(language, own=True) if language != "java" else client
    with pytest.raises(Exception, match="ProducerBusy"):
        other.producer(topic, name="writer")


@representative("language", ("python", "java"), "python")
def test_a_message_without_a_value_is_no_empty_message(place: Place, language: str) -> None:
    """Go's library reads neither: it discards what has no bytes."""
    topic, client = place.partition(), place.client(language)
    client.producer(topic).send({"null": True, "key": "k"}, {"value": "", "key": "k"})
    assert values(client.consumer(topic).receive(2)) == [None, ""]
