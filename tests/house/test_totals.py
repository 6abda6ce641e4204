"""The last line of `make test`, over real runs of pytest."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import totals
from tests.support import ROOT

FIRST = """
import pytest
def test_good(): pass
def test_bad(): assert False
@pytest.mark.parametrize("number", range(3))
def test_absent(number): pytest.skip("no Java:\\n install it")
@pytest.mark.xfail
def test_known(): assert False
@pytest.fixture
def broken(): raise OSError
def test_error(broken): pass
"""
SECOND = """
import pytest
pytest.skip("no etcd", allow_module_level=True)
"""


def run_part(folder: Path, part: str, text: str, *arguments: str) -> int:
    """The exit code of pytest over these tests, which records its totals below ``folder``."""
    file = folder / part / f"test_{part}.py"
    file.parent.mkdir()
    file.write_text(text)
    plugins = ["-p", "tests.totals", "-p", "no:cacheprovider", f"--rootdir={file.parent}", *arguments]
    environment = {**os.environ, totals.ENV_TOTALS: str(folder / "totals" / f"{part}.json")}
    environment["PYTHONPATH"] = str(ROOT)
    command = [sys.executable, "-m", "pytest", "-q", "-c", os.devnull, *plugins, str(file)]
    return subprocess.run(command, env=environment, capture_output=True, check=False, cwd=folder).returncode


@pytest.mark.long
@pytest.mark.parametrize("processes", [(), ("--numprocesses=2",)], ids=["one", "several"])
def test_totals_count_tests_and_skips_over_all_parts(processes: tuple[str, ...], tmp_path: Path) -> None:
    assert run_part(tmp_path, "first", FIRST, *processes) == 1
    assert run_part(tmp_path, "second", SECOND, *processes) in (0, 5)  # 5: no test was collected
    assert totals.add_up(tmp_path / "totals", ["first", "second", "third"]).line() == (
        "4 tests ran (1 passed, 1 failed, 1 error, 1 xfailed), 4 skipped: "
        "3 because no Java: install it; 1 because no etcd; not run to the end: third"
    )


def test_every_part_of_make_test_records_its_totals() -> None:
    """Read from what `make` would run."""
    command = ["make", "--dry-run", "test"]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    runs = re.findall(rf"(?:{totals.ENV_TOTALS}=(\S+)/(\S+)\.json )?\S+ -m pytest ", shown)
    added = re.search(r"-m tests\.totals (\S+) (.+?);", shown)
    assert added is not None
    assert [part for _, part in runs] == added[2].split()
    assert {folder for folder, _ in runs} == {added[1]}
