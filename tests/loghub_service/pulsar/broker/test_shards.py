"""Shards that come and go under consumers: splits, placeholders, deleted logstores, delayed messages."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from loghub.domain import shards as rules
from loghub_service.api import logstores, shards
from loghub_service.dispatch.driver import Dispatch
from loghub_service.pulsar.store.topics import LogstoreWithShards
from loghub_service.subscription.events import SubscriptionType
from loghub_service.subscription.state import SubscriptionSettings
from tests.loghub_service.pulsar.broker.pulsar_place import (
    KEY,
    LOGSTORE,
    PARTITION,
    PROJECT,
    TOPIC,
    PulsarPlace,
    error_name,
    run,
    subscription,
)
from tests.loghub_service.pulsar.broker.test_consumers import acked, at, payloads
from tests.loghub_service.pulsar.broker.test_positions import LAST

pytestmark = pytest.mark.tools


async def split(place: PulsarPlace, shard: int) -> None:
    store = place.store
    async with place.engine.admin:
        reshard = rules.split(store.shard_map(), shard=shard, parts=2)
        await shards.carry_out(place.engine, place.engine.catalog.projects[PROJECT], store, reshard)


def partition(shard: int) -> str:
    return f"{TOPIC}-partition-{shard}"


@pytest.mark.parametrize("kind", ["Exclusive", "Shared"])
def test_a_child_begins_at_its_first_log_also_for_a_subscription_from_the_latest_message(
    tmp_path: Path, kind: str
) -> None:
    """Trap 3: a client looks for new partitions once in a minute, and names its initial position then."""

    async def scenario(place: PulsarPlace) -> None:
        client = await place.client()
        await client.subscribe(kind=kind, earliest=False)
        await split(place, 0)
        await place.put(b"before the client knows", shard=1)
        await client.subscribe(1, topic=partition(1), kind=kind, earliest=False)
        assert payloads(await client.receive(1)) == [b"before the client knows"]

    run(scenario, tmp_path / "d")


def test_a_subscription_begins_in_all_shards_when_its_first_partition_is_subscribed(tmp_path: Path) -> None:
    async def scenario(place: PulsarPlace) -> None:
        client = await place.client()
        await place.put(b"old", shard=1)
        await client.subscribe(kind="Shared", earliest=False)
        await place.put(b"since then", shard=1)
        await client.subscribe(1, topic=partition(1), kind="Shared", earliest=False)
        assert payloads(await client.receive(1)) == [b"since then"]

    run(scenario, tmp_path / "d", shards=2)


def test_a_child_begins_at_its_first_log_also_for_a_reader_from_the_latest_message(tmp_path: Path) -> None:
    """Whether the subscription knew the child before the reader names it or not."""

    async def scenario(place: PulsarPlace) -> None:
        client = await place.client()
        await place.put(b"old")
        reader: dict[str, Any] = {"name": "r", "durable": False, "start_message_id": LAST}
        await client.subscribe(**reader)
        await split(place, 0)
        for shard in (1, 2):
            await place.put(b"before the client knows", shard=shard)
        for shard in (1, 2):
            await client.subscribe(shard, topic=partition(shard), **reader)
            assert payloads(await client.receive(1)) == [b"before the client knows"]

    run(scenario, tmp_path / "d")


def test_children_wait_for_their_parents_in_an_ordered_subscription(tmp_path: Path) -> None:
    async def scenario(place: PulsarPlace) -> None:
        client = await place.client()
        await place.put(b"parent")
        await client.subscribe(permits=0)
        await split(place, 0)
        await place.put(b"child", shard=1)
        await client.subscribe(1, topic=partition(1))
        await client.drained()
        assert client.messages == []
        client.send("flow", consumer_id=0, messagePermits=1)
        (parent,) = await client.receive(1)
        assert parent.payloads == (b"parent",)
        await client.drained()
        assert client.messages == []
        assert await acked(client, at(parent)) == ""
        assert payloads(await client.receive(1)) == [b"child"]

    run(scenario, tmp_path / "d")


@pytest.mark.parametrize("kind", ["Exclusive", "Failover", "Key_Shared", "Shared"])
@pytest.mark.parametrize("in_order", [True, False])
def test_the_child_of_a_merge_waits_for_both_parents_where_order_matters(
    tmp_path: Path, kind: str, in_order: bool
) -> None:
    async def scenario(place: PulsarPlace) -> None:
        client, topic = await place.client(), place.store.saved.id
        for shard in (0, 1):
            await place.put(b"parent %d" % shard, shard=shard)
        settings = SubscriptionSettings(type=SubscriptionType.SHARED, in_order=in_order)
        (found, *_) = place.endpoint.broker.service.login(PROJECT, f"{KEY.key_id}#{KEY.secret}").topics()
        place.endpoint.broker.service.subscriptions.create(topic, "s", settings, found.shards())
        for shard in (0, 1):
            await client.subscribe(shard, topic=partition(shard), kind=kind)
        parents = await client.receive(2)
        store = place.store
        async with place.engine.admin:
            reshard = rules.merge(store.shard_map(), shard=0)
            await shards.carry_out(place.engine, place.engine.catalog.projects[PROJECT], store, reshard)
        await place.put(b"child", shard=2)
        await client.subscribe(2, topic=partition(2), kind=kind)
        if in_order and kind != "Shared":
            for parent in parents:
                await client.drained()
                assert client.messages == []
                shard = parent.command.message_id.partition
                assert await acked(client, at(parent), consumer=shard) == ""
        assert payloads(await client.receive(1)) == [b"child"]

    run(scenario, tmp_path / "d", shards=2)


def test_a_partition_whose_shard_is_gone_is_subscribed_and_silent(tmp_path: Path) -> None:
    async def scenario(place: PulsarPlace) -> None:
        client = await place.client()
        await split(place, 0)
        async with place.engine.admin:
            saved = place.store.shards[0]
            await place.engine.persist_deletion(
                shards.ShardDeleted(logstore=saved.logstore, shard=0, final_offset=0)
            )
            await place.engine.remove_log(logstore=saved.logstore, shard=0)
        answer = await client.call("partitionMetadata", "partitionMetadataResponse", topic=TOPIC)
        assert answer.partitions == 3
        await client.subscribe()
        await client.subscribe(1, topic=partition(1))
        found = await client.call("getLastMessageId", "getLastMessageIdResponse", consumer_id=0)
        assert found.last_message_id.ledgerId == (1 << 64) - 1
        await place.put(b"live", shard=1)
        assert payloads(await client.receive(1)) == [b"live"]
        assert await acked(client, {"ledgerId": 0, "entryId": 0}) == ""
        await client.call("close_consumer", "success", consumer_id=0)

    run(scenario, tmp_path / "d")


def test_consumers_of_a_logstore_that_is_deleted_are_closed(tmp_path: Path) -> None:
    async def scenario(place: PulsarPlace) -> None:
        client = await place.client()
        await client.subscribe()
        await logstores.delete(place.engine, PROJECT, LOGSTORE)
        assert (await client.expect("close_consumer")).consumer_id == 0
        assert await client.refused(
            "subscribe", topic=PARTITION, subscription="s", subType=0, consumer_id=1
        ) == ("TopicNotFound")

    run(scenario, tmp_path / "d")


def test_subscriptions_are_looked_at_only_when_their_topic_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a thousand of them, the looks of every second would take a part of the event loop."""
    looked = list[str]()
    refresh = Dispatch.refresh

    def noted(dispatch: Dispatch) -> None:
        looked.append(dispatch.saved.name)
        refresh(dispatch)

    async def scenario(place: PulsarPlace) -> None:
        client = await place.client()
        other = logstores.NewLogstore(name="other", shards=1, ttl_days=2, options="{}")
        await logstores.create(place.engine, PROJECT, other)
        for number, topic in enumerate((partition(0), partition(0), partition(0).replace(LOGSTORE, "other"))):
            await client.subscribe(number, topic=topic, name=f"s{number}")
        dispatches = place.endpoint.dispatches
        dispatches.look()
        monkeypatch.setattr(Dispatch, "refresh", noted)
        dispatches.look()
        assert looked == []
        await split(place, 0)
        dispatches.look()
        dispatches.look()
        assert sorted(looked) == ["s0", "s1"]
        looked.clear()
        await logstores.delete(place.engine, PROJECT, "other")
        dispatches.look()
        assert (looked, len(list(dispatches))) == ([], 2)
        assert (await client.expect("close_consumer")).consumer_id == 2

    run(scenario, tmp_path / "d")


