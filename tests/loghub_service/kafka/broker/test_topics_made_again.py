"""A topic that was deleted and is made again: no offset of the old one is an offset of the new one, so that a
consumer that goes on where it was skips nothing (docs/kafka.md 2).

However the old topic was used, each offset that anybody may have of it is out of range in the new one, or is
its begin. The clients' own setting then decides, and the begin is before all records.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from loghub.domain.shards import MAX_GROUP_LOGS
from loghub_service.api import projects, shards
from loghub_service.api.logstores import NewLogstore, create, delete
from loghub_service.facts import ProjectSaved
from loghub_service.kafka.wire.errors import ErrorCode
from tests.loghub_service.kafka.broker.broker_place import PROJECT, TOPIC, Place, a_broker, run, values_of
from tests.loghub_service.kafka.broker.test_offsets import ends, expire_all, of_demo, write_groups

NEW = NewLogstore(name=TOPIC, shards=2, ttl_days=2, options='{"kafkaForm":"raw"}')


async def make_again(place: Place) -> None:
    await delete(place.engine, PROJECT, TOPIC)
    await create(place.engine, PROJECT, NEW)


async def written(place: Place) -> None:
    await write_groups(await place.client(), 5, 1, 7)


async def expired(place: Place) -> None:
    await written(place)
    await expire_all(place)


async def split_and_vanished(place: Place) -> None:
    await written(place)
    engine, splitting = place.engine, of_demo("POST", {"action": "split"})
    await shards.change_shard(engine, splitting, ls=TOPIC, shard="0")
    await write_groups(await place.client(), 3, 3, 3, 3, 3, partition=1)
    await shards.change_shard(engine, splitting, ls=TOPIC, shard="1")
    await shards.delete_shard(engine, of_demo("DELETE"), ls=TOPIC, shard="1")


async def made_again_before(place: Place) -> None:
    await written(place)
    await make_again(place)
    await write_groups(await place.client(), 2)
    await make_again(place)


async def with_its_project(place: Place) -> None:
    await written(place)
    engine = place.engine
    await projects.delete_project(engine, of_demo("DELETE"))
    now = engine.now_s()
    await engine.persist(ProjectSaved(name=PROJECT, description="", created_s=now, modified_s=now))
    await create(engine, PROJECT, NEW)


@pytest.mark.parametrize("used", [written, expired, split_and_vanished, made_again_before, with_its_project])
@pytest.mark.parametrize("restarts", [False, True])
def test_no_offset_of_the_old_topic_is_inside_of_the_new_one(
    tmp_path: Path, used: Callable[[Place], Awaitable[None]], restarts: bool
) -> None:
    lasts: list[int] = []  # of each partition of the old topic

    async def before(place: Place) -> None:
        await used(place)
        client, store = await place.client(), place.engine.catalog.projects[PROJECT].logstores[TOPIC]
        lasts.extend([(await ends(client, number))[1] for number in range(store.saved.next_shard)])
        await make_again(place)
        if not restarts:
            await check(place, max(lasts))

    run(before, tmp_path / "d")
    if restarts:
        run(lambda place: check(place, max(lasts)), tmp_path / "d")


async def check(place: Place, last: int) -> None:
    """`last` is the highest offset of the old topic."""
    assert last > 0
    client = await place.client()
    for partition in (0, 1):
        begin, end = await ends(client, partition)
        assert begin == end >= last
        values = await write_groups(client, 3, 2, partition=partition)
        for offset in {0, 1, begin // 2, begin - 1, last} - {begin}:
            found = await client.fetch(offset, partition=partition)
            assert found.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert values_of(await client.fetch(begin, partition=partition)) == values
        assert (await ends(client, partition)) == (begin, begin + MAX_GROUP_LOGS + 2)


def test_another_topic_begins_at_offset_0(tmp_path: Path) -> None:
    async def scenario(place: Place) -> None:
        await written(place)
        await delete(place.engine, PROJECT, TOPIC)
        await create(place.engine, PROJECT, replace(NEW, name="other"))
        client = await place.client()
        assert (await client.produce("first", topic="other")).base_offset == 0

    run(scenario, tmp_path / "d")


def test_what_is_on_its_way_while_the_topic_is_deleted_counts_too(tmp_path: Path) -> None:
    """Its offset may still be answered, and read by who has asked before."""

    async def scenario() -> None:
        async with a_broker(tmp_path / "d") as place:
            (log,) = place.engine.logs.values()
            appended = place.engine.append(log, b"group" * 10, logs=1)
            await make_again(place)
            assert await appended == log.first_cursor
            (again, _) = place.engine.logs.values()
            assert again.first_ordinal >= 1

    asyncio.run(scenario())
