"""Unmodified Kafka clients against a real service process: groups, positions, crashes.

Each scenario is driven through `client_programs`: with every library in `make check-deep`, and in `make test`
with one of them, or with all at the same time.
"""

import time
from pathlib import Path

import pytest

from tests.compat.kafka.client_programs import GUARD_S, LIBRARIES, SESSION_S, TOPIC, KafkaPlace
from tests.compat.kafka.programs.held_service import EVERY_PRODUCE
from tests.compat.representatives import representative
from tests.support import wait_until

pytestmark = pytest.mark.long
STEP = 1 << 17  # from one log group to the next, in offsets
# Records that producers are writing when the service dies; the slow ones begin first.
LOADS = ((("kafka-python", "aiokafka"), 2000), (("java", "confluent", "franz-go"), 10_000))


def numbered(first: int, last: int) -> list[str]:
    return [f"value {number}" for number in range(first, last)]


# Each library and each codec once; librdkafka frames snappy in another way than aiokafka and Java.
ONE_CODEC = {
    "confluent": "snappy",
    "kafka-python": "gzip",
    "aiokafka": "snappy",
    "java": "lz4",
    "franz-go": "zstd",
}
# kafka-python has snappy only with a package of its own, which is not installed.
CODECS = [
    (library, codec)
    for library in LIBRARIES
    for codec in ("", "gzip", "snappy", "lz4", "zstd")
    if (library, codec) != ("kafka-python", "snappy")
]


@pytest.mark.deep(minutes=2)
def test_every_codec_of_every_producer_is_read_by_every_consumer(place: KafkaPlace) -> None:
    """A broker keeps batches compressed, so what kafka-python cannot write it cannot read there either."""
    place.create(shards=2)
    written: dict[int, list[str]] = {0: [], 1: []}
    for library, codec in CODECS:
        values = [f"{library} {codec} {number} {'x' * 50}" for number in range(300)]
        producer = place.producer(library, codec=codec)
        producer.produce(values, partition=int(codec == "snappy"))
        producer.leave()
        written[codec == "snappy"] += values
    for library in LIBRARIES:
        read = [0] if place.is_real and library == "kafka-python" else [0, 1]
        consumer = place.start(library)
        consumer.answer("open")
        consumer.ask("assign", places=[[TOPIC, partition, -2] for partition in read])
        place.wait_for({value for partition in read for value in written[partition]}, consumer)
        for partition in read:  # in order, and each once
            assert [value for _, at, *_, value in consumer.records if at == partition] == written[partition]
        consumer.leave()


def test_every_client_writes_in_a_codec_and_reads_over_tls(tls_place: KafkaPlace) -> None:
    """Without codecs at a broker, which keeps batches as they are: the test above knows who can read them."""
    codecs = dict.fromkeys(LIBRARIES, "") if tls_place.is_real else ONE_CODEC
    clients = [tls_place.start(library, codec=codecs[library]) for library in LIBRARIES]
    values = [f"{library} {'x' * 500}" for library in LIBRARIES]
    for client, value in zip(clients, values, strict=True):
        client.answer("open")
        client.produce([value], partition=0)
    for client in clients:
        client.ask("assign", places=[[TOPIC, 0, -2]])
    for client in clients:
        tls_place.wait_for(set(values), client)
        assert client.values == values


@representative("library", LIBRARIES, "franz-go")
def test_members_share_the_partitions_and_take_over_from_who_leaves_or_dies(
    place: KafkaPlace, library: str
) -> None:
    place.create(shards=4)
    producer = place.producer(library)
    first = place.consumer(library)
    place.wait_shared(first, total=4)
    producer.produce(numbered(0, 200))
    place.wait_for(set(numbered(0, 200)))
    first.ask("commit")
    second = place.consumer(library)
    place.wait_shared(first, second, total=4)
    assert {len(first.partitions), len(second.partitions)} == {2}
    second.leave()
    place.wait_shared(first, total=4)
    producer.produce(numbered(200, 400))
    place.wait_for(set(numbered(0, 400)))
    first.ask("commit")
    third = place.consumer(library, sessionS=SESSION_S)
    place.wait_shared(first, third, total=4)
    third.kill()  # its session has to end
    place.wait_shared(first, total=4)
    producer.produce(numbered(400, 600))
    place.check_read(producer, partitions=range(4))  # everything was committed before each change


@representative("library", LIBRARIES, "confluent")
def test_a_group_goes_on_where_it_has_committed(place: KafkaPlace, library: str) -> None:
    place.create(shards=2)
    producer = place.producer(library)
    producer.produce(numbered(0, 100))
    first = place.consumer(library)
    place.wait_for(set(numbered(0, 100)))
    first.ask("commit")
    places = [[TOPIC, 0], [TOPIC, 1]]
    ends = [end for _, end in first.ask("ends", places=places)["offsets"]]
    assert first.ask("committed", places=places)["offsets"] == ends  # no lag
    first.leave()
    place.kill()
    place.start_again()
    second = place.consumer(library, autoCommit=True)
    place.wait_shared(second, total=2)
    producer.produce(numbered(100, 200))
    place.wait_for(set(numbered(0, 200)))

    def no_lag() -> bool:
        ends = [end for _, end in second.ask("ends", places=places)["offsets"]]
        return bool(second.ask("committed", places=places)["offsets"] == ends)

    wait_until(no_lag, "the automatic commit", guard_s=GUARD_S)
    second.leave()
    third = place.consumer(library)
    place.wait_shared(third, total=2)
    producer.produce(numbered(200, 300))
    place.check_read(producer, partitions=range(2))


