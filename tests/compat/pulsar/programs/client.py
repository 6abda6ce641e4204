"""A Pulsar client as a program: it reads one JSON command a line, and prints one JSON object a line.

Programs in other languages have the same commands, so that one scenario drives them all. Each command has an
``id``, which its answer repeats, a name in ``do``, and the name of an object in ``of``: a client, a producer,
a consumer or a reader. An object carries out its commands one after the other, and does not wait for other
objects. What is left out of a command has the library's default. An answer has ``error`` (the name of the
library's error, without "Exception") and ``text`` where the library has raised one.

``connect`` (url, token, ca, timeoutS)
    Makes a client. ``timeoutS`` bounds looking up, subscribing and the like.
``partitions`` (topic) -> topics
``producer`` (client, topic, name, batch, delayMs, codec, chunking, access, discoveryS, sendTimeoutMs)
    -> name, last. ``batch`` messages make a batch; without one each is sent by itself. ``last`` is the last
    sequence id.
``send`` (messages: [{value, size, null, key, orderingKey, properties, eventMs, sequence, delayMs}]) -> ids
    Sends all and waits for all. A value is made ``size`` bytes long by numbers of ten digits.
    An id is ``[ledger, entry, batch index, hex]``, and ``{"error": .., "text": ..}`` for what was refused.
``subscribe`` (client, topic or topics or pattern, subscription, type, earliest, durable, name, queue,
    priority, ranges, inclusive, indexAck, receipts, groupMs, ackTimeoutMs, nackMs, backoffMs: [first, last],
    deadLetter: {max, topic, retryTopic, subscription}, retry, batchReceive: {max, bytes, ms}, discoveryS,
    maxChunked, ackChunked). ``type`` is Exclusive, Failover, Shared or Key_Shared. A consumer of the type
    Failover prints ``{"active": bool, "of": .., "partition": ..}`` where the library tells it.
``reader`` (client, topic, start: "earliest" or "latest" or hex, inclusive)
``receive`` (count, withinMs) -> messages
    Ends when there are ``count``, or after that time. A message is ``{n, id, partition, topic, value, key,
    orderingKey, properties, publishMs, eventMs, redeliveries, producer}``; ``n`` is its name in later
    commands. A value of more than 4,096 bytes is ``sha256:<hex digits>:<size>``.
``receiveBatch`` -> messages
``drain`` (count, ackEvery)
    Receives so many messages and acknowledges each, or all so far after every ``ackEvery``. Shows none.
``ack`` (messages), ``nack`` (messages), ``ackCumulative`` (message), ``reconsume`` (message, delayMs),
``redeliver``, ``seek`` (to: "earliest" or "latest" or hex or milliseconds), ``lastId`` -> last,
``hasNext`` -> next, ``unsubscribe`` (force), ``close``
"""

import hashlib
import json
import re
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from queue import SimpleQueue
from typing import Any

import pulsar

Command = dict[str, Any]
Answer = dict[str, Any]
TYPES = {
    "Exclusive": pulsar.ConsumerType.Exclusive,
    "Failover": pulsar.ConsumerType.Failover,
    "Shared": pulsar.ConsumerType.Shared,
    "Key_Shared": pulsar.ConsumerType.KeyShared,
}
CODECS = {
    "LZ4": pulsar.CompressionType.LZ4,
    "ZLIB": pulsar.CompressionType.ZLib,
    "ZSTD": pulsar.CompressionType.ZSTD,
    "SNAPPY": pulsar.CompressionType.SNAPPY,
}
ACCESS = {
    "Exclusive": pulsar.ProducerAccessMode.Exclusive,
    "WaitForExclusive": pulsar.ProducerAccessMode.WaitForExclusive,
    "ExclusiveWithFencing": pulsar.ProducerAccessMode.ExclusiveWithFencing,
}
SHOWN_BYTES = 4096
BATCH_WAIT_MS = 10_000  # for the rest of a batch, so that only its size and the end of a command close it
_speaking = threading.Lock()


def say(value: dict[str, Any]) -> None:
    with _speaking:
        print(json.dumps(value), flush=True)


