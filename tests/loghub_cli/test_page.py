"""The examples of docs/command-line.md: each command is run, and prints what the page shows.

Rewrite what the page shows with ``python -m tests.loghub_cli.test_page``. Times, cursors and ages
are of each run, so they are not compared.
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.support import ROOT, START_GUARD_S, ServiceProcess, running_service

PAGE = ROOT / "docs" / "command-line.md"
BLOCK = re.compile(r"(?<=```console\n).*?(?=```)", re.DOTALL)
MARK = "=== next command"
VARIABLE = (
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"), "TIME"),
    (re.compile(r"\bMT[A-Za-z0-9+/]{20,}=*"), "CURSOR"),
    (re.compile(r'(?<="__time__": )\d+'), "TIME"),
    (re.compile(r"\b\d+\.\d+\b"), "AGE"),
    (re.compile(r" {2,}"), "  "),
)


def commands(block: str) -> list[str]:
    return [line.removeprefix("$ ") for line in block.splitlines() if line.startswith("$ ")]


def printed(service: ServiceProcess, home: Path, page: str) -> list[list[str]]:
    """What each command of each block prints, run by one shell."""
    key = service.credentials
    (home / "bin").mkdir()
    program = home / "bin" / "loghub"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m loghub_cli "$@"\n')
    program.chmod(0o755)
    blocks = [commands(block) for block in BLOCK.findall(page)]
    script = "set -e\n" + "\n".join(f"{command}\necho '{MARK}'" for block in blocks for command in block)
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=ROOT,
        env={
            **os.environ,
            "PATH": f"{home / 'bin'}:{os.environ['PATH']}",
            "HOME": str(home),
            "XDG_CONFIG_HOME": str(home / "config"),
            "LOGHUB_ENDPOINT": service.endpoint,
            "LOGHUB_ACCESS_KEY_ID": key.access_key_id,
            "LOGHUB_ACCESS_KEY_SECRET": key.access_key_secret,
        },
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,  # a user sees both
        text=True,
        check=False,
        timeout=START_GUARD_S,
    )
    assert done.returncode == 0, done.stdout
    outputs = iter(done.stdout.split(f"{MARK}\n"))
    return [[next(outputs) for _ in block] for block in blocks]


def with_outputs(page: str, outputs: list[list[str]]) -> str:
    """The page with each command followed by what it prints."""
    blocks = iter(outputs)

    def filled(block: re.Match[str]) -> str:
        shown = zip(commands(block[0]), next(blocks), strict=True)
        return "".join(f"$ {command}\n{output}" for command, output in shown)

    return BLOCK.sub(filled, page)


def comparable(page: str) -> str:
    for pattern, word in VARIABLE:
        page = pattern.sub(word, page)
    return page


@pytest.mark.long
def test_the_examples_of_the_page_print_what_it_shows(tmp_path: Path) -> None:
    page = PAGE.read_text(encoding="utf-8")
    with running_service(tmp_path / "service") as service:
        result = with_outputs(page, printed(service, tmp_path, page))
    assert comparable(page).splitlines() == comparable(result).splitlines()


def test_every_command_has_an_example_or_a_page_of_its_own() -> None:
    text = "\n".join(command for block in BLOCK.findall(PAGE.read_text()) for command in commands(block))
    nouns = {
        "project": ("create", "list", "show"),
        "logstore": ("create", "list", "delete"),
        "shard": ("list", "show", "split", "merge", "delete"),
        "group": ("create", "list", "show", "update", "delete", "checkpoints", "reset"),
    }
    for noun, verbs in nouns.items():
        assert [verb for verb in verbs if f"loghub {noun} {verb}" not in text] == []
    single = ("put", "pull", "tail", "lag", "completion")
    assert [command for command in single if f"loghub {command} " not in text] == []


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder, running_service(Path(folder) / "service") as process:
        content = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(with_outputs(content, printed(process, Path(folder), content)), encoding="utf-8")
