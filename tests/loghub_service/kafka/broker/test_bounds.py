"""What a client may occupy: sizes, times, memory and places, and that others are not disturbed."""

import asyncio
from pathlib import Path

import pytest
from msgspec import structs

from loghub_service.connections.listener import HttpConnection
from loghub_service.connections.port import BrokerAddress, Ends
from loghub_service.connections.stalled import RequestMemory, StalledClients
from loghub_service.kafka.broker.answer import Answer, BrokerLimits
from loghub_service.kafka.broker.session import ClientSession
from loghub_service.kafka.wire.apis import ApiKey
from loghub_service.kafka.wire.frames import RequestHeader
from loghub_service.kafka.wire.groups import ListedGroup, ListGroupsResponse
from loghub_service.kafka.wire.logs import ForgottenTopic
from loghub_service.kafka.wire.topics import MetadataRequest, MetadataRequestTopic
from tests.loghub_service.kafka.broker.broker_place import (
    Client,
    Closed,
    Place,
    fetch_request,
    produce_request,
    run,
    values_of,
)
from tests.loghub_service.kafka.client_frames import encode_request

ALL_TOPICS = MetadataRequest(topics=None)


async def is_served(client: Client) -> bool:
    return bool((await client.call(ApiKey.METADATA, ALL_TOPICS)).topics)


