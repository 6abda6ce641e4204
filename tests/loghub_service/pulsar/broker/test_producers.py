"""The commands of producers: what is stored, what is known to be sent again, and who may send at all."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
import structlog

from loghub_service.api import shards
from loghub_service.append_series import AppendSeries
from loghub_service.ports import OsDisk
from loghub_service.pulsar.broker.call import PulsarBrokerLimits
from tests.loghub_service.kafka.broker.test_offsets import of_demo
from tests.loghub_service.pulsar import official
from tests.loghub_service.pulsar.broker.pulsar_place import (
    NO_REQUEST,
    PARTITION,
    READER,
    TOPIC,
    Client,
    PulsarPlace,
    batch_of,
    entry_of,
    error_name,
    run,
)

pytestmark = pytest.mark.tools
QUICK = PulsarBrokerLimits(send_error_delay_s=0.05)
EXCLUSIVE, WAITING, FENCING = 1, 2, 3


def place_of(message_id: Any) -> tuple[int, int]:
    return message_id.ledgerId, message_id.entryId


NO_ID = (NO_REQUEST, NO_REQUEST)


async def values(
    place: PulsarPlace, count: int, *, topic: str = PARTITION, kind: str = "Exclusive"
) -> list[tuple[bytes, ...]]:
    """What a consumer gets: a tuple for each entry."""
    client = await place.client()
    await client.subscribe(topic=topic, name="reading", kind=kind, permits=10_000)
    found = [message.payloads for message in await client.receive(count)]
    client.close()
    return found


async def refusal(client: Client) -> str:
    """The error of the next answer, which is a SEND_ERROR."""
    return error_name((await client.expect("send_error")).error)


def test_messages_batches_and_chunks_are_stored_and_come_back(tmp_path: Path) -> None:
    async def scenario(place: PulsarPlace) -> None:
        client = await place.client()
        await client.produce()
        assert place_of(await client.published(0, entry_of(b"alone"))) == (0, 0)
        ids = await client.published(
            1, batch_of(b"a", b"b", sequence=1), num_messages=2, highest_sequence_id=2
        )
        assert (place_of(ids), ids.partition, ids.batch_index) == ((1, 0), 0, -1)
        chunk = {"uuid": "u", "num_chunks_from_msg": 2, "total_chunk_msg_size": 4}
        for number, piece in enumerate((b"ch", b"un")):
            entry = entry_of(piece, sequence=3, chunk_id=number, **chunk)
            assert place_of(await client.published(3, entry, is_chunk=True)) == (2 + number, 0)
        assert await values(place, 4) == [(b"alone",), (b"a", b"b"), (b"ch",), (b"un",)]
        assert place.endpoint.broker.counts.produced_logs == 5

    run(scenario, tmp_path / "d")


def test_the_answer_to_a_producer_has_every_field_that_java_reads(tmp_path: Path) -> None:
    """It drops the connection otherwise, and connects again without end."""

    async def scenario(place: PulsarPlace) -> None:
        client = await place.client()
        first = await client.produce(0)
        second = await client.produce(1)
        assert first.producer_name != second.producer_name
        assert first.HasField("schema_version")
        assert (first.schema_version, first.last_sequence_id, first.producer_ready) == (b"", -1, True)
        assert not first.HasField("topic_epoch")
        named = await client.produce(2, producer_name="mine")
        assert named.producer_name == "mine"

    run(scenario, tmp_path / "d")


def test_a_message_that_is_sent_again_is_stored_once(tmp_path: Path) -> None:
    """By a producer with a name: over another connection, and after the service was started again, which
    reads from the log what nobody has saved."""

    async def before(place: PulsarPlace) -> None:
        client = await place.client()
        await client.produce(producer_name="mine")
        assert place_of(await client.published(0, entry_of(b"a"))) == (0, 0)
        batch = batch_of(b"b", b"c", sequence=1)
        assert place_of(await client.published(1, batch, num_messages=2, highest_sequence_id=2)) == (1, 0)
        client.close()
        again = await place.client()
        success = await again.produce(producer_name="mine", epoch=1)
        assert success.last_sequence_id == 2
        assert place_of(await again.published(0, entry_of(b"a"))) == NO_ID
        assert place_of(await again.published(1, batch, num_messages=2, highest_sequence_id=2)) == NO_ID
        assert place_of(await again.published(3, entry_of(b"d"))) == (2, 0)
        other = await place.client()
        await other.produce(producer_name="other")
        assert place_of(await other.published(0, entry_of(b"e"))) == (3, 0)

    async def after(place: PulsarPlace) -> None:
        client = await place.client()
        success = await client.produce(producer_name="mine")
        assert success.last_sequence_id == 3
        assert place_of(await client.published(3, entry_of(b"d"))) == NO_ID
        assert place_of(await client.published(9, entry_of(b"f"))) == (4, 0)
        assert await values(place, 5) == [(b"a",), (b"b", b"c"), (b"d",), (b"e",), (b"f",)]

    run(before, tmp_path / "d")
    run(after, tmp_path / "d")


def test_what_was_saved_of_a_producer_needs_no_log(tmp_path: Path) -> None:
    """A start reads no more of the logs than what came after the last save."""

    async def before(place: PulsarPlace) -> None:
        client = await place.client()
        await client.produce(producer_name="mine")
        assert place_of(await client.published(7, entry_of(b"a"))) == (0, 0)
        database = place.engine._database
        assert [mark.shard for mark in database.producer_marks()] == [0]
        for _ in range(2):
            await place.engine.producers.save()
        assert database.producer_marks() == []
        assert [(saved.producer.name, saved.number.sequence) for saved in database.sequences()] == [
            ("mine", 7)
        ]

    async def after(place: PulsarPlace) -> None:
        client = await place.client()
        assert (await client.produce(producer_name="mine")).last_sequence_id == 7
        assert place_of(await client.published(7, entry_of(b"a"))) == NO_ID
        assert place_of(await client.published(8, entry_of(b"b"))) == (1, 0)

    run(before, tmp_path / "d")
    run(after, tmp_path / "d")


def test_chunks_that_are_sent_again_are_stored_once(tmp_path: Path) -> None:
    async def scenario(place: PulsarPlace) -> None:
        client = await place.client()
        await client.produce(producer_name="mine")

        def chunk(number: int) -> bytes:
            return entry_of(b"%d" % number, chunk_id=number, uuid="u", num_chunks_from_msg=3)

        assert place_of(await client.published(7, chunk(0), is_chunk=True)) == (0, 0)
        assert place_of(await client.published(7, chunk(1), is_chunk=True)) == (1, 0)
        assert place_of(await client.published(7, chunk(0), is_chunk=True)) == NO_ID
        assert place_of(await client.published(7, chunk(1), is_chunk=True)) == NO_ID
        assert place_of(await client.published(7, chunk(2), is_chunk=True)) == (2, 0)
        assert place_of(await client.published(7, chunk(2), is_chunk=True)) == NO_ID

    run(scenario, tmp_path / "d")


@pytest.mark.parametrize("fields", [{}, {"producer_name": "made", "user_provided_producer_name": False}])
def test_a_producer_without_a_name_of_its_own_may_number_as_it_likes(
    tmp_path: Path, fields: dict[str, Any]
) -> None:
    async def scenario(place: PulsarPlace) -> None:
        client = await place.client()
        await client.produce(**fields)
        assert place_of(await client.published(5, entry_of())) == (0, 0)
        assert place_of(await client.published(5, entry_of())) == (1, 0)

    run(scenario, tmp_path / "d")


def test_names_of_one_logstore_number_for_themselves(tmp_path: Path) -> None:
    """A producer takes them for different topics."""

    async def scenario(place: PulsarPlace) -> None:
        client = await place.client()
        await client.produce(0, producer_name="mine")
        await client.produce(1, producer_name="mine", topic=f"{TOPIC}.raw-partition-0")
        assert place_of(await client.published(5, entry_of())) == (0, 0)
        assert place_of(await client.published(5, entry_of(), producer=1)) == (1, 0)

    run(scenario, tmp_path / "d")


def test_a_second_producer_of_a_name_is_busy_unless_it_comes_back(tmp_path: Path) -> None:
    async def scenario(place: PulsarPlace) -> None:
        first, second = await place.client(), await place.client()
        await first.produce(producer_name="mine")
        wanted = {"producer_id": 5, "topic": PARTITION, "producer_name": "mine"}
        assert await second.refused("producer", **wanted) == "ProducerBusy"
        await second.produce(5, producer_name="mine", epoch=1)
        first.publish(0, entry_of(b"lost"))
        await first.drained()
        assert place_of(await second.published(0, entry_of(b"kept"), producer=5)) == (0, 0)
        await second.call("close_producer", "success", producer_id=5)
        await first.produce(1, producer_name="mine")
        assert await values(place, 1) == [(b"kept",)]

    run(scenario, tmp_path / "d")


def test_one_producer_may_be_the_only_one(tmp_path: Path) -> None:
    async def scenario(place: PulsarPlace) -> None:
        first, second = await place.client(), await place.client()
        success = await first.produce(producer_name="a", producer_access_mode=EXCLUSIVE)
        assert success.topic_epoch == 0
        shared = {"producer_id": 0, "topic": PARTITION}
        assert await second.refused("producer", **shared) == "ProducerBusy"
        exclusive = {**shared, "producer_access_mode": EXCLUSIVE}
        assert await second.refused("producer", **exclusive) == "ProducerFenced"
        waiting = await second.produce(producer_name="b", producer_access_mode=WAITING)
        assert (waiting.producer_ready, waiting.HasField("topic_epoch")) == (False, False)
        second.publish(0, entry_of(b"too early"))
        await second.drained()
        await first.call("close_producer", "success", producer_id=0)
        ready = await second.expect("producer_success")
        assert (ready.request_id, ready.producer_ready, ready.topic_epoch) == (waiting.request_id, True, 1)
        assert place_of(await second.published(0, entry_of(b"b"))) == (0, 0)

    run(scenario, tmp_path / "d")


@pytest.mark.parametrize("suffix", [".raw", ".plain"])
def test_the_only_producer_keeps_out_those_that_name_its_topic_with_a_suffix(
    tmp_path: Path, suffix: str
) -> None:
    """The logs go to one shard, whichever form they get."""

    async def scenario(place: PulsarPlace) -> None:
        first, second = await place.client(), await place.client()
        await first.produce(producer_name="a", producer_access_mode=EXCLUSIVE)
        other = {"producer_id": 0, "topic": f"{TOPIC}{suffix}-partition-0"}
        assert await second.refused("producer", **other) == "ProducerBusy"
        exclusive = {**other, "producer_access_mode": EXCLUSIVE}
        assert await second.refused("producer", **exclusive) == "ProducerFenced"
        await first.call("close_producer", "success", producer_id=0)
        success = await second.call("producer", "producer_success", **exclusive)
        assert success.topic_epoch == 1

    run(scenario, tmp_path / "d")


def test_a_producer_fences_out_all_others_also_after_a_restart(tmp_path: Path) -> None:
    async def before(place: PulsarPlace) -> None:
        first, second, third = [await place.client() for _ in range(3)]
        assert (await first.produce(producer_name="a", producer_access_mode=EXCLUSIVE)).topic_epoch == 0
        await second.produce(3, producer_name="b", producer_access_mode=WAITING)
        success = await third.produce(producer_name="c", producer_access_mode=FENCING)
        assert success.topic_epoch == 1
        closed = await first.expect("close_producer")
        assert (closed.producer_id, closed.request_id) == (0, NO_REQUEST)
        assert error_name((await second.expect("error")).error) == "ProducerFenced"
        first.publish(0, entry_of(b"late"))
        await first.drained()
        assert place_of(await third.published(0, entry_of(b"c"))) == (0, 0)

    async def after(place: PulsarPlace) -> None:
        first, third = await place.client(), await place.client()
        back = {"producer_access_mode": EXCLUSIVE, "epoch": 1}
        late = {"producer_id": 0, "topic": PARTITION, "producer_name": "a", "topic_epoch": 0, **back}
        assert await first.refused("producer", **late) == "ProducerFenced"
        assert (await third.produce(producer_name="c", topic_epoch=1, **back)).topic_epoch == 1
        assert await values(place, 1) == [(b"c",)]

    run(before, tmp_path / "d")
    run(after, tmp_path / "d")


def test_refused_messages_are_answered_in_their_turn(tmp_path: Path) -> None:
    """The client sends it again at once. Java takes an answer out of turn for an error of its own, so the
    receipts behind it wait, too."""

    async def scenario(place: PulsarPlace) -> None:
        client = await place.client()
        await client.produce()
        key = official.messages()["EncryptionKeys"](key="k", value=b"v")
        client.publish(0, entry_of(b"a"))
        client.publish(1, entry_of(b"?", sequence=1, encryption_keys=[key]))
        client.publish(2, entry_of(b"b", sequence=2))
        assert (await client.expect("send_receipt")).sequence_id == 0
        kind, error = await client.next()
        assert (kind, error.sequence_id, error_name(error.error)) == ("send_error", 1, "NotAllowedError")
        assert "encrypted" in error.message
        kind, closed = await client.next()
        assert (kind, closed.producer_id, closed.request_id) == ("close_producer", 0, NO_REQUEST)
        await client.produce(epoch=1)
        assert place_of(await client.published(2, entry_of(b"b", sequence=2))) == (1, 0)
        assert await values(place, 2) == [(b"a",), (b"b",)]

    run(scenario, tmp_path / "d", limits=QUICK)


def test_a_client_for_go_does_not_hear_what_would_make_it_forget_its_producer(tmp_path: Path) -> None:
    """Of a message that is refused for good it hears that the producer is closed, and of others the error."""

    async def scenario(place: PulsarPlace) -> None:
        client = await place.client(client_version="Pulsar-Go-v0.19.0")
        key = official.messages()["EncryptionKeys"](key="k", value=b"v")
        for epoch in range(2):  # it sends the message again
            await client.produce(epoch=epoch)
            client.publish(0, entry_of(b"?", encryption_keys=[key]))
            assert (await client.next())[0] == "close_producer"
        assert place.endpoint.broker.counts.errors["NOT_ALLOWED_ERROR"] == 2
        await client.produce(epoch=2)
        client.publish(0, entry_of(b"a")[:-1] + b"b")
        assert await refusal(client) == "ChecksumError"
        await client.produce(epoch=3)
        assert place_of(await client.published(1, entry_of(b"b", sequence=1))) == (0, 0)
        assert await client.refused("producer", producer_id=1, topic=PARTITION, encrypted=True) == (
            "NotAllowedError"
        )

    run(scenario, tmp_path / "d", limits=QUICK)


@pytest.mark.parametrize("name", [{}, {"producer_name": "mine"}], ids=["without a name", "with a name"])
def test_nothing_is_stored_behind_a_message_with_a_wrong_checksum(
    tmp_path: Path, name: dict[str, str]
) -> None:
    """Java sends it again, and then what came behind it: that would be stored in another order, or twice, and
    the message itself would count as stored."""

    async def scenario(place: PulsarPlace) -> None:
        client = await place.client()
        await client.produce(**name)
        client.publish(0, entry_of(b"a")[:-1] + b"b")
        client.publish(1, entry_of(b"behind", sequence=1))
        assert await refusal(client) == "ChecksumError"
        assert (await client.next())[0] == "close_producer"
        await client.produce(epoch=1, **name)
        assert place_of(await client.published(0, entry_of(b"a"))) == (0, 0)
        assert place_of(await client.published(1, entry_of(b"behind", sequence=1))) == (1, 0)
        assert await values(place, 2) == [(b"a",), (b"behind",)]

    run(scenario, tmp_path / "d", limits=PulsarBrokerLimits(send_error_delay_s=1e6))


def test_a_client_may_connect_a_producer_again_whose_error_is_delayed(tmp_path: Path) -> None:
    async def scenario(place: PulsarPlace) -> None:
        client = await place.client()
        await client.produce(producer_name="mine")
        key = official.messages()["EncryptionKeys"](key="k", value=b"v")
        client.publish(0, entry_of(b"?", encryption_keys=[key]))
        success = await client.produce(producer_name="mine")
        assert (success.producer_ready, success.last_sequence_id) == (True, -1)
        assert place_of(await client.published(0, entry_of(b"a"))) == (0, 0)

    run(scenario, tmp_path / "d", limits=PulsarBrokerLimits(send_error_delay_s=1e6))


def test_a_producer_that_is_connected_again_hears_no_error_of_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client has sent the message again, and would connect the new producer again, too."""

    async def scenario(place: PulsarPlace) -> None:
        held: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        wrong = entry_of(b"a", sequence=1)[:-1] + b"b"
        client = await place.client()
        await client.produce()
        with monkeypatch.context() as patched:
            patched.setattr(place.engine, "append", lambda *_, **__: held)
            client.publish(0, entry_of())
            client.publish(1, wrong)  # its error waits for the receipt before it
            await client.produce(epoch=1)
        held.set_result(1 << 62)  # a cursor
        await client.expect("send_receipt")
        client.publish(1, wrong)
        assert await refusal(client) == "ChecksumError"
        await client.expect("close_producer")
        assert not client.others

    run(scenario, tmp_path / "d")


