"""The commands of consumers: both forms of delivery, permits, acknowledgements and redelivery."""

import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from loghub_service.pulsar.broker.call import PulsarBrokerLimits
from tests.loghub_service.pulsar.broker.pulsar_place import (
    GUARD_S,
    KEY,
    PARTITION,
    TOPIC,
    WRITER,
    Client,
    Closed,
    Message,
    PulsarPlace,
    error_name,
    run,
    subscription,
)

pytestmark = pytest.mark.tools
ORDERED = pytest.mark.parametrize("kind", ["Exclusive", "Failover"])
DEALT = pytest.mark.parametrize("kind", ["Shared", "Key_Shared"])


def payloads(messages: list[Message]) -> list[bytes]:
    return [payload for message in messages for payload in message.payloads]


def at(message: Message, **fields: Any) -> dict[str, Any]:
    """The id of a message, as a client sends it."""
    return {
        "ledgerId": message.command.message_id.ledgerId,
        "entryId": message.command.message_id.entryId,
        **fields,
    }


async def acked(client: Client, *ids: dict[str, Any], consumer: int = 0, cumulative: bool = False) -> str:
    """Acknowledge and wait for the receipt: the name of its error, or ""."""
    answer = await client.call(
        "ack", "ackResponse", consumer_id=consumer, ack_type=int(cumulative), message_id=list(ids)
    )
    return error_name(answer.error) if answer.HasField("error") else ""


@ORDERED
def test_an_ordered_consumer_gets_a_log_group_as_one_batch(tmp_path: Path, kind: str) -> None:
    async def scenario(place: PulsarPlace) -> None:
        client = await place.client()
        await place.put(b"a", b"b", b"c")
        await place.put(b"d")
        await client.subscribe(kind=kind)
        first, second = await client.receive(2)
        assert (first.id, first.payloads) == ((0, 0, 3), (b"a", b"b", b"c"))
        assert (second.id, second.payloads) == ((1, 0, -1), (b"d",))
        assert first.command.message_id.partition == 0

    run(scenario, tmp_path / "d")


@DEALT
def test_another_consumer_gets_each_log_as_an_entry_of_its_own(tmp_path: Path, kind: str) -> None:
    async def scenario(place: PulsarPlace) -> None:
        client = await place.client()
        await place.put(b"a", b"b", b"c")
        await place.put(b"d")
        await client.subscribe(kind=kind)
        found = await client.receive(4)
        assert [one.id for one in found] == [(0, 0, -1), (0, 1, -1), (0, 2, -1), (1, 0, -1)]
        assert payloads(found) == [b"a", b"b", b"c", b"d"]

    run(scenario, tmp_path / "d")


def test_no_more_is_sent_than_there_are_permits_for(tmp_path: Path) -> None:
    async def scenario(place: PulsarPlace) -> None:
        client = await place.client()
        await place.put(*(b"%d" % number for number in range(10)))
        await client.subscribe(kind="Shared", permits=3)
        assert payloads(await client.receive(3)) == [b"0", b"1", b"2"]
        await client.drained()
        assert client.messages == []
        client.send("flow", consumer_id=0, messagePermits=2)
        assert payloads(await client.receive(2)) == [b"3", b"4"]

    run(scenario, tmp_path / "d")


@pytest.mark.parametrize("kind", ["Exclusive", "Shared"])
def test_what_is_appended_later_arrives(tmp_path: Path, kind: str) -> None:
    async def scenario(place: PulsarPlace) -> None:
        client = await place.client()
        await place.put(b"before")
        await client.subscribe(kind=kind, earliest=False)
        await client.drained()
        assert client.messages == []
        await place.put(b"after")
        assert payloads(await client.receive(1)) == [b"after"]

    run(scenario, tmp_path / "d")


@pytest.mark.parametrize("kind", ["Exclusive", "Shared"])
def test_what_was_acknowledged_does_not_come_again_and_the_rest_does(tmp_path: Path, kind: str) -> None:
    async def scenario(place: PulsarPlace) -> None:
        client = await place.client()
        for value in (b"a", b"b", b"c"):
            await place.put(value)
        await client.subscribe(kind=kind)
        found = await client.receive(3)
        assert await acked(client, at(found[1])) == ""
        client.close()
        again = await place.client()
        await again.subscribe(kind=kind)
        assert payloads(await again.receive(2)) == [b"a", b"c"]

    run(scenario, tmp_path / "d")


