"""The linters run as tests, so that one run of pytest checks everything."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent

TOOLS = {
    "ruff check": [BIN / "ruff", "check", "."],
    "ruff format": [BIN / "ruff", "format", "--check", "."],
    "mypy": [BIN / "mypy"],
    "import contracts": [BIN / "lint-imports", "--no-cache"],
}


@pytest.mark.parametrize("tool", TOOLS)
def test_the_tool_reports_no_problem(tool: str) -> None:
    run = subprocess.run(TOOLS[tool], cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, f"{tool}:\n{run.stdout}{run.stderr}"
