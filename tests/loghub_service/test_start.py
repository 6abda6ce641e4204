"""The start of an engine: killed at each step, it is finished by the next one; it removes nothing unknown."""

import errno
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from loghub.domain import shards as rules
from loghub.domain.group import SaveCheckpoint
from loghub_service.engine import Engine
from loghub_service.errors import WriteFailed
from loghub_service.facts import LogstoreDeleted, ShardSaved
from loghub_service.ports import OsDisk
from loghub_service.start import RecoveryProgress, StartCancelled
from loghub_service.storage import segment_format
from loghub_service.storage.data_folder import read_state
from loghub_service.storage.group_commit import SYNCS_AT_ONCE, StorageFailed
from loghub_service.storage.recovery import inspect
from tests.loghub_service.cameras import Camera, WatchedDisk
from tests.loghub_service.engines import STORE_ID, ManualClock, create_group_of_one_shard, live
from tests.loghub_service.simdisk import SimDisk
from tests.loghub_service.storage import old_format
from tests.loghub_service.storage.old_metadata import take_back

GROUPS = [b"%04d" % number * 100 for number in range(30)]


def stored(engine: Engine) -> list[bytes]:
    read = engine.logs[STORE_ID, 0].read(cursor=0, end_cursor=1 << 62, max_groups=1000, max_bytes=1 << 30)
    return [entry.group for entry in read.entries]


async def fill(engine: Engine) -> None:
    await create_group_of_one_shard(engine)
    for group in GROUPS:
        await engine.append(engine.logs[STORE_ID, 0], group, logs=1)
    saved = SaveCheckpoint(consumer="", shard=0, cursor=1030, force=True, updated_unix_us=7)
    await engine.groups.apply_durably(engine.groups.of(STORE_ID)["g"], saved)


def killed(tmp_path: Path, clock: ManualClock) -> Path:
    """A data folder as a kill leaves it: the service has not stopped cleanly."""
    live_folder, folder = tmp_path / "live", tmp_path / "killed"

    async def scenario(engine: Engine) -> None:
        await fill(engine)
        shutil.copytree(live_folder, folder)

    live(live_folder, clock, scenario)
    return folder


def tear(data: Path) -> None:
    """A write that a crash cut short."""
    last = sorted(data.glob("logs/*/*/*.seg"))[-1]
    content = last.read_bytes()
    header, layout = segment_format.unpack_segment_header(content)
    read = inspect(content, header, layout).totals
    whole = segment_format.pack_record(
        b"torn" * 100,
        cursor=read.next_cursor,
        received_us=1,
        logs=1,
        synced=read.used,
        end_mark=layout.end_mark,
    )
    last.write_bytes(content[: read.used] + whole[:200] + content[read.used + 200 :])


def as_an_earlier_release_left_it(data: Path) -> None:
    """Log data of format 1, and a database of version 1 with the same catalog."""
    disk = SimDisk()
    old_format.write_log(disk, "/log", GROUPS, first_cursor=1000, per_segment=8, size=4096)
    folder = data / "logs" / f"{STORE_ID:08d}" / "000000"
    for path in folder.iterdir():
        path.unlink()
    for name in disk.list_names("/log"):
        (folder / name).write_bytes(bytes(disk.live[f"/log/{name}"].live))
    (data / "logs" / "folder.json").unlink()
    connection = apsw.Connection(str(data / "metadata.sqlite"))
    take_back(connection, 1)
    connection.close()


def add_a_folder_that_was_never_created(data: Path) -> None:
    folder = data / "logs" / "00000007" / "000000"
    folder.mkdir(parents=True)
    (folder / "shard.json").write_text("{}")


