"""The demo empties a folder that a demo made, and no other one."""

from collections.abc import Callable
from pathlib import Path

import pytest

from loghub_cli.demo.run import NotOfTheDemo, empty, reject_foreign
from loghub_cli.up.paths import DEMO_MARK, Root, locked


def of_a_user(folder: Path) -> None:
    """What `loghub up` leaves."""
    Root(folder).use()
    (folder / "volumes" / "mine").mkdir()
    (folder / "volumes" / "mine" / "table.parquet").write_text("rows")


def of_another_program(folder: Path) -> None:
    folder.mkdir()
    (folder / "cr.yaml").write_text("mine")


def of_a_demo_and_then_of_a_user(folder: Path) -> None:
    of_a_demo(folder)
    of_a_user(folder)


def of_a_demo(folder: Path) -> None:
    folder.mkdir()
    empty(folder)
    (folder / "volumes" / "out").mkdir(parents=True)


def everything(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("made", [of_a_user, of_another_program, of_a_demo_and_then_of_a_user])
def test_what_no_demo_made_stays(made: Callable[[Path], None], tmp_path: Path) -> None:
    folder = tmp_path / "state"
    made(folder)
    before = everything(folder)
    for refusal in (reject_foreign, empty):
        with pytest.raises(NotOfTheDemo, match="nothing is removed"):
            refusal(folder)
    assert everything(folder) == before


def test_what_a_demo_made_is_removed_unless_it_is_in_use(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    of_a_demo(folder)
    group = Root(folder).group("first")
    with locked(group.lock), pytest.raises(NotOfTheDemo, match="group first is up"):
        empty(folder)
    empty(folder)
    assert [path.name for path in folder.iterdir()] == [DEMO_MARK]


def test_a_linked_folder_is_unlinked_and_what_it_leads_to_stays(tmp_path: Path) -> None:
    folder, elsewhere = tmp_path / "state", tmp_path / "disk"
    folder.mkdir()
    empty(folder)
    elsewhere.mkdir()
    (elsewhere / "table").touch()
    (folder / "volumes").symlink_to(elsewhere)
    empty(folder)
    assert (elsewhere / "table").exists()
