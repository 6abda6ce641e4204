"""The GitHub workflows, which have never run: what actionlint reports, and what their steps would run."""

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.charts.chart import ROOT
from tests.cluster import ip_family, provider
from tests.suite.parts import CLUSTER

FOLDER = ROOT / ".github" / "workflows"
FILE = FOLDER / "cluster.yaml"
FILES = sorted(FOLDER.glob("*.yaml"))


def workflow(file: Path = FILE) -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load(file.read_text())
    return read


def steps() -> list[dict[str, Any]]:
    return [step for file in FILES for job in workflow(file)["jobs"].values() for step in job["steps"]]


def test_actionlint_finds_nothing(actionlint: Path) -> None:
    # Its own rules only: whether shellcheck and pyflakes are there is each machine's affair.
    command = [str(actionlint), "-no-color", "-shellcheck=", "-pyflakes=", *map(str, FILES)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_actionlint_finds_a_mistake(actionlint: Path, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(FILE.read_text().replace("runs-on: ubuntu-24.04", "runs-on: ubuntu-1.0"))
    done = subprocess.run([str(actionlint), str(wrong)], capture_output=True, text=True, check=False)
    assert "ubuntu-1.0" in done.stdout


PORT_80 = "sudo sysctl --write net.ipv4.ip_unprivileged_port_start=80"


@pytest.mark.parametrize("command", sorted({step["run"] for step in steps() if "run" in step} - {PORT_80}))
def test_every_command_exists(command: str) -> None:
    program, *target = shlex.split(command)
    assert program == "make"
    done = subprocess.run(["make", "-n", *target], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_test_is_run_as_by_the_entry_point_of_continuous_integration() -> None:
    job = workflow()["jobs"]["all"]
    ours = (ROOT / ".ci" / "run").read_text()
    assert f"LOGHUB_TEST_REQUIRE={job['env']['LOGHUB_TEST_REQUIRE']}" in ours
    commands = [step["run"] for step in job["steps"] if "run" in step]
    assert commands == [PORT_80, "make setup", "make test"]
    assert ours.endswith(f"exec {commands[-1]}\n")


@pytest.mark.long
def test_the_cluster_tests_are_what_is_run_on_kind() -> None:
    job = workflow()["jobs"]["kind"]
    assert job["env"][provider.OVERRIDE] == "kind"
    assert job["env"][ip_family.OVERRIDE] == "${{ matrix.ip-family }}"
    assert job["strategy"]["matrix"] == {"ip-family": list(ip_family.FAMILIES)}
    assert job["env"]["LOGHUB_TEST_REQUIRE"] == "all"
    said = subprocess.run(
        ["make", "-n", "test-cluster"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert "-m tests.suite cluster" in said.stdout
    files = ["tests/cluster/test_kinds_of_workers.py", "tests/cluster/test_whole_life.py"]
    (*arguments, folder) = CLUSTER.arguments
    assert folder == "tests/cluster"
    collect = [sys.executable, "-m", "pytest", *arguments, *files, "--collect-only", "-q"]
    result = subprocess.run(collect, cwd=ROOT, capture_output=True, text=True, check=False)
    assert all(f"{file}::" in result.stdout for file in files), result.stdout + result.stderr


def test_every_action_is_pinned_to_a_commit_and_says_which_version() -> None:
    used = [line for file in FILES for line in file.read_text().splitlines() if "uses:" in line]
    assert used
    for line in used:
        assert re.search(r"uses: actions/[a-z-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$", line), line


def test_the_workflow_has_read_permission_only() -> None:
    for file in FILES:
        assert workflow(file)["permissions"] == {"contents": "read"}
        assert all("permissions" not in job for job in workflow(file)["jobs"].values())
        assert all(job["timeout-minutes"] <= 180 for job in workflow(file)["jobs"].values())
    assert all(job["timeout-minutes"] <= 90 for job in workflow()["jobs"].values())


def test_the_workflow_states_that_it_has_not_run() -> None:
    assert "has never been run on GitHub" in FILE.read_text().split("name:")[0]
