"""Where a consumer is: SEEK in its shapes, the last message, readers, and the end of a subscription."""

import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from loghub_service.dispatch.ports import Unreadable
from loghub_service.pulsar.broker.call import PulsarBrokerLimits
from loghub_service.pulsar.broker.dispatch_entries import DispatchEntries
from loghub_service.pulsar.store.topics import LogstoreWithShards
from tests.loghub_service.pulsar.broker.pulsar_place import (
    EARLIEST,
    KEY,
    LATEST,
    PARTITION,
    READER,
    Client,
    PulsarPlace,
    run,
    subscription,
)
from tests.loghub_service.pulsar.broker.test_consumers import acked, at, payloads

pytestmark = pytest.mark.tools
FIRST = {"ledgerId": EARLIEST, "entryId": EARLIEST}
LAST = {"ledgerId": LATEST, "entryId": LATEST}
NOTHING = (1 << 64) - 1


async def sought(client: Client, **target: Any) -> None:
    """SEEK, and check the order of its answers: the consumer is closed before SUCCESS (trap 11)."""
    request = client.send("seek", consumer_id=0, **target)
    assert (await client.expect("close_consumer")).consumer_id == 0
    assert (await client.answer_to(request))[0] == "success"


@pytest.mark.parametrize(
    ("target", "left"),
    [
        ({"ledgerId": 1, "entryId": 0}, [b"c", b"d", b"e"]),  # Python: the entry
        ({"ledgerId": 1, "entryId": 0, "batch_index": 1, "batch_size": 2}, [b"d", b"e"]),  # Go
        ({"ledgerId": 1, "entryId": 0, "ack_set": [0b10]}, [b"d", b"e"]),  # Java
        (FIRST, [b"a", b"b", b"c", b"d", b"e"]),
        ({"ledgerId": 9, "entryId": 0}, []),
        (LAST, []),
    ],
)
def test_a_consumer_goes_on_at_the_message_that_it_seeks(
    tmp_path: Path, target: dict[str, Any], left: list[bytes]
) -> None:
    async def scenario(place: PulsarPlace) -> None:
        client = await place.client()
        for values in ((b"a", b"b"), (b"c", b"d"), (b"e",)):
            await place.put(*values)
        await client.subscribe(kind="Shared")
        found = await client.receive(5)
        assert await acked(client, *map(at, found)) == ""
        await sought(client, message_id=target)
        await client.subscribe(kind="Shared", permits=100)
        await place.put(b"new")
        assert payloads(await client.receive(len(left) + 1)) == [*left, b"new"]

    run(scenario, tmp_path / "d")


def test_a_consumer_seeks_a_time(tmp_path: Path) -> None:
    async def scenario(place: PulsarPlace) -> None:
        client = await place.client()
        await place.put(b"a")
        place.clock.ahead_s += 20  # within what a clock may jump
        since_ms = place.engine.now_us() // 1000
        await place.put(b"b")
        await client.subscribe()
        assert payloads(await client.receive(2)) == [b"a", b"b"]
        await sought(client, message_publish_time=since_ms)
        await client.subscribe()
        assert payloads(await client.receive(1)) == [b"b"]

    run(scenario, tmp_path / "d")


def test_a_seek_closes_all_consumers_of_the_shard(tmp_path: Path) -> None:
    async def scenario(place: PulsarPlace) -> None:
        one, other = await place.client(), await place.client()
        await place.put(b"a")
        await one.subscribe(kind="Shared")
        await other.subscribe(kind="Shared", permits=0)
        await sought(one, message_id=FIRST)
        await other.expect("close_consumer")
        assert await one.refused("getLastMessageId", consumer_id=0) == "ConsumerNotFound"
        await one.subscribe(kind="Exclusive")  # nobody is connected
        assert payloads(await one.receive(1)) == [b"a"]

    run(scenario, tmp_path / "d")


@pytest.mark.parametrize(
    "target", [{"message_id": {"ledgerId": 1 << 63, "entryId": 0}}, {}], ids=["no such id", "nothing"]
)
def test_a_seek_to_nowhere_is_refused_and_changes_nothing(tmp_path: Path, target: dict[str, Any]) -> None:
    async def scenario(place: PulsarPlace) -> None:
        client = await place.client()
        await client.subscribe()
        assert await client.refused("seek", consumer_id=0, **target) == "NotAllowedError"
        await place.put(b"a")
        assert payloads(await client.receive(1)) == [b"a"]

    run(scenario, tmp_path / "d")


