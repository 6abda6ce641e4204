"""A Pulsar endpoint in this process, over a real engine and a real socket, and a client that sends single
commands.

The client's commands are made, and the answers read, by Google's protobuf with Pulsar's own description of
the messages (`tests.loghub_service.pulsar.official`), so a test sees exact codes and ids, and can send what
no client library would.
"""

import asyncio
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import google_crc32c

from loghub.wire.loggroup import Log, append_log
from loghub_service.access_keys import AccessKey
from loghub_service.api.logstores import NewLogstore, create
from loghub_service.engine import Engine
from loghub_service.facts import ProjectSaved
from loghub_service.http.server import Shared
from loghub_service.ports import OsDisk, OsRandom, Platform
from loghub_service.pulsar.broker.call import PulsarBrokerLimits
from loghub_service.pulsar.store.endpoint import PulsarEndpoint, pulsar_endpoint_of
from loghub_service.settings import PulsarSettings, ServiceSettings
from loghub_service.start import open_engine
from tests.loghub_service.brokers import GUARD_S, KEY, PROJECT, READER, STRANGER, WRITER, ShiftedClock
from tests.loghub_service.pulsar import official

LOGSTORE = "access"
TOPIC = f"persistent://public/default/{LOGSTORE}"
PARTITION = f"{TOPIC}-partition-0"
NO_REQUEST = (1 << 64) - 1
EARLIEST, LATEST = (1 << 64) - 1, (1 << 63) - 1


class Closed(Exception):  # noqa: N818 - says what happened
    """The broker closed the connection."""


@dataclass(frozen=True)
class Message:
    """A MESSAGE: its command, the metadata, and the payloads with their own metadata if it is a batch."""

    command: Any
    metadata: Any
    payloads: tuple[bytes, ...]

    @property
    def id(self) -> tuple[int, int, int]:
        """Ledger and entry, and the number of messages if it is a batch, or -1."""
        at = self.command.message_id
        size = self.metadata.num_messages_in_batch if self.metadata.HasField("num_messages_in_batch") else -1
        return at.ledgerId, at.entryId, size


class Client:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer
        self._requests = 0
        self.messages: list[Message] = []
        self.others: list[tuple[str, Any]] = []  # what came while something else was awaited

    def send(self, name: str, **fields: Any) -> int:
        """Send a command by the name of its field; the request id, if it has one and none is given."""
        command = getattr(official.messages()["BaseCommand"](), name)
        if "request_id" in command.DESCRIPTOR.fields_by_name and "request_id" not in fields:
            self._requests += 1
            fields["request_id"] = self._requests
        if fields.get("request_id") is None:
            fields.pop("request_id", None)
        self.writer.write(frame(name, **fields))
        return fields.get("request_id", -1)

    async def call(self, name: str, answer: str, **fields: Any) -> Any:
        """The answer of this kind to a command."""
        request = self.send(name, **fields)
        kind, found = await self.answer_to(request)
        assert kind == answer, (kind, found)
        return found

    async def refused(self, name: str, **fields: Any) -> str:
        """The code of the ERROR that a command is answered with."""
        answer = await self.call(name, "error", **fields)
        return error_name(answer.error)

    async def answer_to(self, request: int) -> tuple[str, Any]:
        """The next command with this request id; what comes before it is kept."""
        while True:
            kind, found = await self.next()
            if getattr(found, "request_id", None) == request:
                return kind, found
            self.others.append((kind, found))

    async def expect(self, kind: str) -> Any:
        """The next command of a kind, among those that came meanwhile or come."""
        for number, (name, found) in enumerate(self.others):
            if name == kind:
                del self.others[number]
                return found
        while True:
            name, found = await self.next()
            if name == kind:
                return found
            self.others.append((name, found))

    async def next(self) -> tuple[str, Any]:
        """The next command, by the name of its field. Messages are kept in ``messages``."""
        while True:
            body = await self.frame()
            size = int.from_bytes(body[:4], "big")
            command = official.messages()["BaseCommand"].FromString(body[4 : 4 + size])
            ((descriptor, found),) = (
                (one, value) for one, value in command.ListFields() if one.name != "type"
            )
            if descriptor.name != "message":
                return descriptor.name, found
            self.messages.append(_message(found, body[4 + size :]))

    async def receive(self, count: int) -> list[Message]:
        """The next messages, entries as they come."""
        while len(self.messages) < count:
            body = await self.frame()
            size = int.from_bytes(body[:4], "big")
            command = official.messages()["BaseCommand"].FromString(body[4 : 4 + size])
            if command.HasField("message"):
                self.messages.append(_message(command.message, body[4 + size :]))
            else:
                ((descriptor, found),) = (
                    (one, value) for one, value in command.ListFields() if one.name != "type"
                )
                self.others.append((descriptor.name, found))
        found, self.messages = self.messages[:count], self.messages[count:]
        return found

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

    async def log_in(self, token: str, **fields: Any) -> tuple[str, Any]:
        self.send(
            "connect",
            auth_method_name="token",
            auth_data=token.encode(),
            **{"client_version": "test", "protocol_version": 20, **fields},
        )
        return await self.next()

    async def subscribe(
        self,
        consumer: int = 0,
        *,
        topic: str = PARTITION,
        name: str = "s",
        kind: str = "Exclusive",
        permits: int = 1000,
        earliest: bool = True,
        **fields: Any,
    ) -> None:
        """Subscribe, and give permits."""
        wanted = subscription(consumer, topic, name, kind, earliest=earliest)
        await self.call("subscribe", "success", **wanted, **fields)
        if permits:
            self.send("flow", consumer_id=consumer, messagePermits=permits)

    async def produce(self, producer: int = 0, *, topic: str = PARTITION, **fields: Any) -> Any:
        """A producer; the PRODUCER_SUCCESS."""
        return await self.call("producer", "producer_success", producer_id=producer, topic=topic, **fields)

    def publish(self, sequence: int, entry: bytes, *, producer: int = 0, **fields: Any) -> None:
        """Send what `entry_of` makes."""
        head = frame("send", producer_id=producer, sequence_id=sequence, **fields)[4:]
        self.writer.write(struct.pack(">I", len(head) + len(entry)) + head + entry)

    async def published(self, sequence: int, entry: bytes, *, producer: int = 0, **fields: Any) -> Any:
        """The id in the receipt."""
        self.publish(sequence, entry, producer=producer, **fields)
        receipt = await self.expect("send_receipt")
        assert (receipt.producer_id, receipt.sequence_id) == (producer, sequence)
        return receipt.message_id

    async def drained(self) -> None:
        """Return once the broker has carried out all that was sent, and what that led to has arrived."""
        self.send("ping")
        await self.expect("pong")

    def close(self) -> None:
        self.writer.transport.abort()


