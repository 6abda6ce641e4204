"""Engines without a process: a clock in the test's hand, any disk, commits in a thread or in the caller.

What for: tests of restarts, retention and crashes. What it must not know: HTTP.
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from loghub.domain import shards as rules
from loghub.service.disk import OsDice, OsDisk
from loghub.service.engine import Engine, open_engine
from loghub.service.facts import LogstoreSaved, ProjectSaved, ShardSaved
from loghub.service.ports import Disk
from loghub.service.settings import Settings
from loghub.service.storage.batches import StartBatches, ThreadedBatches

STORE_ID = 1


class HandClock:
    """Stands still until it is set forward."""

    def __init__(self) -> None:
        self.now_s = 1_700_000_000.0

    def monotonic_s(self) -> float:
        return self.now_s

    def unix_s(self) -> float:
        return self.now_s


def live(
    data: Path,
    clock: HandClock,
    story: Callable[[Engine], Awaitable[None]],
    *,
    disk: Disk | None = None,
    start_batches: StartBatches = ThreadedBatches,
) -> None:
    """One life of an engine on this folder, log data on ``disk``."""

    async def life() -> None:
        settings = Settings(data=str(data), host="127.0.0.1", port=0, segment_bytes=4096)
        failed: list[BaseException] = []
        engine = await open_engine(
            settings=settings,
            clock=clock,
            disk=disk or OsDisk(),
            dice=OsDice(),
            on_failed=failed.append,
            start_batches=start_batches,
        )
        try:
            await story(engine)
        finally:
            await engine.close()
        assert failed == []

    data.mkdir(exist_ok=True)
    asyncio.run(life())


async def make(engine: Engine, *, ttl_days: int = 2, order: bool = False) -> None:
    """Project, logstore with one shard, group ``g``."""
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
    await engine.add_log(shard)
    await engine.persist(ProjectSaved(name="p", description="", created_s=now, modified_s=now), store, shard)
    await engine.groups.create(
        logstore=STORE_ID,
        name="g",
        timeout_s=30,
        order=order,
        shards=engine.log_shards(engine.catalog.logstores_by_id[STORE_ID]),
    )