def test_a_full_disk_is_an_error_that_passes_and_keeps_the_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a producer has sent behind a message that found no room is not stored before it: after a restart,
    only the highest sequence id of those that are stored is known."""
    full = asyncio.Event()
    free_bytes = OsDisk.free_bytes
    monkeypatch.setattr(
        OsDisk, "free_bytes", lambda disk, path: 0 if full.is_set() else free_bytes(disk, path)
    )
    large = b"x" * 8192  # needs another segment, which the small ones behind it do not

    async def before(place: PulsarPlace) -> None:
        client = await place.client()
        await client.produce(producer_name="mine")
        assert place_of(await client.published(0, entry_of(b"a"))) == (0, 0)
        full.set()
        for attempt in range(2):
            client.publish(1, entry_of(large, sequence=1))
            for number in (2, 3):
                client.publish(number, entry_of(b"%d" % number, sequence=number))
            kind, closed = await client.next()
            assert (kind, closed.producer_id) == ("close_producer", 0)
            kind, error = await client.next()
            assert (kind, error.sequence_id, error_name(error.error)) == ("send_error", 1, "PersistenceError")
            await client.produce(producer_name="mine", epoch=1 + attempt)
            assert not client.others
        client.publish(1, entry_of(large, sequence=1))
        client.publish(2, entry_of(b"2", sequence=2))
        assert await refusal(client) == "PersistenceError"

    async def after(place: PulsarPlace) -> None:
        client = await place.client()
        assert (await client.produce(producer_name="mine")).last_sequence_id == 0
        for number, payload in ((1, large), (2, b"2"), (3, b"3")):
            sent = entry_of(payload, sequence=number)
            assert place_of(await client.published(number, sent)) == (number, 0)
            assert place_of(await client.published(number, sent)) == NO_ID
        assert await values(place, 4) == [(b"a",), (large,), (b"2",), (b"3",)]

    with structlog.testing.capture_logs() as lines:
        run(before, tmp_path / "d", limits=QUICK)
    assert [line["reason"] for line in lines if line["event"] == "message refused"] == [
        "no disk space for the logs: No space left on device"
    ]
    full.clear()
    run(after, tmp_path / "d", limits=QUICK)


def test_a_producer_appends_in_one_series_until_all_of_it_is_settled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also over the next connection: what the thread that appends refuses is not known here yet."""

    async def scenario(place: PulsarPlace) -> None:
        used: list[AppendSeries] = []
        held: list[asyncio.Future[int]] = []

        def append(*_: Any, series: AppendSeries, **__: Any) -> "asyncio.Future[int]":
            used.append(series)
            held.append(asyncio.get_running_loop().create_future())
            return held[-1]

        with monkeypatch.context() as patched:
            patched.setattr(place.engine, "append", append)
            first, second = await place.client(), await place.client()
            await first.produce(producer_name="mine")
            for number in (0, 1):
                first.publish(number, entry_of(sequence=number))
            await first.drained()
            await second.produce(producer_name="mine", epoch=1)
            second.publish(0, entry_of())
            second.publish(2, entry_of(sequence=2))
            await second.drained()
            assert (len(used), len(set(used))) == (3, 1)
            for future in held:
                future.set_exception(OSError(28, "No space left on device"))
            assert await refusal(second) == "PersistenceError"
            await second.expect("close_producer")
            await second.produce(producer_name="mine", epoch=2)
            second.publish(0, entry_of())
            await second.drained()
            assert (len(used), len(set(used))) == (4, 2)
            held[-1].set_exception(OSError(28, "No space left on device"))
            await second.expect("close_producer")
        await second.produce(producer_name="mine", epoch=3)
        assert place_of(await second.published(0, entry_of())) == (0, 0)

    run(scenario, tmp_path / "d", limits=QUICK)


