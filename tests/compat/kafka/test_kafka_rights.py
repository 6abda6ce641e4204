"""What a real client gets if its access key does not have a right (docs/access-keys.md 2)."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from loghub.client.http import HttpLogHub
from tests.support import START_GUARD_S, ServiceProcess, running_service, wait_until

pytestmark = pytest.mark.long
PROJECT, TOPIC = "demo", "access"
RIGHTS = ("read", "write", "admin")


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A service with a key for each right."""
    folder = tmp_path_factory.mktemp("service")
    port_file = folder / "kafka-port"
    keys = [
        {"accessKeyId": right, "accessKeySecret": "secret", "projects": [PROJECT], "rights": [right]}
        for right in RIGHTS
    ]
    (folder / "credentials").mkdir()
    (folder / "credentials" / "accessKeys.json").write_text(json.dumps(keys))
    extra = ("--kafka", "127.0.0.1:0", "--kafka-port-file", str(port_file), "--kafka-rebalance-delay", "0")
    with running_service(folder, extra=extra) as service:
        prepare(service)
        wait_until(port_file.exists, "the Kafka endpoint")
        yield port_file.read_text().strip()


def prepare(service: ServiceProcess) -> None:
    client = HttpLogHub(service.endpoint, PROJECT, credentials=service.credentials)
    client.create_project()
    client.create_logstore(TOPIC, shards=1)
    client.close()


def settings(address: str, right: str, **more: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": address,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanisms": "PLAIN",
        "sasl.username": PROJECT,
        "sasl.password": f"{right}#secret",
        **more,
    }


def produced(address: str, right: str) -> int | None:
    """The code of the error with which a record is refused; None if it is written."""
    ends: list[KafkaError | None] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        ends.append(error)

    producer = Producer(settings(address, right))
    producer.produce(TOPIC, b"value", on_delivery=delivered)
    assert producer.flush(START_GUARD_S) == 0
    (error,) = ends
    return None if error is None else int(error.code())


def joined(address: str, right: str) -> int | None:
    """The same for a record that a member of a group reads and commits."""
    more = {"group.id": f"of-{right}", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer(settings(address, right, **more))
    try:
        consumer.subscribe([TOPIC])
        (message,) = consumer.consume(1, timeout=START_GUARD_S)
        error = message.error()
        if error is not None:
            return int(error.code())
        consumer.commit(message, asynchronous=False)
        return None
    finally:
        consumer.close()


def fetched(address: str, right: str) -> int | None:
    """The same for a record that is read without a group."""
    consumer = Consumer(settings(address, right, **{"group.id": "none", "auto.offset.reset": "earliest"}))
    try:
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        (message,) = consumer.consume(1, timeout=START_GUARD_S)
        error = message.error()
        return None if error is None else int(error.code())
    finally:
        consumer.close()


def created(address: str, right: str) -> int | None:
    """The same for a topic that is created and deleted again."""
    admin = AdminClient(settings(address, right))
    try:
        new = NewTopic("new", num_partitions=1, replication_factor=1)
        admin.create_topics([new])["new"].result(START_GUARD_S)
        admin.delete_topics(["new"])["new"].result(START_GUARD_S)
    except KafkaException as error:
        return int(error.args[0].code())
    return None


def test_each_right_is_needed_for_what_it_allows_and_refused_otherwise(address: str) -> None:
    topic, group = KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED
    assert [produced(address, right) for right in RIGHTS] == [topic, None, topic]
    assert [joined(address, right) for right in RIGHTS] == [None, group, group]
    assert [fetched(address, right) for right in RIGHTS] == [None, topic, topic]
    assert [created(address, right) for right in RIGHTS] == [topic, topic, None]


def test_every_right_shows_the_topics(address: str) -> None:
    for right in RIGHTS:
        assert set(AdminClient(settings(address, right)).list_topics(timeout=START_GUARD_S).topics) == {TOPIC}


def test_a_key_sees_no_other_project(address: str) -> None:
    """librdkafka repeats a refused login and reports it through this callback only."""
    refused: list[KafkaError] = []
    stranger = settings(address, "read", **{"sasl.username": "other", "error_cb": refused.append})
    admin = AdminClient(stranger)
    wait_until(lambda: admin.poll(0.1) >= 0 and bool(refused), "the refusal")
    assert refused[0].code() == KafkaError._AUTHENTICATION
