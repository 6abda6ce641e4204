"""What a producer sends as a consumer gets it, and what of a subscription survives a restart."""

import asyncio
from pathlib import Path

import pytest

from loghub_service.subscription.slots import slot_of
from loghub_service.subscription_registry import RegisteredSubscription
from tests.loghub_service.pulsar.broker.pulsar_place import PulsarPlace, batch_of, entry_of, run
from tests.loghub_service.pulsar.broker.test_consumers import acked, at, payloads

pytestmark = [pytest.mark.tools, pytest.mark.usefixtures("tier")]
DELAY_MS = 700
HOUR_S = 3600


def test_an_ordered_consumer_gets_a_message_batched_or_not_as_it_was_produced(tmp_path: Path) -> None:
    """Trap 8: a reader that seeks to the id of the receipt, exclusive, begins one message early otherwise."""

    async def scenario(place: PulsarPlace) -> None:
        client = await place.client()
        await client.produce()
        for sequence, entry in enumerate((entry_of(b"a"), batch_of(b"b", sequence=1))):
            await client.published(sequence, entry)
        await client.published(2, batch_of(b"c", b"d", sequence=2), num_messages=2)
        await client.subscribe()
        assert [one.id for one in await client.receive(3)] == [(0, 0, -1), (1, 0, 1), (2, 0, 2)]

    run(scenario, tmp_path / "d")


@pytest.mark.parametrize("kind", ["Exclusive", "Failover", "Shared", "Key_Shared"])
def test_chunks_of_a_consumer_that_is_gone_all_go_to_the_next_one(tmp_path: Path, kind: str) -> None:
    """The first one had a part of two messages whose chunks alternate; a client joins only what it has got
    itself."""

    async def scenario(place: PulsarPlace) -> None:
        writer, doomed = await place.client(), await place.client()
        await writer.produce()
        pieces = [(name, number) for number in range(3) for name in ("one", "other")]
        for sequence, (name, number) in enumerate(pieces):
            chunk = {"uuid": name, "chunk_id": number, "num_chunks_from_msg": 3, "total_chunk_msg_size": 3}
            entry = entry_of(b"%d" % number, sequence=sequence, **chunk)
            await writer.published(sequence, entry, is_chunk=True)
        await doomed.subscribe(kind=kind, permits=3)
        assert len(await doomed.receive(3)) == 3
        doomed.close()
        successor = await place.client()
        await successor.subscribe(kind=kind)
        got = [(m.metadata.uuid, m.metadata.chunk_id) for m in await successor.receive(6)]
        assert got == pieces

    run(scenario, tmp_path / "d")


def test_each_message_goes_to_the_owner_of_its_key(tmp_path: Path) -> None:
    async def scenario(place: PulsarPlace) -> None:
        one, other, producer = await place.client(), await place.client(), await place.client()
        meta = {"keySharedMode": 1, "hashRanges": [{"start": 0, "end": 32_767}]}
        await one.subscribe(kind="Key_Shared", keySharedMeta=meta)
        meta = {"keySharedMode": 1, "hashRanges": [{"start": 32_768, "end": 65_535}]}
        await other.subscribe(kind="Key_Shared", keySharedMeta=meta)
        await producer.produce()
        shares: tuple[list[bytes], list[bytes]] = [], []
        for number in range(20):
            value, key = b"%d" % number, f"k{number}"
            shares[slot_of(key.encode()) > 32_767].append(value)
            await producer.published(number, entry_of(value, sequence=number, partition_key=key))
        assert all(shares)
        for client, share in zip((one, other), shares, strict=True):
            assert payloads(await client.receive(len(share))) == share

    run(scenario, tmp_path / "d")


@pytest.mark.parametrize(("kind", "waits"), [("Shared", True), ("Key_Shared", True), ("Exclusive", False)])
def test_a_message_with_a_time_waits_for_it_where_order_does_not_matter(
    tmp_path: Path, kind: str, waits: bool
) -> None:
    """Trap 12: clients set a time on each retry letter, which must be kept and honoured."""

    async def scenario(place: PulsarPlace) -> None:
        client = await place.client()
        await client.subscribe(kind=kind)
        await client.produce()
        due_ms = place.engine.now_us() // 1000 + DELAY_MS
        await client.published(0, entry_of(b"later", deliver_at_time=due_ms))
        await client.published(1, entry_of(b"now", sequence=1))
        found = payloads(await client.receive(2))
        assert found == ([b"now", b"later"] if waits else [b"later", b"now"])
        if waits:
            assert place.engine.now_us() // 1000 >= due_ms

    run(scenario, tmp_path / "d")


