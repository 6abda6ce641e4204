"""Unmodified clients at a log whose begin has expired, and at partitions whose shards were deleted
(docs/kafka.md 2): no position is out of range, and every partition can be read and written to.

The broker runs in this process, so that the test moves its clock.
"""

import asyncio
from collections.abc import Coroutine
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from loghub_service.api import shards
from loghub_service.kafka.wire.errors import ErrorCode
from tests.compat.kafka.client_programs import GUARD_S, LIBRARIES, TOPIC, KafkaPlace
from tests.compat.kafka.reading import faults
from tests.loghub_service.kafka.broker.broker_place import KEY, PROJECT, Place, run
from tests.loghub_service.kafka.broker.test_group_calls import commit
from tests.loghub_service.kafka.broker.test_offsets import GROUP as STEP
from tests.loghub_service.kafka.broker.test_offsets import expire_all, of_demo

pytestmark = pytest.mark.long
NUMBERS = range(5)  # of the partitions after two splits


class BrokerPlace(KafkaPlace):
    """Has its topic, with one partition, from the begin. It cannot be killed."""

    was_split = True

    def __init__(self, broker: Place, loop: asyncio.AbstractEventLoop, folder: Path) -> None:
        folder.mkdir()
        super().__init__(folder)
        self.broker = broker
        self._loop = loop

    @property
    def servers(self) -> str:
        return f"127.0.0.1:{self.broker.port}"

    @property
    def login(self) -> tuple[str, str]:
        return PROJECT, f"{KEY.key_id}#{KEY.secret}"

    def create(self, *, shards: int, topic: str = TOPIC) -> None:
        raise NotImplementedError

    def kill(self) -> None:
        raise NotImplementedError

    def start_again(self) -> None:
        raise NotImplementedError

    def split(self, shard: int, *, topic: str = TOPIC) -> None:
        request = of_demo("POST", {"action": "split"})
        self.carry_out(shards.change_shard(self.broker.engine, request, ls=topic, shard=str(shard)))

    def delete(self, shard: int) -> None:
        request = of_demo("DELETE")
        self.carry_out(shards.delete_shard(self.broker.engine, request, ls=TOPIC, shard=str(shard)))

    def carry_out(self, work: Coroutine[Any, Any, Any]) -> Any:
        """On the loop of the broker; the clients are driven from a thread."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(GUARD_S)


def group_of(library: str) -> str:
    return f"readers-of-{library}"


async def commit_for_each(broker: Place, offset: int) -> None:
    """As if every group had read up to there before."""
    client = await broker.client()
    for library in LIBRARIES:
        assert await commit(client, offset, group=group_of(library)) == ErrorCode.NONE


def test_every_client_reads_on_after_the_begin_has_expired_and_shards_have_vanished(tmp_path: Path) -> None:
    async def scenario(broker: Place) -> None:
        place = BrokerPlace(broker, asyncio.get_running_loop(), tmp_path / "place")
        try:
            await asyncio.to_thread(story, place)
        except BaseException:
            print(place.explain())
            raise
        finally:
            place.end()
        # A client would go to the begin or the end, and read again or miss something.
        assert ("FETCH", "OFFSET_OUT_OF_RANGE") not in broker.endpoint.broker.counts.errors

    run(scenario, tmp_path / "d")


def story(place: BrokerPlace) -> None:
    before = place.producer("confluent", lingerMs=1000)
    before.produce([f"expired {number}" for number in range(5)], partition=0)
    place.carry_out(commit_for_each(place.broker, 5))
    place.carry_out(expire_all(place.broker))
    before.sent.clear()
    before.produce(["after the expired ones"], partition=0)

    readers = [place.start(library, group=group_of(library), assignor="roundrobin") for library in LIBRARIES]
    for reader in readers:
        reader.answer("open")
        reader.ask("subscribe", topics=[TOPIC])
    for reader in readers:
        place.wait_for({"after the expired ones"}, reader)
        reader.ask("commit")

    for shard in (0, 1):  # 1 and 2 are of the first one, 3 and 4 of the second
        place.split(shard)
        place.delete(shard)
    for reader in readers:
        place.wait_shared(reader, total=len(NUMBERS))
        values = [f"{reader.library} {number}" for number in range(40)]
        reader.produce(values)
        for partition in NUMBERS:  # what is meant for one that has vanished goes to another one
            reader.produce([f"{reader.library} to {partition}"], partition=partition)
    sent = [client.sent for client in place.clients]
    for reader in readers:
        place.wait_for({value for values in sent for value in values}, reader)
        found = faults(sent, [list(reader.records)], crashed=False, in_sent_order=False)
        assert not (shown := list(islice(found, 20))), "\n".join(shown)
        assert {partition for _, partition, *_ in reader.records} == {0, 2, 3, 4}
        assert reader.ask("ends", places=[[TOPIC, 0], [TOPIC, 1]])["offsets"] == [
            [STEP + 1, STEP + 1],
            [0, 0],
        ]