@pytest.mark.parametrize(
    ("kind", "last", "mark"),
    [
        ("Exclusive", (1, 0, 2, 3), (0, 0)),
        ("Shared", (1, 2, -1, 0), (0, 1)),
    ],
)
def test_the_last_message_and_the_mark_have_the_form_of_the_consumer(
    tmp_path: Path, kind: str, last: tuple[int, ...], mark: tuple[int, int]
) -> None:
    """Trap 9: with a mark of another form, a reader from the latest message, inclusive, reads nothing."""

    async def scenario(place: PulsarPlace) -> None:
        client = await place.client()
        await place.put(b"a", b"b")
        await place.put(b"c", b"d", b"e")
        await client.subscribe(kind=kind)
        found = await client.receive(2 if kind == "Exclusive" else 5)
        await acked(client, *map(at, found[: 1 if kind == "Exclusive" else 2]))
        answer = await client.call("getLastMessageId", "getLastMessageIdResponse", consumer_id=0)
        one, until = answer.last_message_id, answer.consumer_mark_delete_position
        assert (one.ledgerId, one.entryId, one.batch_index, one.batch_size) == last
        assert (until.ledgerId, until.entryId) == mark

    run(scenario, tmp_path / "d")


@pytest.mark.parametrize("kind", ["Exclusive", "Shared"])
def test_the_last_message_is_one_that_arrives(tmp_path: Path, kind: str) -> None:
    """What is too large for a message is left out. A reader that has to wait for it would wait for the
    next log."""

    async def scenario(place: PulsarPlace) -> None:
        client, chance = await place.client(), random.Random(1)
        await client.subscribe(kind=kind)
        await place.put(chance.randbytes(2000))
        answer = await client.call("getLastMessageId", "getLastMessageIdResponse", consumer_id=0)
        assert (answer.last_message_id.ledgerId, answer.last_message_id.entryId) == (NOTHING, NOTHING)
        await place.put(b"a", b"b")
        for _ in range(3):
            await place.put(chance.randbytes(2000))
        (*_, last) = await client.receive(1 if kind == "Exclusive" else 2)
        answer = await client.call("getLastMessageId", "getLastMessageIdResponse", consumer_id=0)
        found = answer.last_message_id.ledgerId, answer.last_message_id.entryId
        assert found == (last.command.message_id.ledgerId, last.command.message_id.entryId)

    run(scenario, tmp_path / "d", limits=PulsarBrokerLimits(message_bytes=1000))


def test_an_empty_partition_has_no_last_message(tmp_path: Path) -> None:
    async def scenario(place: PulsarPlace) -> None:
        client = await place.client()
        await client.subscribe()
        answer = await client.call("getLastMessageId", "getLastMessageIdResponse", consumer_id=0)
        assert (answer.last_message_id.ledgerId, answer.last_message_id.entryId) == (NOTHING, NOTHING)

    run(scenario, tmp_path / "d")


@pytest.mark.parametrize(
    ("start", "found"),
    [
        (FIRST, [b"a", b"b", b"c"]),
        ({"ledgerId": 1, "entryId": 0}, [b"b", b"c"]),
        ({"ledgerId": 1, "entryId": 0, "batch_index": 0}, [b"b", b"c"]),
        (LAST, []),
    ],
)
def test_a_reader_begins_at_its_message_and_leaves_no_subscription(
    tmp_path: Path, start: dict[str, Any], found: list[bytes]
) -> None:
    async def scenario(place: PulsarPlace) -> None:
        client = await place.client(READER)
        for value in (b"a", b"b", b"c"):
            await place.put(value)
        await client.subscribe(name="reader-1", durable=False, start_message_id=start)
        await client.drained()
        await place.put(b"new")
        assert payloads(await client.receive(len(found) + 1)) == [*found, b"new"]
        await client.call("close_consumer", "success", consumer_id=0)
        assert "reader-1" not in place.endpoint.broker.service.subscriptions.of(place.store.saved.id)

    run(scenario, tmp_path / "d")


