"""Fetch sessions: what a client need not name again, what it is answered, and what idle partitions cost."""

import asyncio
import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from loghub_service.kafka.broker.answer import BrokerLimits
from loghub_service.kafka.store.partitions import ShardPartition
from loghub_service.kafka.wire.apis import ApiKey
from loghub_service.kafka.wire.errors import ErrorCode
from loghub_service.kafka.wire.logs import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from loghub_service.kafka.wire.topics import DeleteTopicsRequest
from tests.loghub_service.kafka.broker.broker_place import TOPIC, Client, Place, records_of, run, values_of


@dataclass
class Consumer:
    """A client that follows KIP-227, as Kafka's Java client does."""

    client: Client
    session: int = 0
    epoch: int = 0
    offsets: dict[int, int] = field(default_factory=dict)
    named: dict[int, int] = field(default_factory=dict)  # the offsets that the broker knows

    async def fetch(
        self, *, forget: Iterable[int] = (), max_wait_ms: int = 0, max_bytes: int = 1 << 20
    ) -> dict[int, PartitionData]:
        """What the answer has, by partition. Only offsets that have moved are named."""
        whole = self.epoch == 0
        for gone in forget:
            del self.offsets[gone]
            self.named.pop(gone, None)
        moved = {p: at for p, at in self.offsets.items() if whole or self.named.get(p) != at}
        self.named |= moved
        answer = await self.call(
            moved, session=self.session, epoch=self.epoch, forget=forget, max_wait_ms=max_wait_ms,
            max_bytes=max_bytes,
        )  # fmt: skip
        assert answer.error_code == 0
        assert answer.session_id == self.session or whole
        self.session = answer.session_id
        self.epoch = self.epoch + 1 if self.session else 0
        return {one.partition_index: one for topic in answer.responses for one in topic.partitions}

    async def call(
        self,
        offsets: dict[int, int],
        *,
        session: int,
        epoch: int,
        forget: Iterable[int] = (),
        max_wait_ms: int = 0,
        max_bytes: int = 1 << 20,
    ) -> FetchResponse:
        partitions = tuple(
            FetchPartition(partition=number, fetch_offset=at, partition_max_bytes=1 << 20)
            for number, at in offsets.items()
        )
        body = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=max_bytes,
            session_id=session,
            session_epoch=epoch,
            topics=(FetchTopic(topic=TOPIC, partitions=partitions),) if partitions else (),
            forgotten_topics_data=(ForgottenTopic(topic=TOPIC, partitions=tuple(forget)),) if forget else (),
        )
        answer = await self.client.call(ApiKey.FETCH, body)
        assert isinstance(answer, FetchResponse)
        return answer

    def read(self, found: dict[int, PartitionData]) -> list[bytes | None]:
        """Take the records, and go on behind them."""
        values = []
        for number, data in found.items():
            for offset, record in records_of(data):
                values.append(record.value)
                self.offsets[number] = offset + 1
        return values


async def consumer(place: Place, count: int) -> Consumer:
    return Consumer(await place.client(), offsets=dict.fromkeys(range(count), 0))


def test_only_what_is_new_is_answered_and_only_what_has_moved_is_named(tmp_path: Path) -> None:
    async def scenario(place: Place) -> None:
        writer, reader = await place.client(), await consumer(place, 4)
        assert set(await reader.fetch()) == {0, 1, 2, 3}
        assert reader.session > 0
        assert await reader.fetch() == {}
        waiting = asyncio.create_task(reader.fetch(max_wait_ms=50_000))
        await writer.produce("a", partition=2)
        found = await waiting
        assert {number: values_of(data) for number, data in found.items()} == {2: [b"a"]}
        # The client has not moved on, so it has not got the answer, or wants it again.
        assert values_of((await reader.fetch())[2]) == [b"a"]
        assert reader.read(found) == [b"a"]
        assert await reader.fetch() == {}
        await writer.produce("b", partition=1)
        assert await reader.fetch(forget=[1]) == {}
        assert list(reader.offsets) == [0, 2, 3]

    run(scenario, tmp_path / "d", shards=4)


