"""What the first screen and the pages behind it show is what the code says."""

import re
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
import yaml

from loghub.client.http import HttpLogHub
from loghub.domain.fsm import SHARD_STATES
from tests.cluster import build
from tests.house.test_tree import text_of, tracked_files
from tests.support import START_GUARD_S, running_service

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
INSTALL = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
PYPROJECT = "".join(text_of(path) for path in tracked_files() if path.name == "pyproject.toml")
STATES = (ROOT / "docs" / "shard-states.md").read_text(encoding="utf-8")
TEST_FUNCTION = re.compile(r"^ *(?:async )?def test_", re.MULTILINE)
MAX_LINES = 120  # what a reader takes in before deciding whether to go on


def test_the_diagram_of_shard_states_is_generated_from_the_table() -> None:
    assert f"```mermaid\n{SHARD_STATES.mermaid()}```" in STATES, "paste SHARD_STATES.mermaid()"


def test_the_readme_is_one_screen_that_says_its_status_first() -> None:
    """An adopter must not find out on another page that nobody has run this against the cloud."""
    assert len(README.splitlines()) <= MAX_LINES
    status = README.index("has not been run against the cloud service yet")
    assert status < README.index("```") < README.index("## Try it")


def test_the_readme_names_the_versions_of_chart_package_and_cluster() -> None:
    chart = yaml.safe_load((ROOT / "charts/loghub-operator/Chart.yaml").read_text())
    python = re.search(r'^requires-python = ">=([\d.]+)"', PYPROJECT, re.MULTILINE)
    spark = re.search(r'"pyspark==([\d.]+)"', PYPROJECT)
    assert python is not None
    assert spark is not None
    oldest = chart["kubeVersion"].removeprefix(">=").rpartition(".")[0]
    tried = build.VERSION.removeprefix("v").rpartition(".")[0]
    assert f"| Kubernetes | {oldest} or newer | {tried} |" in README
    assert f"| Python | {python[1]} or newer |" in README
    assert f"with Java 17 or newer | {spark[1]} |" in README
    assert f"Version {chart['appVersion']} is not published" in README


def test_the_readme_counts_functions_and_not_cases() -> None:
    """A table of cases is one test: the number that a run prints says how long the tables are."""
    stated = re.search(r"more than ([\d,]+) test functions", README)
    assert stated is not None
    number = int(stated[1].replace(",", ""))
    sources = (path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    functions = sum(len(TEST_FUNCTION.findall(source)) for source in sources)
    assert number < functions < number * 1.2, f"there are {functions}"


def test_every_make_target_named_exists() -> None:
    targets = set(re.findall(r"\bmake ([a-z-]+)", README + INSTALL))
    makefile = (ROOT / "Makefile").read_text()
    assert targets >= {"demo", "test"}
    assert [target for target in targets if not re.search(rf"^{target}:", makefile, re.MULTILINE)] == []


@pytest.mark.long
def test_the_commands_that_create_a_logstore_work(tmp_path: Path) -> None:
    """As over a forwarded port: the service has the name of its namespace, and is called by its address."""
    result = re.search(r"^make setup\n(export .*?)^kubectl create secret", INSTALL, re.DOTALL | re.MULTILINE)
    assert result is not None
    program = tmp_path / "loghub"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m loghub_cli "$@"\n')
    program.chmod(0o755)
    with running_service(tmp_path, extra=("--base-name", "loghub-system.svc")) as service:
        key = service.credentials
        shown = {
            "http://127.0.0.1:8080": service.endpoint,
            "=NAME": f"={key.access_key_id}",
            "=SECRET": f"={key.access_key_secret}",
            ".venv/bin/loghub": str(program),
        }
        lines = result[1]
        for text, real in shown.items():
            assert text in lines
            lines = lines.replace(text, real)
        subprocess.run(["sh", "-ec", lines], check=True, cwd=ROOT, timeout=START_GUARD_S)
        example = yaml.safe_load_all((ROOT / "deploy/examples/access-log.yaml").read_text())
        spec = next(one["spec"] for one in example if one["kind"] == "LogHubConsumerGroup")
        with closing(HttpLogHub(service.endpoint, spec["project"], credentials=key)) as client:
            shards = client.list_shards(spec["logstore"])
            starts = [client.get_cursor(spec["logstore"], one.shard, "begin") for one in shards]
            ends = [client.get_cursor(spec["logstore"], one.shard, "end") for one in shards]
        assert sum(start != end for start, end in zip(starts, ends, strict=True)) == 1


def test_no_placeholder_is_left() -> None:
    assert re.findall(r"@@\w*|TODO|FIXME", README + INSTALL) == []