def test_a_part_of_a_batch_is_acknowledged_by_the_bits_that_are_clear(tmp_path: Path) -> None:
    async def scenario(place: PulsarPlace) -> None:
        client = await place.client()
        await place.put(b"a", b"b", b"c", b"d")
        await client.subscribe()
        (batch,) = await client.receive(1)
        assert await acked(client, at(batch, ack_set=[0b1101]), at(batch, ack_set=[0b1101])) == ""
        client.send("redeliverUnacknowledgedMessages", consumer_id=0, consumer_epoch=1)
        (again,) = await client.receive(1)
        assert again.id == (0, 0, 4)
        assert list(again.command.ack_set) == [0b1101]
        assert again.command.consumer_epoch == 1
        assert await acked(client, at(batch)) == ""
        client.send("redeliverUnacknowledgedMessages", consumer_id=0)
        await client.drained()
        assert client.messages == []

    run(scenario, tmp_path / "d")


def test_a_cumulative_acknowledgement_ends_behind_its_message(tmp_path: Path) -> None:
    async def scenario(place: PulsarPlace) -> None:
        client = await place.client()
        for values in ((b"a", b"b"), (b"c", b"d", b"e"), (b"f",)):
            await place.put(*values)
        await client.subscribe()
        found = await client.receive(3)
        assert await acked(client, at(found[1], ack_set=[0b100]), cumulative=True) == ""
        client.send("redeliverUnacknowledgedMessages", consumer_id=0)
        again = await client.receive(2)
        assert [(one.id, list(one.command.ack_set)) for one in again] == [
            ((1, 0, 3), [0b100]),
            ((2, 0, -1), []),
        ]

    run(scenario, tmp_path / "d")


def test_the_entry_before_the_first_of_a_ledger_acknowledges_what_is_before_it(tmp_path: Path) -> None:
    """Trap 5: read as a number it would acknowledge everything."""

    async def scenario(place: PulsarPlace) -> None:
        client = await place.client()
        for value in (b"a", b"b", b"c"):
            await place.put(value)
        await client.subscribe()
        await client.receive(3)
        assert await acked(client, {"ledgerId": 1, "entryId": (1 << 64) - 1}, cumulative=True) == ""
        client.send("redeliverUnacknowledgedMessages", consumer_id=0)
        assert payloads(await client.receive(2)) == [b"b", b"c"]

    run(scenario, tmp_path / "d")


def test_a_cumulative_acknowledgement_beyond_the_last_message_is_an_error(tmp_path: Path) -> None:
    async def scenario(place: PulsarPlace) -> None:
        client = await place.client()
        await place.put(b"a")
        await client.subscribe()
        await client.receive(1)
        for beyond in ({"ledgerId": 1, "entryId": 3}, {"ledgerId": 7, "entryId": 0}):
            assert await acked(client, beyond, cumulative=True) == "NotAllowedError"
        client.send("redeliverUnacknowledgedMessages", consumer_id=0)
        assert payloads(await client.receive(1)) == [b"a"]

    run(scenario, tmp_path / "d")


@DEALT
def test_cumulative_acknowledgements_need_an_order(tmp_path: Path, kind: str) -> None:
    async def scenario(place: PulsarPlace) -> None:
        client = await place.client()
        await place.put(b"a")
        await client.subscribe(kind=kind)
        (found,) = await client.receive(1)
        assert await acked(client, at(found), cumulative=True) == "NotAllowedError"

    run(scenario, tmp_path / "d")


@pytest.mark.parametrize("ledger", [5, 1 << 62, (1 << 64) - 1])
def test_what_is_not_there_cannot_be_acknowledged(tmp_path: Path, ledger: int) -> None:
    async def scenario(place: PulsarPlace) -> None:
        client = await place.client()
        await place.put(b"a")
        await client.subscribe(kind="Shared")
        await client.receive(1)
        assert await acked(client, {"ledgerId": ledger, "entryId": 0}) == "NotAllowedError"

    run(scenario, tmp_path / "d")


def test_an_ack_in_a_transaction_or_of_too_many_is_refused(tmp_path: Path) -> None:
    async def scenario(place: PulsarPlace) -> None:
        client = await place.client()
        await client.subscribe(kind="Shared")
        in_transaction = await client.call(
            "ack", "ackResponse", consumer_id=0, ack_type=0, txnid_least_bits=1, message_id=[]
        )
        assert error_name(in_transaction.error) == "NotAllowedError"
        assert await acked(client, *({"ledgerId": 0, "entryId": 0},) * 4) == "NotAllowedError"

    run(scenario, tmp_path / "d", limits=PulsarBrokerLimits(ids=3))


