"""Fetch: limits that never stop a consumer, and long polls that end when there is something to say."""

import asyncio
from pathlib import Path

import pytest

from loghub_service.kafka.broker.answer import BrokerLimits
from loghub_service.kafka.broker.store import Encode, RecordBatches
from loghub_service.kafka.store.partitions import ShardPartition
from loghub_service.kafka.wire.apis import ApiKey
from loghub_service.kafka.wire.errors import ErrorCode
from loghub_service.kafka.wire.logs import FetchPartition, FetchRequest, FetchTopic, PartitionData
from tests.loghub_service.kafka.broker.broker_place import TOPIC, Client, Place, run, values_of
from tests.loghub_service.kafka.broker.test_offsets import GROUP


async def fetch_many(
    client: Client,
    *offsets: int,
    max_bytes: int = 1 << 20,
    partition_max_bytes: int = 1 << 20,
    min_bytes: int = 1,
    max_wait_ms: int = 0,
) -> tuple[PartitionData, ...]:
    """Fetch partition 0, 1, .. each from its offset."""
    partitions = tuple(
        FetchPartition(partition=number, fetch_offset=offset, partition_max_bytes=partition_max_bytes)
        for number, offset in enumerate(offsets)
    )
    body = FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        topics=(FetchTopic(topic=TOPIC, partitions=partitions),),
    )
    return (await client.call(ApiKey.FETCH, body)).responses[0].partitions


def test_the_first_batch_comes_whole_whatever_the_limits_are(tmp_path: Path) -> None:
    async def scenario(place: Place) -> None:
        client = await place.client()
        for partition in (1, 2):
            await client.produce(*["x" * 1000] * 10, partition=partition)
        for max_bytes, partition_max_bytes in ((1, 1), (0, 0), (1 << 20, 1), (1, 1 << 20)):
            found = await fetch_many(
                client, 0, 0, 0, max_bytes=max_bytes, partition_max_bytes=partition_max_bytes
            )
            # The first partition that has anything, and not the next one.
            assert [len(values_of(one)) for one in found] == [0, 10, 0], (max_bytes, partition_max_bytes)

    run(scenario, tmp_path / "d", shards=3)


def test_later_partitions_get_what_fits(tmp_path: Path) -> None:
    async def scenario(place: Place) -> None:
        client = await place.client()
        for partition in (0, 1, 2):
            for _ in range(3):
                await client.produce("x" * 1000, partition=partition)
        found = await fetch_many(client, 0, 0, 0, max_bytes=5500)
        assert [len(values_of(one)) for one in found] == [3, 2, 0]
        found = await fetch_many(client, 0, 0, 0, partition_max_bytes=2500)
        assert [len(values_of(one)) for one in found] == [2, 2, 2]

    run(scenario, tmp_path / "d", shards=3)


def test_the_broker_has_a_limit_of_its_own(tmp_path: Path) -> None:
    async def scenario(place: Place) -> None:
        client = await place.client()
        for _ in range(5):
            await client.produce("x" * 1000)
        assert len(values_of(await client.fetch(0))) == 2

    run(scenario, tmp_path / "d", limits=BrokerLimits(fetch_bytes=2500))


def test_a_long_poll_ends_with_the_first_arrival_in_any_partition(tmp_path: Path) -> None:
    async def scenario(place: Place) -> None:
        client, writer = await place.client(), await place.client()
        waiting = asyncio.create_task(fetch_many(client, 0, 0, 0, max_wait_ms=50_000))
        await writer.produce("a", partition=2)
        assert [values_of(one) for one in await waiting] == [[], [], [b"a"]]

    run(scenario, tmp_path / "d", shards=3)


def test_a_long_poll_waits_for_its_bytes_or_its_time(tmp_path: Path) -> None:
    async def scenario(place: Place) -> None:
        client, writer = await place.client(), await place.client()
        await writer.produce("a")
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        found = await client.fetch(0, min_bytes=100_000, max_wait_ms=300)
        assert loop.time() - began_s >= 0.3
        assert values_of(found) == [b"a"]
        waiting = asyncio.create_task(client.fetch(0, min_bytes=2_000, max_wait_ms=50_000))
        await writer.produce("b")
        await writer.produce("x" * 2_000)
        assert len(values_of(await waiting)) == 3

    run(scenario, tmp_path / "d")


def test_what_a_long_poll_waits_for_is_read_a_few_times_and_not_at_each_arrival(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients set fetch.min.bytes to save work. 200 arrivals were 200 reads of all that had come."""
    reads = 0
    read = ShardPartition.read

    async def counted(self: ShardPartition, offset: int, *, max_bytes: int, encode: Encode) -> RecordBatches:
        nonlocal reads
        reads += 1
        return await read(self, offset, max_bytes=max_bytes, encode=encode)

    monkeypatch.setattr(ShardPartition, "read", counted)

    async def scenario(place: Place) -> None:
        client, writer = await place.client(), await place.client()
        waiting = asyncio.create_task(client.fetch(0, min_bytes=100_000, max_wait_ms=1_000_000))
        written = 0
        while not waiting.done():
            await writer.produce("x" * 500)
            written += 1
        assert written > 150  # how many more come until the answer is there depends on the machine
        assert len(b"".join(values_of(await waiting))) >= 80_000
        assert reads <= 12

    run(scenario, tmp_path / "d")


def test_a_long_poll_for_more_than_an_answer_may_have_ends_with_a_full_one(tmp_path: Path) -> None:
    async def scenario(place: Place) -> None:
        client = await place.client()
        for _ in range(4):
            await client.produce("x" * 1000)
        found = await client.fetch(0, min_bytes=1 << 30, max_wait_ms=50_000)
        assert len(values_of(found)) == 2

    run(scenario, tmp_path / "d", limits=BrokerLimits(fetch_bytes=2500))


def test_an_error_ends_a_long_poll_at_once(tmp_path: Path) -> None:
    async def scenario(place: Place) -> None:
        client = await place.client()
        found = await fetch_many(client, 0, 5 * GROUP, max_wait_ms=50_000)
        assert [one.error_code for one in found] == [0, ErrorCode.OFFSET_OUT_OF_RANGE]

    run(scenario, tmp_path / "d", shards=2)


def test_answers_that_nobody_reads_hold_a_bounded_part_of_the_memory(tmp_path: Path) -> None:
    """Others go on, with less."""

    async def scenario(place: Place) -> None:
        writer = await place.client()
        for _ in range(40):
            await writer.produce("x" * 100_000)
        lazy = [await place.client() for _ in range(20)]
        for client in lazy:  # more than the sockets' buffers take
            body = FetchRequest(
                max_wait_ms=0,
                min_bytes=1,
                topics=(
                    FetchTopic(
                        topic=TOPIC,
                        partitions=(
                            FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 22),
                        ),
                    ),
                ),
            )
            for _ in range(4):
                client.send(ApiKey.FETCH, body)
        budget = place.budgets[1]
        reader = await place.client()
        seen = 0
        for _ in range(20):
            seen = max(seen, budget.used)
            assert len(values_of(await reader.fetch(0, max_wait_ms=50_000))) >= 1
        assert seen <= budget.limit + (1 << 20)  # a first batch may exceed it

    run(scenario, tmp_path / "d", memory=3 << 20, limits=BrokerLimits(unread_grace_s=0.2))
