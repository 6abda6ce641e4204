"""A repair that ends at any of its steps, by a kill or a full disk, and is repeated: nothing more is lost."""

import errno
import itertools
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from loghub_service.diagnosis import DataRefused
from loghub_service.engine import Engine
from loghub_service.fsck import folder, loss
from loghub_service.ports import OsDisk, OsFile
from loghub_service.storage.segment import LogDamaged
from tests.loghub_service.engines import STORE_ID, ManualClock, create_group_of_one_shard, live
from tests.loghub_service.fsck_runs import (
    FIRST,
    Reported,
    first_groups,
    flip,
    put,
    segment_of,
    segments,
    stored,
)

GROUPS = 30
ACCEPT = ("--check-data", "--accept-loss", f"{STORE_ID}/0")


class DyingDisk(OsDisk):
    """A disk that changes nothing any more after some changes."""

    def __init__(self, changes: int) -> None:
        self.changes = changes

    def change(self) -> None:
        self.changes -= 1
        if self.changes < 0:
            raise OSError(errno.ENOSPC, "No space left on device")

    def create(self, path: str) -> OsFile:
        self.change()
        super().create(path)
        return DyingFile(self, path)

    def rename(self, old: str, new: str) -> None:
        self.change()
        super().rename(old, new)

    def remove(self, path: str) -> None:
        self.change()
        super().remove(path)

    def sync_dir(self, path: str) -> None:
        self.change()
        super().sync_dir(path)


class DyingFile(OsFile):
    def __init__(self, disk: DyingDisk, path: str) -> None:
        super().__init__(os.open(path, os.O_RDWR | os.O_CLOEXEC), path)
        self._disk = disk

    def write_at(self, data: bytes, *, offset: int) -> None:
        self._disk.change()
        super().write_at(data, offset=offset)

    def allocate(self, size: int) -> None:
        self._disk.change()
        super().allocate(size)

    def truncate(self, size: int) -> None:
        self._disk.change()
        super().truncate(size)

    def sync_data(self) -> None:
        self._disk.change()
        super().sync_data()


@contextmanager
def disk_that_dies(changes: int) -> Iterator[DyingDisk]:
    disk = DyingDisk(changes)
    with pytest.MonkeyPatch.context() as patch:
        for module in (folder, loss):
            patch.setattr(module, "OsDisk", lambda: disk)
        patch.setattr(loss, "_SEGMENT_BYTES", 64 << 10)  # of which many are copied here
        yield disk


def unsaved(data: Path, tmp_path: Path) -> None:
    """Log groups of which the database knows only those before the last segment, as a kill leaves it."""
    before = tmp_path / "before"

    async def scenario(engine: Engine) -> None:
        await create_group_of_one_shard(engine)
        await put(engine, GROUPS)
        shutil.copytree(before, data)

    live(before, ManualClock(), scenario)


def damage_record(number: int) -> Callable[[Path], None]:
    return lambda data: flip(segment_of(data, b"first %d " % number), b"first %d " % number)


def damage_two(data: Path) -> None:
    """The first record of one segment, so that its name changes, and one within another segment."""
    first = int(segments(data)[1].name[:20]) - FIRST
    damage_record(first)(data)
    damage_record(GROUPS - 1)(data)


def damage_header(data: Path) -> None:
    path = segments(data)[1]
    path.write_bytes(b"?" * 64 + path.read_bytes()[64:])


def lose_segment(data: Path) -> None:
    segments(data)[1].unlink()


@pytest.mark.long
@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(damage_record(3), id="sealed", marks=pytest.mark.deep),
        pytest.param(damage_record(GROUPS - 1), id="tail", marks=pytest.mark.deep),
        pytest.param(damage_two, id="two"),
        pytest.param(damage_header, id="header"),
        pytest.param(lose_segment, id="missing"),
    ],
)
def test_a_repair_that_ends_at_any_step_and_is_repeated_loses_nothing_more(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: Callable[[Path], None]
) -> None:
    data = tmp_path / "d"
    unsaved(data, tmp_path)
    damage(data)
    whole = tmp_path / "whole"
    shutil.copytree(data, whole)
    assert Reported(whole, capsys, *ACCEPT).status == 0
    kept: dict[int, bytes] = {}

    async def remember(engine: Engine) -> None:
        kept.update(stored(engine))

    live(whole, ManualClock(), remember)
    assert GROUPS - 8 <= len(kept) <= GROUPS

    async def after(engine: Engine) -> None:
        assert stored(engine).items() == kept.items() <= first_groups(*range(GROUPS)).items()
        await put(engine, 1, name="second")
        assert max(stored(engine)) >= FIRST + GROUPS

    for changes in itertools.count():
        repaired = tmp_path / "repaired"
        shutil.copytree(data, repaired)
        with disk_that_dies(changes) as disk:
            status = Reported(repaired, capsys, *ACCEPT).status
        shutil.copytree(repaired, tmp_path / "at-once")
        try:
            live(tmp_path / "at-once", ManualClock(), after)
        except (DataRefused, LogDamaged):  # the latter: what only --check-data finds prevents no start
            assert status != 0
        assert Reported(repaired, capsys, *ACCEPT).status == 0, changes
        live(repaired, ManualClock(), after)
        shutil.rmtree(repaired)
        shutil.rmtree(tmp_path / "at-once")
        if disk.changes >= 0:
            assert status == 0
            break
    assert changes > 5