def error_name(code: int) -> str:
    """What Pulsar calls a ServerError."""
    described = official.messages()["BaseCommand"].DESCRIPTOR.file.enum_types_by_name["ServerError"]
    name: str = described.values_by_number[code].name
    return name


def subscription(consumer: int, topic: str, name: str, kind: str, *, earliest: bool = True) -> dict[str, Any]:
    """The fields of SUBSCRIBE."""
    return {
        "topic": topic,
        "subscription": name,
        "subType": {"Exclusive": 0, "Shared": 1, "Failover": 2, "Key_Shared": 3}[kind],
        "consumer_id": consumer,
        "initialPosition": int(earliest),
    }


def frame(name: str, **fields: Any) -> bytes:
    """A command as a frame."""
    command = official.messages()["BaseCommand"]()
    part = getattr(command, name)
    part.SetInParent()
    for field_name, value in fields.items():
        if isinstance(value, dict):
            _fill(getattr(part, field_name), value)
        elif isinstance(value, list):
            for one in value:
                if isinstance(one, dict):
                    _fill(getattr(part, field_name).add(), one)
                else:
                    getattr(part, field_name).append(one)
        else:
            setattr(part, field_name, value)
    command.type = command.DESCRIPTOR.fields_by_name[name].number
    body = command.SerializeToString()
    return struct.pack(">II", len(body) + 4, len(body)) + body


def _fill(part: Any, values: dict[str, Any]) -> None:
    part.SetInParent()
    for name, value in values.items():
        if isinstance(value, list):
            for one in value:
                if isinstance(one, dict):
                    _fill(getattr(part, name).add(), one)
                else:
                    getattr(part, name).append(one)
        else:
            setattr(part, name, value)


def entry_of(payload: bytes = b"v", *, sequence: int = 0, **metadata: Any) -> bytes:
    """Checksum, metadata and payload of a message."""
    described = official.messages()["MessageMetadata"](
        producer_name="p", sequence_id=sequence, publish_time=1_700_000_000_000, **metadata
    ).SerializeToString()
    body = struct.pack(">I", len(described)) + described + payload
    return struct.pack(">HI", 0x0E01, google_crc32c.value(body)) + body


def batch_of(*payloads: bytes, sequence: int = 0, **metadata: Any) -> bytes:
    """A batch likewise."""
    parts = []
    for number, payload in enumerate(payloads):
        single = official.messages()["SingleMessageMetadata"](
            payload_size=len(payload), sequence_id=sequence + number
        ).SerializeToString()
        parts.append(struct.pack(">I", len(single)) + single + payload)
    whole = b"".join(parts)
    return entry_of(whole, sequence=sequence, num_messages_in_batch=len(payloads), **metadata)