def test_a_subscription_that_is_being_made_goes_with_its_logstore(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it begins has to be read from the disk, and meanwhile the logstore is deleted."""
    reads, may_read = asyncio.Event(), asyncio.Event()

    async def position_at(_topic: LogstoreWithShards, _shard: int, _unix_ms: int) -> int:
        reads.set()
        await may_read.wait()
        return 0

    monkeypatch.setattr(LogstoreWithShards, "position_at", position_at)

    async def scenario(place: PulsarPlace) -> None:
        client = await place.client()
        wanted = subscription(0, PARTITION, "s", "Shared")
        request = client.send("subscribe", start_message_rollback_duration_sec=5, **wanted)
        await reads.wait()
        await logstores.delete(place.engine, PROJECT, LOGSTORE)
        may_read.set()
        kind, answer = await client.answer_to(request)
        assert (kind, error_name(answer.error)) == ("error", "TopicNotFound")
        assert len(place.engine.subscriptions) == 0

    run(scenario, tmp_path / "d")


@pytest.mark.parametrize("target", [{"message_id": LAST}, {"message_publish_time": 0}])
def test_a_seek_that_meets_the_deletion_of_its_logstore_closes_that_consumer_alone(
    tmp_path: Path, target: dict[str, Any]
) -> None:
    async def scenario(place: PulsarPlace) -> None:
        client = await place.client()
        other = logstores.NewLogstore(name="other", shards=1, ttl_days=2, options="{}")
        await logstores.create(place.engine, PROJECT, other)
        await client.subscribe()
        await client.subscribe(1, topic=partition(0).replace(LOGSTORE, "other"))
        await logstores.delete(place.engine, PROJECT, LOGSTORE)
        request = client.send("seek", consumer_id=0, **target)
        assert (await client.expect("close_consumer")).consumer_id == 0
        assert (await client.answer_to(request))[0] == "success"
        await client.call("consumerStats", "consumerStatsResponse", consumer_id=1)

    run(scenario, tmp_path / "d")