def test_a_reader_that_seeks_goes_on_where_it_sought(tmp_path: Path) -> None:
    """Its subscription stays until the reader is back, whatever place it names then."""

    async def scenario(place: PulsarPlace) -> None:
        client = await place.client()
        for value in (b"a", b"b", b"c"):
            await place.put(value)
        reader: dict[str, Any] = {"name": "r", "durable": False, "start_message_id": FIRST}
        await client.subscribe(**reader)
        await client.receive(3)
        await sought(client, message_id={"ledgerId": 1, "entryId": 0})
        await client.subscribe(**reader)
        assert payloads(await client.receive(2)) == [b"b", b"c"]

    run(scenario, tmp_path / "d")


def test_a_reader_that_is_back_has_the_whole_time_to_come_back_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(place: PulsarPlace) -> None:
        loop, timers = asyncio.get_running_loop(), list[asyncio.TimerHandle]()
        call_later = loop.call_later

        def noted(delay: float, callback: Callable[..., object], *args: object) -> asyncio.TimerHandle:
            timer = call_later(delay, callback, *args)
            if getattr(callback, "__self__", None) in tuple(place.endpoint.dispatches):
                timers.append(timer)
            return timer

        monkeypatch.setattr(loop, "call_later", noted)
        client = await place.client()
        reader: dict[str, Any] = {"name": "r", "durable": False, "start_message_id": FIRST}
        await client.subscribe(**reader)
        for seeks in (1, 2):
            await sought(client, message_id=FIRST)
            assert [timer.cancelled() for timer in timers] == [True] * (seeks - 1) + [False]
            await client.subscribe(**reader)
            assert [timer.cancelled() for timer in timers] == [True] * seeks

    run(scenario, tmp_path / "d")


def test_an_ack_of_a_message_from_before_the_seek_of_another_client_counts(tmp_path: Path) -> None:
    """It names a message and nothing else, so the service cannot tell it from one of after the seek
    (docs/pulsar.md 4)."""

    async def scenario(place: PulsarPlace) -> None:
        one, other = await place.client(), await place.client()
        await place.put(b"a")
        await place.put(b"b")
        await one.subscribe(kind="Shared", permits=2)
        early, _ = await one.receive(2)
        await other.subscribe(kind="Shared", permits=0)
        await sought(other, message_id=FIRST)
        await one.expect("close_consumer")
        await one.subscribe(kind="Shared", permits=0)
        assert await acked(one, at(early)) == ""
        await other.subscribe(kind="Shared", permits=2)
        assert payloads(await other.receive(1)) == [b"b"]

    run(scenario, tmp_path / "d")


@pytest.mark.parametrize("cumulative", [False, True])
def test_an_ack_that_a_seek_overtakes_neither_counts_nor_gets_a_receipt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cumulative: bool
) -> None:
    """The size of its batch has to be read from the disk, and meanwhile another consumer seeks back."""

    async def scenario(place: PulsarPlace) -> None:
        one, other = await place.client(), await place.client()
        await place.put(b"a", b"b")
        await one.subscribe(kind="Failover", consumer_name="1")
        (batch,) = await one.receive(1)
        await other.subscribe(kind="Failover", consumer_name="2", permits=0)
        reads, may_read = asyncio.Event(), asyncio.Event()

        async def logs_at(_entries: DispatchEntries, _shard: int, _first: int) -> int:
            reads.set()
            await may_read.wait()
            return 2

        monkeypatch.setattr(DispatchEntries, "logs_at", logs_at)
        answer = asyncio.create_task(acked(one, at(batch), cumulative=cumulative))
        await reads.wait()
        await sought(other, message_id=FIRST)
        may_read.set()
        assert await answer == "ConsumerNotFound"
        saved = place.endpoint.broker.service.subscriptions.of(place.store.saved.id)["s"]
        assert saved.state.shards[0].acked.mark == 0

    run(scenario, tmp_path / "d")