@DEALT
def test_only_a_negative_acknowledgement_counts_redeliveries(tmp_path: Path, kind: str) -> None:
    """Trap 7: a connection that is lost does not, so that healthy logs end in no dead letter."""

    async def scenario(place: PulsarPlace) -> None:
        client = await place.client()
        await place.put(b"a", b"b")
        await client.subscribe(kind=kind)
        found = await client.receive(2)
        client.send("redeliverUnacknowledgedMessages", consumer_id=0, message_ids=[at(found[1])])
        (again,) = await client.receive(1)
        assert (again.payloads, again.command.redelivery_count) == ((b"b",), 1)
        client.close()
        other = await place.client()
        await other.subscribe(kind=kind)
        counts = [(m.payloads[0], m.command.redelivery_count) for m in await other.receive(2)]
        assert sorted(counts) == [(b"a", 0), (b"b", 1)]

    run(scenario, tmp_path / "d")


def test_a_late_acknowledgement_after_a_reconnect_settles(tmp_path: Path) -> None:
    """Trap 23."""

    async def scenario(place: PulsarPlace) -> None:
        client = await place.client()
        await place.put(b"a", b"b")
        await place.put(b"c")
        await client.subscribe()
        batch, _ = await client.receive(2)
        client.close()
        again = await place.client()
        await again.subscribe(permits=0)
        assert await acked(again, at(batch)) == ""
        again.send("flow", consumer_id=0, messagePermits=10)
        assert payloads(await again.receive(1)) == [b"c"]

    run(scenario, tmp_path / "d")


@pytest.mark.parametrize(
    ("first", "second", "code"),
    [
        ("Exclusive", "Shared", "ConsumerBusy"),
        ("Shared", "Key_Shared", "ConsumerBusy"),
        ("Failover", "Exclusive", "ConsumerBusy"),
    ],
)
def test_a_consumer_of_another_type_is_refused(tmp_path: Path, first: str, second: str, code: str) -> None:
    async def scenario(place: PulsarPlace) -> None:
        one, other = await place.client(), await place.client()
        await one.subscribe(kind=first)
        wanted = subscription(1, PARTITION, "s", second)
        assert await other.refused("subscribe", **wanted) == code
        await one.call("close_consumer", "success", consumer_id=0)
        await other.call("subscribe", "success", **wanted)

    run(scenario, tmp_path / "d")


async def commands_of(client: Client) -> AsyncIterator[str]:
    """What comes until the connection is closed, but messages."""
    try:
        while True:
            yield (await client.next())[0]
    except Closed:
        return


def test_an_exclusive_consumer_whose_client_is_gone_makes_way(tmp_path: Path) -> None:
    """A machine without power closes no connection. The first consumer never answers PING."""

    async def scenario(place: PulsarPlace) -> None:
        gone, other = await place.client(), await place.client()
        await place.put(b"a")
        await gone.subscribe()
        await other.subscribe()
        assert payloads(await other.receive(1)) == [b"a"]
        assert [kind async for kind in commands_of(gone)] == ["ping"]

    run(scenario, tmp_path / "d", limits=PulsarBrokerLimits(liveness_s=0.05))


def test_an_exclusive_consumer_whose_client_answers_stays(tmp_path: Path) -> None:
    async def scenario(place: PulsarPlace) -> None:
        one, other = await place.client(), await place.client()
        await one.subscribe()
        request = other.send("subscribe", **subscription(0, PARTITION, "s", "Exclusive"))
        await one.expect("ping")
        await other.drained()  # its other commands do not wait for that
        one.send("pong")
        _, answer = await other.answer_to(request)
        assert error_name(answer.error) == "ConsumerBusy"
        await place.put(b"a")
        assert payloads(await one.receive(1)) == [b"a"]
        await one.call("close_consumer", "success", consumer_id=0)
        await other.subscribe()
        assert payloads(await other.receive(1)) == [b"a"]

    run(scenario, tmp_path / "d", limits=PulsarBrokerLimits(liveness_s=GUARD_S))


