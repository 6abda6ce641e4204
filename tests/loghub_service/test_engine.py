"""Restart, retention and deletion in an engine whose clock the test controls."""

import random
from dataclasses import replace
from pathlib import Path

from loghub.domain.fsm import ShardState
from loghub.domain.group import Heartbeat, SaveCheckpoint, ShardsChanged
from loghub_service.engine import Engine
from loghub_service.retention import Retention
from loghub_service.settings import KEEP_FOREVER_DAYS
from loghub_service.storage.shardlog import ShardLog
from tests.loghub_service.engines import STORE_ID, ManualClock, create_group_of_one_shard, live
from tests.loghub_service.inline_batches import InlineBatches
from tests.loghub_service.simdisk import SimDisk

DAY_S = 86_400


def _log(engine: Engine, shard: int = 0) -> ShardLog:
    return engine.logs[STORE_ID, shard]


async def _put(engine: Engine, count: int) -> None:
    for number in range(count):
        await engine.append(_log(engine), b"%04d" % number * 100, logs=1)


def _group(engine: Engine):  # type: ignore[no-untyped-def]
    return engine.groups.of(STORE_ID)["g"]


def test_retention_drops_what_is_older_than_the_ttl(tmp_path: Path) -> None:
    clock = ManualClock()

    async def scenario(engine: Engine) -> None:
        retention = Retention(engine)
        await create_group_of_one_shard(engine, ttl_days=2)
        await _put(engine, 30)
        clock.now_s += 1.5 * DAY_S
        await _put(engine, 5)
        await retention.look()
        assert _log(engine).extent.oldest_cursor == 1000
        clock.now_s += 1 * DAY_S
        await retention.look()
        # Whole segments go: those that hold a group young enough stay.
        assert 1000 < _log(engine).extent.oldest_cursor <= 1030
        clock.now_s += 2 * DAY_S
        await retention.look()
        assert _log(engine).extent.oldest_cursor == _log(engine).extent.end_cursor == 1035

    live(tmp_path / "d", clock, scenario)

    async def after(engine: Engine) -> None:
        assert _log(engine).extent.oldest_cursor == _log(engine).extent.end_cursor == 1035
        assert _log(engine).extent.logs_total == 35

    live(tmp_path / "d", clock, after)


def test_the_longest_ttl_keeps_logs_forever(tmp_path: Path) -> None:
    clock = ManualClock()

    async def scenario(engine: Engine) -> None:
        retention = Retention(engine)
        await create_group_of_one_shard(engine, ttl_days=KEEP_FOREVER_DAYS)
        await _put(engine, 3)
        clock.now_s += 20_000 * DAY_S
        await retention.look()
        assert _log(engine).extent.oldest_cursor == 1000

    live(tmp_path / "d", clock, scenario)


def test_a_read_only_shard_that_retention_empties_is_over(tmp_path: Path) -> None:
    clock = ManualClock()

    async def scenario(engine: Engine) -> None:
        retention = Retention(engine)
        await create_group_of_one_shard(engine)
        await _put(engine, 3)
        store = engine.catalog.logstores_by_id[STORE_ID]
        shard = store.shards[0]
        await engine.persist(replace(shard, spec=replace(shard.spec, read_only=True)))
        await engine.groups.apply_durably(_group(engine), ShardsChanged(shards=engine.log_shards(store)))
        await engine.groups.apply_durably(_group(engine), Heartbeat(consumer="a"))
        assert _group(engine).state.shards[0].state is ShardState.ALREADY_ALLOC
        clock.now_s += 3 * DAY_S
        await retention.look()
        assert _group(engine).state.shards[0].state is ShardState.OVER

    live(tmp_path / "d", clock, scenario)


def test_a_restart_gives_holders_a_new_session(tmp_path: Path) -> None:
    clock = ManualClock()

    async def before(engine: Engine) -> None:
        await create_group_of_one_shard(engine)
        await engine.groups.apply_durably(_group(engine), Heartbeat(consumer="a"))
        saved = SaveCheckpoint(consumer="a", shard=0, cursor=1000, force=False, updated_unix_us=7)
        await engine.groups.apply_durably(_group(engine), saved)

    live(tmp_path / "d", clock, before)
    clock.now_s += 10_000

    async def after(engine: Engine) -> None:
        entry = _group(engine).state.shards[0]
        assert (entry.state, entry.holder) == (ShardState.ALREADY_ALLOC, "a")
        assert entry.checkpoint is not None
        assert entry.checkpoint.cursor == 1000
        for _ in range(59):
            clock.now_s += engine.settings.tick_interval_s
            engine.groups.tick()
        assert _group(engine).state.shards[0].holder == "a"
        clock.now_s += engine.settings.tick_interval_s
        engine.groups.tick()
        assert _group(engine).state.shards[0].holder is None
        await engine.groups.durable(_group(engine))

    live(tmp_path / "d", clock, after)


def test_the_same_engine_runs_without_threads_on_a_simulated_disk(tmp_path: Path) -> None:
    """A seeded simulator needs every commit in the caller's thread and every byte on its own disk."""
    clock, disk, dice = ManualClock(), SimDisk(), random.Random(3)

    async def before(engine: Engine) -> None:
        await create_group_of_one_shard(engine)
        await _put(engine, 20)

    live(tmp_path / "d", clock, before, disk=disk, start_batches=InlineBatches)
    disk.lose_power(dice)

    async def after(engine: Engine) -> None:
        assert _log(engine).extent.end_cursor == 1020
        assert (
            len(_log(engine).read(cursor=0, end_cursor=9999, max_groups=99, max_bytes=1 << 20).entries) == 20
        )

    live(tmp_path / "d", clock, after, disk=disk, start_batches=InlineBatches)
