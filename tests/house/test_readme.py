"""What the README shows is what the code says."""

import re
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import yaml

from loghub.client.http import HttpLogHub
from loghub.domain.fsm import mermaid
from tests.support import START_GUARD_S, running_service

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_diagram_of_shard_states_is_generated_from_the_table() -> None:
    assert f"```mermaid\n{mermaid()}```" in README, "paste the output of loghub.domain.fsm.mermaid()"


def test_every_linked_file_exists() -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", README)
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_every_make_target_named_exists() -> None:
    targets = set(re.findall(r"\bmake ([a-z-]+)", README))
    makefile = (ROOT / "Makefile").read_text()
    assert targets >= {"demo", "test"}
    assert [target for target in targets if not re.search(rf"^{target}:", makefile, re.MULTILINE)] == []


def test_the_commands_that_create_a_logstore_work(tmp_path: Path) -> None:
    """As over a forwarded port: the service has the name of its namespace, and is called by its address."""
    result = re.search(r"^make setup\n(.*?)^kubectl create secret", README, re.DOTALL | re.MULTILINE)
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
    assert re.findall(r"@@\w*|TODO|FIXME", README) == []
