"""Refused messages of unmodified Pulsar clients: delays, retry letters, dead letters and batches received."""

import time

import pytest

from tests.compat.pulsar.client_programs import LANGUAGES
from tests.compat.pulsar.clients import values
from tests.compat.pulsar.places import Place
from tests.compat.representatives import representative

pytestmark = pytest.mark.long
GRID_MS = 300  # the libraries look at what is due at intervals, and may round down
# The shortest time to acknowledge that each library takes.
ACK_TIMEOUT_MS = {"java": 1000, "python": 10_000}


@representative("language", LANGUAGES, "go")
def test_a_refused_message_comes_again_after_its_delay_and_counts(place: Place, language: str) -> None:
    topic, client = place.partition(), place.client(language)
    consumer = client.consumer(topic, type="Shared", nackMs=600)
    client.producer(topic).send("a", "b")
    first, other = consumer.receive(2)
    consumer.ack(other)
    for attempt in range(3):
        assert (first.value, first.redeliveries) == ("a", attempt)
        refused_s = time.monotonic()
        consumer.nack(first)
        (first,) = consumer.receive()
        assert time.monotonic() - refused_s > (600 - GRID_MS) / 1000


@representative("language", ("go", "java"), "java")
def test_a_message_that_is_refused_again_waits_twice_as_long(place: Place, language: str) -> None:
    topic, client = place.partition(), place.client(language)
    consumer = client.consumer(topic, type="Shared", backoffMs=[500, 4000])
    client.producer(topic).send("a")
    (message,) = consumer.receive()
    for attempt in range(3):
        refused_s = time.monotonic()
        consumer.nack(message)
        (message,) = consumer.receive()
        assert message.redeliveries == attempt + 1
        assert time.monotonic() - refused_s > (500 * 2**attempt - GRID_MS) / 1000


@representative("language", ("python", "java"), "java")
def test_a_message_that_is_not_acknowledged_in_time_comes_again(place: Place, language: str) -> None:
    topic, client = place.partition(), place.client(language)
    consumer = client.consumer(topic, type="Shared", ackTimeoutMs=ACK_TIMEOUT_MS[language])
    client.producer(topic).send("a", "b")
    kept, acked = consumer.receive(2)
    received_s = time.monotonic()
    consumer.ack(acked)
    (again,) = consumer.receive()
    assert (again.value, again.redeliveries) == (kept.value, 1)
    assert time.monotonic() - received_s > (ACK_TIMEOUT_MS[language] - GRID_MS) / 1000
    consumer.ack(again)
    client.producer(topic).send("the last")
    assert consumer.receive_until("the last") == []


@representative("language", LANGUAGES, "python")
def test_a_message_refused_too_often_becomes_a_dead_letter(place: Place, language: str) -> None:
    topic, dead, client = place.partition(), place.topic(prefix="dead"), place.client(language)
    listener = client.consumer(dead, "dead")
    options = {"type": "Shared", "nackMs": 100, "deadLetter": {"max": 2, "topic": dead}}
    consumer = client.consumer(topic, **options)
    (sent,) = client.producer(topic).send({"value": "poison", "key": "k", "properties": {"p": "v"}})
    counts = []
    # Go's library keeps the delivery with the last count for itself.
    for _ in range(2 if language == "go" else 3):
        (message,) = consumer.receive()
        counts.append(message.redeliveries)
        consumer.nack(message)
    assert counts == list(range(len(counts)))
    (letter,) = listener.receive()
    assert (letter.value, letter.key, letter.properties["p"]) == ("poison", "k", "v")
    if language == "java":
        assert letter.properties["REAL_SUBSCRIPTION"] == "s"
    if language != "go":  # which adds no properties
        assert letter.properties["REAL_TOPIC"].endswith(topic)
        ledger, entry, _ = sent.id
        assert f"{ledger}:{entry}" in letter.properties["ORIGIN_MESSAGE_ID"].replace(",", ":")
    consumer.close()
    client.producer(topic).send("the last")
    assert client.consumer(topic, type="Shared").receive_until("the last") == []


@representative("language", ("go", "java"), "java")
def test_a_retry_letter_comes_after_its_delay_and_ends_as_a_dead_letter(place: Place, language: str) -> None:
    topic, client = place.topic(), place.client(language)
    retry, dead = place.topic(prefix="retry"), place.topic(prefix="dead")
    listener = client.consumer(dead, "dead")
    policy = {"max": 2, "topic": dead, "retryTopic": retry}
    consumer = client.consumer(topic, type="Shared", retry=True, deadLetter=policy)
    client.producer(topic).send("later")
    sent_s = -1.0
    for attempt in range(3):
        (message,) = consumer.receive()
        assert time.monotonic() - sent_s > 1 - GRID_MS / 1000
        assert message.value == "later"
        assert message.properties.get("RECONSUMETIMES") == (str(attempt) if attempt else None)
        assert (retry in message.topic) is (attempt > 0)
        sent_s = time.monotonic()
        consumer.reconsume(message, 1000)
    (letter,) = listener.receive()
    assert letter.value == "later"
    client.producer(topic).send("the last")
    assert consumer.receive_until("the last") == []


@representative("language", ("go", "java"), "java")
def test_a_delayed_message_waits_for_its_time_and_holds_nothing_back(place: Place, language: str) -> None:
    topic, client = place.partition(), place.client(language)
    consumer = client.consumer(topic, type="Shared")
    sent_s = time.time()
    client.producer(topic).send({"value": "later", "delayMs": 1500}, "now")
    assert values(consumer.receive()) == ["now"]
    assert values(consumer.receive()) == ["later"]
    assert time.time() - sent_s >= 1.5


@representative("language", ("python", "java"), "java")
def test_a_batch_is_received_by_number(place: Place, language: str) -> None:
    topic, client = place.partition(), place.client(language)
    batch = {"max": 10, "bytes": 5 << 20, "ms": 1000}
    consumer = client.consumer(topic, batchReceive=batch)
    names = [f"{number}" for number in range(25)]
    client.producer(topic, batch=5).send(*names)
    received = [consumer.receive_batch() for _ in range(3)]
    assert [len(messages) for messages in received] == [10, 10, 5]
    assert [value for messages in received for value in values(messages)] == names