@pytest.mark.parametrize("damage", [tear, as_an_earlier_release_left_it, add_a_folder_that_was_never_created])
def test_a_kill_at_any_step_of_a_start_loses_nothing(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    clock, data = ManualClock(), killed(tmp_path, ManualClock())
    damage(data)
    camera = Camera(data, tmp_path / "album")
    camera.on = True

    async def started(engine: Engine) -> None:
        await engine.removals.drain()
        camera.on = False
        assert stored(engine) == GROUPS

    live(data, clock, started, disk=WatchedDisk(camera), start_batches=camera.start_batches)
    assert len(camera.pictures) > 5

    async def after_kill(engine: Engine) -> None:
        await engine.removals.drain()
        assert stored(engine) == GROUPS
        (entry,) = engine.groups.of(STORE_ID)["g"].state.shards.values()
        assert entry.checkpoint is not None
        assert entry.checkpoint.cursor == 1030
        await engine.append(engine.logs[STORE_ID, 0], b"new", logs=1)
        assert stored(engine) == [*GROUPS, b"new"]

    for picture in camera.pictures:
        live(picture, clock, after_kill)
        assert {path.name for path in (picture / "logs").iterdir()} == {"folder.json", f"{STORE_ID:08d}"}


@pytest.mark.long
def test_a_first_start_that_is_killed_at_any_step_starts_again(tmp_path: Path) -> None:
    data = tmp_path / "d"
    data.mkdir()
    camera = Camera(data, tmp_path / "album")
    camera.on = True

    async def started(engine: Engine) -> None:
        camera.on = False

    live(data, ManualClock(), started, disk=WatchedDisk(camera), start_batches=camera.start_batches)
    for picture in camera.pictures:
        live(picture, ManualClock(), fill)


def test_a_first_start_that_cannot_write_the_folders_state_is_repeated(
    tmp_path: Path,
) -> None:
    """The catalog then knows of starts that the folder does not know."""
    data = tmp_path / "d"

    class NoRoomForState(OsDisk):
        def rename(self, old: str, new: str) -> None:
            if new.endswith("/folder.json"):
                raise OSError(errno.ENOSPC, "No space left on device", new)
            super().rename(old, new)

    for _ in range(3):
        with pytest.raises(OSError, match="No space"):
            live(data, ManualClock(), fill, disk=NoRoomForState())
    live(data, ManualClock(), fill)
    live(data, ManualClock(), _whole)


def test_what_is_not_of_the_service_stays_and_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "d"
    live(data, ManualClock(), fill)
    shard = data / "logs" / f"{STORE_ID:08d}" / "000000"
    strange = [
        data / "logs" / "lost+found",
        data / "logs" / "00000009" / "notes",
        data / "logs" / f"{STORE_ID:08d}" / "backup",
        shard / "00000000000000001000.seg.bak",
        shard / "x.new",
    ]
    for path in strange:
        path.parent.mkdir(exist_ok=True)
        path.write_text("mine")
    capsys.readouterr()

    async def after(engine: Engine) -> None:
        await engine.removals.drain()
        assert stored(engine) == GROUPS

    live(data, ManualClock(), after)
    logged = capsys.readouterr().out
    for path in strange:
        assert path.read_text() == "mine"
        assert str(path) in logged


def test_a_folder_without_records_that_was_never_created_is_removed(tmp_path: Path) -> None:
    """One with records stays, and the start is refused (`test_refused_starts`)."""
    data = tmp_path / "d"
    live(data, ManualClock(), fill)
    empty = data / "logs" / f"{STORE_ID:08d}" / "000007"
    empty.mkdir()
    (empty / "shard.json").write_text("{}")
    (empty / "00000000000000001000.seg.new").write_bytes(b"")

    async def nothing(engine: Engine) -> None:
        assert not empty.exists()

    live(data, ManualClock(), nothing)


def test_a_recorded_deletion_is_finished_at_the_next_start(tmp_path: Path) -> None:
    data = tmp_path / "d"

    async def before(engine: Engine) -> None:
        await fill(engine)
        engine.groups.forget_logstore(STORE_ID)
        await engine.persist_deletion(LogstoreDeleted(id=STORE_ID, project="p", name="ls"))

    live(data, ManualClock(), before)
    assert list(data.glob("logs/*/*/*.seg"))

    async def after(engine: Engine) -> None:
        assert engine.catalog.next_logstore_id == STORE_ID + 1
        await engine.removals.drain()

    live(data, ManualClock(), after)
    assert [path.name for path in (data / "logs").iterdir()] == ["folder.json"]


def test_a_start_can_be_cancelled(tmp_path: Path) -> None:
    data = tmp_path / "d"
    live(data, ManualClock(), fill)
    progress = RecoveryProgress(cancelled=True)

    async def nothing(engine: Engine) -> None:
        raise AssertionError("it was cancelled")

    with pytest.raises(StartCancelled):
        live(data, ManualClock(), nothing, progress=progress)
    assert str(RecoveryProgress(shards=40, steps=6)) == "recovering 3 of 40 shards"
    live(data, ManualClock(), _whole)


async def _whole(engine: Engine) -> None:
    assert stored(engine) == GROUPS


class Gathering(SimDisk):
    """A disk on which syncs of shards' folders end once so many are in progress, where `together` says so."""

    def __init__(self) -> None:
        super().__init__()
        self.together: threading.Barrier | None = None
        self.failing = ""
        self.in_progress: set[str] = set()
        self.maximum = 0

    def sync_dir(self, path: str) -> None:
        if self.together is not None and Path(path).parent.name == f"{STORE_ID:08d}":
            self.in_progress.add(path)
            self.maximum = max(self.maximum, len(self.in_progress))
            self.together.wait(120)
            self.in_progress.discard(path)
        if path == self.failing:
            raise WriteFailed("the sync of a folder fails")
        super().sync_dir(path)


async def fill_shards(engine: Engine, count: int) -> None:
    await create_group_of_one_shard(engine)
    specs = [spec for spec in rules.create(count).shards.values() if spec.shard]
    born_us = engine.now_us()
    added = [ShardSaved(logstore=STORE_ID, spec=one, born_us=born_us, first_cursor=1000) for one in specs]
    await engine.create_shards(engine.catalog.logstores_by_id[STORE_ID].saved, added)
    for log in engine.logs.values():
        await engine.append(log, b"group", logs=1)


def test_a_start_syncs_several_shards_at_the_same_time(tmp_path: Path) -> None:
    """One after the other, those of 768 shards took nine seconds on a slow disk."""
    data, disk, count = tmp_path / "d", Gathering(), 3 * SYNCS_AT_ONCE
    live(data, ManualClock(), lambda engine: fill_shards(engine, count), disk=disk)
    disk.together = threading.Barrier(SYNCS_AT_ONCE)
    progress = RecoveryProgress()

    async def whole(engine: Engine) -> None:
        disk.together = None
        assert list(engine.logs) == [(STORE_ID, shard) for shard in range(count)]
        assert {log.extent.end_cursor for log in engine.logs.values()} == {1001}
        assert progress.done == count

    live(data, ManualClock(), whole, disk=disk, progress=progress)
    assert disk.maximum == SYNCS_AT_ONCE


def test_one_of_many_shards_that_cannot_be_synced_ends_the_start(tmp_path: Path) -> None:
    data, disk = tmp_path / "d", Gathering()
    live(data, ManualClock(), lambda engine: fill_shards(engine, 20), disk=disk)
    disk.failing = f"{data}/logs/{STORE_ID:08d}/000013"
    with pytest.raises(StorageFailed, match="the sync of a folder fails"):
        live(data, ManualClock(), _whole, disk=disk)


def test_a_start_needs_no_free_space(tmp_path: Path) -> None:
    """A full volume must not keep the service from serving what it has, and from removing what expires."""
    data = tmp_path / "d"
    live(data, ManualClock(), fill)

    class FullDisk(OsDisk):
        def free_bytes(self, path: str) -> int:
            return 1 << 20

    async def scenario(engine: Engine) -> None:
        assert stored(engine) == GROUPS
        with pytest.raises(OSError, match="No space"):  # for a new segment
            await engine.append(engine.logs[STORE_ID, 0], b"x" * 5000, logs=1)
        saved = SaveCheckpoint(consumer="", shard=0, cursor=1000, force=True, updated_unix_us=7)
        await engine.groups.apply_durably(engine.groups.of(STORE_ID)["g"], saved)

    live(data, ManualClock(), scenario, disk=FullDisk())


def test_a_run_whose_sync_failed_does_not_end_cleanly(tmp_path: Path) -> None:
    """The database can still be saved, and the next start must not take the log for what its end says."""
    data, disk = tmp_path / "d", SimDisk()
    live(data, ManualClock(), fill, disk=disk)

    async def fails(engine: Engine) -> None:
        disk.fail = {"sync"}
        with pytest.raises(StorageFailed):
            await engine.append(engine.logs[STORE_ID, 0], b"refused", logs=1)
        disk.fail = set()

    with pytest.raises(AssertionError):  # the engine has reported it
        live(data, ManualClock(), fails, disk=disk)
    state = read_state(disk, str(data))
    assert state is not None
    assert not state.clean

    async def again(engine: Engine) -> None:
        log = engine.logs[STORE_ID, 0]
        rolled = log.last_roll
        await engine.append(log, b"later", logs=1)
        assert log.last_roll > rolled  # nothing is appended to the file

    live(data, ManualClock(), again, disk=disk)
