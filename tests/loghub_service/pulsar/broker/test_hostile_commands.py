"""Commands that no client sends, against the real connection: each is answered, ignored, or ends its
connection.

After each example a PING is answered, or the connection has ended; the broker has counted no error of its
own; a well-behaved consumer still gets what is appended. Budgets are back at zero in the end (`a_broker`).
"""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import Struct, structs

from loghub_service.pulsar.broker.call import PulsarBrokerLimits
from loghub_service.pulsar.broker.handlers import HANDLERS
from loghub_service.pulsar.wire.consumers import CommandSubscribe, SubType
from loghub_service.pulsar.wire.frames import encode_frame
from loghub_service.pulsar.wire.producers import CommandProducer, CommandSend
from loghub_service.pulsar.wire.values import EARLIEST, LATEST, MessageIdData
from tests.loghub_service.pulsar.broker.pulsar_place import (
    GUARD_S,
    LOGSTORE,
    PARTITION,
    TOPIC,
    Client,
    Closed,
    PulsarPlace,
    a_broker,
    batch_of,
    entry_of,
)
from tests.loghub_service.pulsar.broker.test_consumers import payloads
from tests.loghub_service.pulsar.client_messages import entry_frame
from tests.loghub_service.pulsar.wire.messages import messages_of

pytestmark = pytest.mark.tools
EXAMPLES = pytest.mark.parametrize("examples", [40, pytest.param(3_000, marks=pytest.mark.deep)])
LIMITS = PulsarBrokerLimits(refusal_delay_s=0, send_error_delay_s=0, ids=5, handles=8)
COMMANDS = list(HANDLERS)
ENTRIES = st.sampled_from([entry_of(), batch_of(b"a", b"b"), entry_of(compression=2), entry_of()[:-1], b"?"])
NUMBERS = st.sampled_from([0, 1, 2, 5, 1 << 16, (1 << 17) - 1, 1 << 17, LATEST, EARLIEST])
LIKELY: dict[str, st.SearchStrategy[Any]] = {
    "topic": st.sampled_from(
        [PARTITION, f"{TOPIC}-partition-1", f"{TOPIC}-partition-7", TOPIC, LOGSTORE, "x"]
    ),
    "namespace": st.sampled_from(["public/default", "public/x", "x"]),
    "topics_pattern": st.sampled_from([".*", "public/default/a.*", "(a*)*"]),
    "subscription": st.sampled_from(["a", "b", "/"]),
    "consumer_id": st.integers(0, 3),
    "producer_id": st.integers(0, 1),
    "producer_name": st.sampled_from([None, "a"]),
    "encrypted": st.just(value=False),
    "txn_enabled": st.just(value=False),
    "marker": st.just(value=False),
    "txnid_least_bits": st.just(0),
    "txnid_most_bits": st.just(0),
    "initial_subscription_name": st.none() | st.just("a"),
    "watcher_id": st.integers(0, 3),
    "message_permits": st.sampled_from([0, 1, 100, (1 << 32) - 1]),
    "message_id": st.none(),  # replaced below where the class has one or many
}
IDS = st.builds(
    MessageIdData,
    ledger_id=NUMBERS,
    entry_id=NUMBERS,
    batch_index=st.integers(-1, 3),
    ack_set=st.lists(st.sampled_from([0, 1, -1, 6]), max_size=2).map(tuple),
)
MANY_IDS = st.lists(IDS, max_size=6).map(tuple)


def likely(command: type[Struct]) -> st.SearchStrategy[Struct]:
    """Random values of a class, with names and numbers that often mean something."""
    names = {field.name for field in structs.fields(command)}
    fields = {name: strategy for name, strategy in LIKELY.items() if name in names and name != "message_id"}
    if "message_ids" in names:
        fields["message_ids"] = MANY_IDS
    if "message_id" in names:
        fields["message_id"] = MANY_IDS if command.__name__ == "CommandAck" else st.none() | IDS
    if "start_message_id" in names:
        fields["start_message_id"] = st.none() | IDS
    return st.builds(structs.replace, messages_of(command), **fields)


# Of a connection that has a consumer and a producer, as far as others let it.
OPENING = [
    CommandSubscribe(topic=PARTITION, subscription="a", sub_type=SubType.SHARED, consumer_id=0, request_id=1),
    CommandProducer(topic=PARTITION, producer_id=0, request_id=2),
    CommandSend(producer_id=0, sequence_id=0),  # no later one is looked at if this one is refused
]
SERIES = st.lists(
    st.tuples(st.one_of(*(likely(command) for command in COMMANDS)), ENTRIES), min_size=10, max_size=30
).map(lambda series: [*((command, series[0][1]) for command in OPENING), *series])


async def _served(client: Client, commands: list[tuple[Struct, bytes]]) -> bool:
    """Whether the connection is still open after these commands; an entry follows each SEND."""
    for command, entry in commands:
        if isinstance(command, CommandSend):
            client.writer.write(entry_frame(command, entry))
        else:
            client.writer.write(encode_frame(command))
    try:
        await client.drained()
    except Closed:
        return False
    return True


@EXAMPLES
def test_no_command_disturbs_the_broker_or_another_client(tmp_path: Path, examples: int) -> None:
    answers: Counter[str] = Counter()
    with asyncio.Runner() as runner:
        opened = a_broker(tmp_path / "d", shards=2, limits=LIMITS)
        place: PulsarPlace = runner.run(opened.__aenter__())
        good = runner.run(place.client())
        runner.run(good.subscribe(name="good", permits=1_000_000))

        @settings(
            max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck), database=None
        )
        @given(SERIES)
        def play(commands: list[tuple[Struct, bytes]]) -> None:
            async def example() -> None:
                async with asyncio.timeout(GUARD_S):
                    client = await place.client()
                    await _served(client, commands)
                    answers.update(kind for kind, _ in client.others)
                    client.close()
                    await place.put(b"x", b"y")
                    while payloads(await good.receive(1)) != [b"x", b"y"]:
                        pass  # what the other client has sent

            runner.run(example())
            assert place.endpoint.broker.counts.failed_requests == 0

        try:
            play()
            errors, produced = place.endpoint.broker.counts.errors, place.endpoint.broker.counts.produced_logs
        finally:
            runner.run(opened.__aexit__(None, None, None))
    assert {
        "success",
        "error",
        "partitionMetadataResponse",
        "lookupTopicResponse",
        "ackResponse",
    } <= answers.keys()
    # What a SEND is answered with comes after its client has left.
    assert {"CHECKSUM_ERROR", "NOT_ALLOWED_ERROR", "TOPIC_NOT_FOUND"} <= (+errors).keys()
    assert produced > 0
