"""What Pulsar clients get from the endpoint, next to a Pulsar broker on the same machine and disk.

``python -m tests.compat.pulsar.bench_dispatch [ROUNDS [MESSAGES]]`` prints messages a second on the clock,
and the CPU time of the server and of the client for each thousand: one producer in batches, and one consumer
of each type with Pulsar's library for Python, Go and Java. Consumers acknowledge every message; those of the
two ordered types cumulatively. Then come acknowledgements with a receipt, a thousand in each command, and how
long a message takes from the producer's call to the consumer's program. Every round measures all rows on
both sides, one side after the other; the first round warms both up and does not count.
"""

import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from threading import Semaphore

import pulsar

from loghub_service.pulsar.wire import consumers as wire
from loghub_service.pulsar.wire.frames import encode_frame
from loghub_service.pulsar.wire.session import CommandSuccess
from loghub_service.pulsar.wire.values import MessageIdData
from tests.compat.pulsar.client_programs import LANGUAGES
from tests.compat.pulsar.clients import Consumer
from tests.compat.pulsar.places import Place, a_service_place, an_oracle_place
from tests.loghub.expensive_pulsar import PulsarConnection
from tests.loghub.load import cpu_s

ROUNDS, MESSAGES = 3, 100_000
BATCH, BYTES, KEYS = 500, 200, 1000
ACK_EVERY = 1000  # of the ordered types, and in a command of the row with receipts
ORDERED = ("Exclusive", "Failover")
TYPES = (*ORDERED, "Shared", "Key_Shared")
TRIPS = 500  # messages of which each is awaited before the next one


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Of all messages."""

    messages: int
    wall_s: float
    server_s: float
    client_s: float


@dataclass(slots=True)
class Side:
    """One of the two, in one round."""

    place: Place
    messages: int
    costs: dict[str, Cost]
    trips_ms: list[float]


def _cost(place: Place, messages: int, work: Callable[[], object], client: Callable[[], float]) -> Cost:
    begin_s, begin_server_s, begin_client_s = time.monotonic(), cpu_s(place.pid), client()
    work()
    return Cost(
        messages=messages,
        wall_s=time.monotonic() - begin_s,
        server_s=cpu_s(place.pid) - begin_server_s,
        client_s=client() - begin_client_s,
    )


def measure(place: Place, messages: int) -> Side:
    """All rows on one side, once."""
    topic, side = place.partition(), Side(place, messages, {}, [])
    login = pulsar.AuthenticationToken(place.token) if place.token else None
    quiet = pulsar.ConsoleLogger(pulsar.LoggerLevel.Warn)
    client = pulsar.Client(place.url, authentication=login, logger=quiet)
    try:
        side.costs["produce, Python"] = _cost(
            place, messages, lambda: _produce(client, topic, messages, BATCH), time.process_time
        )
        for language in LANGUAGES:
            for kind in TYPES:
                side.costs[f"{kind}, {language}"] = _drained(side, language, topic, kind)
        alone = place.partition()
        _produce(client, alone, messages, 0)
        side.costs["acks with receipts"] = _acked(side, alone)
        side.trips_ms += _trips(client, place.partition())
    finally:
        client.close()
        place.end_test()
    return side


def _drained(side: Side, language: str, topic: str, kind: str) -> Cost:
    consumer: Consumer = side.place.client(language).consumer(
        topic, f"{kind}-{language}", type=kind, queue=10_000
    )
    every = ACK_EVERY if kind in ORDERED else 0
    pid = consumer.program.process.pid
    cost = _cost(
        side.place,
        side.messages,
        lambda: consumer.ask("drain", count=side.messages, ackEvery=every),
        lambda: cpu_s(pid),
    )
    consumer.close()
    return cost


def _produce(client: pulsar.Client, topic: str, messages: int, batch: int) -> None:
    # Batches have one size at both sides, however fast these are.
    batching = {
        "batching_enabled": bool(batch),
        "batching_max_messages": max(batch, 2),
        "batching_max_publish_delay_ms": 10_000,
    }
    producer = client.create_producer(topic, block_if_queue_full=True, **batching)
    done = Semaphore(0)
    failed: list[object] = []

    def stored(result: pulsar.Result, _id: object) -> None:
        if result != pulsar.Result.Ok:
            failed.append(result)
        done.release()

    payload = b"x" * BYTES
    for number in range(messages):
        producer.send_async(payload, stored, partition_key=f"k{number % KEYS}")
    producer.flush()
    for _ in range(messages):
        done.acquire()
    assert not failed, failed[0]
    producer.close()


def _acked(side: Side, topic: str) -> Cost:
    """Messages that are no batch, which one connection has got before and acknowledges one by one."""
    with PulsarConnection(side.place.url.removeprefix("pulsar://"), side.place.token) as connection:
        subscribe = wire.CommandSubscribe(
            topic=f"persistent://public/default/{topic}",
            subscription="acks",
            sub_type=wire.SubType.SHARED,
            consumer_id=1,
            request_id=0,
            initial_position=wire.InitialPosition.EARLIEST,
        )
        connection.exchange(subscribe, CommandSuccess)
        flow = wire.CommandFlow(consumer_id=1, message_permits=side.messages)
        connection.socket.sendall(encode_frame(flow))
        ids: list[MessageIdData] = []
        while len(ids) < side.messages:
            command = connection.command()
            if isinstance(command, wire.CommandMessage):
                ids.append(command.message_id)
        acks = [
            encode_frame(
                wire.CommandAck(
                    consumer_id=1,
                    ack_type=wire.AckType.INDIVIDUAL,
                    message_id=tuple(ids[first : first + ACK_EVERY]),
                    request_id=first,
                )
            )
            for first in range(0, len(ids), ACK_EVERY)
        ]

        def send_all() -> None:
            connection.exchange(b"".join(acks), wire.CommandAckResponse, count=len(acks))

        return _cost(side.place, len(ids), send_all, time.process_time)


def _trips(client: pulsar.Client, topic: str) -> list[float]:
    """In milliseconds."""
    consumer = client.subscribe(topic, "trips", consumer_type=pulsar.ConsumerType.Shared)
    producer = client.create_producer(topic)
    trips = []
    for _ in range(TRIPS):
        begin_s = time.monotonic()
        producer.send_async(b"x", lambda *_: None)
        consumer.acknowledge(consumer.receive(120_000))
        trips.append((time.monotonic() - begin_s) * 1000)
    producer.flush()
    return trips


def main(arguments: list[str]) -> None:
    rounds, messages = (*map(int, arguments), *(ROUNDS, MESSAGES)[len(arguments) :])
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        places = {
            "service": stack.enter_context(a_service_place(Path(name) / "service")),
            "Pulsar": stack.enter_context(an_oracle_place(Path(name) / "oracle")),
        }
        measured = [
            {side: measure(place, messages) for side, place in places.items()} for _ in range(1 + rounds)
        ][1:]
    print(f"{'':32} {'messages/s':>10} {'lowest':>8} {'highest':>8}  CPU ms for 1,000: server client")
    for row in measured[0]["service"].costs:
        for side in places:
            costs = [one[side].costs[row] for one in measured]
            rates = [cost.messages / cost.wall_s for cost in costs]
            print(
                f"{row + ', ' + side:32} {median(rates):10.0f} {min(rates):8.0f} {max(rates):8.0f}"
                f" {median(cost.server_s for cost in costs) / messages * 1e6:25.1f}"
                f" {median(cost.client_s for cost in costs) / messages * 1e6:6.1f}"
            )
    for side in places:
        cuts = quantiles([trip for one in measured for trip in one[side].trips_ms], n=100)
        print(f"from send to receive, {side}: median {cuts[49]:.1f} ms, 99 % within {cuts[98]:.1f} ms")


if __name__ == "__main__":
    main(sys.argv[1:])
