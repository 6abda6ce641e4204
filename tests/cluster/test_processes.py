"""A process is ended only by its owner, and leftovers are found by name."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster import paths, runs
from tests.cluster.processes import Processes, start_ticks, wait_until
from tests.ports import free_ports

SLEEP = ["sleep", "600"]


def test_a_later_run_ends_the_leftovers_of_an_earlier_one(tmp_path: Path) -> None:
    Processes(tmp_path).start("left", SLEEP)
    later = Processes(tmp_path)
    assert later.alive("left")
    later.stop()
    assert not later.alive("left")


def test_stopping_one_process_leaves_the_others_running(tmp_path: Path) -> None:
    processes = Processes(tmp_path)
    processes.start("one", SLEEP)
    processes.start("two", SLEEP)
    try:
        processes.stop("one")
        assert not processes.alive("one")
        assert processes.alive("two")
    finally:
        processes.stop()


def test_a_process_can_be_killed_without_a_request_to_stop(tmp_path: Path) -> None:
    processes = Processes(tmp_path)
    processes.start("deaf", ["sh", "-c", "trap 'echo asked' TERM; while :; do sleep 0.1; done"])
    processes.start("other", SLEEP)
    try:
        processes.kill("deaf")
        assert not processes.alive("deaf")
        assert processes.tail("deaf") == ""
        assert processes.alive("other")
    finally:
        processes.stop()


def test_another_process_with_a_reused_id_is_not_ended(tmp_path: Path) -> None:
    with subprocess.Popen(SLEEP) as stranger:
        try:
            records = tmp_path / "pids"
            records.mkdir()
            ticks = start_ticks(stranger.pid)
            assert ticks is not None
            (records / "old.json").write_text(json.dumps({"pid": stranger.pid, "start_ticks": ticks - 1}))
            Processes(tmp_path).stop()
            assert stranger.poll() is None
        finally:
            stranger.kill()


def test_only_runs_whose_owner_was_killed_are_cleaned_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    code = (
        "import os\nfrom tests.cluster import runs\nfrom tests.cluster.processes import Processes\n"
        "with runs.own_folder('trial') as folder:\n"
        "    Processes(folder).start('child', ['sleep', '600'])\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=paths.REPOSITORY, check=False, timeout=60)
    (dead,) = paths.run_folder().glob("trial-*")
    child = json.loads((dead / "pids" / "child.json").read_text())["pid"]
    assert start_ticks(child) is not None

    with runs.own_folder("trial") as mine:
        assert not dead.exists()
        assert start_ticks(child) is None
        assert runs.clean_dead("trial") == []
        assert mine.exists()
    assert not mine.exists()


@pytest.mark.long
def test_waiting_for_a_lock_reports_what_it_waits_for(tmp_path: Path) -> None:
    said: list[str] = []
    path = tmp_path / "lock"
    with (
        runs.locked(path, guard_s=1, what="first"),
        pytest.raises(TimeoutError, match="the build"),
        runs.locked(path, guard_s=0.5, what="the build", say=said.append, every_s=0.1),
    ):
        pass
    assert said
    assert "the build" in said[0]


def test_a_wait_that_times_out_names_its_condition() -> None:
    with pytest.raises(TimeoutError, match="nothing"):
        wait_until(lambda: False, what="nothing", guard_s=0.05, pause_s=0.01)


def test_free_ports_differ() -> None:
    assert len(set(free_ports(20))) == 20


def test_a_process_that_ended_has_no_start_time() -> None:
    with subprocess.Popen(["true"]) as child:
        child.wait()
    assert start_ticks(child.pid) is None
    assert start_ticks(os.getpid()) is not None
