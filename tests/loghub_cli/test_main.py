"""The program around the commands: help, mistakes, exit statuses, completion, the service of this machine."""

import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator

import click
import pytest

from loghub.client.port import GroupInfo
from loghub_cli.commands import EXAMPLES
from loghub_cli.main import COMMANDS, main, root
from tests.loghub.client.scripted import refused_endpoint
from tests.loghub_cli.command import COMMAND, STORE, Cli
from tests.support import ROOT, START_GUARD_S


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_command_has_help_and_is_in_the_list(command: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--help"]) == 0
    assert "usage: loghub" in capfd.readouterr().out.lower()
    assert main(["--help"]) == 0
    assert f"\n  {command} " in capfd.readouterr().out


def test_every_command_and_option_of_a_noun_has_a_description(cli: Cli) -> None:
    for noun in ("project", "logstore", "shard", "group"):
        lines = cli(noun, "--help").out.partition("Commands:\n")[2].splitlines()
        assert len(lines) >= 4
        assert all(
            len(line.split(None, 1)) == 2 for line in lines if line.startswith("  ") and line[2] != " "
        )


def every_command() -> Iterator[tuple[str, click.Command, click.Context]]:
    """With the name that a user types, such as ``group reset``."""
    context = click.Context(root, info_name="loghub")
    for name in COMMANDS:
        command = root.get_command(context, name)
        assert command is not None
        under = click.Context(command, parent=context, info_name=name)
        if isinstance(command, click.Group):
            for verb, one in command.commands.items():
                yield f"{name} {verb}", one, click.Context(one, parent=under, info_name=verb)
        else:
            yield name, command, under


def test_every_command_of_a_log_service_or_a_group_has_an_example_that_can_be_parsed() -> None:
    # The examples of `kubectl loghub` are parsed by plugin/test_page.py.
    found = {name: "" for name in EXAMPLES if not name.startswith("loghub ")}
    for name, command, context in every_command():
        for example in EXAMPLES.get(name, ()):
            words = shlex.split(example)
            assert words[: 1 + len(name.split())] == ["loghub", *name.split()]
            command.make_context(name, words[1 + len(name.split()) :], parent=context.parent)
            found[name] = context.get_help()
            assert example in found[name]
    assert [name for name, shown in found.items() if "Example" not in shown] == []
    missing = {name for name, _, _ in every_command()} - EXAMPLES.keys()
    assert missing == {"fsck", "completion"}, "fsck has a help of its own, and that of completion is one"


def test_the_options_of_the_connection_come_after_those_of_the_command(cli: Cli) -> None:
    shown = cli("group", "reset", "--help").out
    at = [shown.index(text) for text in ("Options:", "--dry-run", "Connection:", "--endpoint", "Examples:")]
    assert at == sorted(at)
    assert "env: LOGHUB_ACCESS_KEY_ID" not in shown, "which is no name of a directory"


def test_the_lists_of_commands_have_whole_sentences(cli: Cli) -> None:
    for words in ((), ("project",), ("logstore",), ("shard",), ("group",)):
        assert "..." not in cli(*words, "--help").out.partition("Commands:")[2]


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [(("tial",), "tail"), (("logstore", "lst"), "list"), (("group", "checkpoint"), "checkpoints")],
)
def test_a_misspelt_command_is_answered_with_what_may_be_meant(
    cli: Cli, arguments: tuple[str, ...], meant: str
) -> None:
    assert cli(*arguments).err.endswith(f"there is no command '{arguments[-1]}'; did you mean {meant}?\n")


def test_a_name_that_does_not_exist_is_answered_with_one_that_does(cli: Cli) -> None:
    cli.client.create_group(STORE, GroupInfo(name="readers", timeout_s=60, order=False))
    for arguments, hint in (
        (("logstore", "show", "acess"), f"; did you mean {STORE}?"),
        (("put", "acess", "/dev/null"), ""),  # nothing was asked of the logstore
        (("pull", "acess", 0), f"; did you mean {STORE}?"),
        (("group", "checkpoints", STORE, "raeders"), "; did you mean readers?"),
        (("lag", STORE, "raeders"), "; did you mean readers?"),
        (("group", "delete", STORE, "other", "--yes"), ""),
        (("logstore", "list", "--project", f"{cli.project}x"), f"; did you mean {cli.project}?"),
        (("project", "show", f"{cli.project}x"), f"; did you mean {cli.project}?"),
    ):
        result = cli(*arguments)
        assert result.err.rstrip().endswith(hint), result.err
        assert bool(hint) == ("did you mean" in result.err)


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("nothing",),
        ("project",),
        ("project", "nothing"),
        ("logstore", "create"),
        ("logstore", "create", "UPPER"),
        ("logstore", "create", STORE, "--shards", "0"),
        ("logstore", "list", "-o", "xml"),
        ("logstore", "list", "--project", "-x-"),
        ("shard", "split", STORE, "-1"),
        ("shard", "split", STORE, "0", "--into", "3", "--at", "8" + "0" * 31),
        ("group", "reset", STORE, "readers"),
        ("tail", STORE, "--no-such-option"),
        ("completion", "tcsh"),
    ],
    ids=" ".join,
)
def test_an_invalid_command_line_has_status_2_and_one_message(cli: Cli, arguments: tuple[str, ...]) -> None:
    result = cli(*arguments)
    assert (result.status, result.out) == (2, "")
    assert "Usage: loghub" in result.err


