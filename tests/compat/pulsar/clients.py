"""Pulsar clients as a scenario sees them: the producers, consumers and readers that a program holds."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self

from tests.compat.pulsar.client_programs import Program

RECEIVED_GUARD_MS = 120_000
Id = tuple[int, int, int]  # ledger, entry, index in the batch or -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """The receipt of a message. ``hex`` is the id as the library writes it down."""

    id: Id
    hex: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A message as its consumer shows it. ``number`` is its name at this consumer."""

    number: int
    id: Id
    hex: str
    partition: int
    topic: str
    value: str | None
    key: str | None
    ordering_key: str | None
    properties: dict[str, str]
    publish_ms: int
    event_ms: int
    redeliveries: int
    producer: str

    @classmethod
    def of(cls, shown: dict[str, Any]) -> Self:
        ledger, entry, index, written = shown["id"]
        return cls(
            number=shown["n"],
            id=(ledger, entry, index),
            hex=written,
            partition=shown["partition"],
            topic=shown["topic"],
            value=shown["value"],
            key=shown["key"],
            ordering_key=shown["orderingKey"],
            properties=shown["properties"],
            publish_ms=shown["publishMs"],
            event_ms=shown["eventMs"],
            redeliveries=shown["redeliveries"],
            producer=shown["producer"],
        )


def values(messages: Iterable[Message]) -> list[str | None]:
    return [message.value for message in messages]


def long_value(start: str, size: int) -> str:
    """How a consumer shows a message of this size that begins with ``start``."""
    missing = size - len(start)
    payload = (start + "".join(f"{number:010}" for number in range(missing // 10 + 1)))[:size]
    return f"sha256:{hashlib.sha256(payload.encode()).hexdigest()}:{size}"


@dataclass
class Named:
    """Something that a program holds."""

    program: Program
    name: str

    def ask(self, do: str, **more: Any) -> dict[str, Any]:
        return self.program.ask(do, self.name, **more)

    def send_command(self, do: str, **more: Any) -> int:
        """Without waiting: `Program.answer` has the answer."""
        return self.program.send(do, self.name, **more)

    def close(self) -> None:
        self.ask("close")


@dataclass
class Producer(Named):
    producer_name: str = ""
    last_sequence: int = -1

    def send(self, *messages: str | dict[str, Any]) -> list[Sent]:
        """Each is a value or has the fields of the command. Fails where one is refused."""
        sent = self.outcomes(*messages)
        assert all(isinstance(one, Sent) for one in sent), sent
        return [one for one in sent if isinstance(one, Sent)]

    def outcomes(self, *messages: str | dict[str, Any]) -> list[Sent | str]:
        """What became of each: its receipt, or the error."""
        return self.sent(self.begin(*messages))

    def begin(self, *messages: str | dict[str, Any]) -> int:
        """Begin to send; `sent` has what became of it."""
        rows = [{"value": one} if isinstance(one, str) else one for one in messages]
        return self.send_command("send", messages=rows)

    def sent(self, command: int) -> list[Sent | str]:
        ids = self.program.answer(command)["ids"]
        return [
            f"{one['error']}: {one['text']}"
            if isinstance(one, dict)
            else Sent(id=(one[0], one[1], one[2]), hex=one[3])
            for one in ids
        ]


@dataclass
class Reader(Named):
    def begin_receive(self, count: int = 1, within_ms: int | None = None) -> int:
        """Begin to receive; `received` has the messages."""
        return self.send_command("receive", count=count, withinMs=within_ms)

    def received(self, command: int) -> list[Message]:
        return [Message.of(shown) for shown in self.program.answer(command)["messages"]]

    def receive(self, count: int = 1) -> list[Message]:
        """Wait for so many messages."""
        if not count:
            return []
        messages = self.received(self.begin_receive(count, RECEIVED_GUARD_MS))
        assert len(messages) == count, f"{self.name} waited for {count}, and has {values(messages)}"
        return messages

    def receive_until(self, last: str, most: int = 1000) -> list[Message]:
        """What comes, up to the message with this value, which is left out."""
        messages: list[Message] = []
        while len(messages) <= most:
            (message,) = self.receive()
            if message.value == last:
                return messages
            messages.append(message)
        raise AssertionError(f"{most} messages, and none of them is {last}")

    def receive_within(self, within_ms: int, most: int = 1000) -> list[Message]:
        """What comes in that time."""
        return self.received(self.begin_receive(most, within_ms))

    def seek(self, to: Sent | Message | str | int) -> None:
        self.ask("seek", to=to if isinstance(to, str | int) else to.hex)

    def last_id(self) -> Id:
        ledger, entry, index, _ = self.ask("lastId")["last"]
        return ledger, entry, index

    def has_next(self) -> bool:
        return bool(self.ask("hasNext")["next"])


@dataclass
class Consumer(Reader):
    def receive_batch(self) -> list[Message]:
        return [Message.of(shown) for shown in self.ask("receiveBatch")["messages"]]

    def ack(self, *messages: Message) -> None:
        self.ask("ack", messages=[message.number for message in messages])

    def ack_cumulative(self, message: Message) -> None:
        self.ask("ackCumulative", message=message.number)

    def nack(self, *messages: Message) -> None:
        self.ask("nack", messages=[message.number for message in messages])

    def reconsume(self, message: Message, delay_ms: int) -> None:
        self.ask("reconsume", message=message.number, delayMs=delay_ms)

    def redeliver(self) -> None:
        self.ask("redeliver")

    def unsubscribe(self, *, force: bool = False) -> None:
        self.ask("unsubscribe", force=force)

    @property
    def active(self) -> list[tuple[int, bool]]:
        """What its listener reported: partitions, and whether it became the active consumer."""
        said = list(self.program.active)
        return [(partition, became) for name, partition, became in said if name == self.name]


@dataclass
class Client(Named):
    """A connected client. Options are named as in ``programs/client.py``."""

    def __post_init__(self) -> None:
        self._made = 0

    @property
    def language(self) -> str:
        return self.program.language

    def _next(self, kind: str) -> str:
        self._made += 1
        return f"{self.name}-{kind}{self._made}"

    def producer(self, topic: str, **options: Any) -> Producer:
        name = self._next("producer")
        said = self.program.ask("producer", name, client=self.name, topic=topic, **options)
        return Producer(self.program, name, said["name"], said["last"])

    def consumer(self, topic: str | None, subscription: str = "s", **options: Any) -> Consumer:
        """A consumer from the first message on."""
        name = self._next("consumer")
        settings = {"client": self.name, "topic": topic, "subscription": subscription, "earliest": True}
        self.program.ask("subscribe", name, **settings | options)
        return Consumer(self.program, name)

    def reader(self, topic: str, start: Sent | Message | str, *, inclusive: bool = False) -> Reader:
        name = self._next("reader")
        settings = {"client": self.name, "topic": topic, "inclusive": inclusive}
        self.program.ask("reader", name, start=start if isinstance(start, str) else start.hex, **settings)
        return Reader(self.program, name)

    def partitions(self, topic: str) -> list[str]:
        topics: list[str] = self.ask("partitions", topic=topic)["topics"]
        return topics