def test_an_idle_partition_of_a_session_is_not_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each arrival in one of 64 partitions was a look at all of them."""
    looks = 0
    bounds = ShardPartition.bounds

    async def counted(self: ShardPartition):  # type: ignore[no-untyped-def]
        nonlocal looks
        looks += 1
        return await bounds(self)

    monkeypatch.setattr(ShardPartition, "bounds", counted)

    async def scenario(place: Place) -> None:
        nonlocal looks
        writer, reader = await place.client(), await consumer(place, 64)
        await reader.fetch()
        assert looks == 64
        looks = 0
        for number in range(10):
            waiting = asyncio.create_task(reader.fetch(max_wait_ms=50_000))
            await writer.produce(f"{number}", partition=7)
            assert reader.read(await waiting) == [f"{number}".encode()]
        assert looks <= 3 * 10
        # Without a session it is the same while one request waits.
        looks = 0
        waiting_once = asyncio.create_task(
            reader.call(reader.offsets, session=0, epoch=-1, max_wait_ms=50_000)
        )
        await writer.produce("last", partition=7)
        assert len((await waiting_once).responses[0].partitions) == 64
        assert looks <= 64 + 2

    run(scenario, tmp_path / "d", shards=64)


@pytest.mark.parametrize(
    ("session_off_by", "epoch_off_by", "error"),
    [
        (1, 0, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (0, 1, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (0, -1, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
    ],
)
def test_a_session_that_is_not_known_is_refused(
    tmp_path: Path, session_off_by: int, epoch_off_by: int, error: ErrorCode
) -> None:
    async def scenario(place: Place) -> None:
        reader = await consumer(place, 1)
        for _ in range(2):
            await reader.fetch()
        session, epoch = reader.session + session_off_by, reader.epoch + epoch_off_by
        assert (await reader.call({}, session=session, epoch=epoch)).error_code == error
        stranger = await consumer(place, 1)  # another connection
        answer = await stranger.call({}, session=reader.session, epoch=reader.epoch)
        assert answer.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND

    run(scenario, tmp_path / "d")


def test_without_room_for_a_session_a_client_goes_on_without_one(tmp_path: Path) -> None:
    async def scenario(place: Place) -> None:
        first, second = await consumer(place, 3), await consumer(place, 3)
        await first.fetch()
        assert set(await second.fetch()) == {0, 1, 2}
        assert (first.session > 0, second.session) == (True, 0)
        await (await place.client()).produce("a", partition=1)
        found = await second.fetch()
        assert set(found) == {0, 1, 2}
        assert second.read(found) == [b"a"]
        await first.call(first.offsets, session=first.session, epoch=-1)  # it closes its session
        await second.fetch()
        assert second.session > 0
        second.client.close()
        while place.endpoint.broker.session_entries.used:
            await asyncio.sleep(0)

    run(scenario, tmp_path / "d", shards=3, limits=BrokerLimits(session_partitions=5))


def test_a_topic_that_is_deleted_ends_the_poll_of_a_session(tmp_path: Path) -> None:
    async def scenario(place: Place) -> None:
        reader, admin = await consumer(place, 2), await place.client()
        await reader.fetch()
        waiting = asyncio.create_task(reader.fetch(max_wait_ms=50_000))
        await admin.call(ApiKey.DELETE_TOPICS, DeleteTopicsRequest(topic_names=(TOPIC,), timeout_ms=1000))
        found = await waiting
        assert {data.error_code for data in found.values()} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        assert found

    run(scenario, tmp_path / "d", shards=2)


def test_partitions_have_their_turn_when_not_everything_fits(tmp_path: Path) -> None:
    async def scenario(place: Place) -> None:
        writer, reader = await place.client(), await consumer(place, 3)
        for partition in range(3):
            for _ in range(4):
                await writer.produce("x" * 1000, partition=partition)
        served = []
        for _ in range(6):
            found = await reader.fetch(max_bytes=1)
            (number,) = [number for number, data in found.items() if data.records]
            served.append(number)
            reader.read(found)
        assert sorted(served) == [0, 0, 1, 1, 2, 2]

    run(scenario, tmp_path / "d", shards=3)


@pytest.mark.parametrize("seed", range(3))
def test_whatever_happens_in_between_each_record_comes_once(tmp_path: Path, seed: int) -> None:
    async def scenario(place: Place) -> None:
        dice = random.Random(seed)
        writer, reader = await place.client(), await consumer(place, 8)
        written: list[bytes] = []
        seen: list[bytes | None] = []
        for number in range(120):
            what = dice.random()
            if what < 0.5:
                partition = dice.randrange(8)
                await writer.produce(f"{number}", partition=partition)
                written.append(f"{number}".encode())
            elif what < 0.55:  # it reconnects, and continues where it was
                reader.client.close()
                reader = Consumer(await place.client(), offsets=reader.offsets)
            elif what < 0.65 and len(reader.offsets) > 2:  # paused for a while
                gone = dice.choice(list(reader.offsets))
                at = reader.offsets[gone]
                seen += reader.read(await reader.fetch(forget=[gone] if reader.epoch else ()))
                reader.offsets[gone] = reader.offsets.get(gone, at)
            else:
                found = await reader.fetch(max_bytes=dice.choice((1, 200, 1 << 20)))
                if dice.random() < 0.8:  # otherwise the client throws it away
                    seen += reader.read(found)
        while found := {n: one for n, one in (await reader.fetch()).items() if one.records}:
            seen += reader.read(found)
        assert sorted(written) == sorted(value for value in seen if value is not None)

    run(scenario, tmp_path / "d", shards=8)
