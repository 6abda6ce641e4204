"""Files are removed one by one, after a durable decision, and nothing else waits for it."""

import asyncio
import errno
import os
import threading
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest

from loghub.domain import shards as rules
from loghub_service.engine import Engine
from loghub_service.facts import LogstoreDeleted, ShardSaved
from loghub_service.ports import OsDisk
from loghub_service.removals import Removal
from loghub_service.retention import Retention
from tests.loghub_service.engines import STORE_ID, ManualClock, create_group_of_one_shard, live

OTHER_ID = 2
DAY_S = 86_400


class GatedDisk(OsDisk):
    """A disk that removes no file while the gate is closed, and remembers what it removed."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.asked = threading.Event()
        self.removed: list[str] = []
        self.fail = False

    def remove(self, path: str) -> None:
        if path.endswith(".seg"):
            self.asked.set()
            self.gate.wait()
            if self.fail:
                raise OSError(5, "removing fails", path)
        super().remove(path)
        self.removed.append(path)


async def create_other(engine: Engine) -> None:
    (spec,) = rules.create(1).shards.values()
    store = replace(engine.catalog.logstores_by_id[STORE_ID].saved, id=OTHER_ID, name="other")
    shard = ShardSaved(logstore=OTHER_ID, spec=spec, born_us=engine.now_us(), first_cursor=5)
    await engine.create_shards(store, [shard])


async def put(engine: Engine, logstore: int, count: int) -> None:
    for _ in range(count):
        await engine.append(engine.logs[logstore, 0], b"x" * 400, logs=1)


async def delete_other(engine: Engine) -> None:
    await engine.persist_deletion(LogstoreDeleted(id=OTHER_ID, project="p", name="other"))
    await engine.remove_logs(OTHER_ID)


def test_a_slow_deletion_does_not_delay_writes(tmp_path: Path) -> None:
    disk, data = GatedDisk(), tmp_path / "d"

    async def scenario(engine: Engine) -> None:
        await create_group_of_one_shard(engine)
        await create_other(engine)
        await put(engine, OTHER_ID, 50)
        await delete_other(engine)
        removing = asyncio.create_task(engine.removals.drain())
        await asyncio.to_thread(disk.asked.wait)
        await put(engine, STORE_ID, 30)  # would wait forever
        await create_other_shard_meanwhile(engine)
        assert not removing.done()
        disk.gate.set()
        await removing
        assert len(disk.removed) > 4
        assert not (data / "logs" / f"{OTHER_ID:08d}").exists()

    async def create_other_shard_meanwhile(engine: Engine) -> None:
        """Nor does it hold the lock of administration."""
        async with engine.admin:
            pass

    live(data, ManualClock(), scenario, disk=disk)


def test_slow_retention_does_not_delay_writes_and_is_durable_before_the_first_file_goes(
    tmp_path: Path,
) -> None:
    disk, clock, data = GatedDisk(), ManualClock(), tmp_path / "d"

    async def scenario(engine: Engine) -> None:
        retention = Retention(engine)
        await create_group_of_one_shard(engine, ttl_days=1)
        await put(engine, STORE_ID, 50)
        clock.now_s += 2 * DAY_S
        await retention.look()
        log = engine.logs[STORE_ID, 0]
        assert log.extent.oldest_cursor == log.extent.end_cursor == 1050
        removing = asyncio.create_task(engine.removals.drain())
        await asyncio.to_thread(disk.asked.wait)
        await put(engine, STORE_ID, 5)
        known = engine.ends.get((STORE_ID, 0))
        assert known is not None
        assert known.oldest_cursor == 1050
        disk.gate.set()
        await removing

    live(data, clock, scenario, disk=disk)


def test_a_deletion_whose_folder_cannot_be_listed_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If it counted as done, the next start would refuse the log data that is left."""
    data, listing = tmp_path / "d", os.scandir

    def failing(path: str) -> NoReturn:
        raise OSError(errno.EMFILE, "Too many open files", path)

    async def scenario(engine: Engine) -> None:
        await create_group_of_one_shard(engine)
        await create_other(engine)
        await put(engine, OTHER_ID, 50)
        await delete_other(engine)
        monkeypatch.setattr(os, "scandir", failing)
        await engine.removals.drain()
        monkeypatch.setattr(os, "scandir", listing)
        assert not engine.removals.is_idle

    async def after(engine: Engine) -> None:
        await engine.removals.drain()
        assert engine.removals.is_idle

    live(data, ManualClock(), scenario)
    live(data, ManualClock(), after)
    assert not (data / "logs" / f"{OTHER_ID:08d}").exists()


def test_expired_files_whose_logstore_was_deleted_meanwhile_are_done(tmp_path: Path) -> None:
    """Else their removal would be tried again, and a warning logged, every minute forever."""
    disk, clock, data = GatedDisk(), ManualClock(), tmp_path / "d"
    disk.gate.set()

    async def scenario(engine: Engine) -> None:
        await create_group_of_one_shard(engine)
        await create_other(engine)
        await put(engine, OTHER_ID, 50)
        folder = f"{data}/logs/{OTHER_ID:08d}/000000"
        expired = Removal(folder=folder, files=(f"{folder}/{1:020d}.seg",))
        await delete_other(engine)
        engine.removals.add(expired)
        await engine.removals.drain()
        assert engine.removals.is_idle

    live(data, clock, scenario, disk=disk)


def test_a_deletion_that_fails_is_tried_again_also_after_a_restart(tmp_path: Path) -> None:
    disk, clock, data = GatedDisk(), ManualClock(), tmp_path / "d"
    disk.gate.set()
    disk.fail = True

    async def scenario(engine: Engine) -> None:
        await create_group_of_one_shard(engine)
        await create_other(engine)
        await put(engine, OTHER_ID, 50)
        await delete_other(engine)
        await engine.removals.drain()
        assert disk.removed == []
        await Retention(engine).look()  # tries again
        await engine.removals.drain()

    live(data, clock, scenario, disk=disk)
    assert list(data.glob(f"logs/{OTHER_ID:08d}/*/*.seg"))

    async def after(engine: Engine) -> None:
        await engine.removals.drain()
        await put(engine, STORE_ID, 1)

    live(data, clock, after)
    assert not (data / "logs" / f"{OTHER_ID:08d}").exists()

    async def again(engine: Engine) -> None:
        assert engine.removals.is_idle  # the deletion is not recorded any more

    live(data, clock, again)
