"""Produce: what is stored where, what a producer may repeat, and what is refused."""

import asyncio
import shutil
from pathlib import Path

import pytest

from loghub_service.api import shards
from loghub_service.kafka.broker.answer import BrokerLimits
from loghub_service.kafka.broker.store import StoreError
from loghub_service.kafka.records.record_forms import RecordForm
from loghub_service.kafka.store.topics import LogstoreTopic
from loghub_service.kafka.wire.apis import ApiKey
from loghub_service.kafka.wire.errors import ErrorCode
from loghub_service.kafka.wire.logs import (
    LATEST_TIMESTAMP,
    InitProducerIdRequest,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from loghub_service.kafka.wire.topics import MetadataRequest
from tests.loghub_service.kafka.broker.broker_place import (
    READER,
    TOPIC,
    Client,
    Closed,
    Place,
    batch_of,
    produce_request,
    records_of,
    run,
    values_of,
)
from tests.loghub_service.kafka.broker.test_offsets import GROUP, of_demo

PRODUCER = 4711


async def numbered(
    client: Client,
    first: int,
    *values: str,
    epoch: int = 0,
    partition: int = 0,
    producer: int = PRODUCER,
    topic: str = TOPIC,
) -> tuple[int, int]:
    """Send a batch of an idempotent producer; its error and its offset."""
    batch = batch_of(*values, producer=(producer, epoch, first))
    answer = await client.produce(batch=batch, partition=partition, topic=topic)
    return answer.error_code, answer.base_offset


@pytest.mark.parametrize("acks", [1, -1])
def test_an_acknowledged_record_is_durable_and_readable(tmp_path: Path, acks: int) -> None:
    async def first(place: Place) -> None:
        client = await place.client()
        assert (await client.produce("a", "b", acks=acks)).base_offset == 0
        assert (await client.produce("c", acks=acks)).base_offset == GROUP

    async def again(place: Place) -> None:
        assert values_of(await (await place.client()).fetch(0)) == [b"a", b"b", b"c"]

    run(first, tmp_path / "d")
    run(again, tmp_path / "d")


def test_acks_0_has_no_answer_and_is_stored(tmp_path: Path) -> None:
    async def scenario(place: Place) -> None:
        client = await place.client()
        client.send(ApiKey.PRODUCE, produce_request("a", acks=0))
        # The next answer belongs to the next request.
        assert (await client.call(ApiKey.METADATA, MetadataRequest(topics=None))).topics
        found = await client.fetch(0, max_wait_ms=30_000)
        assert values_of(found) == [b"a"]

    run(scenario, tmp_path / "d")


def test_another_number_of_acks_is_refused(tmp_path: Path) -> None:
    async def scenario(place: Place) -> None:
        client = await place.client()
        assert (await client.produce("a", acks=2)).error_code == ErrorCode.INVALID_REQUIRED_ACKS
        assert records_of(await client.fetch(0)) == []

    run(scenario, tmp_path / "d")


def test_requests_sent_at_once_are_stored_and_answered_in_order(tmp_path: Path) -> None:
    async def scenario(place: Place) -> None:
        client = await place.client()
        headers = [client.send(ApiKey.PRODUCE, produce_request(f"{number}")) for number in range(50)]
        offsets = []
        for header in headers:
            answer = await client.answer(header)
            offsets.append(answer.responses[0].partition_responses[0].base_offset)
        assert offsets == [GROUP * number for number in range(50)]
        assert values_of(await client.fetch(0)) == [b"%d" % number for number in range(50)]

    run(scenario, tmp_path / "d")


def test_the_logs_of_one_request_go_to_the_partitions_that_it_names(tmp_path: Path) -> None:
    async def scenario(place: Place) -> None:
        client = await place.client()
        data = tuple(PartitionProduceData(index=index, records=batch_of(f"p{index}")) for index in (2, 0, 9))
        body = ProduceRequest(
            acks=-1, timeout_ms=1000, topic_data=(TopicProduceData(name=TOPIC, partition_data=data),)
        )
        answer = await client.call(ApiKey.PRODUCE, body)
        assert [(one.index, one.error_code) for one in answer.responses[0].partition_responses] == [
            (2, 0), (0, 0), (9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ]  # fmt: skip
        for partition, expected in ((0, [b"p0"]), (1, []), (2, [b"p2"])):
            assert values_of(await client.fetch(0, partition=partition)) == expected

    run(scenario, tmp_path / "d", shards=3)


def test_a_batch_for_a_shard_that_takes_no_writes_goes_to_one_that_does(tmp_path: Path) -> None:
    async def scenario(place: Place) -> None:
        client = await place.client()
        await client.produce("before")
        split = of_demo("POST", {"action": "split"})
        await shards.change_shard(place.engine, split, ls=TOPIC, shard="0")
        assert (await client.produce("read-only")).error_code == 0
        await shards.delete_shard(place.engine, of_demo("DELETE"), ls=TOPIC, shard="0")
        assert (await client.produce("placeholder")).error_code == 0
        found = [values_of(await client.fetch(0, partition=number)) for number in (1, 2)]
        assert sorted(found) == [[], [b"read-only", b"placeholder"]]

    run(scenario, tmp_path / "d")


def test_writes_during_a_split_are_stored_once_and_in_order(tmp_path: Path) -> None:
    async def scenario(place: Place) -> None:
        client = await place.client()
        split = asyncio.create_task(
            shards.change_shard(place.engine, of_demo("POST", {"action": "split"}), ls=TOPIC, shard="0")
        )
        for number in range(20):
            assert (await numbered(client, number, f"{number}"))[0] == 0
        await split
        found: list[bytes | None] = []
        for partition in (0, 1, 2):
            found += values_of(await client.fetch(0, partition=partition))
        assert found == [b"%d" % number for number in range(20)]

    run(scenario, tmp_path / "d")


# Idempotent producers


def test_a_repeated_batch_gets_its_first_answer_and_is_stored_once(tmp_path: Path) -> None:
    async def scenario(place: Place) -> None:
        client = await place.client()
        answers = [await numbered(client, 2 * number, f"{number}a", f"{number}b") for number in range(5)]
        other = await place.client()  # the client connects again, and repeats what was not answered
        for number in range(5):
            repeated = await numbered(other, 2 * number, f"{number}a", f"{number}b")
            assert repeated == answers[number] == (0, GROUP * number)
        assert len(records_of(await client.fetch(0))) == 10

    run(scenario, tmp_path / "d")


@pytest.mark.parametrize("ends", ["refused", "disconnected"])
def test_a_repeated_batch_is_answered_if_its_first_attempt_fails_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    """The first attempt waits for a shard that is being split, and fails before it is ordered."""

    async def scenario(place: Place) -> None:
        waiting, go_on = asyncio.Event(), asyncio.Event()

        async def append(*_: object, **__: object) -> asyncio.Future[int]:
            waiting.set()
            await go_on.wait()
            raise StoreError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "deleted meanwhile")

        first, second = await place.client(), await place.client()
        with monkeypatch.context() as patch:
            patch.setattr(LogstoreTopic, "append", append)
            attempts = [asyncio.create_task(numbered(first, 0, "a"))]
            await waiting.wait()
            asked = place.endpoint.broker.counts.requests["PRODUCE"]
            attempts.append(asyncio.create_task(numbered(second, 0, "a")))
            while place.endpoint.broker.counts.requests["PRODUCE"] == asked:
                await asyncio.sleep(0)
            if ends == "refused":
                go_on.set()
                assert [code for code, _ in await asyncio.gather(*attempts)] == [
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                ] * 2
            else:
                first.close()
                assert (await attempts[1])[0] == ErrorCode.KAFKA_STORAGE_ERROR
                with pytest.raises(Closed):
                    await attempts[0]
        assert await numbered(second, 0, "a") == (0, 0)

    run(scenario, tmp_path / "d")


def test_a_gap_in_the_sequence_is_refused_and_an_old_batch_is_called_a_duplicate(tmp_path: Path) -> None:
    async def scenario(place: Place) -> None:
        client = await place.client()
        for number in range(7):
            assert (await numbered(client, number, "x"))[0] == 0
        assert (await numbered(client, 8, "x"))[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert (await numbered(client, 1, "x"))[0] == ErrorCode.DUPLICATE_SEQUENCE_NUMBER
        assert (await numbered(client, 7, "x"))[0] == 0

    run(scenario, tmp_path / "d")


@pytest.mark.parametrize("first", [0, 1, 4000, 2**31 - 1])
def test_an_unknown_producer_may_begin_at_any_sequence(tmp_path: Path, first: int) -> None:
    async def begin(place: Place) -> None:
        assert (await numbered(await place.client(), first, "a"))[0] == 0

    async def go_on(place: Place) -> None:  # after a restart, which nobody remembers
        assert (await numbered(await place.client(), (first + 1) % 2**31, "b"))[0] == 0

    run(begin, tmp_path / "d")
    run(go_on, tmp_path / "d")


def test_sequences_begin_again_after_the_highest_one(tmp_path: Path) -> None:
    async def scenario(place: Place) -> None:
        client = await place.client()
        assert (await numbered(client, 2**31 - 2, "a", "b", "c"))[0] == 0
        assert (await numbered(client, 1, "d"))[0] == 0
        assert (await numbered(client, 2**31 - 2, "a", "b", "c")) == (0, 0)

    run(scenario, tmp_path / "d")


def test_an_older_epoch_is_fenced_and_a_newer_one_begins_again(tmp_path: Path) -> None:
    async def scenario(place: Place) -> None:
        client = await place.client()
        assert (await numbered(client, 5, "a", epoch=1))[0] == 0
        assert (await numbered(client, 6, "b", epoch=0))[0] == ErrorCode.INVALID_PRODUCER_EPOCH
        assert (await numbered(client, 0, "c", epoch=2))[0] == 0

    run(scenario, tmp_path / "d")


def test_sequences_are_those_of_the_addressed_partition(tmp_path: Path) -> None:
    """Two addressed partitions that are routed to one shard have sequences of their own."""

    async def scenario(place: Place) -> None:
        client = await place.client()
        split = of_demo("POST", {"action": "split"})
        await shards.change_shard(place.engine, split, ls=TOPIC, shard="0")
        merge = of_demo("POST", {"action": "merge"})
        await shards.change_shard(place.engine, merge, ls=TOPIC, shard="1")
        for number in range(3):
            for partition in range(4):
                assert (await numbered(client, number, f"{partition}", partition=partition))[0] == 0
        assert len(values_of(await client.fetch(0, partition=3))) == 12

    run(scenario, tmp_path / "d")


@pytest.mark.parametrize("stop", ["none", "clean", "kill"])
def test_sequences_are_those_of_the_name_that_a_topic_is_addressed_by(tmp_path: Path, stop: str) -> None:
    """For a producer, the names of one logstore are different topics. Each batch is stored once, whichever
    name comes first, and comes again after a restart."""
    names = (TOPIC, *(f"{TOPIC}.{form.value}" for form in RecordForm))
    sent: dict[tuple[str, int], tuple[int, int]] = {}

    async def before(place: Place) -> None:
        client = await place.client()
        for number in range(2):
            for name in names:
                sent[name, number] = await numbered(client, number, f"{name} {number}", topic=name)
        assert sorted(sent.values()) == [(0, number * GROUP) for number in range(2 * len(names))]
        if stop == "none":
            await repeat(place)
        elif stop == "kill":
            shutil.copytree(tmp_path / "d", tmp_path / "killed")

    async def repeat(place: Place) -> None:
        client = await place.client()
        for (name, number), answer in sent.items():
            assert await numbered(client, number, f"{name} {number}", topic=name) == answer
        assert len(values_of(await client.fetch(0))) == 2 * len(names)

    run(before, tmp_path / "d")
    run(repeat, tmp_path / ("killed" if stop == "kill" else "d"))


def test_producers_are_numbered_and_those_unused_for_longest_are_forgotten(tmp_path: Path) -> None:
    async def scenario(place: Place) -> None:
        client = await place.client()
        body = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
        ids = [(await client.call(ApiKey.INIT_PRODUCER_ID, body)).producer_id for _ in range(5)]
        assert len(set(ids)) == 5
        assert min(ids) >= 0
        for producer in ids:
            assert (await numbered(client, 0, "a", producer=producer))[0] == 0
        assert len(place.endpoint.broker.producers) == 3
        assert (await numbered(client, 0, "a", producer=ids[-1]))[1] == 4 * GROUP  # remembered
        assert (await numbered(client, 0, "a", producer=ids[0]))[1] == 5 * GROUP  # stored again

    run(scenario, tmp_path / "d", producers=3)


@pytest.mark.parametrize("stop", ["clean", "kill", "kill after a save"])
def test_a_batch_that_is_repeated_after_a_restart_gets_its_first_answer(tmp_path: Path, stop: str) -> None:
    """Also if its shard was split meanwhile, and its log is in several segments."""
    sent: list[tuple[int, int]] = []

    async def before(place: Place) -> None:
        client = await place.client()
        for number in range(8):
            sent.append(await numbered(client, number, f"{number}" * 900))
            if number == 3:
                action = of_demo("POST", {"action": "split"})
                await shards.change_shard(place.engine, action, ls=TOPIC, shard="0")
            if number == 5 and stop == "kill after a save":
                await place.engine.producers.save()
        if stop != "clean":
            shutil.copytree(tmp_path / "d", tmp_path / "killed")

    async def after(place: Place) -> None:
        client = await place.client()
        for number in range(3, 8):
            assert await numbered(client, number, f"{number}" * 900) == sent[number]
        assert (await numbered(client, 9, "x"))[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert (await numbered(client, 1, "x"))[0] == ErrorCode.DUPLICATE_SEQUENCE_NUMBER
        assert (await numbered(client, 8, "x"))[0] == 0
        found: list[bytes | None] = []
        for partition in (0, 1, 2):
            found += values_of(await client.fetch(0, partition=partition))
        assert found == [*(b"%d" % number * 900 for number in range(8)), b"x"]

    run(before, tmp_path / "d")
    folder = tmp_path / ("d" if stop == "clean" else "killed")
    run(after, folder)


def test_transactions_are_refused(tmp_path: Path) -> None:
    async def scenario(place: Place) -> None:
        client = await place.client()
        body = InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=1000)
        answer = await client.call(ApiKey.INIT_PRODUCER_ID, body)
        assert answer.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        reader = await place.client(READER)
        body = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
        answer = await reader.call(ApiKey.INIT_PRODUCER_ID, body)
        assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED

    run(scenario, tmp_path / "d")


# Batches that are refused


def test_a_batch_with_a_wrong_checksum_is_refused_and_its_neighbors_are_stored(tmp_path: Path) -> None:
    async def scenario(place: Place) -> None:
        client = await place.client()
        broken = bytearray(batch_of("a"))
        broken[-1] ^= 1
        assert (await client.produce(batch=bytes(broken))).error_code == ErrorCode.CORRUPT_MESSAGE
        assert (await client.produce("b")).error_code == 0
        assert values_of(await client.fetch(0)) == [b"b"]

    run(scenario, tmp_path / "d")


def test_a_batch_that_is_too_large_for_a_log_group_is_refused(tmp_path: Path) -> None:
    async def scenario(place: Place) -> None:
        client = await place.client()
        refused = await client.produce(b"x" * 20_000)
        assert refused.error_code == ErrorCode.MESSAGE_TOO_LARGE
        assert (await client.produce(b"x" * 9_000)).error_code == 0
        assert (await client.offset(LATEST_TIMESTAMP)).offset == 1

    run(scenario, tmp_path / "d", limits=BrokerLimits(group_bytes=10_000))
