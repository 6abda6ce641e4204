"""Requests that need room on a full disk: clients are asked to repeat them, and nothing is left of them."""

import asyncio
import json
from pathlib import Path

import pytest

from loghub.service.storage.batches import InlineBatches
from tests.loghub.service.inprocess import in_process
from tests.loghub.service.simdisk import SimDisk

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
