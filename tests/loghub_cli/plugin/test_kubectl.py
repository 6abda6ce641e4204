"""The user's kubectl as a child: its errors, its watch, and what is passed on."""

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.cells import cell_len

from loghub_cli.plugin.kubectl import (
    FORBIDDEN,
    GROUPS,
    NOT_FOUND,
    UNREACHABLE,
    Kubectl,
    KubectlError,
    as_error,
    documents,
)
from loghub_cli.plugin.main import main
from tests.loghub_cli.plugin.objects import group, pod

Fake = Callable[..., Path]


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    """A kubectl that records its arguments, and prints what a test gives it."""

    def make(out: str = "", *, error: str = "", status: int = 0) -> Path:
        for name, text in {"out": out, "error": error}.items():
            (tmp_path / name).write_text(text)
        program = tmp_path / "kubectl"
        program.write_text(
            f'#!/bin/sh\ncd {tmp_path}\necho "$@" >> asked\ncat out\ncat error >&2\nexit {status}\n'
        )
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
        return tmp_path / "asked"

    return make


@pytest.mark.parametrize(
    ("said", "status", "words"),
    [
        ('error: the server doesn\'t have a resource type "lhcg"', NOT_FOUND, "install the op"),
        ('Error from server (NotFound): pods "a" not found', NOT_FOUND, 'pods "a" not found'),
        ("Error from server (Forbidden): pods is forbidden: User \"ann\"", FORBIDDEN, "not permitted"),
        ("Unable to connect to the server: dial tcp: lookup k: no such host", UNREACHABLE, "no such host"),
        ("The connection to the server localhost:8080 was refused - did you", UNREACHABLE, "does not answer"),
        ('error: context "prod" does not exist', UNREACHABLE, "prod"),
        ("error: You must be logged in to the server (Unauthorized)", UNREACHABLE, "logged in"),
        ("Error from server (Invalid): spec.replicas: must be at most 1000", 1, "spec.replicas"),
        ("", 1, "kubectl failed"),
    ],
)  # fmt: skip
def test_each_kind_of_error_has_an_exit_status_and_words(said: str, status: int, words: str) -> None:
    error = as_error(said)
    assert error.exit_code == status
    assert words in error.message
    assert "\n" not in as_error("a\nb\x1b[2J\nc").message


def test_without_kubectl_it_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert main(["status"]) == UNREACHABLE
    assert "there is no kubectl on PATH" in capsys.readouterr().err


def test_the_options_of_kubectl_are_passed_on(fake: Fake, capsys: pytest.CaptureFixture[str]) -> None:
    asked = fake(json.dumps({"items": []}))
    given = [
        "--context",
        "prod",
        "-n",
        "shop",
        "--kubeconfig",
        "/k",
        "--as",
        "ann",
        "--request-timeout",
        "5s",
    ]
    assert main(["status", *given]) == 0
    assert capsys.readouterr().out == "(no LogHubConsumerGroups)\n"
    passed = "--context=prod --namespace=shop --kubeconfig=/k --as=ann --request-timeout=5s"
    assert asked.read_text() == f"get {passed} {GROUPS} --output=json\n"


@pytest.mark.parametrize(
    "arguments",
    [["status", "--no-such"], ["stauts"], ["plan", "access"], ["plan", "access", "--replicas", "-1"],
     ["status", "access", "-A"], ["reset", "access"], ["reset", "access", "--to", "begin", "--undo"],
     ["reset", "access", "--to", "yesterday"], ["why", "A_b"], ["logs", "access", "--worker", "x"]],
)  # fmt: skip
def test_a_wrong_command_line_has_status_2(fake: Fake, arguments: list[str]) -> None:
    fake(json.dumps(group()))
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2