def test_what_is_sent_to_a_shard_that_accepts_no_writes_is_stored_in_a_live_one(tmp_path: Path) -> None:
    async def scenario(place: PulsarPlace) -> None:
        client = await place.client()
        await client.produce(producer_name="mine")
        assert place_of(await client.published(0, entry_of(b"a"))) == (0, 0)
        await split(place)
        assert place_of(await client.published(1, entry_of(b"b", sequence=1))) == (0, 0)
        assert place_of(await client.published(1, entry_of(b"b", sequence=1))) == NO_ID
        # In order, a child waits until its parent is acknowledged.
        assert await values(place, 1, topic=f"{TOPIC}-partition-1", kind="Shared") == [(b"b",)]

    run(scenario, tmp_path / "d")


async def split(place: PulsarPlace) -> None:
    await shards.change_shard(place.engine, of_demo("POST", {"action": "split"}), ls="access", shard="0")


def test_writing_needs_the_right_and_a_topic(tmp_path: Path) -> None:
    async def scenario(place: PulsarPlace) -> None:
        reader, client = await place.client(READER), await place.client()
        wanted = {"producer_id": 0, "topic": PARTITION}
        assert await reader.refused("producer", **wanted) == "AuthorizationError"
        for fields, code in (
            ({"topic": f"{TOPIC}-partition-1"}, "TopicNotFound"),
            ({"topic": "persistent://public/default/absent"}, "TopicNotFound"),
            ({"encrypted": True}, "NotAllowedError"),
            ({"txn_enabled": True}, "NotAllowedError"),
            ({"producer_name": "n" * 257}, "NotAllowedError"),
            ({"initial_subscription_name": "?"}, "NotAllowedError"),
        ):
            assert await client.refused("producer", **{**wanted, **fields}) == code
        await client.call("close_producer", "success", producer_id=9)
        client.publish(0, entry_of(), producer=9)  # of a producer that was closed: its client sends it again
        await client.drained()

    run(scenario, tmp_path / "d")


