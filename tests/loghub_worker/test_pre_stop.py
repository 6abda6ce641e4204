"""The pod's preStop hook: a process beside the worker asks it to stop."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from loghub_worker.pre_stop import PID_FILE, ask

GUARD_S = 60.0
WORKER = """
import pathlib, signal, sys
from loghub_worker.pre_stop import can_be_asked
signal.signal(signal.SIGTERM, lambda *_: sys.exit("drained"))
can_be_asked(pathlib.Path(sys.argv[1]))
print("ready", flush=True)
signal.pause()
"""


def hook(state: Path) -> int:
    """As the kubelet runs it, in the container's own environment."""
    words = [sys.executable, "-m", "loghub_worker.pre_stop"]
    return subprocess.run(
        words, env=os.environ | {"LOGHUB_STATE_DIR": str(state)}, timeout=GUARD_S
    ).returncode


def test_behind_an_entry_point_that_passes_no_signal_on_the_worker_is_asked(tmp_path: Path) -> None:
    worker = subprocess.Popen(
        ["sh", "-c", '"$@"; exit $?', "entry", sys.executable, "-c", WORKER, str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with worker:
        try:
            assert worker.stdout is not None
            assert worker.stdout.readline() == "ready\n"
            assert hook(tmp_path) == 0
            _, said = worker.communicate(timeout=GUARD_S)
        finally:
            worker.kill()
    assert said == "drained\n"


@pytest.mark.parametrize("left", [None, "", "not a number", "4194305"])
def test_where_no_worker_runs_there_is_nothing_to_do(left: str | None, tmp_path: Path) -> None:
    """None yet, or what an earlier container left."""
    if left is not None:
        (tmp_path / PID_FILE).write_text(left)
    ask({"LOGHUB_STATE_DIR": str(tmp_path)})


def test_outside_of_a_worker_there_is_nobody_to_ask() -> None:
    ask({})
