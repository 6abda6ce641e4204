"""Offsets as every client needs them (docs/kafka.md 2): ends, begins after expiry, gaps, placeholders."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from loghub.domain.shards import MAX_GROUP_LOGS
from loghub.wire.loggroup import Log, LogGroup, encode
from loghub_service.api import shards
from loghub_service.api.logs import check_group
from loghub_service.kafka.broker.store import is_past, offset_of, position
from loghub_service.kafka.wire.apis import ApiKey
from loghub_service.kafka.wire.errors import ErrorCode
from loghub_service.kafka.wire.logs import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from loghub_service.kafka.wire.topics import MetadataRequest
from loghub_service.messages import Request
from loghub_service.retention import Retention
from tests.loghub_service.engines import request
from tests.loghub_service.kafka.broker.broker_place import (
    TOPIC,
    Client,
    Place,
    ShiftedClock,
    records_of,
    run,
    values_of,
)

GROUP = MAX_GROUP_LOGS  # from one group to the next


async def write_groups(client: Client, *sizes: int, partition: int = 0) -> list[bytes]:
    """One batch of each size; returns all values in order."""
    written: list[bytes] = []
    for number, size in enumerate(sizes):
        values = [b"%d-%d" % (number, index) for index in range(size)]
        assert (await client.produce(*values, partition=partition)).error_code == 0
        written += values
    return written


async def ends(client: Client, partition: int = 0) -> tuple[int, int]:
    first = await client.offset(EARLIEST_TIMESTAMP, partition=partition)
    last = await client.offset(LATEST_TIMESTAMP, partition=partition)
    return first.offset, last.offset


def test_an_offset_is_an_ordinal_and_an_index() -> None:
    assert offset_of(0) == 0
    assert offset_of(3, 5) == 3 * 131072 + 5
    assert position(offset_of(7, 131071)) == (7, 131071)
    assert position(offset_of(7, MAX_GROUP_LOGS)) == (8, 0)  # the end of a full group is the next group
    assert is_past(offset_of(2, 3), ordinal=2, logs=3)
    assert not is_past(offset_of(2, 2), ordinal=2, logs=3)


def test_groups_have_gaps_between_them_and_the_end_is_after_the_last_record(tmp_path: Path) -> None:
    async def scenario(place: Place) -> None:
        client = await place.client()
        assert await ends(client) == (0, 0)
        written = await write_groups(client, 5, 1, 7)
        assert await ends(client) == (0, 2 * GROUP + 7)
        data = await client.fetch(0)
        assert (data.high_watermark, data.last_stable_offset, data.log_start_offset) == (
            2 * GROUP + 7, 2 * GROUP + 7, 0,
        )  # fmt: skip
        assert [offset for offset, _ in records_of(data)] == [
            *range(5), GROUP, *range(2 * GROUP, 2 * GROUP + 7),
        ]  # fmt: skip
        assert values_of(data) == written

    run(scenario, tmp_path / "d")


@pytest.mark.parametrize(
    ("offset", "first"),
    [
        (0, 0),
        (2, 0),  # inside a batch: the whole batch comes, and the client drops what is before
        (5, GROUP),  # the end of the first batch
        (77, GROUP),  # deep in the gap
        (GROUP, GROUP),
        (GROUP + 1, 2 * GROUP),
        (2 * GROUP - 1, 2 * GROUP),
    ],
)
def test_a_fetch_in_a_gap_gets_the_next_batch(tmp_path: Path, offset: int, first: int) -> None:
    async def scenario(place: Place) -> None:
        client = await place.client()
        await write_groups(client, 5, 1, 7)
        data = await client.fetch(offset)
        assert data.error_code == 0
        assert records_of(data)[0][0] == first

    run(scenario, tmp_path / "d")


@pytest.mark.parametrize("offset", [2 * GROUP + 7, 2 * GROUP + 8, 3 * GROUP])
def test_an_offset_up_to_the_next_group_waits_for_it(tmp_path: Path, offset: int) -> None:
    """Also one that came from a native cursor at the end, which is the begin of the next group."""

    async def scenario(place: Place) -> None:
        client, writer = await place.client(), await place.client()
        await write_groups(client, 5, 1, 7)
        empty = await client.fetch(offset)
        assert (empty.error_code, records_of(empty)) == (0, [])
        waiting = asyncio.create_task(client.fetch(offset, max_wait_ms=30_000))
        await writer.produce("next")
        found = await waiting
        assert [(at, record.value) for at, record in records_of(found)] == [(3 * GROUP, b"next")]

    run(scenario, tmp_path / "d")


@pytest.mark.parametrize("offset", [-1, 3 * GROUP + 1, 1 << 40, (1 << 63) - 1])
def test_an_offset_outside_is_out_of_range(tmp_path: Path, offset: int) -> None:
    async def scenario(place: Place) -> None:
        client = await place.client()
        await write_groups(client, 5, 1, 7)
        data = await client.fetch(offset, max_wait_ms=30_000)  # answered at once
        assert data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert (data.log_start_offset, data.high_watermark) == (0, 2 * GROUP + 7)

    run(scenario, tmp_path / "d")


async def expire_all(place: Place) -> None:
    """Let everything that was written so far expire."""
    retention = Retention(place.engine)
    day = 86_400
    for _ in range(5):  # a jump of the clock is believed after a while
        place.clock.ahead_s += day
        await retention.look()
        await retention.look()


def test_the_begin_is_where_the_last_expired_group_ended_also_after_a_restart(tmp_path: Path) -> None:
    clock = ShiftedClock()

    async def first(place: Place) -> None:
        client = await place.client()
        await write_groups(client, 5, 1, 7)
        await expire_all(place)
        assert await ends(client) == (2 * GROUP + 7, 2 * GROUP + 7)
        await write_groups(client, 3)
        await check(client)

    async def check(client: Client) -> None:
        assert await ends(client) == (2 * GROUP + 7, 3 * GROUP + 3)
        resumed = await client.fetch(2 * GROUP + 7)  # committed at the end of what has expired
        assert resumed.error_code == 0
        assert records_of(resumed)[0][0] == 3 * GROUP
        lost = await client.fetch(2 * GROUP + 6)
        assert lost.error_code == ErrorCode.OFFSET_OUT_OF_RANGE

    async def again(place: Place) -> None:
        await check(await place.client())

    run(first, tmp_path / "d", clock=clock)
    run(again, tmp_path / "d", clock=clock)


def test_the_end_is_the_same_after_a_restart(tmp_path: Path) -> None:
    async def first(place: Place) -> None:
        await write_groups(await place.client(), 5, 4)

    async def again(place: Place) -> None:
        client = await place.client()
        assert await ends(client) == (0, GROUP + 4)
        await write_groups(client, 2)
        assert await ends(client) == (0, 2 * GROUP + 2)

    run(first, tmp_path / "d")
    run(again, tmp_path / "d")


def test_a_deleted_shard_keeps_its_end_and_its_id(tmp_path: Path) -> None:
    async def first(place: Place) -> None:
        client = await place.client()
        await write_groups(client, 5, 4)
        engine = place.engine
        await shards.change_shard(engine, of_demo("POST", {"action": "split"}), ls=TOPIC, shard="0")
        await shards.delete_shard(engine, of_demo("DELETE"), ls=TOPIC, shard="0")
        await check(client)

    async def check(client: Client) -> None:
        answer = await client.call(ApiKey.METADATA, MetadataRequest(topics=None))
        assert [one.partition_index for one in answer.topics[0].partitions] == [0, 1, 2]
        assert {one.leader_id for one in answer.topics[0].partitions} == {0}
        assert await ends(client) == (GROUP + 4, GROUP + 4)
        for offset in (GROUP + 4, 2 * GROUP):
            data = await client.fetch(offset)
            assert (data.error_code, records_of(data)) == (0, [])
        assert (await client.fetch(0)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert await ends(client, partition=2) == (0, 0)  # a new shard begins at 0

    async def again(place: Place) -> None:
        await check(await place.client())

    run(first, tmp_path / "d")
    run(again, tmp_path / "d")


def of_demo(method: str, query: dict[str, str] | None = None) -> Request:
    made = request(method, query)
    return replace(made, head=replace(made.head, project="demo"))


def test_a_time_finds_the_group_that_was_received_then(tmp_path: Path) -> None:
    async def scenario(place: Place) -> None:
        client = await place.client()
        await write_groups(client, 5)
        place.clock.ahead_s += 3
        between_ms = int(place.engine.now_us() / 1000)
        place.clock.ahead_s += 3
        await write_groups(client, 2)
        found = await client.offset(between_ms)
        assert found.offset == GROUP
        assert found.timestamp >= between_ms
        assert (await client.offset(0)).offset == 0
        place.clock.ahead_s += 3
        none = await client.offset(int(place.engine.now_us() / 1000))
        assert (none.offset, none.timestamp, none.error_code) == (-1, -1, 0)

    run(scenario, tmp_path / "d")


def test_unknown_partitions_and_topics_are_named_so(tmp_path: Path) -> None:
    async def scenario(place: Place) -> None:
        client = await place.client()
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        for topic, partition in (("nothing", 0), (TOPIC, 1), (TOPIC, -1), (f"{TOPIC}.7", 0), ("", 0)):
            assert (await client.fetch(0, topic=topic, partition=partition)).error_code == unknown
            assert (await client.offset(-1, topic=topic, partition=partition)).error_code == unknown
            assert (await client.produce("a", topic=topic, partition=partition)).error_code == unknown

    run(scenario, tmp_path / "d")


@pytest.mark.long
def test_a_log_group_of_put_logs_that_is_too_long_for_offsets_is_cut(tmp_path: Path) -> None:
    body = encode(LogGroup(logs=(Log(time=1, contents=()),) * (GROUP + 5), topic="t"))
    parts = check_group(body, None, raw_size=len(body), max_size=2 * len(body))
    assert [part.logs for part in parts] == [GROUP, 5]

    async def scenario(place: Place) -> None:
        client = await place.client()
        log = place.engine.logs[1, 0]
        await asyncio.gather(*(place.engine.append(log, part.stored, logs=part.logs) for part in parts))
        assert await ends(client) == (0, GROUP + 5)
        first = records_of(await client.fetch(GROUP - 1, topic=f"{TOPIC}.json"))
        assert (len(first), first[-1][0]) == (GROUP, GROUP - 1)
        second = records_of(await client.fetch(GROUP, topic=f"{TOPIC}.json"))
        assert [offset for offset, _ in second] == list(range(GROUP, GROUP + 5))

    run(scenario, tmp_path / "d")
