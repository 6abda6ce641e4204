"""docs/kubectl-plugin.md: its examples print what it shows, of recorded objects, and it names every command.

Rewrite what the page shows with ``python -m tests.loghub_cli.plugin.test_page``.
"""

import contextlib
import io
import json
import os
import re
import shlex
import tempfile
from pathlib import Path
from unittest import mock

import pytest

from loghub.wire.cursor import encode
from loghub_cli.commands import EXAMPLES
from loghub_cli.plugin import change, show
from loghub_cli.plugin.kubectl import NOT_FOUND
from loghub_cli.plugin.main import COMMANDS, complete, main, root
from tests.house import commands_page
from tests.loghub_cli.plugin.objects import AT_UNIX_S, CAST, Document, condition, group, pod, shard
from tests.support import ROOT

PAGE = ROOT / "docs" / "kubectl-plugin.md"
BLOCK = re.compile(r"(?<=```console\n).*?(?=```)", re.DOTALL)
COMMAND = re.compile(r"^(?:\$ )?(kubectl loghub [^\n#]*)", re.MULTILINE)
NOW_UNIX_S = AT_UNIX_S + 240
ENDED = {"exitCode": 1, "reason": "Error", "message": "", "finishedAt": "2026-11-26T18:51:24Z"}

KUBECTL = """#!/bin/sh
case "$*" in
patch*) exec cat {folder}/patched ;;
*" loghubconsumergroups.loghub.dev access-log "*) exec cat {folder}/group ;;
*" loghubconsumergroups.loghub.dev "*) exec cat {folder}/groups ;;
*" pods "*) exec cat {folder}/pods ;;
*" events "*) exec cat {folder}/events ;;
exec*) exec cat {folder}/positions ;;
esac
echo "unexpected: $*" >&2
exit 1
"""


def example() -> Document:
    """Shard 0 was split into 4 and 5, and 5 is on its way; shard 2 fails."""
    shards = [
        shard(1, "access-log-1", lagLogs=12, lagSeconds=1, checkpoint=encode(300)),
        shard(2, "access-log-0", lagLogs=2310, lagSeconds=75, checkpoint=encode(300)),
        shard(3, "access-log-1", lagLogs=0, lagSeconds=0, checkpoint=encode(300)),
        shard(4, "access-log-0", lagLogs=3, lagSeconds=2, checkpoint=encode(300), parents=[0]),
        shard(5, "access-log-1", lagLogs=8, lagSeconds=2, checkpoint=encode(300), parents=[0]),
        shard(0, state="over", lagLogs=0, lagSeconds=0, checkpoint=encode(300), readOnly=True),
    ]
    scaling = {
        "mode": "Fixed",
        "desiredReplicas": 2,
        "reason": "ScalingDisabled",
        "inputs": {"arrivalPerSecond": 410.0, "workerPerSecond": 260.0, "lagLogGroups": 2333},
    }
    failing = CAST.replace("shard 7", "shard 2")
    made = group(
        condition("ShardFailing", "True", "RetryingLogGroup", failing),
        condition("Degraded", "True", "ShardFailing", failing),
        phase="Degraded",
        shards=shards,
        shardSummary={"total": 6, "assignable": 5, "waiting": 0, "completed": 1},
        lag={"seconds": 75, "logs": 2333},
        scaling=scaling,
    )
    made["metadata"]["name"] = "access-log"
    return made


def answers() -> dict[str, object]:
    other = group()
    other["metadata"]["name"] = "orders"
    warning = {
        "type": "Warning",
        "reason": "ShardFailing",
        "message": "shard 2 waits",
        "count": 4,
        "lastTimestamp": "2026-11-26T18:50:24Z",
        "involvedObject": {"name": "access-log"},
    }
    ends = [
        {"shard": n, "begin": encode(100), "end": encode(300 + n), "target": encode(300 + n)}
        for n in range(6)
    ]
    return {
        "group": example(),
        "patched": {**example(), "spec": {**example()["spec"], "suspend": True}},
        "groups": {"items": [example(), other]},
        "pods": {
            "items": [
                pod("access-log-0", restarts=1, container={"lastState": {"terminated": ENDED}}),
                pod("access-log-1"),
            ]
        },
        "events": {"items": [warning]},
        "positions": ends,
    }


