"""What a Pulsar client gets from the endpoint, next to a Pulsar broker on the same machine and disk.

``python -m tests.compat.pulsar.bench_dispatch`` prints messages a second on the clock, and the CPU time of
the server and of the client for each thousand, of one producer in batches and of one consumer of each type
that acknowledges every message; the two ordered types acknowledge cumulatively. The client is Pulsar's
library for Python. Every round measures all rows on both sides; the first one warms both up and does not
count.
"""

import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from threading import Semaphore

import pulsar

from tests.compat.pulsar.places import Place, a_service_place, an_oracle_place
from tests.loghub.load import cpu_s

ROUNDS = 3
MESSAGES, BATCH, BYTES = 100_000, 500, 200
ACK_EVERY = 1000  # of the ordered types
TYPES = {
    "Exclusive": pulsar.ConsumerType.Exclusive,
    "Failover": pulsar.ConsumerType.Failover,
    "Shared": pulsar.ConsumerType.Shared,
    "Key_Shared": pulsar.ConsumerType.KeyShared,
}
ORDERED = ("Exclusive", "Failover")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Of all messages."""

    messages: int
    wall_s: float
    server_s: float
    client_s: float


def _cost(place: Place, work: Callable[[], int]) -> Cost:
    """Of work that returns how many messages it has moved."""
    begin_s, begin_server_s, begin_client_s = time.monotonic(), cpu_s(place.pid), time.process_time()
    messages = work()
    return Cost(
        messages=messages,
        wall_s=time.monotonic() - begin_s,
        server_s=cpu_s(place.pid) - begin_server_s,
        client_s=time.process_time() - begin_client_s,
    )


def measure(place: Place) -> dict[str, Cost]:
    """All rows on one side, once."""
    topic = place.partition()
    login = pulsar.AuthenticationToken(place.token) if place.token else None
    quiet = pulsar.ConsoleLogger(pulsar.LoggerLevel.Warn)
    client = pulsar.Client(place.url, authentication=login, logger=quiet)
    try:
        costs = {"produce": _cost(place, lambda: _produce(client, topic))}
        for name in TYPES:
            consumer = client.subscribe(
                topic,
                name,
                consumer_type=TYPES[name],
                initial_position=pulsar.InitialPosition.Earliest,
                receiver_queue_size=10_000,
            )
            costs[name] = _cost(place, lambda one=consumer, kind=name: _consume(one, kind))  # type: ignore[misc]
            consumer.close()
    finally:
        client.close()
    return costs


def _produce(client: pulsar.Client, topic: str) -> int:
    producer = client.create_producer(
        topic, batching_enabled=True, batching_max_messages=BATCH, block_if_queue_full=True
    )
    done = Semaphore(0)
    failed: list[object] = []

    def stored(result: pulsar.Result, _id: object) -> None:
        if result != pulsar.Result.Ok:
            failed.append(result)
        done.release()

    payload = b"x" * BYTES
    for number in range(MESSAGES):
        producer.send_async(payload, stored, partition_key=f"k{number % 1000}")
    producer.flush()
    for _ in range(MESSAGES):
        done.acquire()
    assert not failed, failed[0]
    producer.close()
    return MESSAGES


def _consume(consumer: pulsar.Consumer, kind: str) -> int:
    for number in range(1, MESSAGES + 1):
        message = consumer.receive(120_000)
        if kind not in ORDERED:
            consumer.acknowledge(message)
        elif number % ACK_EVERY == 0:
            consumer.acknowledge_cumulative(message)
    return MESSAGES


def main() -> None:
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        sides: dict[str, Place] = {
            "service": stack.enter_context(a_service_place(Path(name) / "service")),
            "Pulsar": stack.enter_context(an_oracle_place(Path(name) / "oracle")),
        }
        rounds = [{side: measure(place) for side, place in sides.items()} for _ in range(1 + ROUNDS)][1:]
    print(f"{'':24} {'messages/s':>10} {'lowest':>8} {'highest':>8}  CPU ms for 1,000: server client")
    for row in ("produce", *TYPES):
        for side in sides:
            costs = [costs[side][row] for costs in rounds]
            rates = [cost.messages / cost.wall_s for cost in costs]
            thousands = MESSAGES / 1000
            print(
                f"{row + ', ' + side:24} {median(rates):10.0f} {min(rates):8.0f} {max(rates):8.0f}"
                f" {median(cost.server_s for cost in costs) / thousands * 1000:25.1f}"
                f" {median(cost.client_s for cost in costs) / thousands * 1000:6.1f}"
            )


if __name__ == "__main__":
    main()
