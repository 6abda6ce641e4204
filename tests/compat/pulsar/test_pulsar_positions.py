"""Where unmodified Pulsar clients begin to read: readers, seeks by id and by time, and subscriptions."""

import time

import pytest

from tests.compat.pulsar.client_programs import LANGUAGES
from tests.compat.pulsar.clients import Client, Sent, values
from tests.compat.pulsar.places import Place
from tests.compat.representatives import representative

pytestmark = pytest.mark.long
ALL = [f"m{number}" for number in range(8)]


def eight(client: Client, topic: str) -> list[Sent]:
    """Three messages by themselves and a batch of five."""
    alone = client.producer(topic)
    sent = alone.send(*ALL[:3])
    alone.close()
    together = client.producer(topic, batch=5)
    sent += together.send(*ALL[3:])
    together.close()
    assert len({one.id[:2] for one in sent}) == 4
    return sent


@representative("language", LANGUAGES, "python")
@pytest.mark.parametrize("inclusive", [False, True], ids=["exclusive", "inclusive"])
def test_a_reader_begins_at_each_position(place: Place, language: str, inclusive: bool) -> None:
    topic, client = place.partition(), place.client(language)
    sent = eight(client, topic)
    # Alone, at the begin of the batch, in it.
    starts = {"earliest": 0, 0: 0, 2: 2, 3: 3, 5: 5}
    for start, first in starts.items():
        reader = client.reader(topic, start if isinstance(start, str) else sent[start], inclusive=inclusive)
        expected = ALL[first if inclusive or start == "earliest" else first + 1 :]
        assert reader.has_next()
        assert values(reader.receive(len(expected))) == expected, start
        assert not reader.has_next()
        reader.close()
    at_end = [client.reader(topic, start, inclusive=inclusive) for start in ("latest", sent[7])]
    for reader in at_end:
        if inclusive:  # Java and Python go to the last message when they are asked whether there is one
            assert reader.has_next()
        assert values(reader.receive(int(inclusive))) == ALL[8 - int(inclusive) :]
    client.producer(topic).send("the last")
    for reader in at_end:
        assert reader.receive_until("the last") == []


@representative("language", LANGUAGES, "go")
@pytest.mark.parametrize("inclusive", [False, True], ids=["exclusive", "inclusive"])
def test_a_consumer_seeks_to_ids_that_it_received_or_sent(
    place: Place, language: str, inclusive: bool
) -> None:
    topic, client = place.partition(), place.client(language)
    sent = eight(client, topic)
    consumer = client.consumer(topic, inclusive=inclusive)
    received = consumer.receive(8)
    assert values(received) == ALL
    for number in (0, 2, 3, 5, 7):
        for ids in (sent, received):
            consumer.seek(ids[number])
            expected = ALL[number if inclusive else number + 1 :]
            assert values(consumer.receive(len(expected))) == expected, (number, ids is sent)
    client.producer(topic).send("the last")
    assert consumer.receive_until("the last") == []


@representative("language", LANGUAGES, "java")
def test_a_consumer_seeks_to_times_and_to_both_ends(place: Place, language: str) -> None:
    topic, client = place.partition(), place.client(language)
    producer = client.producer(topic)
    producer.send("a", "b")
    time.sleep(0.05)  # so that the next message has a later millisecond, also at a broker with another clock
    between_ms = int(time.time() * 1000)
    time.sleep(0.05)
    producer.send("c", "d")
    consumer = client.consumer(topic, type="Shared")
    assert values(consumer.receive(4)) == ["a", "b", "c", "d"]
    consumer.seek(between_ms)
    assert values(consumer.receive(2)) == ["c", "d"]
    if language != "go":  # its library goes on filtering by the position before
        consumer.seek("earliest")
        messages = consumer.receive(4)
        assert values(messages) == ["a", "b", "c", "d"]
        consumer.seek("latest")
    else:
        consumer.seek(int(time.time() * 1000) + 1)
    producer.send("e")
    assert values(consumer.receive()) == ["e"]


@representative("language", LANGUAGES, "python")
def test_a_subscription_begins_at_the_end_or_at_the_first_message(place: Place, language: str) -> None:
    topic, client = place.topic(2), place.client(language)
    producer = client.producer(topic)
    producer.send("before")
    late, early = client.consumer(topic, "late", earliest=False), client.consumer(topic, "early")
    producer.send("after")
    assert values(late.receive()) == ["after"]
    assert sorted(map(str, values(early.receive(2)))) == ["after", "before"]


@representative("language", ("go", "java"), "go")
def test_a_subscription_that_is_not_durable_is_gone_with_its_consumer(place: Place, language: str) -> None:
    topic, client = place.partition(), place.client(language)
    client.producer(topic).send("a", "b")
    for _ in range(2):
        consumer = client.consumer(topic, durable=False)
        first, second = consumer.receive(2)
        consumer.ack(first, second)
        assert values([first, second]) == ["a", "b"]
        consumer.close()


@representative("language", LANGUAGES, "java")
def test_the_last_id_is_the_one_that_the_last_message_was_sent_with(place: Place, language: str) -> None:
    topic, client = place.partition(), place.client(language)
    empty = place.partition()
    assert client.consumer(empty).last_id()[1] == -1
    sent = eight(client, topic)
    consumer = client.consumer(topic)
    ledger, entry, index = consumer.last_id()
    assert (ledger, entry) == sent[-1].id[:2]
    assert index in (-1, sent[-1].id[2])
    client.producer(topic).send("alone")
    assert consumer.last_id()[:2] > (ledger, entry)