def _message(command: Any, rest: bytes) -> Message:
    assert rest[:2] == b"\x0e\x01"
    assert int.from_bytes(rest[2:6], "big") == google_crc32c.value(rest[6:])
    size = int.from_bytes(rest[6:10], "big")
    metadata = official.messages()["MessageMetadata"].FromString(rest[10 : 10 + size])
    payload = rest[10 + size :]
    if not metadata.HasField("num_messages_in_batch"):
        return Message(command, metadata, (payload,))
    payloads = []
    for _ in range(metadata.num_messages_in_batch):
        of_one = int.from_bytes(payload[:4], "big")
        single = official.messages()["SingleMessageMetadata"].FromString(payload[4 : 4 + of_one])
        payload = payload[4 + of_one :]
        payloads.append(payload[: single.payload_size])
        payload = payload[single.payload_size :]
    assert not payload
    return Message(command, metadata, tuple(payloads))


@dataclass
class PulsarPlace:
    """A running broker."""

    engine: Engine
    endpoint: PulsarEndpoint
    port: int
    keys: dict[str, AccessKey]
    clock: ShiftedClock
    clients: list[Client] = field(default_factory=list)

    async def connect(self) -> Client:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        client = Client(reader, writer)
        self.clients.append(client)
        return client

    async def client(self, key: AccessKey = KEY, *, project: str = PROJECT, **fields: Any) -> Client:
        """A client that has logged in; ``fields`` are those of its CONNECT."""
        client = await self.connect()
        kind, _ = await client.log_in(f"{project}#{key.key_id}#{key.secret}", **fields)
        assert kind == "connected"
        return client

    async def put(self, *values: bytes, shard: int = 0, key: bytes = b"") -> None:
        """Append a log group with a log for each value, as PutLogs does."""
        group = bytearray()
        for value in values:
            fields = [(b"value", value)] + ([(b"key", key)] if key else [])
            append_log(group, Log(time=1_700_000_000, contents=tuple(fields)))
        log = self.engine.logs[self.store.saved.id, shard]
        await self.engine.append(log, bytes(group), logs=len(values))

    @property
    def store(self) -> Any:
        return self.engine.catalog.projects[PROJECT].logstores[LOGSTORE]


@asynccontextmanager
async def a_broker(
    data: Path,
    *,
    shards: int = 1,
    limits: PulsarBrokerLimits | None = None,
    tls: ssl.SSLContext | None = None,
    advertised: tuple[str, int] | None = None,
    auto_create: bool = False,
) -> AsyncIterator[PulsarPlace]:
    """A broker whose project ``demo`` has the logstore ``access``; it may be opened again on the same
    folder."""
    clock = ShiftedClock()
    data.mkdir(exist_ok=True)
    failed: list[BaseException] = []
    engine = await open_engine(
        ServiceSettings(data=str(data), host="127.0.0.1", port=0, segment_bytes=4096),
        Platform(clock=clock, disk=OsDisk(), random=OsRandom()),
        on_failed=failed.append,
    )
    keys = {key.key_id: key for key in (KEY, READER, WRITER, STRANGER)}
    listening = socket.create_server(("127.0.0.1", 0))
    settings = PulsarSettings(host="127.0.0.1", port=0, advertised=advertised, auto_create=auto_create)
    shared = Shared(find_key=keys.get, tls=tls)
    endpoint = pulsar_endpoint_of(engine, settings, listening, shared, limits=limits)
    try:
        endpoint.start()
        place = PulsarPlace(engine, endpoint, listening.getsockname()[1], keys, clock)
        if not engine.catalog.projects:
            await create_logstore(engine, shards)
        yield place
        for client in place.clients:
            client.close()
    finally:
        await endpoint.close()
        await engine.close()
        listening.close()
    assert failed == []
    assert endpoint.broker.counts.failed_requests == 0
    assert {budget.used for budget in endpoint.budgets} == {0}  # everything was given back
    assert (list(endpoint.dispatches), list(endpoint.producers)) == ([], [])


async def create_logstore(engine: Engine, shards: int) -> None:
    """The project and its logstore."""
    now = engine.now_s()
    await engine.persist(ProjectSaved(name=PROJECT, description="", created_s=now, modified_s=now))
    new = NewLogstore(name=LOGSTORE, shards=shards, ttl_days=2, options='{"kafkaForm":"raw"}')
    await create(engine, PROJECT, new)


def run(scenario: Callable[[PulsarPlace], Awaitable[None]], data: Path, **options: Any) -> None:
    """Run a scenario with a broker, within a guard against a hang."""

    async def guarded() -> None:
        async with asyncio.timeout(2 * GUARD_S), a_broker(data, **options) as place:
            await scenario(place)

    asyncio.run(guarded())
