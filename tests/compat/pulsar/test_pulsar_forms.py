"""A log from PutLogs, a Kafka client or a Pulsar client is the same for the readers of all protocols."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from loghub.wire.loggroup import Log, LogGroup, decode, encode, split
from tests.compat.pulsar.client_programs import LANGUAGES
from tests.compat.pulsar.clients import values
from tests.compat.pulsar.places import PROJECT, ServicePlace, a_service_place
from tests.compat.representatives import representative
from tests.support import START_GUARD_S, wait_until

pytestmark = pytest.mark.long
WRITERS = ("native", "kafka", "pulsar")
TIME_S = 1_700_000_000


@pytest.fixture
def place(tmp_path: Path) -> Iterator[ServicePlace]:
    """With an endpoint for Kafka too."""
    extra = ("--kafka", "127.0.0.1:0", "--kafka-port-file", str(tmp_path / "kafka-port"))
    with a_service_place(tmp_path / "place", extra=extra) as place:
        wait_until((tmp_path / "kafka-port").exists, "the Kafka endpoint")
        yield place


def kafka_settings(place: ServicePlace, address: str) -> dict[str, str]:
    key = place.service.credentials
    return {
        "bootstrap.servers": address,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanisms": "PLAIN",
        "sasl.username": PROJECT,
        "sasl.password": f"{key.access_key_id}#{key.access_key_secret}",
    }


def test_a_log_is_the_same_for_every_reader(place: ServicePlace, tmp_path: Path) -> None:
    topic = place.topic()
    logstore = topic.removesuffix(place.suffix)
    settings = kafka_settings(place, (tmp_path / "kafka-port").read_text().strip())
    contents = (("key", "k"), ("value", "native"), ("header.p", "v"))
    log = Log(time=TIME_S, time_ns=123_000_000, contents=contents)
    place.http.put_logs(logstore, encode(LogGroup(logs=(log,))))
    writer = Producer(settings)
    when_ms = TIME_S * 1000 + 123
    writer.produce(topic, b"kafka", key=b"k", headers=[("p", b"v")], timestamp=when_ms, partition=0)
    assert writer.flush(START_GUARD_S) == 0
    fields = {"value": "pulsar", "key": "k", "properties": {"p": "v"}, "eventMs": when_ms}
    place.client("python").producer(topic).send(fields)

    pulled = place.http.pull_logs(logstore, 0, cursor=place.http.get_cursor(logstore, 0, "begin"), count=10)
    logs = [log for group in split(pulled.body) for log in decode(group).logs]
    assert [dict(log.contents) for log in logs] == [
        {"key": b"k", "value": writer.encode(), "header.p": b"v"} for writer in WRITERS
    ]
    assert [(log.time, log.time_ns) for log in logs] == [(TIME_S, 123_000_000)] * 3

    reader = Consumer(settings | {"group.id": "readers", "enable.auto.commit": False})
    reader.assign([TopicPartition(topic, 0, 0)])
    records = reader.consume(3, START_GUARD_S)
    assert [record.value() for record in records] == [writer.encode() for writer in WRITERS]
    assert [(record.key(), record.headers()) for record in records] == [(b"k", [("p", b"v")])] * 3
    assert [record.timestamp()[1] for record in records] == [when_ms] * 3
    reader.close()

    for kind in ("Exclusive", "Shared"):
        messages = place.client("go").consumer(topic, kind, type=kind).receive(3)
        assert values(messages) == list(WRITERS)
        assert [(message.key, message.properties) for message in messages] == [("k", {"p": "v"})] * 3
        assert messages[2].event_ms == when_ms


@representative("language", LANGUAGES, "go")
def test_a_message_that_is_refused_for_good_fails_and_its_producer_goes_on(
    place: ServicePlace, language: str
) -> None:
    """Java hears the reason. The others send the message again until their time-out. As it is compressed, no
    client knows that it is too large for a log group."""
    topic, client = place.partition(), place.client(language)
    producer = client.producer(topic, codec="ZSTD", sendTimeoutMs=3_000)
    (refused,) = producer.outcomes({"value": "too large", "size": 12 << 20})
    assert isinstance(refused, str)
    assert re.search("NotAllowed" if language == "java" else "(?i)time", refused)
    producer.send("the next one")
    assert values(client.consumer(topic).receive()) == ["the next one"]
    wait_until(lambda: "message refused" in place.service.log.read_text(), "the log line")


def test_a_log_that_was_not_written_raw_is_read_as_its_json(place: ServicePlace) -> None:
    topic = place.topic()
    log = Log(time=TIME_S, contents=(("user", "alice"), ("path", "/index")))
    place.http.put_logs(topic.removesuffix(place.suffix), encode(LogGroup(logs=(log, log))))
    messages = place.client("python").consumer(topic).receive(2)
    assert values(messages) == ['{"user":"alice","path":"/index"}'] * 2
    assert [message.key for message in messages] == [None, None]
