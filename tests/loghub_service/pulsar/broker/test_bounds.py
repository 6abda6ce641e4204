"""What Pulsar clients may occupy: unread messages, permits and handles, and that others are served."""

import asyncio
import socket
import ssl
from pathlib import Path
from typing import Any

import pytest

from loghub_service.http.server import ServerTls
from loghub_service.pulsar.broker import session
from loghub_service.pulsar.broker.call import EntryCache, PulsarBrokerLimits
from loghub_service.pulsar.broker.connection import PulsarConnection
from loghub_service.pulsar.broker.delivery import Outgoing
from loghub_service.pulsar.broker.dispatch_entries import EntryLengths
from loghub_service.pulsar.records.entries import EntryToSend
from loghub_service.pulsar.wire.frames import CommandFrame, decode_frame
from tests.loghub_operator.support.certificates import Authority
from tests.loghub_service.pulsar.broker.pulsar_place import (
    KEY,
    PARTITION,
    PROJECT,
    Client,
    PulsarPlace,
    frame,
    run,
    subscription,
)
from tests.loghub_service.pulsar.broker.test_consumers import payloads

pytestmark = pytest.mark.tools
FIRST = {"ledgerId": 0, "entryId": 0}
UNREAD = 300_000  # bytes, more than a connection has in memory for a client that does not read
GROUPS = 80  # of 100 kB: more than the kernel keeps for a connection


async def slow(place: PulsarPlace) -> Client:
    """A client with a small buffer, which reads nothing by itself."""
    small = socket.socket()
    small.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    small.setblocking(False)
    await asyncio.get_running_loop().sock_connect(small, ("127.0.0.1", place.port))
    client = Client(*await asyncio.open_connection(sock=small, limit=4096))
    place.clients.append(client)
    await client.log_in(f"{PROJECT}#{KEY.key_id}#{KEY.secret}")
    return client


async def until(condition: Any) -> None:
    async with asyncio.timeout(120):
        while not condition():
            await asyncio.sleep(0.01)


def test_what_a_client_does_not_read_waits_as_positions_and_others_are_served(tmp_path: Path) -> None:
    async def scenario(place: PulsarPlace) -> None:
        stalled, other = await slow(place), await place.client()
        for _ in range(GROUPS):
            await place.put(b"x" * 100_000)
        await stalled.subscribe(kind="Shared", name="stalled")
        stalled.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await until(lambda: place.endpoint.broker.answer_budget.used)
        await other.subscribe(name="other")
        assert len(await other.receive(GROUPS)) == GROUPS
        budget = place.endpoint.broker.answer_budget
        assert 0 < budget.used < UNREAD
        stalled.writer.transport.resume_reading()  # type: ignore[attr-defined]
        assert len(await stalled.receive(GROUPS)) == GROUPS

    run(scenario, tmp_path / "d")


def test_a_client_that_reads_nothing_is_closed_after_a_time(tmp_path: Path) -> None:
    async def scenario(place: PulsarPlace) -> None:
        stalled = await slow(place)
        for _ in range(GROUPS):
            await place.put(b"x" * 100_000)
        await stalled.subscribe(kind="Shared")
        stalled.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await until(lambda: not list(place.endpoint.dispatches))
        other = await place.client()
        await other.subscribe(kind="Shared")  # what was out comes again
        assert len(await other.receive(GROUPS)) == GROUPS

    run(scenario, tmp_path / "d", limits=PulsarBrokerLimits(answer_s=0.5))


def test_a_consumer_that_stands_by_gets_no_more_of_what_waits_for_it(tmp_path: Path) -> None:
    """Its successor gets all of that. What it was not sent takes none of its permits."""

    async def scenario(place: PulsarPlace) -> None:
        former, successor = await slow(place), await place.client()
        for _ in range(GROUPS):
            await place.put(b"x" * 100_000)
        await former.subscribe(kind="Failover", consumer_name="b", permits=GROUPS)
        former.writer.transport.pause_reading()  # type: ignore[attr-defined]
        (dispatch,) = place.endpoint.dispatches
        dealt = dispatch.saved.state.consumers
        await until(lambda: [consumer.unacked for consumer in dealt.values()] == [GROUPS])
        await successor.subscribe(kind="Failover", consumer_name="a")
        assert len(await successor.receive(GROUPS)) == GROUPS
        former.writer.transport.resume_reading()  # type: ignore[attr-defined]
        await former.subscribe(1, kind="Shared", name="behind", permits=1)
        sent = 0
        while (await former.receive(1))[0].command.consumer_id == 0:
            sent += 1
        assert sent < GROUPS
        former.send("flow", consumer_id=0, messagePermits=sent)
        await former.drained()
        successor.close()
        assert len(await former.receive(GROUPS)) == GROUPS

    run(scenario, tmp_path / "d")


