"""The most expensive command that the limits allow, for each command of a Pulsar client after its login.

Expensive is what `tests.loghub.expensive_requests` says. A command about a consumer, a producer or a watcher
has one of its own connection, with a subscription of its own.
"""

import os
import socket
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import zstandard
from msgspec import Struct

from loghub_service.pulsar.broker.call import PulsarBrokerLimits, command_name
from loghub_service.pulsar.wire import consumers, producers, session, topics
from loghub_service.pulsar.wire.codec import encode
from loghub_service.pulsar.wire.commands import COMMANDS
from loghub_service.pulsar.wire.frames import (
    decode_frame,
    encode_entry,
    encode_frame,
)
from loghub_service.pulsar.wire.values import MessageIdData, Schema
from tests.loghub import load
from tests.loghub_service.pulsar.client_messages import entry_frame

_IDS = PulsarBrokerLimits().ids
_TOPIC = "persistent://public/default/access-partition-0"  # with the 20 MB of `expensive_requests.prepare`
_BATCH = 100_000  # messages, which a log group can number
_SCHEMA = Schema(name="s", schema_data=bytes(60_000), type=1)
_PING = session.CommandPing()
_SUCCESS = session.CommandSuccess
Part = Struct | bytes  # a command, or one with an entry as a frame


class PulsarConnection:
    """A connection that has logged in."""

    def __init__(self, address: str, token: str) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=load.GUARD_S)
        self._token = token.encode()

    def __enter__(self) -> "PulsarConnection":
        connect = session.CommandConnect(
            client_version="costs", protocol_version=20, auth_method_name="token", auth_data=self._token
        )
        self.exchange(connect, session.CommandConnected)
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def exchange(self, command: Part, *answers: type[Struct], count: int = 1) -> None:
        """Send a command, and wait for so many of these, whatever comes before them."""
        self.socket.sendall(encode_frame(command) if isinstance(command, Struct) else command)
        wanted = {COMMANDS[answer] for answer in answers}
        while count:
            count -= self._next() in wanted

    def command(self) -> Struct:
        """The next command."""
        return decode_frame(self._read(int.from_bytes(self._read(4), "big"))).command

    def _next(self) -> int:
        """The number of the next command."""
        body = self._read(int.from_bytes(self._read(4), "big"))
        assert body[4] == 8  # the tag of the number, which all brokers write first
        return body[5]

    def _read(self, size: int) -> bytes:
        found = bytearray()
        while len(found) < size:
            part = self.socket.recv(size - len(found))
            assert part, "the service closed the connection"
            found += part
        return bytes(found)


class PulsarCommand:
    """A command with the answers that end it, and what its connection needs before."""

    def __init__(
        self,
        command: Callable[[], Part],
        *answers: type[Struct],
        before: "Sequence[PulsarCommand]" = (),
        count: int = 1,
    ) -> None:
        """``count`` answers end it."""
        self._command, self._answers, self._before, self._count = command, answers, before, count
        self.size = 0

    def send(self, connection: PulsarConnection) -> None:
        for one in self._before:
            one.send(connection)
        command = self._command()
        self.size = len(encode_frame(command) if isinstance(command, Struct) else command)
        connection.exchange(command, *self._answers, session.CommandError, count=self._count)


def _subscribe(kind: consumers.SubType, seconds: int = 0) -> consumers.CommandSubscribe:
    return consumers.CommandSubscribe(
        topic=_TOPIC,
        subscription=f"costs-{os.urandom(8).hex()}",
        sub_type=kind,
        consumer_id=1,
        request_id=1,
        durable=False,
        start_message_rollback_duration_sec=seconds,
        start_message_id=None if seconds else MessageIdData(ledger_id=0, entry_id=0),
    )


def _batch() -> bytes:
    """Messages of a byte, which take a fraction of their size."""
    single = encode(producers.SingleMessageMetadata(payload_size=1))
    payload = (len(single).to_bytes(4, "big") + single + b"x") * _BATCH
    metadata = producers.MessageMetadata(
        producer_name="costs",
        sequence_id=0,
        publish_time=1_700_000_000_000,
        compression=int(producers.CompressionType.ZSTD),
        uncompressed_size=len(payload),
        num_messages_in_batch=_BATCH,
    )
    entry = encode_entry(encode(metadata), zstandard.ZstdCompressor().compress(payload))
    send = producers.CommandSend(producer_id=1, sequence_id=0, num_messages=_BATCH)
    return entry_frame(send, entry)