@pytest.mark.parametrize(("kind", "by_h"), [("Shared", 2), ("Key_Shared", -2)])
def test_a_message_with_a_time_waits_for_the_corrected_clock(tmp_path: Path, kind: str, by_h: int) -> None:
    """The wall clock was behind, or ahead, as the message was read."""

    async def scenario(place: PulsarPlace) -> None:
        clock, client = place.clock, await place.client()

        async def out_after(hours: float) -> int:
            """How many messages are out then."""
            clock.ahead_s += hours * HOUR_S
            place.engine.now_us()
            place.engine.dispatches.look()
            client.send("flow", consumer_id=0, messagePermits=1)  # timers are those of the machine
            stats = await client.call("consumerStats", "consumerStatsResponse", consumer_id=0)
            return int(stats.unackedMessages)

        await client.subscribe(kind=kind)
        await client.produce()
        due_ms = place.engine.now_us() // 1000 + 100 * HOUR_S * 1000
        await client.published(0, entry_of(b"later", deliver_at_time=due_ms))
        await client.published(1, entry_of(b"now", sequence=1))
        assert payloads(await client.receive(1)) == [b"now"]
        clock.wall_ahead_s += by_h * HOUR_S
        await out_after(0)
        await out_after(25)  # the service believes a clock that went back after a day
        assert await out_after(74.9 - by_h) == 1
        assert await out_after(0.2) == 2
        assert payloads(await client.receive(1)) == [b"later"]

    run(scenario, tmp_path / "d")


@pytest.mark.parametrize("kind", ["Exclusive", "Shared"])
def test_an_acknowledgement_with_a_receipt_and_a_seek_survive_a_restart(tmp_path: Path, kind: str) -> None:
    async def before(place: PulsarPlace) -> None:
        client = await place.client()
        for value in (b"a", b"b", b"c", b"d"):
            await place.put(value)
        await client.subscribe(kind=kind)
        await client.subscribe(1, name="other", kind=kind, permits=0)
        found = await client.receive(4)
        assert await acked(client, at(found[0]), at(found[2])) == ""
        request = client.send("seek", consumer_id=1, message_id={"ledgerId": 3, "entryId": 0})
        await client.expect("close_consumer")
        await client.answer_to(request)

    async def after(place: PulsarPlace) -> None:
        client = await place.client()
        await client.subscribe(kind=kind)
        assert payloads(await client.receive(2)) == [b"b", b"d"]
        await client.subscribe(1, name="other", kind=kind)
        assert payloads(await client.receive(1)) == [b"d"]
        await client.call("unsubscribe", "success", consumer_id=1)

    async def at_last(place: PulsarPlace) -> None:
        assert list(place.endpoint.broker.service.subscriptions.of(place.store.saved.id)) == ["s"]

    run(before, tmp_path / "d")
    run(after, tmp_path / "d")
    run(at_last, tmp_path / "d")


def test_a_receipt_waits_until_the_acknowledgement_is_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(place: PulsarPlace) -> None:
        client = await place.client()
        await place.put(b"a")
        await client.subscribe()
        (found,) = await client.receive(1)
        registry, saved = place.engine.subscriptions, asyncio.Event()
        durable = registry.durable

        async def after_a_wait(subscription: RegisteredSubscription) -> None:
            await saved.wait()
            await durable(subscription)

        monkeypatch.setattr(registry, "durable", after_a_wait)
        request = client.send("ack", consumer_id=0, ack_type=0, message_id=[at(found)])
        for _ in range(2):  # the first PING may be answered before what was begun earlier goes on
            await client.drained()
        assert client.others == []
        saved.set()
        assert (await client.answer_to(request))[0] == "ackResponse"

    run(scenario, tmp_path / "d")
