"""The end of each log that the database knows: when it is saved, and that a kill at any time leaves one."""

import asyncio
import shutil
from pathlib import Path

import pytest

from loghub_service.engine import Engine
from loghub_service.errors import ServiceFault
from loghub_service.facts import EndsKnown, KnownEnd
from loghub_service.known_ends import KnownEnds
from loghub_service.storage.database import Database
from loghub_service.storage.segment_format import SegmentHeader
from tests.loghub_service.engines import STORE_ID, ManualClock, create_group_of_one_shard, live
from tests.loghub_service.simdisk import SimDisk
from tests.loghub_service.storage.opened_log import open_log

FIRST = 1000


async def put(engine: Engine, count: int) -> None:
    for _ in range(count):
        await engine.append(engine.logs[STORE_ID, 0], b"x" * 400, logs=1)


def known(data: Path, tmp_path: Path) -> list[KnownEnd]:
    """As the database has them: read from a copy, since an engine may use it."""
    shutil.copytree(data, tmp_path / "copy")
    database = Database(str(tmp_path / "copy" / "metadata.sqlite"))
    try:
        return database.known_ends()
    finally:
        database.close()
        shutil.rmtree(tmp_path / "copy")


def end_of(ends: list[KnownEnd]) -> int | None:
    return ends[0].end_cursor if ends else None


def test_the_end_is_saved_at_each_roll_when_asked_and_at_a_clean_stop(tmp_path: Path) -> None:
    data = tmp_path / "d"

    async def scenario(engine: Engine) -> None:
        await create_group_of_one_shard(engine)
        await put(engine, 1)
        first_roll = end_of(known(data, tmp_path))
        await put(engine, 5)
        assert end_of(known(data, tmp_path)) == first_roll
        await put(engine, 5)  # begins a second segment
        await engine.submit()  # behind what was submitted before
        rolled = end_of(known(data, tmp_path))
        assert rolled is not None
        assert FIRST + 6 < rolled <= FIRST + 11
        await engine.ends.save()
        assert end_of(known(data, tmp_path)) == FIRST + 11
        await put(engine, 1)

    live(data, ManualClock(), scenario)
    assert end_of(known(data, tmp_path)) == FIRST + 12


def test_a_tail_that_a_kill_lost_is_refused(tmp_path: Path) -> None:
    """A disk may lie about a flush: what was acknowledged, and known, is gone after the crash."""
    data, killed = tmp_path / "d", tmp_path / "killed"

    async def scenario(engine: Engine) -> None:
        await create_group_of_one_shard(engine)
        await put(engine, 3)
        (segment,) = data.glob("logs/*/*/*.seg")
        before = segment.read_bytes()
        await put(engine, 1)
        await engine.ends.save()
        shutil.copytree(data, killed)
        (killed / segment.relative_to(data)).write_bytes(before)

    live(data, ManualClock(), scenario)

    async def nothing(engine: Engine) -> None:
        raise AssertionError("the service started")

    with pytest.raises(ServiceFault, match=r"ends at cursor 1003, but the database knows its end at 1004"):
        live(killed, ManualClock(), nothing)


def test_the_end_of_a_shard_that_is_deleted_meanwhile_is_ignored(tmp_path: Path) -> None:
    data = tmp_path / "d"

    async def scenario(engine: Engine) -> None:
        await create_group_of_one_shard(engine)
        await put(engine, 3)
        log = engine.logs[STORE_ID, 0]
        await engine.remove_logs(STORE_ID)
        engine.ends.appended(log)
        await engine.ends.save(log)
        await engine.ends.save()

    live(data, ManualClock(), scenario)


def test_a_save_waits_for_a_commit_of_the_same_end_that_is_under_way(tmp_path: Path) -> None:
    """Retention removes files after it, so the new oldest cursor must be durable, submitted by any caller."""

    async def story() -> None:
        committed: list[asyncio.Future[object]] = []

        def submit(fact: EndsKnown) -> "asyncio.Future[object]":
            committed.append(asyncio.get_running_loop().create_future())
            return committed[-1]

        ends = KnownEnds(submit)
        birth = SegmentHeader(first_cursor=FIRST, logs_before=0, received_us=1)
        log, _ = open_log(SimDisk(), folder="/l", birth=birth, segment_bytes=4096)
        ends.add((STORE_ID, 0), log)
        saves = [asyncio.create_task(ends.save()), asyncio.create_task(ends.save(log))]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert len(committed) == 1
        assert not any(save.done() for save in saves)
        committed[0].set_result(None)
        await asyncio.gather(*saves)

    asyncio.run(story())