def test_a_producer_that_is_here_may_be_asked_for_again(tmp_path: Path) -> None:
    """A client that takes it for disconnected, while the connection is still the same."""

    async def scenario(place: PulsarPlace) -> None:
        client = await place.client()
        first = await client.produce(producer_name="mine")
        await client.published(0, entry_of(b"a"))
        again = await client.produce(producer_name="mine", epoch=1)
        assert again.request_id != first.request_id
        assert (again.producer_name, again.last_sequence_id, again.producer_ready) == ("mine", 0, True)
        assert place_of(await client.published(1, entry_of(b"b", sequence=1))) == (1, 0)

    run(scenario, tmp_path / "d")


def test_a_producer_is_closed_after_its_receipts(tmp_path: Path) -> None:
    async def scenario(place: PulsarPlace) -> None:
        client = await place.client()
        await client.produce()
        for sequence in range(20):
            client.publish(sequence, entry_of(sequence=sequence))
        client.send("close_producer", producer_id=0)
        for sequence in range(20):
            assert (await client.expect("send_receipt")).sequence_id == sequence
        assert (await client.next())[0] == "success"

    run(scenario, tmp_path / "d")


def test_a_subscription_may_be_made_before_the_first_message(tmp_path: Path) -> None:
    async def scenario(place: PulsarPlace) -> None:
        client = await place.client()
        await client.produce(initial_subscription_name="first")
        await client.published(0, entry_of(b"a"))
        await client.subscribe(name="first", kind="Shared", earliest=False)
        (message,) = await client.receive(1)
        assert message.payloads == (b"a",)

    run(scenario, tmp_path / "d")


