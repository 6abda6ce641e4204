"""TLS with the service's certificate, and the address that clients are given."""

import asyncio
import ssl
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from loghub_service.http.server import ServerTls
from loghub_service.kafka.broker.answer import BrokerLimits
from tests.loghub_operator.support.certificates import Authority
from tests.loghub_service.kafka.broker.broker_place import KEY, PROJECT, TOPIC, Place, run

NAME = "localhost"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    authority = Authority("tests")
    authority.write_pair(tmp_path, NAME)
    (tmp_path / "ca.crt").write_bytes(authority.pem)
    return tmp_path


def context_of(folder: Path) -> ssl.SSLContext:
    return ServerTls(str(folder / "tls.crt"), str(folder / "tls.key")).context


@pytest.mark.long
def test_a_client_that_verifies_the_certificate_writes_and_reads(folder: Path) -> None:
    def client(port: int) -> list[bytes | None]:
        base = {
            "bootstrap.servers": f"{NAME}:{port}",
            "broker.address.family": "v4",
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(folder / "ca.crt"),
            "sasl.mechanisms": "PLAIN",
            "sasl.username": PROJECT,
            "sasl.password": f"{KEY.key_id}#{KEY.secret}",
        }
        producer = Producer({**base, "enable.idempotence": True})
        for number in range(100):
            producer.produce(TOPIC, value=f"{number}".encode())
        assert producer.flush(60) == 0
        consumer = Consumer({**base, "group.id": "g"})
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        found: list[bytes | None] = []
        while len(found) < 100:
            found += [message.value() for message in consumer.consume(100, 60)]
        consumer.close()
        return found

    async def scenario(place: Place) -> None:
        found = await asyncio.to_thread(client, place.port)
        assert found == [b"%d" % number for number in range(100)]

    run(scenario, folder / "d", tls=context_of(folder), advertised_host=NAME)


def test_a_client_without_tls_is_closed_and_leaves_nothing_behind(folder: Path) -> None:
    async def scenario(place: Place) -> None:
        client = await place.connect()
        client.writer.write(b"\0\0\0\x0a\0\x12\0\0\0\0\0\x01\xff\xff")
        assert await client.is_closed()
        assert place.endpoint.connections.unauthenticated_count == 0

    run(scenario, folder / "d", tls=context_of(folder), limits=BrokerLimits())
