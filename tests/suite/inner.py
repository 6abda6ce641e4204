"""Small suites of their own, which the tests of the suite run for real."""

import os
import subprocess
import sys
from pathlib import Path

from tests.support import ROOT, wait_until

# A guard against a hang; each of these runs takes a second or two.
GUARD_S = 120

SUITE = """
import sys
from pathlib import Path
from tests.suite.__main__ import Suite
from tests.suite.parts import Part
suite = Suite(Path.cwd())
suite.run_parts(*(Part(name=name, arguments=(name, *sys.argv[2:])) for name in sys.argv[1].split(",")))
suite.run_failed_again()
sys.exit(suite.finish())
"""


def write(folder: Path, files: dict[str, str]) -> None:
    (folder / "pytest.ini").write_text("[pytest]\naddopts = -p no:cacheprovider\nmarkers = spark\n  deep\n")
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def environment(**more: str) -> dict[str, str]:
    outer = {
        name: value for name, value in os.environ.items() if not name.startswith(("LOGHUB_TEST", "PYTEST"))
    }
    # Most of the time of a small suite is its start, and most of that the plugins that it does not use.
    return {**outer, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT), **more}


def start(folder: Path, *command: str, **more: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, *command],
        cwd=folder,
        env=environment(**more),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def run(folder: Path, *command: str, **more: str) -> tuple[int, str]:
    """The exit status and what it printed."""
    with start(folder, *command, **more) as running:
        try:
            printed, _ = running.communicate(timeout=GUARD_S)
        except BaseException:
            running.kill()
            raise
    return running.returncode, printed


def pytest(folder: Path, *arguments: str, **more: str) -> tuple[int, str]:
    return run(
        folder, "-m", "pytest", "-p", "tests.suite.forks", "-p", "tests.suite.record", *arguments, **more
    )


def suite(folder: Path, parts: str, *arguments: str, **more: str) -> tuple[int, str]:
    """Run the parts, each a folder of tests."""
    return run(folder, "-c", SUITE, parts, *arguments, **more)


def wait_for(*files: Path) -> None:
    """Until all of them are there."""
    wait_until(lambda: all(file.exists() for file in files), f"{files}", guard_s=GUARD_S)