def printed(page: str, folder: Path) -> str:
    """The page with what its commands print."""
    for name, answer in answers().items():
        (folder / name).write_text(json.dumps(answer))
    (folder / "kubectl").write_text(KUBECTL.format(folder=folder))
    (folder / "kubectl").chmod(0o755)

    def run(command: str) -> str:
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            status = main(shlex.split(command)[2:])
        assert status == 0, out.getvalue()
        return f"$ {command}\n{out.getvalue()}"

    def filled(block: re.Match[str]) -> str:
        return "".join(run(command) for command in COMMAND.findall(block[0]))

    clock = mock.Mock(unix_s=lambda: NOW_UNIX_S)
    path = {"PATH": f"{folder}:/usr/bin:/bin"}
    with (
        mock.patch.dict(os.environ, path),
        mock.patch.object(show, "SystemClock", return_value=clock),
        mock.patch.object(change, "SystemClock", return_value=clock),
        mock.patch.object(show, "_width", return_value=110),
    ):
        return BLOCK.sub(filled, page)


def test_the_examples_of_the_page_print_what_they_show(tmp_path: Path) -> None:
    page = PAGE.read_text(encoding="utf-8")
    result = printed(page, tmp_path)
    assert page.splitlines() == result.splitlines(), "run: python -m tests.loghub_cli.plugin.test_page"


def test_the_page_has_every_command_and_each_option_that_it_names_exists() -> None:
    text = PAGE.read_text(encoding="utf-8")
    table = text.partition("| command | does |")[2].partition("\n\n")[0]
    named = {
        name
        for line in table.splitlines()
        for name in re.findall(r"`(\w+)(?: \[?NAME|`)", line.partition("|")[2])
    }
    assert named == {command.name for command in COMMANDS}
    assert {name for name in EXAMPLES if name.startswith("loghub ")} == {f"loghub {name}" for name in named}
    known = {option for command in COMMANDS for one in command.params for option in one.opts}
    assert set(re.findall(r"(?<=`)--?[a-z][a-z-]*", text)) <= known


PAGES = sorted(set((ROOT / "docs").glob("*.md")) - {commands_page.PAGE})  # that one is generated


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_command_of_the_plugin_on_any_page_is_one_that_it_takes(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    inline = re.findall(r"`(kubectl loghub [^`]+)`", text)
    of_help = [one for examples in EXAMPLES.values() for one in examples if one.startswith("kubectl loghub ")]
    for command in {*COMMAND.findall(text), *inline, *of_help}:
        _, _, name, *rest = shlex.split(command.replace("NAME", "access").replace("NS", "shop"))
        chosen = root.get_command(root.make_context("", [], resilient_parsing=True), name)
        assert chosen is not None, command
        if rest:
            chosen.make_context(name, rest)


def test_the_shell_completes_commands_and_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    printed("", tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert complete(["re"]) == 0
    assert capsys.readouterr().out.split() == ["resume", "restart", "reset", "report", ":4"]
    assert complete(["status", "-n", "shop", "acc"]) == 0
    assert capsys.readouterr().out.split() == ["access-log", ":4"]
    monkeypatch.setenv("PATH", "/nowhere")
    assert complete(["status", "acc"]) == 0
    assert capsys.readouterr().out.split() == [":4"]


def test_the_status_of_a_group_that_is_not_there_is_on_the_page() -> None:
    assert f"| {NOT_FOUND} | no such group" in PAGE.read_text(encoding="utf-8")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        PAGE.write_text(printed(PAGE.read_text(encoding="utf-8"), Path(made)), encoding="utf-8")