def payload_of(message: Command) -> bytes | None:
    if message.get("null"):
        return None
    value: bytes = message.get("value", "").encode()
    size = message.get("size", 0)
    missing = max(0, size - len(value))
    return value + b"".join(b"%010d" % number for number in range((missing + 9) // 10))[:missing]


def shown(payload: bytes) -> str:
    if len(payload) <= SHOWN_BYTES:
        return payload.decode(errors="replace")
    return f"sha256:{hashlib.sha256(payload).hexdigest()}:{len(payload)}"


def id_of(found: Any) -> list[Any]:
    return [found.ledger_id(), found.entry_id(), found.batch_index(), found.serialize().hex()]


def given(**options: Any) -> dict[str, Any]:
    """Those that a command has; the library has its own default for the others."""
    return {name: value for name, value in options.items() if value is not None}


def start_of(text: str | int) -> Any:
    if text in ("earliest", "latest"):
        return getattr(pulsar.MessageId, str(text))
    return text if isinstance(text, int) else pulsar.MessageId.deserialize(bytes.fromhex(text))


class Producer:
    def __init__(self, client: pulsar.Client, command: Command) -> None:
        batch = command.get("batch", 0)
        self._producer = client.create_producer(
            command["topic"],
            block_if_queue_full=True,
            batching_enabled=batch > 0,
            batching_max_publish_delay_ms=command.get("delayMs", BATCH_WAIT_MS),
            **given(
                batching_max_messages=batch or None,
                producer_name=command.get("name"),
                compression_type=CODECS.get(command.get("codec", "")),
                chunking_enabled=command.get("chunking"),
                access_mode=ACCESS.get(command.get("access", "")),
                send_timeout_millis=command.get("sendTimeoutMs"),
            ),
        )

    def opened(self) -> Answer:
        return {"name": self._producer.producer_name(), "last": self._producer.last_sequence_id()}

    def send(self, command: Command) -> Answer:
        done: SimpleQueue[tuple[int, Any]] = SimpleQueue()

        def callback_of(number: int) -> Callable[[Any, Any], None]:
            return lambda result, found: done.put((number, outcome(result, found)))

        messages = command["messages"]
        for number, message in enumerate(messages):
            delay_ms = message.get("delayMs")
            self._producer.send_async(
                payload_of(message),
                callback_of(number),
                **given(
                    properties=message.get("properties"),
                    partition_key=message.get("key"),
                    ordering_key=message.get("orderingKey"),
                    sequence_id=message.get("sequence"),
                    event_timestamp=message.get("eventMs"),
                    deliver_after=None if delay_ms is None else timedelta(milliseconds=delay_ms),
                ),
            )
        with suppress(pulsar.PulsarException):  # the callbacks say which message was refused, and why
            self._producer.flush()
        results = dict(done.get() for _ in messages)
        return {"ids": [results[number] for number in range(len(messages))]}

    def close(self, _command: Command) -> Answer:
        self._producer.close()
        return {}


def outcome(result: Any, found: Any) -> Any:
    return (
        id_of(found) if result == pulsar.Result.Ok else {"error": str(result).rpartition(".")[2], "text": ""}
    )


class Consumer:
    """A consumer, or a reader, which has fewer commands."""

    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer
        self._held: dict[int, pulsar.Message] = {}
        self._next = 0

    def opened(self) -> Answer:
        return {}

    def receive(self, command: Command) -> Answer:
        until_s = time.monotonic() + command.get("withinMs", 120_000) / 1000
        receive = getattr(self._consumer, "receive", None) or self._consumer.read_next
        messages: list[Answer] = []
        while len(messages) < command.get("count", 1):
            left_ms = int((until_s - time.monotonic()) * 1000)
            try:
                messages.append(self._kept(receive(max(1, left_ms))))
            except pulsar.Timeout:
                break
        return {"messages": messages}

    def drain(self, command: Command) -> Answer:
        every = command.get("ackEvery", 0)
        for number in range(1, command["count"] + 1):
            message = self._consumer.receive(120_000)
            if not every:
                self._consumer.acknowledge(message)
            elif number % every == 0:
                self._consumer.acknowledge_cumulative(message)
        return {}

    def receive_batch(self, _command: Command) -> Answer:
        return {"messages": [self._kept(message) for message in self._consumer.batch_receive()]}

    def _kept(self, message: pulsar.Message) -> Answer:
        self._next += 1
        self._held[self._next] = message
        return {
            "n": self._next,
            "id": id_of(message.message_id()),
            "partition": message.message_id().partition(),
            "topic": message.topic_name(),
            "value": None if message.has_null_value() else shown(message.data()),
            "key": message.partition_key() or None,
            "orderingKey": message.ordering_key() or None,
            "properties": message.properties(),
            "publishMs": message.publish_timestamp(),
            "eventMs": message.event_timestamp(),
            "redeliveries": message.redelivery_count(),
            "producer": message.producer_name(),
        }

    def ack(self, command: Command) -> Answer:
        for number in command["messages"]:
            self._consumer.acknowledge(self._held.pop(number))
        return {}

    def ack_cumulative(self, command: Command) -> Answer:
        self._consumer.acknowledge_cumulative(self._held[command["message"]])
        return {}

    def nack(self, command: Command) -> Answer:
        for number in command["messages"]:
            self._consumer.negative_acknowledge(self._held.pop(number))
        return {}

    def redeliver(self, _command: Command) -> Answer:
        self._consumer.redeliver_unacknowledged_messages()
        return {}

    def seek(self, command: Command) -> Answer:
        self._consumer.seek(start_of(command["to"]))
        return {}

    def last_id(self, _command: Command) -> Answer:
        return {"last": id_of(self._consumer.get_last_message_id())}

    def has_next(self, _command: Command) -> Answer:
        return {"next": self._consumer.has_message_available()}

    def unsubscribe(self, _command: Command) -> Answer:
        self._consumer.unsubscribe()
        return {}

    def close(self, _command: Command) -> Answer:
        self._consumer.close()
        return {}


def dead_letter_policy(dead: Command) -> pulsar.ConsumerDeadLetterPolicy:
    return pulsar.ConsumerDeadLetterPolicy(dead["max"], dead.get("topic"), dead.get("subscription"))


def subscribed(client: pulsar.Client, command: Command) -> Consumer:
    pattern = command.get("pattern")
    topic = re.compile(pattern) if pattern else command.get("topics") or command["topic"]
    batch, dead, ranges = (command.get(name) for name in ("batchReceive", "deadLetter", "ranges"))
    start = pulsar.InitialPosition.Earliest if command.get("earliest") else pulsar.InitialPosition.Latest
    return Consumer(
        client.subscribe(
            topic,
            command["subscription"],
            consumer_type=TYPES[command.get("type", "Exclusive")],
            initial_position=start,
            **given(
                consumer_name=command.get("name"),
                receiver_queue_size=command.get("queue"),
                start_message_id_inclusive=command.get("inclusive"),
                batch_index_ack_enabled=command.get("indexAck"),
                unacked_messages_timeout_ms=command.get("ackTimeoutMs"),
                negative_ack_redelivery_delay_ms=command.get("nackMs"),
                pattern_auto_discovery_period=command.get("discoveryS"),
                max_pending_chunked_message=command.get("maxChunked"),
                auto_ack_oldest_chunked_message_on_queue_full=command.get("ackChunked"),
                key_shared_policy=None
                if ranges is None
                else pulsar.ConsumerKeySharedPolicy(
                    pulsar.KeySharedMode.Sticky, sticky_ranges=[tuple(bounds) for bounds in ranges]
                ),
                batch_receive_policy=None
                if batch is None
                else pulsar.ConsumerBatchReceivePolicy(batch["max"], batch["bytes"], batch["ms"]),
                dead_letter_policy=None
                if dead is None
                else pulsar.ConsumerDeadLetterPolicy(
                    dead["max"], dead.get("topic"), dead.get("subscription")
                ),
            ),
        )
    )


class Client:
    def __init__(self, command: Command) -> None:
        self.client = pulsar.Client(
            command["url"],
            authentication=pulsar.AuthenticationToken(command["token"]) if command.get("token") else None,
            logger=pulsar.FileLogger(pulsar.LoggerLevel.Info, "/dev/stderr"),
            tls_validate_hostname=True,
            **given(
                operation_timeout_seconds=command.get("timeoutS"),
                tls_trust_certs_file_path=command.get("ca"),
            ),
        )

    def opened(self) -> Answer:
        return {}

    def partitions(self, command: Command) -> Answer:
        return {"topics": self.client.get_topic_partitions(command["topic"])}

    def close(self, _command: Command) -> Answer:
        self.client.close()
        return {}


class Program:
    """Objects by name, each with a thread."""

    def __init__(self) -> None:
        self._objects: dict[str, Any] = {}
        self._queues: dict[str, SimpleQueue[Command]] = {}

    def take(self, command: Command) -> None:
        name = command["of"]
        if name not in self._queues:
            self._queues[name] = SimpleQueue()
            threading.Thread(target=self._serve, args=(self._queues[name],), daemon=True).start()
        self._queues[name].put(command)

    def _serve(self, commands: "SimpleQueue[Command]") -> None:
        while True:
            command = commands.get()
            try:
                answer = self._carry_out(command)
            except Exception as error:  # noqa: BLE001 - the scenario decides what it means
                answer = {"error": type(error).__name__, "text": str(error)}
            say({"id": command["id"], **answer})

    def _carry_out(self, command: Command) -> Answer:
        name, do = command["of"], command["do"]
        match do:
            case "connect":
                made: Any = Client(command)
            case "producer":
                made = Producer(self._client(command), command)
            case "subscribe":
                made = subscribed(self._client(command), command)
            case "reader":
                reader = self._client(command).create_reader(
                    command["topic"],
                    start_of(command["start"]),
                    start_message_id_inclusive=command.get("inclusive", False),
                )
                made = Consumer(reader)
            case _:
                method = re.sub("[A-Z]", lambda letter: "_" + letter[0].lower(), do)
                answer: Answer = getattr(self._objects[name], method)(command)
                return answer
        self._objects[name] = made
        opened: Answer = made.opened()
        return opened

    def _client(self, command: Command) -> pulsar.Client:
        client: pulsar.Client = self._objects[command["client"]].client
        return client


def main() -> None:
    program = Program()
    for line in sys.stdin:
        program.take(json.loads(line))


if __name__ == "__main__":
    main()
