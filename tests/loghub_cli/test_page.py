"""The examples of docs/command-line.md and docs/subscriptions.md: each command is run, and prints what its
page shows.

Rewrite what the pages show with ``python -m tests.loghub_cli.test_page``. Times, cursors and ages are of each
run, so they are not compared.
"""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support import ROOT, START_GUARD_S, ServiceProcess, running_service

# One after the other, at one service: the second one has a project of its own.
PAGES = (ROOT / "docs" / "command-line.md", ROOT / "docs" / "subscriptions.md")
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


def printed(service: ServiceProcess, home: Path, pages: Sequence[str]) -> list[str]:
    """The pages with what their commands print, run by one shell."""
    key = service.credentials
    (home / "bin").mkdir()
    program = home / "bin" / "loghub"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m loghub_cli "$@"\n')
    program.chmod(0o755)
    blocks = [commands(block) for page in pages for block in BLOCK.findall(page)]
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
        timeout=len(pages) * START_GUARD_S,
    )
    assert done.returncode == 0, done.stdout
    outputs = iter(done.stdout.split(f"{MARK}\n"))

    def filled(block: re.Match[str]) -> str:
        return "".join(f"$ {command}\n{next(outputs)}" for command in commands(block[0]))

    return [BLOCK.sub(filled, page) for page in pages]


def comparable(page: str) -> str:
    for pattern, word in VARIABLE:
        page = pattern.sub(word, page)
    return page


@pytest.mark.long
def test_the_examples_of_the_pages_print_what_they_show(tmp_path: Path) -> None:
    pages = [page.read_text(encoding="utf-8") for page in PAGES]
    with running_service(tmp_path / "service") as service:
        results = printed(service, tmp_path, pages)
    for page, result in zip(pages, results, strict=True):
        assert comparable(page).splitlines() == comparable(result).splitlines()


def test_every_command_has_an_example_or_a_page_of_its_own() -> None:
    text = "\n".join(
        command for page in PAGES for block in BLOCK.findall(page.read_text()) for command in commands(block)
    )
    nouns = {
        "project": ("create", "list", "show"),
        "logstore": ("create", "list", "delete"),
        "shard": ("list", "show", "split", "merge", "delete"),
        "group": ("create", "list", "show", "update", "delete", "checkpoints", "reset"),
        "subscription": ("create", "list", "show", "update", "delete", "seek", "skip"),
    }
    for noun, verbs in nouns.items():
        assert [verb for verb in verbs if f"loghub {noun} {verb}" not in text] == []
    single = ("put", "pull", "tail", "query", "schema", "lag", "completion")
    assert [command for command in single if f"loghub {command} " not in text] == []


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder, running_service(Path(folder) / "service") as process:
        contents = [page.read_text(encoding="utf-8") for page in PAGES]
        for page, text in zip(PAGES, printed(process, Path(folder), contents), strict=True):
            page.write_text(text, encoding="utf-8")