def test_consumers_of_one_subscription_get_one_form(tmp_path: Path) -> None:
    """What a consumer gets depends on the suffix of its topic, and so do keys and the sizes of entries."""

    async def scenario(place: PulsarPlace) -> None:
        client = await place.client()
        await place.put(b"a", key=b"k")
        await client.subscribe(kind="Shared")
        await client.receive(1)
        named = [f"{TOPIC}.{form}-partition-0" for form in ("raw", "json")]
        await client.call("subscribe", "success", **subscription(1, named[0], "s", "Shared"))
        other = subscription(2, named[1], "s", "Shared")
        assert await client.refused("subscribe", **other) == "NotAllowedError"
        client.send("seek", consumer_id=0, message_id={"ledgerId": 0, "entryId": 0})
        for _ in range(2):
            await client.expect("close_consumer")
        await client.subscribe(2, topic=named[1], kind="Shared")  # nobody has another form now
        assert payloads(await client.receive(1)) == [b'{"value":"a","key":"k"}']

    run(scenario, tmp_path / "d")


def test_a_consumer_that_the_connection_has_is_answered_again(tmp_path: Path) -> None:
    """A client that takes it for disconnected subscribes it once more, and would otherwise try forever."""

    async def scenario(place: PulsarPlace) -> None:
        client = await place.client()
        await client.subscribe(permits=0)
        await client.subscribe()
        await place.put(b"a")
        assert payloads(await client.receive(1)) == [b"a"]

    run(scenario, tmp_path / "d")


def test_the_stand_by_takes_over_and_both_are_informed(tmp_path: Path) -> None:
    async def scenario(place: PulsarPlace) -> None:
        one, other = await place.client(), await place.client()
        await place.put(b"a")
        await one.subscribe(kind="Failover", consumer_name="a")
        assert (await one.expect("active_consumer_change")).is_active
        await one.receive(1)
        await other.subscribe(kind="Failover", consumer_name="b")
        assert not (await other.expect("active_consumer_change")).is_active
        await other.drained()
        assert other.messages == []
        one.close()
        assert (await other.expect("active_consumer_change")).is_active
        assert payloads(await other.receive(1)) == [b"a"]

    run(scenario, tmp_path / "d")


def test_sticky_ranges_that_overlap_are_refused(tmp_path: Path) -> None:
    async def scenario(place: PulsarPlace) -> None:
        client = await place.client()
        wanted = subscription(0, PARTITION, "s", "Key_Shared")
        meta = {"keySharedMode": 1, "hashRanges": [{"start": 0, "end": 40_000}]}
        await client.call("subscribe", "success", keySharedMeta=meta, **wanted)
        wanted["consumer_id"] = 1
        meta = {"keySharedMode": 1, "hashRanges": [{"start": 40_000, "end": 65_535}]}
        assert await client.refused("subscribe", keySharedMeta=meta, **wanted) == "ConsumerAssignError"
        meta = {"keySharedMode": 1, "hashRanges": [{"start": 40_001, "end": 65_535}]}
        await client.call("subscribe", "success", keySharedMeta=meta, **wanted)

    run(scenario, tmp_path / "d")


def test_a_log_that_no_message_can_carry_is_left_out_and_counted(tmp_path: Path) -> None:
    async def scenario(place: PulsarPlace) -> None:
        client = await place.client()
        await place.put(b"a", random.Random(1).randbytes(2000), b"b")  # that no codec makes smaller
        await client.subscribe(kind="Shared")
        await client.subscribe(1, name="ordered")
        assert payloads(await client.receive(2) + await client.receive(1)) in (
            [b"a", b"b", b"a"],
            [b"a", b"a", b"b"],
            [b"a", b"b", b"b"],
        )
        assert place.endpoint.broker.counts.too_large_logs == 2
        stats = await client.call("consumerStats", "consumerStatsResponse", consumer_id=0)
        assert stats.unackedMessages == 2  # what is left out is done
        (last,) = await client.receive(1)
        assert last.payloads == (b"b",)

    run(scenario, tmp_path / "d", limits=PulsarBrokerLimits(message_bytes=1000))