SCHEMA = {"name": "s", "schema_data": b"{}", "type": 4, "properties": [{"key": "k", "value": "v"}]}


def test_schemas_are_stored_with_a_version_each(tmp_path: Path) -> None:
    async def before(place: PulsarPlace) -> None:
        client = await place.client()
        assert (await client.produce(0, schema=SCHEMA)).schema_version == bytes(8)
        assert (await client.produce(1, schema=SCHEMA)).schema_version == bytes(8)
        other = {**SCHEMA, "schema_data": b"[]"}
        declared = await client.call(
            "getOrCreateSchema", "getOrCreateSchemaResponse", topic=TOPIC, schema=other
        )
        assert declared.schema_version == bytes(7) + b"\1"
        plain = {"name": "bytes", "schema_data": b"", "type": 0}
        assert (await client.produce(2, schema=plain)).schema_version == b""
        declared = await client.call(
            "getOrCreateSchema", "getOrCreateSchemaResponse", topic=TOPIC, schema=plain
        )
        assert declared.schema_version == b""

    async def after(place: PulsarPlace) -> None:
        client = await place.client(READER)

        async def asked(**fields: Any) -> Any:
            return await client.call("getSchema", "getSchemaResponse", topic=TOPIC, **fields)

        newest, first = await asked(), await asked(schema_version=bytes(8))
        assert (newest.schema.schema_data, newest.schema_version) == (b"[]", bytes(7) + b"\1")
        assert (first.schema.schema_data, first.schema.type, first.schema.name) == (b"{}", 4, "s")
        assert [(each.key, each.value) for each in first.schema.properties] == [("k", "v")]
        absent = await asked(schema_version=bytes(7) + b"\2")
        assert error_name(absent.error_code) == "TopicNotFound"

    run(before, tmp_path / "d")
    run(after, tmp_path / "d")


def test_messages_say_the_version_of_their_schema(tmp_path: Path) -> None:
    async def scenario(place: PulsarPlace) -> None:
        client = await place.client()
        version = (await client.produce(schema=SCHEMA)).schema_version
        await client.published(0, entry_of(b"a", schema_version=version))
        await client.subscribe()
        (message,) = await client.receive(1)
        assert message.metadata.schema_version == version

    run(scenario, tmp_path / "d")


def test_large_batches_are_decoded_in_threads_and_keep_their_order(tmp_path: Path) -> None:
    async def scenario(place: PulsarPlace) -> None:
        client = await place.client()
        await client.produce(producer_name="mine")
        large = [b"%d" % number for number in range(1000)]
        client.publish(0, batch_of(*large), num_messages=1000, highest_sequence_id=999)
        client.publish(1000, entry_of(b"after", sequence=1000))
        assert [(await client.expect("send_receipt")).sequence_id for _ in range(2)] == [0, 1000]
        assert await values(place, 2) == [tuple(large), (b"after",)]

    run(scenario, tmp_path / "d")