def test_a_reset_that_nobody_confirms_changes_nothing(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The API server has checked it by then, so what it refuses is known before anybody agrees."""
    asked = fake(json.dumps(group()))
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    with pytest.raises(SystemExit) as ended:
        main(["reset", "access", "--to", "begin"])
    assert ended.value.code == 2
    patches = [line for line in asked.read_text().splitlines() if line.startswith("patch")]
    assert [line.endswith("--dry-run=server --output=json") for line in patches] == [True]


def test_a_file_that_exists_stays_and_a_group_without_workers_is_not_restarted(
    fake: Fake, tmp_path: Path
) -> None:
    fake(json.dumps(group(replicas=0)))
    (tmp_path / "report.zip").write_text("mine")
    assert main(["report", "access", "--to", str(tmp_path / "report.zip")]) == 1
    assert (tmp_path / "report.zip").read_text() == "mine"
    assert main(["restart", "access"]) == 1
    assert main(["reset", "access", "--undo"]) == 1


@pytest.mark.parametrize("indent", [None, 4])
def test_a_watch_gives_each_event_as_it_comes_and_its_error(fake: Fake, indent: int | None) -> None:
    events = [{"type": "ADDED", "object": group()}, {"type": "DELETED", "object": group()}]
    text = "".join(json.dumps(one, indent=indent) + "\n" for one in events)
    lines = iter(text.splitlines(keepends=True))
    assert next(documents(lines)) == events[0]
    assert len(list(lines)) == len(text.splitlines()) // 2, "no line of the next event was awaited"
    fake(text, error="Error from server (Forbidden): no", status=1)
    seen = []
    with pytest.raises(KubectlError) as failed:
        seen.extend(one for _, one in Kubectl(()).watch(GROUPS))
    assert failed.value.exit_code == FORBIDDEN
    fake("")
    with pytest.raises(KubectlError, match="without an event"):
        list(Kubectl(()).watch(GROUPS))


def test_a_kubectl_that_prints_nonsense_is_an_error(fake: Fake) -> None:
    fake("Flag --x has been deprecated")
    with pytest.raises(KubectlError, match="no JSON"):
        Kubectl(()).object("get", GROUPS, "access")


def test_the_logs_of_a_worker_are_those_of_its_container(
    fake: Fake, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = fake(json.dumps(group()))
    assert main(["logs", "access", "--worker", "1", "--since", "10m"]) == 0
    assert (
        asked.read_text().splitlines()[-1]
        == "logs access-1 --prefix --container=worker --tail=200 --since=10m"
    )
    assert main(["logs", "access", "--pretty", "--follow"]) == 0
    assert "--max-log-requests=3 --container=worker --tail=200 --follow" in asked.read_text()


def test_a_shell_is_opened_in_the_container_and_its_status_is_ours(fake: Fake) -> None:
    asked = fake(json.dumps(group()))
    assert main(["shell", "access", "--worker", "1"]) == 0
    assert "exec --stdin" in asked.read_text()
    assert "access-1 --container=worker -- sh -c" in asked.read_text()
    fake(json.dumps(group(replicas=0)))
    assert main(["shell", "access"]) == 1


@pytest.mark.parametrize("name", ["status", "why", "lag", "shards", "plan", "reset", "report"])
def test_each_command_has_help_with_examples(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--help"]) == 0
    said = capsys.readouterr().out
    assert f"kubectl loghub {name}" in said
    assert "--context" in said.partition("Connection")[2]


def test_wide_characters_keep_the_columns(fake: Fake, capsys: pytest.CaptureFixture[str]) -> None:
    """And there is no colour, whatever the terminal can."""
    pods = [pod("access-0", ready=False, reason="驱逐", message="节点内存不足"), pod("access-1")]
    fake(json.dumps({"items": pods, **group()}))
    assert main(["status", "access"]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    lines = out[out.index("WORKER  ") :].splitlines()[:3]
    assert "驱逐: 节点内存不足" in lines[1]
    assert len({cell_len(line) for line in lines}) == 1, "the last column ends at one place"