@representative("library", LIBRARIES, "java")
def test_a_consumer_seeks_to_offsets_and_times(place: KafkaPlace, library: str) -> None:
    place.create(shards=1)
    producer = place.producer(library, lingerMs=1000)  # each command becomes one log group
    producer.produce(["a", "b"], partition=0)
    time.sleep(0.05)  # so that the next group has a later millisecond
    between_ms = int(time.time() * 1000)
    producer.produce(["c", "d"], partition=0)
    consumer = place.start(library)
    consumer.answer("open")
    consumer.ask("assign", places=[[TOPIC, 0, -2]])
    place.wait_for({"a", "b", "c", "d"}, consumer)
    step = 2 if place.is_real else STEP
    assert [offset for _, _, offset, _, _ in consumer.records] == [0, 1, step, step + 1]
    assert consumer.ask("times", places=[[TOPIC, 0, between_ms]])["offsets"] == [step]
    assert consumer.ask("ends", places=[[TOPIC, 0]])["offsets"] == [[0, step + 2]]
    in_the_gap = [] if place.is_real else [(STEP - 1, "cd")]
    for offset, expected in ((1, "bcd"), (2, "cd"), *in_the_gap, (step + 1, "d")):
        consumer.records.clear()
        consumer.ask("seek", place=[TOPIC, 0, offset])
        place.wait_for(set(expected), consumer)
        assert "".join(map(str, consumer.values)) == expected
    # At the end, and where the next group will begin, it waits for what comes.
    for offset, value in ((step + 2, "e"), (5 if place.is_real else 3 * STEP, "f")):
        consumer.ask("seek", place=[TOPIC, 0, offset])
        producer.produce([value], partition=0)
        place.wait_for({value}, consumer)


def test_members_of_all_libraries_share_one_group_also_while_they_process_for_longer_than_a_session(
    place: KafkaPlace,
) -> None:
    place.create(shards=6)
    members = [place.consumer(one, assignor="roundrobin", sessionS=SESSION_S) for one in LIBRARIES]
    place.wait_shared(*members, total=6)
    producer = place.producer("confluent")
    producer.produce(numbered(0, 600))
    place.wait_for(set(numbered(0, 600)))
    assignments = [list(one.history) for one in members]
    for one in members:
        one.send("process", seconds=SESSION_S + 3)  # their heartbeats go on
    for one in members:
        one.answer("process")
    for one in members:
        one.ask("commit")
    place.check_read(producer, partitions=range(6))
    assert [one.history for one in members] == assignments


@representative("library", LIBRARIES, "aiokafka")
def test_a_split_is_noticed_and_nothing_is_missed(place: KafkaPlace, library: str) -> None:
    place.create(shards=1)
    producer = place.producer(library)
    consumer = place.consumer(library)
    place.wait_shared(consumer, total=1)
    producer.produce(numbered(0, 50))
    place.wait_for(set(numbered(0, 50)))
    consumer.ask("commit")
    place.split(0)
    place.wait_shared(consumer, total=3)
    producer.produce(numbered(50, 150))
    # The library's own producer may not have heard of the new partitions yet.
    place.check_read(place.producer("confluent"), partitions=(1, 2))


@pytest.mark.parametrize("kills", [1, pytest.param(5, marks=pytest.mark.deep(minutes=5))])
def test_the_service_dies_under_load_and_nothing_is_lost_or_stored_twice(
    held_place: KafkaPlace, hold: Path, kills: int
) -> None:
    """The producers of all libraries are idempotent, and all of them write when it dies. With one kill, each
    has sent batches that are stored and not answered; with more, it dies at any moment."""
    place = held_place
    place.create(shards=3)
    consumer = place.consumer("confluent", autoCommit=True)
    place.wait_shared(consumer, total=3)
    producers = {library: place.producer(library) for library in LIBRARIES}
    for kill in range(kills):
        if kills == 1:
            hold.write_text(EVERY_PRODUCE)
        for libraries, load in LOADS:
            firsts = set()
            for library in libraries:
                values = [f"{library} {text}" for text in numbered(kill * load, (kill + 1) * load)]
                records = [[-1, value, value] for value in values]
                producers[library].send("produce", topic=TOPIC, records=records)
                firsts.add(values[0])
            place.wait_for(firsts)  # each has begun
        place.kill()
        hold.unlink(missing_ok=True)
        place.start_again()
        for library, producer in producers.items():  # which has repeated what was not answered
            assert producer.answer("produce")["failed"] == 0, library
    place.check_read(producers["confluent"], partitions=range(3), crashed=True)


@representative("library", LIBRARIES, "kafka-python")
def test_a_consumer_that_is_killed_leaves_nothing_unread(place: KafkaPlace, library: str) -> None:
    place.create(shards=3)
    producer = place.producer(library)
    doomed = place.consumer(library, autoCommit=True, sessionS=SESSION_S)
    other = place.consumer(library, autoCommit=True)
    place.wait_shared(doomed, other, total=3)
    producer.produce(numbered(0, 3000))
    doomed.kill()
    producer.produce(numbered(3000, 6000))
    place.check_read(producer, partitions=range(3), crashed=True)
    assert other.partitions == {0, 1, 2}
