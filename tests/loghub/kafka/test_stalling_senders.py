"""Kafka clients that announce large requests and stall, at a real service: HTTP clients go on."""

import asyncio
from pathlib import Path

import pytest

from loghub.service.settings import MIB, KafkaLimits, Limits
from tests.loghub.kafka.broker.broker_place import Client
from tests.loghub.service.rawclient import RawClient, group_of
from tests.support import running_service, wait_until

ANNOUNCED = 8 * MIB
CLIENTS = max(Limits().log_bytes, KafkaLimits().request_bytes) // ANNOUNCED  # all memory, of either kind


@pytest.mark.long
def test_http_clients_write_while_those_of_kafka_hold_all_that_they_may(tmp_path: Path) -> None:
    port_file = tmp_path / "port"
    kafka = ("--kafka", "127.0.0.1:0", "--kafka-port-file", str(port_file))
    with running_service(tmp_path / "service", extra=kafka) as service, RawClient(service, "demo") as writer:
        writer.create()
        wait_until(port_file.exists, "the Kafka endpoint")
        host, _, port = port_file.read_text().strip().rpartition(":")
        key = service.credentials

        async def logged_in() -> Client:
            client = Client(*await asyncio.open_connection(host, int(port)))
            await client.log_in("demo", f"{key.access_key_id}#{key.access_key_secret}")
            return client

        async def story() -> None:
            senders = [await logged_in() for _ in range(CLIENTS)]
            for sender in senders:
                sender.writer.write(ANNOUNCED.to_bytes(4, "big") + b"x")
                await sender.writer.drain()
            await logged_in()  # the service has read what was sent before
            reply = await asyncio.to_thread(writer.put, group_of("x" * MIB))
            assert reply.status == 200, reply.code
            for sender in senders:
                sender.close()

        asyncio.run(story())
