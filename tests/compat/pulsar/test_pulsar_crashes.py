"""Unmodified Pulsar clients while the service is killed with SIGKILL and starts again."""

import random
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from loghub.domain.subscription import SubscriptionType
from loghub.wire.subscriptions import SubscriptionSpec
from loghub_service.subscription_registry import COLLECT_S
from tests.compat.pulsar.client_programs import LANGUAGES, RefusedError
from tests.compat.pulsar.clients import Sent, values
from tests.compat.pulsar.cutting_proxy import cutting_proxy
from tests.compat.pulsar.places import ServicePlace, a_service_place
from tests.compat.representatives import representative
from tests.support import wait_until

pytestmark = pytest.mark.long
SHARED = SubscriptionSpec(type=SubscriptionType.SHARED)
MANY = pytest.param(100, marks=pytest.mark.deep(minutes=5))


@pytest.fixture
def place(tmp_path: Path) -> Iterator[ServicePlace]:
    with a_service_place(tmp_path / "place") as place:
        yield place


@pytest.mark.parametrize("rounds", [3, MANY])
@representative("language", ("go", "java"), "go")
def test_an_ack_with_a_receipt_outlives_the_service_and_nothing_else_is_lost(
    place: ServicePlace, language: str, rounds: int
) -> None:
    """Each round has a consumer of its own: a library may keep a copy that it had before the ack, and another
    one from after the reconnect.

    The receipts are the ones that the service has sent. Java's library also answers an acknowledgement at
    once, without a receipt, while it has no connection (``ConsumerImpl.isAckReceiptEnabled`` of pulsar-client
    4.1.0 is false then), and forgets it if the consumer is closed before the reconnect."""
    topic = place.partition()
    producer = place.client("python").producer(topic, name="writer", batch=5, delayMs=1)
    chance = random.Random(rounds)
    stored, settled, unsure = set[str | None](), set[str | None](), set[str | None]()
    with cutting_proxy(place.url) as proxy:
        client = place.client(language, url=proxy.url)
        for number in range(rounds):
            names = [f"{number} {place}" for place in range(20)]
            sending = producer.begin(*names)
            consumer = client.consumer(topic, type="Shared", receipts=True)
            messages = consumer.receive(10)
            assert settled.isdisjoint(values(messages))
            chosen = [message for message in messages if chance.random() < 0.5] or messages[:1]
            acking = consumer.send_command("ack", messages=[message.number for message in chosen])
            if not number:  # at least these are settled for certain
                consumer.program.answer(acking)
            else:
                time.sleep(chance.random() / 50)  # to die at any moment of both
            place.service.kill9()
            place.service.start()
            if number:
                with suppress(RefusedError):  # the connection was lost before the receipt
                    consumer.program.answer(acking)
            consumer.close()
            settled.update(values(message for message in chosen if message.id[:2] in proxy.acknowledged))
            unsure.update(values(chosen))
            outcomes = producer.sent(sending)
            stored.update(name for name, one in zip(names, outcomes, strict=True) if isinstance(one, Sent))
        assert len(stored) == 20 * rounds
        assert settled
        producer.send("the last")
        successor = client.consumer(topic, type="Shared")
        rest = values(successor.receive_until("the last", most=20 * rounds))
    assert settled.isdisjoint(rest)
    assert stored - unsure <= set(rest)
    assert len(rest) == len(set(rest))


@representative("language", LANGUAGES, "python")
@pytest.mark.parametrize("rounds", [2, pytest.param(20, marks=pytest.mark.deep(minutes=2))])
def test_of_acks_without_receipts_only_the_last_ones_are_lost_with_the_service(
    place: ServicePlace, language: str, rounds: int
) -> None:
    """The library collects them for some time, and then the service does. Each round has a consumer of its
    own, since a library may keep a copy of what it had before."""
    topic, client = place.topic(), place.client(language)
    logstore = topic.removesuffix(place.suffix)
    producer = place.client("python").producer(topic, batch=5, delayMs=1)
    stored, settled, unsure = set[str | None](), set[str | None](), set[str | None]()

    def acknowledged() -> int:
        return place.http.subscription_status(logstore, "s").acknowledged_logs

    for number in range(rounds):
        names = [f"{number} {message}" for message in range(20)]
        producer.send(*names)
        stored.update(names)
        consumer = client.consumer(topic, type="Shared")
        messages = consumer.receive(12)
        assert settled.isdisjoint(values(messages))
        early, late = messages[:4], messages[4:8]
        before = acknowledged()
        consumer.ack(*early)
        wait_until(lambda before=before: acknowledged() >= before + 4, "the acks at the service")  # type: ignore[misc]
        time.sleep(2 * COLLECT_S)  # it has begun to save them by then
        place.http.create_subscription(logstore, f"after-{number}", SHARED)
        settled.update(values(early))
        consumer.ack(*late)
        unsure.update(values(late))
        place.service.kill9()
        place.service.start()
        consumer.close()
    producer.send("the last")
    successor = client.consumer(topic, type="Shared")
    rest = values(successor.receive_until("the last", most=20 * rounds))
    assert settled.isdisjoint(rest)
    assert stored - settled - unsure <= set(rest)
    assert len(rest) == len(set(rest))


@representative("language", LANGUAGES, "python")
def test_acks_of_messages_from_before_the_crash_settle_them(place: ServicePlace, language: str) -> None:
    """After a reconnect they name messages that are not out, or are out again."""
    topic, client = place.partition(), place.client(language)
    consumer = client.consumer(topic, type="Shared")
    producer = client.producer(topic)
    producer.send(*(f"value {number}" for number in range(6)))
    messages = consumer.receive(6)
    place.service.kill9()
    place.service.start()
    producer.send("new")  # both are connected again, since this one comes through
    again = consumer.receive_until("new")
    assert set(values(again)) <= set(values(messages))
    consumer.ack(*messages[:4])
    consumer.close()
    producer.send("the last")
    rest = client.consumer(topic, type="Shared").receive_until("the last")
    assert sorted(map(str, values(rest))) == ["new", "value 4", "value 5"]


@representative("language", LANGUAGES, "java")
@pytest.mark.parametrize("kills", [2, pytest.param(20, marks=pytest.mark.deep)])
def test_a_producer_with_a_name_stores_each_message_once_and_in_order(
    place: ServicePlace, language: str, kills: int
) -> None:
    topic, client = place.partition(), place.client(language)
    producer = client.producer(topic, name="writer", batch=20, delayMs=1, sendTimeoutMs=180_000)
    reader = place.client("python").reader(topic, "earliest")
    names = [f"{number}" for number in range(500 * kills)]
    read: list[str | None] = []
    for kill in range(kills):
        sending = producer.begin(*names[500 * kill : 500 * (kill + 1)])
        read += values(reader.receive(20 + kill))  # it is writing
        place.service.kill9()
        place.service.start()
        assert all(isinstance(one, Sent) for one in producer.sent(sending))
        read += values(reader.receive(500 * (kill + 1) - len(read)))
    assert read == names
    producer.send("the last")
    assert reader.receive_until("the last") == []