@pytest.mark.parametrize("length", [b"\0\0\0\0", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\0\x01\0\x01"])
def test_a_length_that_no_request_has_ends_the_connection(tmp_path: Path, length: bytes) -> None:
    async def scenario(place: Place) -> None:
        other, client = await place.client(), await place.client()
        client.writer.write(length)
        assert await client.is_closed()
        assert await is_served(other)

    run(scenario, tmp_path / "d", limits=BrokerLimits(frame_bytes=65536))


def test_before_the_login_only_small_requests_are_accepted(tmp_path: Path) -> None:
    async def scenario(place: Place) -> None:
        client = await place.connect()
        client.writer.write((16 * 1024 + 1).to_bytes(4, "big"))
        assert await client.is_closed()

    run(scenario, tmp_path / "d")


def test_a_client_that_stalls_in_a_request_is_closed_whatever_it_drips(tmp_path: Path) -> None:
    async def scenario(place: Place) -> None:
        other, client = await place.client(), await place.client()
        client.writer.write(b"\0\0\x10\0")

        async def drip() -> None:
            while True:
                client.writer.write(b"x")
                await asyncio.sleep(0.02)

        dripping = asyncio.create_task(drip())
        assert await client.is_closed()
        dripping.cancel()
        assert await is_served(other)

    run(scenario, tmp_path / "d", limits=BrokerLimits(frame_s=0.2))


@pytest.mark.parametrize("where", ["in the request that waits", "behind it"])
def test_a_client_that_waits_for_news_gives_way_to_one_that_needs_its_memory(
    tmp_path: Path, where: str
) -> None:
    """A request that waits may have what nobody reads, or others after it."""

    async def scenario(place: Place) -> None:
        holder, client = await place.client(), await place.client()
        fat = tuple(ForgottenTopic(topic="x" * 30_000, partitions=()) for _ in range(30))
        first = fetch_request(0, max_wait_ms=60_000)
        if where == "behind it":
            holder.send(ApiKey.FETCH, first)
        holder.send(ApiKey.FETCH, structs.replace(first, forgotten_topics_data=fat))
        while place.budgets[0].used < 900_000:
            await asyncio.sleep(0.01)
        stored = asyncio.create_task(client.produce("y" * 400_000, partition=1))
        done, _ = await asyncio.wait({stored}, timeout=0.2)
        assert not done, "it has some seconds"
        place.clock.ahead_s += 6
        assert (await stored).error_code == 0
        assert await holder.is_closed()

    run(scenario, tmp_path / "d", memory=1_000_000, shards=2)


@pytest.mark.long
def test_an_idle_client_is_closed_and_one_with_requests_is_not(tmp_path: Path) -> None:
    async def scenario(place: Place) -> None:
        idle, busy = await place.client(), await place.client()
        closed = asyncio.create_task(idle.is_closed())
        while not closed.done():
            assert await is_served(busy)
            await asyncio.sleep(0.02)
        assert await closed
        # A request that waits is no idleness.
        assert values_of(await busy.fetch(0, max_wait_ms=1000)) == []

    run(scenario, tmp_path / "d", limits=BrokerLimits(idle_s=0.4))


def test_large_requests_wait_for_memory_that_others_use(tmp_path: Path) -> None:
    """Two clients begin requests that fit one at a time; the first does not complete its own."""

    async def scenario(place: Place) -> None:
        stalling, client, small = [await place.client() for _ in range(3)]
        stalling.writer.write((900_000).to_bytes(4, "big") + b"x" * 100)
        while place.budgets[0].used < 900_000:
            await asyncio.sleep(0.01)
        stored = asyncio.create_task(client.produce("y" * 800_000))
        assert (await small.produce("z" * 100)).error_code == 0  # small ones need no turn
        assert place.budgets[0].used == 900_000
        assert not stored.done()
        stalling.close()
        assert (await stored).error_code == 0
        assert place.budgets[0].used == 0

    run(scenario, tmp_path / "d", memory=1 << 20)


def test_a_request_that_finds_no_memory_ends_its_connection(tmp_path: Path) -> None:
    async def scenario(place: Place) -> None:
        holder, client = await place.client(), await place.client()
        holder.writer.write((900_000).to_bytes(4, "big") + b"x" * 100)
        while place.budgets[0].used < 900_000:
            await asyncio.sleep(0.01)
        with pytest.raises(Closed):
            await client.produce("y" * 800_000)

    run(scenario, tmp_path / "d", memory=1 << 20, limits=BrokerLimits(memory_wait_s=0.2))


def test_a_sender_that_stalls_gives_way_to_one_that_needs_its_memory(tmp_path: Path) -> None:
    """Two hold all of it; the one that began first ends, and only once it has had its time."""

    async def scenario(place: Place) -> None:
        senders = [await place.client() for _ in range(2)]
        for count, sender in enumerate(senders, 1):
            sender.writer.write((500_000).to_bytes(4, "big") + b"x" * 100)
            while place.budgets[0].used < count * 500_000:
                await asyncio.sleep(0.01)
        client = await place.client()
        stored = asyncio.create_task(client.produce("y" * 400_000))
        first, second = (asyncio.create_task(sender.is_closed()) for sender in senders)
        done, _ = await asyncio.wait({stored, first}, timeout=0.2)
        assert not done, "a sender has some seconds"
        place.clock.ahead_s += 6
        assert await first
        assert (await stored).error_code == 0
        assert not second.done()
        second.cancel()

    run(scenario, tmp_path / "d", memory=1_000_000)


@pytest.mark.long
def test_requests_that_wait_for_their_turn_are_bounded(tmp_path: Path) -> None:
    async def scenario(place: Place) -> None:
        client = await place.client()
        polling = client.send(ApiKey.METADATA, ALL_TOPICS)
        await client.answer(polling)
        waiting = asyncio.create_task(client.fetch(0, max_wait_ms=1000))
        await asyncio.sleep(0)
        headers = [client.send(ApiKey.METADATA, ALL_TOPICS) for _ in range(500)]
        assert values_of(await waiting) == []
        for header in headers:  # all are served, later
            assert (await client.answer(header)).topics

    run(scenario, tmp_path / "d", limits=BrokerLimits(queued_requests=2))


def test_a_request_with_too_many_names_ends_the_connection(tmp_path: Path) -> None:
    async def scenario(place: Place) -> None:
        other, client = await place.client(), await place.client()
        body = MetadataRequest(topics=tuple(MetadataRequestTopic(name="x") for _ in range(11)))
        with pytest.raises(Closed):
            await client.call(ApiKey.METADATA, body)
        assert await is_served(other)

    run(scenario, tmp_path / "d", limits=BrokerLimits(topics=10))


def test_a_new_connection_takes_the_place_of_an_idle_one(tmp_path: Path) -> None:
    async def scenario(place: Place) -> None:
        first = await place.client()
        others = [await place.client() for _ in range(7)]
        newest = await place.client()
        assert await first.is_closed()
        assert await is_served(newest)
        assert await is_served(others[-1])

    run(scenario, tmp_path / "d", limits=BrokerLimits(connections=8))


def test_clients_without_a_login_cannot_take_the_places_of_those_with_one(tmp_path: Path) -> None:
    async def scenario(place: Place) -> None:
        members = [await place.client() for _ in range(4)]
        for _ in range(40):
            await place.connect()
        for client in members:
            assert await is_served(client)
        assert await is_served(await place.client())

    run(scenario, tmp_path / "d", limits=BrokerLimits(connections=8))


def test_a_client_that_goes_away_in_the_middle_leaves_nothing_behind(tmp_path: Path) -> None:
    """The budgets are checked at the end of every scenario."""

    async def scenario(place: Place) -> None:
        for cut in (3, 100, 80_000, 150_000):
            client = await place.client()
            client.writer.write(_frame()[:cut])
            await asyncio.sleep(0.01)
            client.close()
        client = await place.client()
        client.send(ApiKey.PRODUCE, produce_request("whole"))
        client.send(ApiKey.PRODUCE, produce_request("x" * 100_000))
        await client.writer.drain()
        client.close()
        assert await is_served(await place.client())
        while place.endpoint.connections.authenticated_count > 1:
            await asyncio.sleep(0.01)

    run(scenario, tmp_path / "d")


def _frame() -> bytes:
    header = RequestHeader(api_key=ApiKey.PRODUCE, api_version=7, correlation_id=1)
    return encode_request(header, produce_request("x" * 140_000))


def test_closing_the_endpoint_answers_what_is_in_progress(tmp_path: Path) -> None:
    async def scenario(place: Place) -> None:
        client, polling = await place.client(), await place.client()
        headers = [client.send(ApiKey.PRODUCE, produce_request(f"{n}")) for n in range(5)]
        poll = asyncio.create_task(polling.fetch(10**6, max_wait_ms=50_000, topic="nothing"))
        assert (await poll).error_code != 0
        first = await client.answer(headers[0])
        assert first.responses[0].partition_responses[0].error_code == 0
        await place.endpoint.close()
        assert await polling.is_closed()

    run(scenario, tmp_path / "d", limits=BrokerLimits(close_s=0.5))


def test_a_client_that_leaves_at_any_step_of_a_large_answer_gives_its_memory_back(tmp_path: Path) -> None:
    """Its request is cancelled, perhaps when the answer has its memory and others have their turn."""

    async def scenario(place: Place) -> None:
        broker = place.endpoint.broker
        admitted = HttpConnection(peer="test", abort=lambda: None)
        session = ClientSession(
            broker,
            admitted,
            ends=Ends(broker=BrokerAddress("127.0.0.1", place.port), client_host="test"),
            admit=lambda _: True,
            memory=RequestMemory(place.budgets[0], StalledClients(place.clock, grace_s=5), lambda: None),
        )
        header = RequestHeader(api_key=ApiKey.LIST_GROUPS, api_version=2, correlation_id=1, client_id=None)
        groups = tuple(ListedGroup(group_id=f"{n}" * 1000, protocol_type="") for n in range(100))

        async def complete() -> Answer:
            await asyncio.sleep(0)
            return broker.answer(header, ListGroupsResponse(error_code=0, groups=groups))

        ends = []
        for step in range(5):
            task = asyncio.create_task(session._finish(header, complete, large=True))
            for _ in range(step):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait((task,))
            ends.append(task.cancelled())
            if not task.cancelled():
                assert broker.answer_budget.used > 100_000
                task.result().sent()
            assert broker.answer_budget.used == 0, step
        assert ends == [True, True, True, False, False]

    run(scenario, tmp_path / "d")
