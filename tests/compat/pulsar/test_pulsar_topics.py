"""Topics of unmodified Pulsar clients: partitions that are added, patterns, topics that come and go."""

import pytest

from tests.compat.pulsar.client_programs import LANGUAGES, RefusedError
from tests.compat.pulsar.clients import values
from tests.compat.pulsar.places import Place
from tests.compat.representatives import representative

pytestmark = pytest.mark.long


@representative("language", LANGUAGES, "go")
def test_a_topic_has_its_partitions_and_a_missing_one_is_refused(place: Place, language: str) -> None:
    client = place.client(language)
    topic = place.topic(3)
    names = [name.rpartition("/")[2] for name in client.partitions(topic)]
    assert names == [place.partition(number, topic=topic) for number in range(3)]
    # At once: some errors make a client ask again until its time is over, and it does not say why then.
    for missing in ("non-persistent://public/missing/topic", "persistent://missing/default/topic"):
        with pytest.raises(RefusedError, match=r"(?i)not ?found|not ?exist"):
            client.consumer(missing)


@representative("language", ("go", "java"), "java")
@pytest.mark.parametrize("kind", ["Failover", "Shared"])
def test_new_partitions_are_written_and_read_from_their_first_message_on(
    place: Place, language: str, kind: str
) -> None:
    """Python's library looks for them every minute only."""
    topic, client = place.topic(), place.client(language)
    late = place.expects("the first messages of a new partition", ours=False, real=language == "go")
    consumer = client.consumer(topic, type=kind, earliest=late, discoveryS=1)
    producer = client.producer(topic, discoveryS=1)
    producer.send("before")
    before = consumer.receive()
    assert values(before) == ["before"]
    consumer.ack(*before)  # in Failover, partitions that came of a split wait until it is acknowledged
    place.add_partitions(topic)
    # Before any client has heard of them.
    for number in (1, 2):
        other = place.client("python").producer(place.partition(number, topic=topic))
        other.send(f"first of {number}")
    found = {*values(consumer.receive(2))}
    assert found == {"first of 1", "first of 2"}
    partitions = set()
    while len(partitions) < 2:  # until the producer has heard of them
        producer.send(*(f"more {number}" for number in range(6)))
        partitions |= {message.partition for message in consumer.receive(6)} & {1, 2}


@representative("language", LANGUAGES, "python")
def test_a_consumer_of_several_topics_reads_all_of_them(place: Place, language: str) -> None:
    topics, client = [place.topic(2), place.topic()], place.client(language)
    consumer = client.consumer(None, topics=topics, type="Shared")
    for topic in topics:
        client.producer(topic).send(f"of {topic}")
    messages = consumer.receive(2)
    assert {message.value for message in messages} == {f"of {topic}" for topic in topics}
    consumer.ack(*messages)


@representative("language", ("go", "java"), "java")
def test_a_pattern_follows_topics_that_come_and_go(place: Place, language: str) -> None:
    """Python's library looks for new topics too seldom, at Pulsar too."""
    client = place.client(language)
    prefix = f"pattern-{language}-"
    first, other = place.topic(prefix=prefix), place.topic(prefix="other")
    pattern = f"persistent://public/default/{prefix}.*"
    consumer = client.consumer(None, pattern=pattern, type="Shared", discoveryS=1)
    for topic in (first, other):
        client.producer(topic).send(f"of {topic}")
    assert values(consumer.receive()) == [f"of {first}"]
    second = place.topic(prefix=prefix)
    client.producer(second).send(f"of {second}")
    assert values(consumer.receive()) == [f"of {second}"]
    place.delete(first)
    client.producer(second).send("more")
    assert "more" in values(consumer.receive())