def test_what_is_left_out_takes_no_permit_of_a_client(tmp_path: Path) -> None:
    """As many permits as messages arrive, however many logs no message can carry."""

    async def scenario(place: PulsarPlace) -> None:
        client = await place.client()
        await client.subscribe(topic=PARTITION, kind="Shared", permits=2)
        too_large = random.Random(1).randbytes(2000)
        for number in range(3):
            await place.put(too_large, too_large, b"%d" % number)
        assert payloads(await client.receive(2)) == [b"0", b"1"]
        client.send("flow", consumer_id=0, messagePermits=1)
        assert payloads(await client.receive(1)) == [b"2"]
        assert place.endpoint.broker.counts.too_large_logs == 6
        stats = await client.call("consumerStats", "consumerStatsResponse", consumer_id=0)
        assert (stats.unackedMessages, stats.availablePermits) == (3, 0)

    run(scenario, tmp_path / "d", limits=PulsarBrokerLimits(message_bytes=1000))


def test_a_group_that_is_too_large_comes_in_runs_that_are_acknowledged_one_by_one(tmp_path: Path) -> None:
    async def scenario(place: PulsarPlace) -> None:
        client = await place.client()
        values = [b"%d" % number * 300 for number in range(6)]
        await place.put(*values)
        await client.subscribe()
        first, second = await client.receive(2)
        assert (first.id, second.id) == ((0, 0, 3), (0, 3, 3))
        assert await acked(client, at(first)) == ""
        client.close()
        again = await place.client()
        await again.subscribe(permits=0)
        assert await acked(again, at(first)) == ""  # late: nothing was read by this connection yet
        again.send("flow", consumer_id=0, messagePermits=10)
        (left,) = await again.receive(1)
        assert (left.id, left.payloads) == ((0, 3, 3), tuple(values[3:]))

    run(scenario, tmp_path / "d", limits=PulsarBrokerLimits(message_bytes=1000))


def test_a_consumer_needs_the_right_to_read(tmp_path: Path) -> None:
    async def scenario(place: PulsarPlace) -> None:
        client = await place.client(WRITER)
        wanted = subscription(0, PARTITION, "s", "Shared")
        assert await client.refused("subscribe", **wanted) == "AuthorizationError"

    run(scenario, tmp_path / "d")


@pytest.mark.parametrize(
    ("topic", "name", "code"),
    [
        (PARTITION, "a/b", "NotAllowedError"),
        (f"{TOPIC}-partition-9", "s", "TopicNotFound"),
        (TOPIC, "s", "NotAllowedError"),  # of two partitions
    ],
)
def test_a_subscription_needs_a_name_and_a_partition(
    tmp_path: Path, topic: str, name: str, code: str
) -> None:
    async def scenario(place: PulsarPlace) -> None:
        client = await place.client()
        assert await client.refused("subscribe", **subscription(0, topic, name, "Shared")) == code

    run(scenario, tmp_path / "d", shards=2)


def test_commands_for_a_consumer_that_is_gone_are_an_error_only_if_they_ask_something(tmp_path: Path) -> None:
    async def scenario(place: PulsarPlace) -> None:
        client = await place.client()
        client.send("flow", consumer_id=9, messagePermits=1)
        client.send(
            "ack", consumer_id=9, ack_type=0, message_id=[{"ledgerId": 0, "entryId": 0}], request_id=None
        )
        client.send("redeliverUnacknowledgedMessages", consumer_id=9)
        for name in ("getLastMessageId", "unsubscribe"):
            assert await client.refused(name, consumer_id=9) == "ConsumerNotFound"
        assert await client.refused("seek", consumer_id=9, message_publish_time=1) == "ConsumerNotFound"
        await client.call("close_consumer", "success", consumer_id=9)
        await client.drained()

    run(scenario, tmp_path / "d")


def test_the_figures_of_a_consumer(tmp_path: Path) -> None:
    async def scenario(place: PulsarPlace) -> None:
        client = await place.client()
        await place.put(b"a", b"b", b"c")
        await client.subscribe(kind="Shared", permits=10, consumer_name="me")
        await client.receive(3)
        stats = await client.call("consumerStats", "consumerStatsResponse", consumer_id=0)
        assert (stats.consumerName, stats.type) == ("me", "Shared")
        assert (stats.availablePermits, stats.unackedMessages) == (7, 3)

    run(scenario, tmp_path / "d")


def test_a_key_that_is_removed_gets_no_more_messages(tmp_path: Path) -> None:
    async def scenario(place: PulsarPlace) -> None:
        client = await place.client()
        await client.subscribe()
        await client.drained()
        del place.keys[KEY.key_id]
        await place.put(b"secret")
        assert (await client.next())[0] == "error"
        assert await client.is_closed()
        assert client.messages == []

    run(scenario, tmp_path / "d")