def of_pulsar() -> Mapping[str, PulsarCommand]:
    """By the name of the command."""
    ids = tuple(MessageIdData(ledger_id=number % 4, entry_id=number % 5000) for number in range(_IDS))
    exclusive = PulsarCommand(partial(_subscribe, consumers.SubType.EXCLUSIVE), _SUCCESS)
    shared = PulsarCommand(partial(_subscribe, consumers.SubType.SHARED), _SUCCESS)
    produce = partial(producers.CommandProducer, topic=_TOPIC, producer_id=1, request_id=2)
    producer = PulsarCommand(produce, producers.CommandProducerSuccess)
    pattern = "persistent://public/default/" + ".*a" * 60
    watch = PulsarCommand(
        partial(
            topics.CommandWatchTopicList,
            request_id=1,
            watcher_id=1,
            namespace="public/default",
            topics_pattern=pattern,
        ),
        topics.CommandWatchTopicListSuccess,
    )
    return {
        **_about_topics(watch),
        "Producer": PulsarCommand(partial(produce, schema=_SCHEMA), producers.CommandProducerSuccess),
        "Send": PulsarCommand(
            _batch, producers.CommandSendReceipt, producers.CommandSendError, before=(producer,)
        ),
        "CloseProducer": PulsarCommand(
            lambda: producers.CommandCloseProducer(producer_id=1, request_id=3), _SUCCESS, before=(producer,)
        ),
        "Subscribe": PulsarCommand(
            partial(_subscribe, consumers.SubType.KEY_SHARED, 1_000_000_000), _SUCCESS
        ),
        "Flow": PulsarCommand(
            lambda: consumers.CommandFlow(consumer_id=1, message_permits=(1 << 32) - 1),
            consumers.CommandMessage,
            before=(shared,),
            count=20_000,  # all logs
        ),
        "Ack": PulsarCommand(
            lambda: consumers.CommandAck(
                consumer_id=1, ack_type=consumers.AckType.INDIVIDUAL, message_id=ids, request_id=3
            ),
            consumers.CommandAckResponse,
            before=(exclusive,),
        ),
        "RedeliverUnacknowledgedMessages": PulsarCommand(
            lambda: (
                encode_frame(consumers.CommandRedeliverUnacknowledgedMessages(consumer_id=1, message_ids=ids))
                + encode_frame(_PING)
            ),
            session.CommandPong,
            before=(shared,),
        ),
        **_of_consumer(shared),
        "TcClientConnectRequest": PulsarCommand(
            lambda: session.CommandTcClientConnectRequest(request_id=1, tc_id=1),
            session.CommandTcClientConnectResponse,
        ),
    }


def _about_topics(watch: PulsarCommand) -> Mapping[str, PulsarCommand]:
    return {
        "PartitionedTopicMetadata": PulsarCommand(
            lambda: topics.CommandPartitionedTopicMetadata(topic=_TOPIC, request_id=1),
            topics.CommandPartitionedTopicMetadataResponse,
        ),
        "LookupTopic": PulsarCommand(
            lambda: topics.CommandLookupTopic(topic=_TOPIC, request_id=1), topics.CommandLookupTopicResponse
        ),
        "GetTopicsOfNamespace": PulsarCommand(
            lambda: topics.CommandGetTopicsOfNamespace(request_id=1, namespace="public/default"),
            topics.CommandGetTopicsOfNamespaceResponse,
        ),
        "WatchTopicList": watch,
        "WatchTopicListClose": PulsarCommand(
            lambda: topics.CommandWatchTopicListClose(request_id=2, watcher_id=1), _SUCCESS, before=(watch,)
        ),
        "GetSchema": PulsarCommand(
            lambda: topics.CommandGetSchema(request_id=1, topic=_TOPIC), topics.CommandGetSchemaResponse
        ),
        "GetOrCreateSchema": PulsarCommand(
            lambda: topics.CommandGetOrCreateSchema(request_id=1, topic=_TOPIC, schema=_SCHEMA),
            topics.CommandGetOrCreateSchemaResponse,
        ),
    }


def _of_consumer(consumer: PulsarCommand) -> Mapping[str, PulsarCommand]:
    before = (consumer,)
    return {
        "CloseConsumer": PulsarCommand(
            lambda: consumers.CommandCloseConsumer(consumer_id=1, request_id=3), _SUCCESS, before=before
        ),
        "Unsubscribe": PulsarCommand(
            lambda: consumers.CommandUnsubscribe(consumer_id=1, request_id=3, force=True),
            _SUCCESS,
            before=before,
        ),
        "Seek": PulsarCommand(
            lambda: consumers.CommandSeek(consumer_id=1, request_id=3, message_publish_time=1),
            _SUCCESS,
            before=before,
        ),
        "GetLastMessageId": PulsarCommand(
            lambda: consumers.CommandGetLastMessageId(consumer_id=1, request_id=3),
            consumers.CommandGetLastMessageIdResponse,
            before=before,
        ),
        "ConsumerStats": PulsarCommand(
            lambda: consumers.CommandConsumerStats(consumer_id=1, request_id=3),
            consumers.CommandConsumerStatsResponse,
            before=before,
        ),
    }


def names_of(commands: Sequence[type[Struct]]) -> list[str]:
    """How `of_pulsar` names them."""
    return sorted(map(command_name, commands))