def test_a_damaged_log_is_an_error_of_the_command_that_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other consumers of the connection go on."""

    async def damaged(*_: object, **__: object) -> None:
        raise Unreadable("damaged")

    async def scenario(place: PulsarPlace) -> None:
        client = await place.client()
        await place.put(b"a", b"b")
        await client.subscribe(permits=0)
        monkeypatch.setattr(LogstoreWithShards, "read", damaged)
        monkeypatch.setattr(LogstoreWithShards, "last", damaged)
        assert await client.refused("getLastMessageId", consumer_id=0) == "PersistenceError"
        one = {"ledgerId": 0, "entryId": 0}
        for cumulative in (False, True):
            assert await acked(client, one, cumulative=cumulative) == "PersistenceError"
        await client.drained()

    run(scenario, tmp_path / "d")


def test_a_reader_of_several_partitions_begins_in_each_where_it_says(tmp_path: Path) -> None:
    async def scenario(place: PulsarPlace) -> None:
        client = await place.client()
        for shard in (0, 1):
            await place.put(b"old", shard=shard)
        for shard, start in ((0, FIRST), (1, LAST)):
            topic = PARTITION.replace("-0", f"-{shard}")
            await client.subscribe(shard, topic=topic, name="r", durable=False, start_message_id=start)
        assert payloads(await client.receive(1)) == [b"old"]
        await client.drained()
        await place.put(b"new", shard=1)
        assert payloads(await client.receive(1)) == [b"new"]

    run(scenario, tmp_path / "d", shards=2)


@pytest.mark.parametrize("durable", [True, False])
def test_a_reader_and_a_subscription_do_not_share_a_name(tmp_path: Path, durable: bool) -> None:
    async def scenario(place: PulsarPlace) -> None:
        client = await place.client()
        await client.subscribe(kind="Shared", durable=durable)
        wanted = subscription(1, PARTITION, "s", "Shared")
        assert await client.refused("subscribe", durable=not durable, **wanted) == "NotAllowedError"

    run(scenario, tmp_path / "d")


def test_unsubscribing_deletes_the_subscription_unless_others_use_it(tmp_path: Path) -> None:
    async def scenario(place: PulsarPlace) -> None:
        one, other = await place.client(), await place.client(READER)
        await place.put(b"a")
        await one.subscribe(kind="Shared")
        await other.subscribe(kind="Shared", permits=0)
        await acked(one, at((await one.receive(1))[0]))
        assert await other.refused("unsubscribe", consumer_id=0) == "MetadataError"
        assert await other.refused("unsubscribe", consumer_id=0, force=True) == "AuthorizationError"
        await one.call("unsubscribe", "success", consumer_id=0, force=True)
        await other.expect("close_consumer")
        await one.subscribe(kind="Shared")  # a new one, from the beginning
        assert payloads(await one.receive(1)) == [b"a"]

    run(scenario, tmp_path / "d")


def test_a_subscription_that_was_left_while_a_request_works_with_it_is_another_one_afterwards(
    tmp_path: Path,
) -> None:
    async def scenario(place: PulsarPlace) -> None:
        client = await place.client()
        await place.put(b"a")
        await client.subscribe()
        await acked(client, at((await client.receive(1))[0]))
        dispatch = place.endpoint.dispatches.get(place.store.saved.id, "s")
        assert dispatch is not None
        with dispatch.kept_open():
            await client.call("unsubscribe", "success", consumer_id=0)
            await client.subscribe()
            assert payloads(await client.receive(1)) == [b"a"]

    run(scenario, tmp_path / "d")


def test_a_subscription_goes_when_all_its_partitions_are_left(tmp_path: Path) -> None:
    async def scenario(place: PulsarPlace) -> None:
        client = await place.client()
        for shard in (0, 1):
            await client.subscribe(shard, topic=PARTITION.replace("-0", f"-{shard}"))
        kept = place.endpoint.broker.service.subscriptions
        await client.call("unsubscribe", "success", consumer_id=0)
        assert "s" in kept.of(place.store.saved.id)
        await client.call("unsubscribe", "success", consumer_id=1)
        assert "s" not in kept.of(place.store.saved.id)

    run(scenario, tmp_path / "d", shards=2)


def test_a_subscription_begins_at_the_time_that_it_names(tmp_path: Path) -> None:
    async def scenario(place: PulsarPlace) -> None:
        client = await place.client()
        await place.put(b"a")
        place.clock.ahead_s += 30
        await place.put(b"b")
        await client.subscribe(start_message_rollback_duration_sec=15)
        assert payloads(await client.receive(1)) == [b"b"]

    run(scenario, tmp_path / "d")


def test_a_removed_key_is_not_asked_for_its_positions(tmp_path: Path) -> None:
    async def scenario(place: PulsarPlace) -> None:
        client = await place.client()
        await client.subscribe()
        del place.keys[KEY.key_id]
        client.send("getLastMessageId", consumer_id=0)
        assert (await client.next())[0] == "error"
        assert await client.is_closed()

    run(scenario, tmp_path / "d")
