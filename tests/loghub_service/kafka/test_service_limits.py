"""What Kafka clients may occupy at a real service: chosen limits hold, and HTTP clients are not disturbed."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from loghub_service.kafka.wire.apis import ApiKey
from loghub_service.kafka.wire.errors import ErrorCode
from loghub_service.kafka.wire.logs import FetchPartition, FetchRequest, FetchTopic
from loghub_service.settings import MIB, KafkaLimits, Limits
from tests.loghub_service.kafka.broker.broker_place import Client
from tests.loghub_service.kafka.broker.test_group_calls import commit, join
from tests.loghub_service.rawclient import RawClient, group_of
from tests.support import running_service, wait_until

pytestmark = pytest.mark.long

LogIn = Callable[[], Awaitable[Client]]
ANNOUNCED = 8 * MIB
CLIENTS = max(Limits().log_bytes, KafkaLimits().request_bytes) // ANNOUNCED  # all memory, of either kind
CHOSEN = (
    *("--max-kafka-groups=1", "--max-kafka-members=1", "--min-kafka-session-s=9", "--max-kafka-session-s=11"),
    *("--max-log-group-mib=1", "--max-kafka-memory-mib=2", "--max-kafka-connections=10"),
)


def at_service(folder: Path, story: Callable[[RawClient, LogIn], Awaitable[None]], *flags: str) -> None:
    """Play the story with an HTTP client of a project, and clients that log in at its Kafka endpoint."""
    port_file = folder / "port"
    kafka = ("--kafka", "127.0.0.1:0", "--kafka-port-file", str(port_file), "--kafka-rebalance-delay=0")
    with (
        running_service(folder / "service", extra=(*kafka, *flags)) as service,
        RawClient(service, "demo") as writer,
    ):
        writer.create()
        wait_until(port_file.exists, "the Kafka endpoint")
        host, _, port = port_file.read_text().strip().rpartition(":")
        key = service.credentials
        clients: list[Client] = []

        async def log_in() -> Client:
            client = Client(*await asyncio.open_connection(host, int(port)))
            clients.append(client)
            await client.log_in("demo", f"{key.access_key_id}#{key.access_key_secret}")
            return client

        async def play() -> None:
            await story(writer, log_in)
            for client in clients:
                client.close()

        asyncio.run(play())


def test_http_clients_write_while_those_of_kafka_hold_all_that_they_may(tmp_path: Path) -> None:
    async def story(writer: RawClient, log_in: LogIn) -> None:
        senders = [await log_in() for _ in range(CLIENTS)]
        for sender in senders:
            sender.writer.write(ANNOUNCED.to_bytes(4, "big") + b"x")
            await sender.writer.drain()
        await log_in()  # the service has read what was sent before
        reply = await asyncio.to_thread(writer.put, group_of("x" * MIB))
        assert reply.status == 200, reply.code

    at_service(tmp_path, story)


def test_http_clients_read_while_those_of_kafka_read_no_answer(tmp_path: Path) -> None:
    """The socket of a client takes little, so that its answer stays in the memory of the service."""

    async def story(writer: RawClient, log_in: LogIn) -> None:
        for _ in range(8):
            writer.put(group_of("x" * (MIB - 100)))
        part = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=8 * MIB)
        body = FetchRequest(
            max_wait_ms=0, min_bytes=1, topics=(FetchTopic(topic="access", partitions=(part,)),)
        )
        for _ in range(4):
            client = await log_in()
            client.writer.transport.pause_reading()
            client.send(ApiKey.FETCH, body)
            await log_in()  # the service has read what was sent before
        cursor = writer.cursor()
        for _ in range(20):
            reply, _ = await asyncio.to_thread(writer.pull, cursor)
            assert reply.status == 200

    small = ("--max-log-group-mib=1", "--max-pull-mib=1", "--max-answer-memory-mib=16")
    of_kafka = ("--max-kafka-answer-memory-mib=16", "--max-kafka-fetch-mib=8")
    at_service(tmp_path, story, *small, *of_kafka)


def test_the_chosen_limits_hold(tmp_path: Path) -> None:
    async def story(_: RawClient, log_in: LogIn) -> None:
        client = await log_in()
        assert (await join(client, session_timeout_ms=8_000)).error_code == ErrorCode.INVALID_SESSION_TIMEOUT
        assert (await join(client, session_timeout_ms=12_000)).error_code == ErrorCode.INVALID_SESSION_TIMEOUT
        assert (await join(client)).error_code == ErrorCode.MEMBER_ID_REQUIRED
        assert (await join(client)).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
        assert await commit(client, 0, group="second") == ErrorCode.POLICY_VIOLATION
        others = [await log_in() for _ in range(10)]
        assert await client.is_closed()
        others[0].writer.write((2 * MIB).to_bytes(4, "big"))
        assert await others[0].is_closed()

    at_service(tmp_path, story, *CHOSEN)
