"""A broker in this process, over a real engine and a real socket, and a client that sends single requests.

The client is made of `loghub_service.kafka.wire`, which other coders check, so a test sees exact codes and
offsets, and can send what no client library would.
"""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import google_crc32c
from msgspec import Struct

from loghub_service.access_keys import AccessKey
from loghub_service.api.logstores import NewLogstore, create
from loghub_service.engine import Engine
from loghub_service.facts import ProjectSaved
from loghub_service.http.server import Shared
from loghub_service.kafka.broker.answer import BrokerLimits
from loghub_service.kafka.coordinator.group import KafkaGroupLimits as GroupLimits
from loghub_service.kafka.store.endpoint import KafkaEndpoint, endpoint_of
from loghub_service.kafka.wire.apis import APIS, ApiKey
from loghub_service.kafka.wire.frames import RequestHeader
from loghub_service.kafka.wire.logs import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
    PartitionData,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from loghub_service.kafka.wire.record_batch import HEADER_BYTES, Record, read_header, read_records
from loghub_service.kafka.wire.topics import SaslAuthenticateRequest, SaslHandshakeRequest
from loghub_service.messages import MemoryBudget
from loghub_service.ports import OsDisk, OsRandom, Platform
from loghub_service.settings import KafkaLimits, KafkaSettings, ServiceSettings
from loghub_service.start import open_engine
from tests.loghub_service.brokers import GUARD_S, KEY, PROJECT, READER, STRANGER, WRITER, ShiftedClock
from tests.loghub_service.kafka.client_batches import build_batch
from tests.loghub_service.kafka.client_frames import decode_response, encode_request

TOPIC = "access"


@dataclass
class Place:
    """A running broker."""

    engine: Engine
    endpoint: KafkaEndpoint
    port: int
    keys: dict[str, AccessKey]
    clock: ShiftedClock
    budgets: tuple[MemoryBudget, ...]
    clients: "list[Client]" = field(default_factory=list)

    async def connect(self) -> "Client":
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        client = Client(reader, writer)
        self.clients.append(client)
        return client

    async def client(self, key: AccessKey = KEY, *, project: str = PROJECT) -> "Client":
        """A client that has logged in."""
        client = await self.connect()
        await client.log_in(project, f"{key.key_id}#{key.secret}")
        return client


class Closed(Exception):  # noqa: N818 - says what happened
    """The broker closed the connection."""


class Client:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer
        self._correlation = 0

    async def log_in(self, project: str, password: str) -> None:
        error = await self.try_log_in(project, password)
        assert error == 0

    async def try_log_in(self, user: str, password: str) -> int:
        await self.call(ApiKey.SASL_HANDSHAKE, SaslHandshakeRequest(mechanism="PLAIN"))
        token = f"\0{user}\0{password}".encode()
        answer = await self.call(ApiKey.SASL_AUTHENTICATE, SaslAuthenticateRequest(auth_bytes=token))
        return answer.error_code

    async def call(self, api: ApiKey, body: Struct, *, version: int | None = None) -> Any:
        """The response; in the newest version unless another one is given."""
        header = self.send(api, body, version=version)
        return await self.answer(header)

    def send(self, api: ApiKey, body: Struct, *, version: int | None = None) -> RequestHeader:
        self._correlation += 1
        header = RequestHeader(
            api_key=api,
            api_version=APIS[api].max_version if version is None else version,
            correlation_id=self._correlation,
            client_id="test",
        )
        self.writer.write(encode_request(header, body))
        return header

    async def answer(self, header: RequestHeader) -> Any:
        return decode_response(header, await self.frame())

    async def frame(self) -> bytes:
        """The next frame, without its length. Raises Closed."""
        try:
            async with asyncio.timeout(GUARD_S):
                size = int.from_bytes(await self._reader.readexactly(4), "big")
                return await self._reader.readexactly(size)
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            raise Closed from error

    async def is_closed(self) -> bool:
        """Wait for the end of the connection; False if something else arrives."""
        try:
            async with asyncio.timeout(GUARD_S):
                return await self._reader.read(1) == b""
        except ConnectionError:
            return True

    def close(self) -> None:
        self.writer.transport.abort()

    # Requests with one partition

    async def produce(
        self,
        *values: str | bytes | Record,
        partition: int = 0,
        topic: str = TOPIC,
        batch: bytes | None = None,
        acks: int = -1,
        version: int | None = None,
    ) -> PartitionProduceResponse:
        body = produce_request(*values, partition=partition, topic=topic, batch=batch, acks=acks)
        answer = await self.call(ApiKey.PRODUCE, body, version=version)
        return answer.responses[0].partition_responses[0]

    async def fetch(self, offset: int, **options: Any) -> PartitionData:
        """With the options of `fetch_request`."""
        body = fetch_request(offset, **options)
        answer = await self.call(ApiKey.FETCH, body)
        return answer.responses[0].partitions[0]

    async def offset(
        self, timestamp: int, *, partition: int = 0, topic: str = TOPIC
    ) -> ListOffsetsPartitionResponse:
        asked = ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
        body = ListOffsetsRequest(topics=(ListOffsetsTopic(name=topic, partitions=(asked,)),))
        answer = await self.call(ApiKey.LIST_OFFSETS, body)
        return answer.topics[0].partitions[0]


