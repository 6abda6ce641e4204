"""Requests that need room on a full disk: clients are asked to repeat them, and nothing is left of them."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest

from loghub_service.ports import OsRandom, Platform
from loghub_service.settings import MIB, KafkaLimits, KafkaSettings, ServiceSettings
from loghub_service.start import open_engine
from tests.loghub_service.engines import STORE_ID, ManualClock, create_group_of_one_shard
from tests.loghub_service.inline_batches import InlineBatches
from tests.loghub_service.inprocess import in_process
from tests.loghub_service.simdisk import SimDisk

CREATE = ("POST", "/logstores", {}, b'{"logstoreName":"other","shardCount":3}')
SPLIT = ("POST", "/logstores/access/shards/0", {"action": "split"}, b"")


@pytest.mark.parametrize(("method", "path", "query", "body"), [CREATE, SPLIT], ids=["create", "split"])
@pytest.mark.parametrize("steps", ["create", "write", "rename"])
def test_shards_that_find_no_room_are_created_by_the_repeated_request(
    tmp_path: Path, steps: str, method: str, path: str, query: dict[str, str], body: bytes
) -> None:
    async def scenario() -> None:
        disk = SimDisk()
        async with in_process(tmp_path / "d", disk=disk, start_batches=InlineBatches) as service:
            before = set(service.engine.logs)
            disk.fail = {steps}
            for _ in range(3):
                reply = await service.begin(method, path, query, body=body).reply()
                assert reply is not None
                assert (reply.status, reply.code) == (503, "ServerBusy")
                assert set(service.engine.logs) == before
            disk.fail = set()
            await service.ok(method, path, query, body=body)
            created = set(service.engine.logs) - before
            assert len(created) == (3 if body else 2)
            folders = {name.split("/")[-3] for name in disk.live if name.endswith("shard.json")}
            assert len(folders) == len({logstore for logstore, _ in service.engine.logs})
            stores = json.loads((await service.ok("GET", "/logstores")).body)["logstores"]
            assert stores == (["access", "other"] if body else ["access"])

    asyncio.run(scenario())


@pytest.mark.parametrize(("group_mib", "left_mib"), [(None, 64), (8, 74), (128, 224)])
def test_log_data_leaves_the_metadata_what_groups_of_kafka_clients_may_hold(
    tmp_path: Path, group_mib: int | None, left_mib: int
) -> None:
    """A key that may only read fills the database with offsets: on a volume that is full of logs it would end
    the service, which could not start again."""
    free = 0

    class FullDisk(SimDisk):
        def free_bytes(self, path: str) -> int:
            return free

    async def scenario() -> None:
        nonlocal free
        settings = ServiceSettings(data=str(tmp_path), host="127.0.0.1", port=0, segment_bytes=4096)
        if group_mib is not None:
            kafka = KafkaSettings(host="127.0.0.1", port=0)
            settings = replace(settings, kafka=kafka, kafka_limits=KafkaLimits(group_bytes=group_mib * MIB))
        platform = Platform(clock=ManualClock(), disk=FullDisk(), random=OsRandom())
        engine = await open_engine(settings, platform, on_failed=print, start_batches=InlineBatches)
        await create_group_of_one_shard(engine)
        log = engine.logs[STORE_ID, 0]
        free = left_mib * MIB + 4095
        with pytest.raises(OSError, match="No space"):
            await engine.append(log, b"x" * 100, logs=1)
        free += 1
        await engine.append(log, b"x" * 100, logs=1)
        await engine.close()

    asyncio.run(scenario())
