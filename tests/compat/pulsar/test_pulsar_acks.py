"""What an acknowledgement of an unmodified Pulsar client settles, in each form it can have."""

import pytest

from tests.compat.pulsar.client_programs import LANGUAGES, RefusedError
from tests.compat.pulsar.clients import Client, Consumer, Producer, values
from tests.compat.pulsar.places import Place
from tests.compat.representatives import representative

pytestmark = pytest.mark.long
BATCH = ["a", "b", "c", "d", "e", "f"]


def batched(client: Client, topic: str) -> Producer:
    """A producer that has sent one batch of six messages."""
    producer = client.producer(topic, batch=len(BATCH))
    ids = [sent.id for sent in producer.send(*BATCH)]
    assert len({(ledger, entry) for ledger, entry, _ in ids}) == 1
    assert [index for *_, index in ids] == list(range(len(BATCH)))
    return producer


def left(client: Client, consumer: Consumer, topic: str, **options: object) -> list[str | None]:
    """What comes to the consumer's successor."""
    consumer.close()
    client.producer(topic).send("the last")
    return values(client.consumer(topic, **options).receive_until("the last"))


@representative("language", LANGUAGES, "go")
@pytest.mark.parametrize("index_ack", [False, True])
def test_single_acks_in_a_batch_settle_just_these_messages(
    place: Place, language: str, index_ack: bool
) -> None:
    topic, client = place.partition(), place.client(language)
    options = {"type": "Shared", "indexAck": index_ack}
    consumer = client.consumer(topic, **options)
    batched(client, topic)
    messages = consumer.receive(6)
    consumer.ack(*messages[:2], messages[4])
    rest = ["c", "d", "f"]
    if not index_ack:
        rest = place.expects("an ack in a batch without index acks", ours=rest, real=BATCH)
    assert left(client, consumer, topic, **options) == rest


@representative("language", LANGUAGES, "python")
@pytest.mark.parametrize("index_ack", [False, True])
def test_a_cumulative_ack_within_a_batch_settles_what_comes_before_too(
    place: Place, language: str, index_ack: bool
) -> None:
    """Without index acks a library acknowledges up to the batch, which stays as it is."""
    topic, client = place.partition(), place.client(language)
    consumer = client.consumer(topic, indexAck=index_ack)
    client.producer(topic).send("before")
    batched(client, topic)
    messages = consumer.receive(7)
    consumer.ack_cumulative(messages[4])
    rest = BATCH[4:] if index_ack else BATCH
    assert left(client, consumer, topic, indexAck=index_ack) == rest


@representative("language", ("go", "java"), "go")
def test_a_nack_redelivers_one_message_of_a_batch(place: Place, language: str) -> None:
    topic, client = place.partition(), place.client(language)
    consumer = client.consumer(topic, type="Shared", nackMs=300)
    batched(client, topic)
    messages = consumer.receive(6)
    consumer.nack(messages[2])
    again = consumer.receive(place.expects("a nack in a batch", ours=1, real=6))
    assert values(again) == place.expects("a nack in a batch", ours=["c"], real=BATCH)
    assert {message.redeliveries for message in again} == {1}


@representative("language", LANGUAGES, "go")
def test_a_cumulative_ack_is_refused_where_messages_are_shared(place: Place, language: str) -> None:
    topic, client = place.partition(), place.client(language)
    consumer = client.consumer(topic, type="Shared")
    client.producer(topic).send("a", "b")
    last = consumer.receive(2)[-1]
    with pytest.raises(RefusedError):
        consumer.ack_cumulative(last)
    assert left(client, consumer, topic, type="Shared") == ["a", "b"]


@representative("language", ("go", "java"), "java")
@pytest.mark.parametrize("kind", ["Exclusive", "Shared"])
def test_an_ack_with_a_receipt_settles_before_it_returns(place: Place, language: str, kind: str) -> None:
    topic, client = place.partition(), place.client(language)
    doomed = place.client("go", own=True) if language == "go" else client
    consumer = doomed.consumer(topic, type=kind, receipts=True)
    client.producer(topic).send(*BATCH)
    messages = consumer.receive(6)
    consumer.ack(*messages[:2], messages[4])
    if doomed is client:
        consumer.close()
    else:
        doomed.program.kill()
    client.producer(topic).send("the last")
    successor = client.consumer(topic, type=kind)
    assert values(successor.receive_until("the last")) == ["c", "d", "f"]


@representative("language", LANGUAGES, "python")
def test_what_is_left_unacknowledged_comes_again_without_a_count(place: Place, language: str) -> None:
    """A lost connection is no redelivery: it must not bring a message closer to its dead letter."""
    topic, client = place.partition(), place.client(language)
    for kind in ("Shared", "Key_Shared"):
        consumer = client.consumer(topic, kind, type=kind)
        producer = client.producer(topic)
        producer.send("a", "b")
        consumer.receive(2)
        consumer.close()
        again = client.consumer(topic, kind, type=kind).receive(2)
        assert [(message.value, message.redeliveries) for message in again] == [("a", 0), ("b", 0)]
        topic = place.partition()


@representative("language", ("python", "java"), "java")
def test_redelivering_all_sends_again_what_is_out(place: Place, language: str) -> None:
    topic, client = place.partition(), place.client(language)
    client.producer(topic).send("a", "b", "c")
    for kind, counts in (("Exclusive", {0}), ("Shared", {1})):
        consumer = client.consumer(topic, kind, type=kind)
        first = consumer.receive(3)
        consumer.ack(first[1])
        consumer.redeliver()
        again = consumer.receive(2)
        assert values(again) == ["a", "c"]
        assert {message.redeliveries for message in again} == counts
        consumer.close()


@representative("language", LANGUAGES, "go")
def test_unsubscribing_is_refused_while_others_are_connected_and_forgets_all(
    place: Place, language: str
) -> None:
    topic, client = place.partition(), place.client(language)
    first, second = (client.consumer(topic, type="Shared") for _ in range(2))
    producer = client.producer(topic)
    producer.send("a")
    with pytest.raises(RefusedError):
        first.unsubscribe()
    first.close()
    (message,) = second.receive()
    second.ack(message)
    second.unsubscribe()
    again = client.consumer(topic, type="Shared")
    assert values(again.receive()) == ["a"]