def fetch_request(
    offset: int,
    *,
    partition: int = 0,
    topic: str = TOPIC,
    max_bytes: int = 1 << 20,
    partition_max_bytes: int = 1 << 20,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
) -> FetchRequest:
    asked = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=partition_max_bytes)
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        topics=(FetchTopic(topic=topic, partitions=(asked,)),),
    )


def produce_request(
    *values: str | bytes | Record,
    partition: int = 0,
    topic: str = TOPIC,
    batch: bytes | None = None,
    acks: int = -1,
) -> ProduceRequest:
    data = PartitionProduceData(index=partition, records=batch_of(*values) if batch is None else batch)
    return ProduceRequest(
        acks=acks,
        timeout_ms=1000,
        topic_data=(TopicProduceData(name=topic, partition_data=(data,)),),
    )


def batch_of(*values: str | bytes | Record, producer: tuple[int, int, int] | None = None) -> bytes:
    """A batch; ``producer`` is the id, the epoch and the first sequence."""
    batch = bytearray(build_batch(map(_record, values)))
    if producer is not None:
        _number(batch, *producer)
    return bytes(batch)


def _record(value: str | bytes | Record) -> Record:
    if isinstance(value, Record):
        return value
    raw = value.encode() if isinstance(value, str) else value
    return Record(key=b"k", value=raw, headers=(), timestamp=1_700_000_000_123)


def _number(batch: bytearray, producer_id: int, epoch: int, sequence: int) -> None:
    """Write the producer's fields, and the checksum again: id, epoch and sequence are at 43, 51 and 53."""
    batch[43:51] = producer_id.to_bytes(8, "big")
    batch[51:53] = epoch.to_bytes(2, "big")
    batch[53:57] = sequence.to_bytes(4, "big")
    batch[17:21] = google_crc32c.value(bytes(batch[21:])).to_bytes(4, "big")


def records_of(data: PartitionData) -> list[tuple[int, Record]]:
    """The offset and the record of all records in an answer."""
    found: list[tuple[int, Record]] = []
    left = bytes(data.records or b"")
    while left:
        header = read_header(left)
        records = read_records(header, left[HEADER_BYTES : header.size])
        found += [(header.base_offset + number, record) for number, record in enumerate(records)]
        left = left[header.size :]
    return found


def values_of(data: PartitionData) -> list[bytes | None]:
    return [record.value for _, record in records_of(data)]


@asynccontextmanager
async def a_broker(
    data: Path,
    *,
    shards: int = 1,
    limits: BrokerLimits | None = None,
    memory: int = 64 << 20,
    producers: int = 100,
    clock: ShiftedClock | None = None,
    group_limits: GroupLimits | None = None,
    tls: ssl.SSLContext | None = None,
    advertised_host: str | None = None,
) -> AsyncIterator[Place]:
    """A broker whose project ``demo`` has the topic ``access``; it may be opened again on the same folder."""
    clock = clock or ShiftedClock()
    data.mkdir(exist_ok=True)
    failed: list[BaseException] = []
    engine = await open_engine(
        ServiceSettings(
            data=str(data),
            host="127.0.0.1",
            port=0,
            segment_bytes=4096,
            kafka_groups=group_limits or GroupLimits(initial_rebalance_delay_ms=0),
            kafka_limits=KafkaLimits(request_bytes=memory, answer_bytes=memory, producers=producers),
        ),
        Platform(clock=clock, disk=OsDisk(), random=OsRandom()),
        on_failed=failed.append,
    )
    keys = {key.key_id: key for key in (KEY, READER, WRITER, STRANGER)}
    listening = socket.create_server(("127.0.0.1", 0))
    port: int = listening.getsockname()[1]
    advertised = None if advertised_host is None else (advertised_host, port)
    shared = Shared(find_key=keys.get, tls=tls)
    kafka = KafkaSettings(host="127.0.0.1", port=0, advertised=advertised)
    endpoint = endpoint_of(engine, kafka, listening, shared, limits=limits)
    budgets = endpoint.budgets
    timer = asyncio.create_task(engine.kafka_groups.run())
    try:
        endpoint.start()
        place = Place(engine, endpoint, port, keys, clock, budgets)
        if not engine.catalog.projects:
            await create_topic(engine, shards)
        yield place
        for client in place.clients:
            client.close()
    finally:
        await endpoint.close()
        timer.cancel()
        await engine.close()
        listening.close()
    assert failed == []
    assert endpoint.broker.counts.failed_requests == 0
    assert [budget.used for budget in budgets] == [0, 0, 0]  # everything was given back


async def create_topic(engine: Engine, shards: int) -> None:
    """The project and its topic."""
    now = engine.now_s()
    await engine.persist(ProjectSaved(name=PROJECT, description="", created_s=now, modified_s=now))
    new = NewLogstore(name=TOPIC, shards=shards, ttl_days=2, options='{"kafkaForm":"raw"}')
    await create(engine, PROJECT, new)


def run(scenario: Callable[[Place], Awaitable[None]], data: Path, **options: Any) -> None:
    """Run a scenario with a broker, within a guard against a hang."""

    async def guarded() -> None:
        async with asyncio.timeout(2 * GUARD_S), a_broker(data, **options) as place:
            await scenario(place)

    asyncio.run(guarded())