@pytest.mark.long
def test_a_service_that_refuses_or_is_away_has_status_1(cli: Cli) -> None:
    cli.environment["LOGHUB_ACCESS_KEY_SECRET"] = "wrong"
    refused = cli("logstore", "list")
    assert refused.status == 1
    assert refused.err.startswith("loghub: SignatureNotMatch (HTTP 401")
    away = cli("logstore", "list", "--endpoint", refused_endpoint())
    assert away.status == 1
    assert "did not answer" in away.err
    assert "wrong" not in refused.err + away.err


def test_an_endpoint_that_no_client_can_reach_has_status_2(cli: Cli) -> None:
    result = cli("logstore", "list", "--endpoint", "https://127.0.0.1:1", "--client", "sdk")
    assert result.status == 2
    assert "the vendor SDK supports only" in result.err


@pytest.mark.long
def test_the_service_of_this_machine_needs_no_option(cli: Cli) -> None:
    state = cli.folder / "state" / "loghub" / "service"
    (state / "data").mkdir(parents=True)
    (state / "address").write_text(cli.service.endpoint.removeprefix("http://"))
    shutil.copytree(cli.service.credentials_dir, state / "data" / "credentials")
    for name in ("LOGHUB_ENDPOINT", "LOGHUB_ACCESS_KEY_ID", "LOGHUB_ACCESS_KEY_SECRET"):
        del cli.environment[name]
    assert cli.run("logstore", "list", "-o", "json").value[0]["logstore"] == STORE
    (state / "address").write_text(refused_endpoint().removeprefix("http://"))
    ended = cli("logstore", "list")
    assert ended.status == 1
    assert "`loghub up` and `loghub serve` start the service of this machine" in ended.err


@pytest.mark.long
def test_a_secret_is_no_argument(cli: Cli) -> None:
    for command in COMMANDS:
        for part in ("secret", "access-key", "token"):
            assert f"--{part}" not in cli(command, "--help").out


# --- completion ----------------------------------------------------------------------------------


def completed(cli: Cli, words: str, *, adapter_failed: bool = False) -> list[str]:
    """What the script of bash gets for these words, the last of which is incomplete."""
    if adapter_failed:
        cli.environment["LOGHUB_ENDPOINT"] = refused_endpoint()
    line = words.split(" ")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(cli.environment, "_LOGHUB_COMPLETE", "bash_complete")
        patch.setitem(cli.environment, "COMP_WORDS", words)
        patch.setitem(cli.environment, "COMP_CWORD", str(len(line) - 1))
        result = cli.run()
    assert result.err == ""
    return [entry.partition(",")[2] for entry in result.out.split()]


@pytest.mark.long
def test_commands_and_names_are_completed(cli: Cli) -> None:
    cli.client.create_logstore("another-store", shards=1)
    assert completed(cli, "loghub lo") == ["logstore"]
    assert completed(cli, "loghub shard s") == ["show", "split"]
    assert completed(cli, "loghub logstore show ") == [STORE, "another-store"]
    assert completed(cli, f"loghub project show {cli.project[:8]}").count(cli.project) == 1
    cli.run("group", "create", STORE, "readers")
    cli.run("group", "create", STORE, "writers")
    assert completed(cli, f"loghub lag {STORE} r") == ["readers"]
    assert completed(cli, "loghub logstore show ", adapter_failed=True) == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_a_shell_is_valid(cli: Cli, shell: str) -> None:
    script = cli("completion", shell).out
    assert f"_LOGHUB_COMPLETE={shell}_complete" in script
    if shutil.which(shell) is not None:
        subprocess.run([shell, "-n"], input=script, text=True, check=True, timeout=START_GUARD_S)


def test_the_module_is_a_program_of_its_own(cli: Cli) -> None:
    done = subprocess.run([*COMMAND, "--version"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("loghub, version ")


def test_a_closed_standard_output_is_one_line_and_a_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdout", None)  # as after `loghub ... >&-`
    assert main(["project", "list"]) == 1
    assert capsys.readouterr().err.splitlines() == [
        "loghub: standard output is closed: redirect it to a file, or to /dev/null"
    ]