def test_messages_that_are_wanted_again_unread_wait_in_a_bounded_queue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lengths = list[int]()
    deliver = PulsarConnection.deliver

    def measured(connection: PulsarConnection, outgoing: Outgoing) -> None:
        deliver(connection, outgoing)
        lengths.append(sum(len(waiting.runs) for waiting in vars(connection)["_outgoing"]))

    monkeypatch.setattr(PulsarConnection, "deliver", measured)

    async def scenario(place: PulsarPlace) -> None:
        client = await place.client()
        for number in range(20):  # a run each
            await place.put(b"%d" % number)
        await client.subscribe(kind="Shared", permits=20)
        await client.receive(20)
        for _ in range(100):
            client.send("redeliverUnacknowledgedMessages", consumer_id=0)
            client.send("flow", consumer_id=0, messagePermits=20)
        await client.receive(100 * 20)
        assert max(lengths) <= 60 + 20

    run(scenario, tmp_path / "d", limits=PulsarBrokerLimits(queued_runs=60))


def test_the_sizes_of_unacknowledged_entries_are_rarely_looked_through() -> None:
    lengths, looks = EntryLengths(minimum=8), 0
    for first in range(10_000):
        lengths.add(first, 1)
        if lengths.are_many:
            looks += 1
            lengths.drop_below(0)
    assert looks <= 11  # the number doubles from one to the next
    assert len(lengths.logs) == 10_000
    lengths.drop_below(9_990)
    assert sorted(lengths.logs) == list(range(9_990, 10_000))
    assert not lengths.are_many


def test_large_commands_of_several_clients_are_decoded_one_in_a_turn_of_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each takes 50 ms, in which nobody else is served."""
    turn, decoded_in = 0, list[int]()

    def noted(frame: bytes) -> CommandFrame:
        if len(frame) > 50_000:
            decoded_in.append(turn)
        return decode_frame(frame)

    monkeypatch.setattr(session, "decode_frame", noted)

    async def turns() -> None:
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)

    async def scenario(place: PulsarPlace) -> None:
        clients = [await place.client() for _ in range(4)]
        for client in clients:
            await client.subscribe(kind="Shared")
        counting = asyncio.create_task(turns())
        large = frame("redeliverUnacknowledgedMessages", consumer_id=0, message_ids=[FIRST] * 10_000)
        for client in clients:
            client.writer.write(large)
        for client in clients:
            await client.drained()
        counting.cancel()
        assert len(set(decoded_in)) == len(decoded_in) == len(clients)

    run(scenario, tmp_path / "d")


def test_a_million_permits_are_a_number(tmp_path: Path) -> None:
    async def scenario(place: PulsarPlace) -> None:
        client = await place.client()
        await client.subscribe(kind="Shared", permits=0)
        for _ in range(3):
            client.send("flow", consumer_id=0, messagePermits=(1 << 32) - 1)
        stats = await client.call("consumerStats", "consumerStatsResponse", consumer_id=0)
        assert stats.availablePermits == 1_000_000
        await place.put(b"a")
        assert payloads(await client.receive(1)) == [b"a"]

    run(scenario, tmp_path / "d")


def test_a_connection_has_a_bounded_number_of_consumers(tmp_path: Path) -> None:
    async def scenario(place: PulsarPlace) -> None:
        client = await place.client()
        for number in range(3):
            await client.subscribe(number, kind="Shared")
        wanted = subscription(3, PARTITION, "s", "Shared")
        assert await client.refused("subscribe", **wanted) == "TooManyRequests"
        await client.call("close_consumer", "success", consumer_id=0)
        await client.call("subscribe", "success", **wanted)

    run(scenario, tmp_path / "d", limits=PulsarBrokerLimits(handles=3))


def test_entries_of_the_oldest_groups_leave_the_cache() -> None:
    cache = EntryCache(1000)
    for ordinal in range(5):
        cache.put(ordinal, (EntryToSend(ordinal, 0, 1, None, bytes(100)),))
    assert [ordinal for ordinal in range(5) if cache.get(ordinal)] == [2, 3, 4]
    assert cache.used <= cache.limit


def test_a_log_group_that_left_the_cache_is_read_again(tmp_path: Path) -> None:
    async def scenario(place: PulsarPlace) -> None:
        client = await place.client()
        for number in range(20):
            await place.put(b"%d" % number * 100)
        await client.subscribe(kind="Shared", permits=5)
        found = await client.receive(5)
        client.send("flow", consumer_id=0, messagePermits=15)
        found += await client.receive(15)
        assert payloads(found) == [b"%d" % number * 100 for number in range(20)]

    run(scenario, tmp_path / "d", limits=PulsarBrokerLimits(cache_bytes=1))


def test_the_look_up_over_tls_names_an_address_with_tls(tmp_path: Path) -> None:
    authority = Authority("tests")
    authority.write_pair(tmp_path, "localhost")
    (tmp_path / "ca.crt").write_bytes(authority.pem)
    tls = ServerTls(str(tmp_path / "tls.crt"), str(tmp_path / "tls.key")).context

    async def scenario(place: PulsarPlace) -> None:
        trusted = ssl.create_default_context(cafile=str(tmp_path / "ca.crt"))
        opened = asyncio.open_connection("127.0.0.1", place.port, ssl=trusted, server_hostname="localhost")
        client = Client(*await opened)
        place.clients.append(client)
        await client.log_in(f"{PROJECT}#{KEY.key_id}#{KEY.secret}")
        answer = await client.call("lookupTopic", "lookupTopicResponse", topic=PARTITION)
        assert answer.brokerServiceUrlTls == "pulsar+ssl://localhost:6651"
        assert answer.brokerServiceUrl == ""

    run(scenario, tmp_path / "d", tls=tls, advertised=("localhost", 6651))
