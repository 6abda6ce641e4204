"""What the processes of a test run share is begun by the first of them and ended by the last one."""

from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.cluster.processes import Processes
from tests.cluster.runs import clean_dead, shared_folder

PROGRAM = "sleeping"


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def begin(folder: Path) -> None:
    Processes(folder).start(PROGRAM, ["sleep", "600"])


def alive(folder: Path) -> bool:
    return Processes(folder).alive(PROGRAM)


def test_it_is_begun_once_and_outlives_the_user_that_began_it() -> None:
    with ExitStack() as second:
        with ExitStack() as first:
            folder = first.enter_context(shared_folder("thing", "run", begin))
            began = (folder / "pids" / f"{PROGRAM}.json").read_text()
            assert second.enter_context(shared_folder("thing", "run", begin)) == folder
        assert clean_dead("thing") == []
        assert alive(folder)
        assert (folder / "pids" / f"{PROGRAM}.json").read_text() == began
    assert not folder.exists()


def test_another_run_has_its_own() -> None:
    with shared_folder("thing", "one", begin) as one, shared_folder("thing", "two", begin) as two:
        assert one != two


def test_what_could_not_be_begun_is_ended_and_begun_again() -> None:
    failed: list[Path] = []

    def fail(folder: Path) -> None:
        begin(folder)
        failed.append(folder)
        raise RuntimeError("no port")

    with pytest.raises(RuntimeError, match="no port"), shared_folder("thing", "run", fail):
        pass
    assert not failed[0].exists()
    with shared_folder("thing", "run", begin) as folder:
        assert alive(folder)
