"""Commands that run at the same time: their output, their exit status, an interrupt."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import ROOT

GUARD_S = 120
CLEANS_UP = """
import sys, time
try:
    open(sys.argv[1], "w").close()
    # An interrupt just before a wait begins does not end the wait, so each is short, and there is a last one.
    for _ in range(600):
        time.sleep(0.1)
finally:
    print("cleaned up", sys.argv[2])
"""


# Runs the commands that it gets as JSON; the exit status is the number of those that failed.
RUN = """
import json, sys
from pathlib import Path
from tests.suite.commands import Commands
folder = Path(sys.argv[1])
folder.mkdir()
commands = Commands(folder, cwd=Path.cwd())
ended = commands.run(json.loads(sys.argv[2]))
print("statuses", *(one.status for one in ended.values()), flush=True)
sys.exit(commands.interrupted)
"""


def command(folder: Path, **parts: str) -> list[str]:
    named = json.dumps({name: shlex.split(text) for name, text in parts.items()})
    return [sys.executable, "-c", RUN, str(folder / "logs"), named]


def shell(text: str) -> str:
    return shlex.join(["sh", "-c", text])


def fifo(path: Path) -> Path:
    """Opening it waits until the other end is opened too."""
    os.mkfifo(path)
    return path


def test_outputs_of_the_parts_are_not_mixed(tmp_path: Path) -> None:
    """Each command waits for the other one, so neither has ended before the other has begun."""
    existing, back = fifo(tmp_path / "there"), fifo(tmp_path / "back")
    first = shell(f"echo a1; cat {existing}; echo > {back}; echo a2")
    second = shell(f"echo b0; echo b1 > {existing}; cat {back} > /dev/null; echo b2 >&2")
    done = subprocess.run(
        command(tmp_path, first=first, second=second),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=GUARD_S,
    )
    announced, *lines, statuses = done.stdout.splitlines()
    assert announced.endswith(str(tmp_path / "logs" / "second.log"))
    assert lines == ["a1", "b1", "a2", "b0", "b2"]
    assert statuses == "statuses 0 0"


@pytest.mark.parametrize(("first", "second"), [(0, 3), (5, 0)])
def test_all_run_to_the_end_also_if_one_fails(first: int, second: int, tmp_path: Path) -> None:
    parts = {"first": shell(f"echo a; exit {first}"), "second": shell(f"echo b; exit {second}")}
    done = subprocess.run(
        command(tmp_path, **parts), cwd=ROOT, capture_output=True, text=True, check=False, timeout=GUARD_S
    )
    assert done.stdout.splitlines()[1:] == ["a", "b", f"statuses {first} {second}"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_both_parts_clean_up_after_an_interrupt(number: signal.Signals, tmp_path: Path) -> None:
    names = ("first", "second")
    ready = {name: fifo(tmp_path / name) for name in names}
    parts = {name: shlex.join([sys.executable, "-c", CLEANS_UP, str(ready[name]), name]) for name in names}
    with subprocess.Popen(
        command(tmp_path, **parts),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    ) as running:
        for name in names:
            ready[name].read_text()
        os.killpg(running.pid, number)  # as a terminal does
        shown, _ = running.communicate(timeout=GUARD_S)
    assert running.returncode != 0
    assert re.findall("cleaned up (.*)", shown) == list(names)


def test_no_command_outlives_the_reader_of_the_output(tmp_path: Path) -> None:
    """As with ``make test | head -1``."""
    ready, cleaned = fifo(tmp_path / "ready"), tmp_path / "cleaned"
    second = CLEANS_UP + "    open(sys.argv[2], 'w').close()\n"
    parts = {
        "first": shell(f"cat {ready}"),
        "second": shlex.join(
            [sys.executable, "-uc", f"print('b', flush=True){second}", str(ready), str(cleaned)]
        ),
    }
    with subprocess.Popen(
        command(tmp_path, **parts), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as running:
        assert running.stdout is not None
        running.stdout.readline()
        running.stdout.close()
        running.wait(GUARD_S)
    assert running.returncode != 0
    assert cleaned.exists()
