"""The pod's preStop hook: a second process in the container requests a stop of the worker."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from loghub_worker.pre_stop import PID_FILE, request_stop

GUARD_S = 120.0
WORKER = """
import pathlib, signal, sys
from loghub_worker.pre_stop import record_pid
signal.signal(signal.SIGTERM, lambda *_: sys.exit("drained"))
record_pid(pathlib.Path(sys.argv[1]))
print("ready", flush=True)
signal.pause()
"""


def hook(state: Path) -> int:
    """Run the hook as the kubelet does, in the container's environment; return its exit status."""
    command = [sys.executable, "-m", "loghub_worker.pre_stop"]
    return subprocess.run(
        command, env=os.environ | {"LOGHUB_STATE_DIR": str(state)}, timeout=GUARD_S
    ).returncode


def test_the_hook_stops_a_worker_whose_entry_point_forwards_no_signal(tmp_path: Path) -> None:
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
            _, output = worker.communicate(timeout=GUARD_S)
        finally:
            worker.kill()
    assert output == "drained\n"


@pytest.mark.parametrize("content", [None, "", "not a number", "4194305"])
def test_without_a_running_worker_the_hook_does_nothing(content: str | None, tmp_path: Path) -> None:
    """The pid file does not exist yet, or is one of an earlier container."""
    if content is not None:
        (tmp_path / PID_FILE).write_text(content)
    request_stop({"LOGHUB_STATE_DIR": str(tmp_path)})


def test_without_a_state_folder_the_hook_does_nothing() -> None:
    request_stop({})
