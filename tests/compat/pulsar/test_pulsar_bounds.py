"""Idle clients, one that reads nothing and one that acknowledges nothing, next to an unmodified client."""

from contextlib import ExitStack
from pathlib import Path

import pytest

from loghub_service.pulsar.wire import consumers
from loghub_service.pulsar.wire.frames import encode_frame
from loghub_service.pulsar.wire.session import CommandSuccess
from tests.compat.pulsar.clients import values
from tests.compat.pulsar.places import Place
from tests.loghub.expensive_pulsar import PulsarConnection

pytestmark = pytest.mark.long
MESSAGES, BATCH = 2000, 100
PERMITS = 1_000_000
# What is kept for all clients together: entries that were read, answers, and what the allocator holds.
SHARED_BYTES = 192 << 20
OF_CONNECTION_BYTES = 32 << 10


def memory_bytes(pid: int) -> int:
    (line,) = [one for one in Path(f"/proc/{pid}/status").read_text().splitlines() if one.startswith("VmRSS")]
    return int(line.split()[1]) << 10


@pytest.mark.parametrize("idle", [50, pytest.param(4900, marks=pytest.mark.deep(minutes=5))])
def test_a_client_is_served_next_to_idle_ones_and_two_that_take_all_and_give_nothing(
    place: Place, idle: int
) -> None:
    topic, client = place.partition(), place.client("python")
    sent = [f"{number} {'x' * 1000}" for number in range(MESSAGES)]
    client.producer(topic, batch=BATCH).send(*sent)
    before = memory_bytes(place.pid)
    with ExitStack() as stack:

        def connected() -> PulsarConnection:
            return stack.enter_context(PulsarConnection(place.url.removeprefix("pulsar://"), place.token))

        for _ in range(idle):
            connected()
        silent, hoarding = connected(), connected()
        flow = consumers.CommandFlow(consumer_id=1, message_permits=PERMITS)
        for one, name in ((silent, "silent"), (hoarding, "hoarding")):
            wanted = consumers.CommandSubscribe(
                topic=f"persistent://public/default/{topic}",
                subscription=name,
                sub_type=consumers.SubType.SHARED,
                consumer_id=1,
                request_id=1,
                initial_position=consumers.InitialPosition.EARLIEST,
            )
            one.exchange(wanted, CommandSuccess)
        silent.socket.sendall(encode_frame(flow))
        entries = place.expects("entries of a batch", ours=MESSAGES, real=MESSAGES // BATCH)
        hoarding.exchange(flow, consumers.CommandMessage, count=entries)
        consumer = client.consumer(topic, type="Shared")
        received = consumer.receive(MESSAGES)
        assert values(received) == sent
        consumer.ack(*received)
        grown = memory_bytes(place.pid) - before
    if not place.is_real:
        assert grown < SHARED_BYTES + idle * OF_CONNECTION_BYTES
