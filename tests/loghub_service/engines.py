"""Runs an engine without a process, for tests of restarts, retention and crashes.

The test controls the clock, the disk, and whether commits run in a thread.
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from loghub.clock import Clock
from loghub.domain import shards as rules
from loghub_service.access_keys import AccessKey
from loghub_service.engine import Engine
from loghub_service.facts import LogstoreSaved, ProjectSaved, ShardSaved
from loghub_service.messages import Head, MemoryBudget, Request
from loghub_service.ports import Disk, OsDisk, OsRandom, Platform
from loghub_service.settings import ServiceSettings
from loghub_service.start import RecoveryProgress, open_engine
from loghub_service.storage.group_commit import StartBatches, ThreadedBatches

STORE_ID = 1


class ManualClock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now_s = 1_700_000_000.0

    def monotonic_s(self) -> float:
        return self.now_s

    def unix_s(self) -> float:
        return self.now_s


def live(
    data: Path,
    clock: Clock,
    scenario: Callable[[Engine], Awaitable[None]],
    *,
    disk: Disk | None = None,
    start_batches: StartBatches = ThreadedBatches,
    progress: RecoveryProgress | None = None,
) -> None:
    """Open an engine on this folder, run the scenario, and close it. Log data is on ``disk``."""

    async def run() -> None:
        settings = ServiceSettings(data=str(data), host="127.0.0.1", port=0, segment_bytes=4096)
        failed: list[BaseException] = []
        engine = await open_engine(
            settings,
            Platform(clock=clock, disk=disk or OsDisk(), random=OsRandom()),
            on_failed=failed.append,
            start_batches=start_batches,
            progress=progress,
        )
        try:
            await scenario(engine)
        finally:
            await engine.close()
        assert failed == []

    data.mkdir(exist_ok=True)
    asyncio.run(run())


async def create_group_of_one_shard(engine: Engine, *, ttl_days: int = 2, order: bool = False) -> None:
    """Create a project, a logstore with one shard, and the group ``g``."""
    now = engine.now_s()
    store = LogstoreSaved(
        id=STORE_ID,
        project="p",
        name="ls",
        ttl_days=ttl_days,
        next_shard=1,
        options="{}",
        created_s=now,
        modified_s=now,
    )
    (spec,) = rules.create(1).shards.values()
    shard = ShardSaved(logstore=STORE_ID, spec=spec, born_us=engine.now_us(), first_cursor=1000)
    await engine.persist(ProjectSaved(name="p", description="", created_s=now, modified_s=now))
    await engine.create_shards(store, [shard])
    await engine.groups.create(
        logstore=STORE_ID,
        name="g",
        timeout_s=30,
        order=order,
        shards=engine.log_shards(engine.catalog.logstores_by_id[STORE_ID]),
    )


def request(method: str, query: dict[str, str] | None = None, *, path: str = "/") -> Request:
    """A request of project ``p`` without a body, as an action of the API gets it."""
    head = Head(method=method, path=path, parts=(), query=query or {}, headers={}, project="p")
    key = AccessKey(key_id="id", secret="secret")
    return Request(head=head, key=key, body=b"", memory=MemoryBudget("test", limit=0).reservation())
