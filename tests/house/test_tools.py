"""The linters run as tests, so that one run of pytest checks everything."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster import paths, runs

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
# Of all checkouts: mypy compares the content of a file that another one has checked before, and a fresh clone
# need not check 700 files again.
MYPY_CACHE = paths.cache_folder() / "mypy"
ONE_AT_A_TIME = MYPY_CACHE.with_suffix(".lock")
GUARD_S = 300.0

TOOLS = {
    "ruff check": [BIN / "ruff", "check", "."],
    "ruff format": [BIN / "ruff", "format", "--check", "."],
    "mypy": [BIN / "mypy", "--cache-dir", MYPY_CACHE],
    "import contracts": [BIN / "lint-imports", "--no-cache"],
}


@pytest.mark.parametrize("tool", TOOLS)
def test_the_tool_reports_no_problem(tool: str) -> None:
    with runs.locked(ONE_AT_A_TIME, guard_s=GUARD_S, what="another checkout is checked"):
        run = subprocess.run(TOOLS[tool], cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, f"{tool}:\n{run.stdout}{run.stderr}"
