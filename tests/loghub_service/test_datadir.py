"""The lock of the data directory, and what becomes of a directory that is moved while it is locked."""

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from loghub_service import server
from loghub_service.ports import OsDisk
from loghub_service.server import OwnedDisk

CHANGES: dict[str, Callable[[OwnedDisk, str], object]] = {
    "create": lambda disk, data: disk.create(f"{data}/new"),
    "rename": lambda disk, data: disk.rename(f"{data}/file", f"{data}/other"),
    "remove": lambda disk, data: disk.remove(f"{data}/file"),
    "remove_dir": lambda disk, data: disk.remove_dir(f"{data}/empty"),
    "make_dirs": lambda disk, data: disk.make_dirs(f"{data}/new/inner"),
}


def fill(data: Path) -> None:
    (data / "empty").mkdir(parents=True)
    (data / "file").write_text("x")


def names(data: Path) -> list[str]:
    return sorted(str(path.relative_to(data)) for path in data.rglob("*"))


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_directory_of_the_same_name_is_not_changed_once_the_locked_one_was_moved(
    tmp_path: Path, change: Callable[[OwnedDisk, str], object]
) -> None:
    data = tmp_path / "data"
    fill(data)
    with server.owned(OsDisk(), str(data)) as disk:
        data.rename(tmp_path / "moved")
        fill(data)
        before = names(data)
        with pytest.raises(OSError, match="moved, removed or replaced") as raised:
            change(disk, str(data))
        assert raised.value.errno == errno.ESTALE
        assert names(data) == before
    with server.owned(OsDisk(), str(data)) as disk:
        change(disk, str(data))
        assert names(data) != before


def test_a_directory_that_was_removed_is_not_created_again(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with server.owned(OsDisk(), str(data)) as disk:
        disk.check()
        (data / "lock").unlink()
        disk.check()  # the directory itself is what is owned
        data.rmdir()
        with pytest.raises(OSError, match="moved, removed or replaced"):
            disk.make_dirs(str(data))
    assert not data.exists()
