"""``loghub pull`` and ``loghub tail``: what they print, from where to where, and how they end."""

import json
import os
import re
import signal
import subprocess
from itertools import count
from pathlib import Path

import pytest
import yaml

from loghub.wire.loggroup import Log, LogGroup, encode
from loghub_cli.read import PULL_COUNT
from tests.loghub.client.contract import HIGH, LOW, group_of
from tests.loghub_cli.command import COMMAND, STORE, Cli, Running
from tests.support import ROOT, START_GUARD_S, running_service, wait_until

GUARD_S = 120.0


def put(cli: Cli, *lines: str, key: str = LOW) -> None:
    for line in lines:
        cli.client.put_logs(STORE, group_of(line), hash_key=key)


def test_the_logs_of_a_shard_are_printed_in_each_format(either: Cli) -> None:
    put(either, "one", "two")
    cursor = either.client.get_cursor(STORE, 0, "begin")
    records = [json.loads(line) for line in either("pull", STORE, 0, "-o", "json").out.splitlines()]
    assert records[0] == {
        "__time__": 1_700_000_000,
        "__topic__": "t",
        "__source__": "s",
        "__tag__:host": "h",
        "__shard__": 0,
        "__cursor__": cursor,
        "__index__": 0,
        "line": "one",
    }
    assert list(yaml.safe_load_all(either("pull", STORE, 0, "-o", "yaml").out)) == records
    assert either("pull", STORE, 0).out == "2023-11-14T22:13:20Z  0  one\n2023-11-14T22:13:20Z  0  two\n"
    assert either("pull", STORE, 0, "--field", "line").out == "one\ntwo\n"
    assert either("pull", STORE, 0, "--field", "none").out == ""
    assert either("pull", STORE, 0, "-n", 1, "--field", "line").out == "one\n"
    # A printed cursor is a position.
    second = records[1]["__cursor__"]
    assert either("pull", STORE, 0, "--from-cursor", second, "--field", "line").out == "two\n"
    assert either("pull", STORE, 0, "--to-cursor", second, "--field", "line").out == "one\n"
    assert either("pull", STORE, 0, "--from", "end").out == ""
    assert either("pull", STORE, 0, "--from", "1h", "--field", "line").out == "one\ntwo\n"
    assert either("pull", STORE, 0, "--to", "1h").out == ""


def test_a_field_that_occurs_twice_is_printed_twice_in_every_format(cli: Cli) -> None:
    contents = (("a", "one"), ("b", "two"), ("a", "three"))
    cli.client.put_logs(STORE, encode(LogGroup(logs=(Log(time=1, contents=contents),))), hash_key=LOW)
    for form in ("table", "json", "yaml"):
        words = re.findall("one|two|three", cli("pull", STORE, 0, "-o", form).out)
        assert words == ["one", "two", "three"], form


def test_what_is_stored_cannot_control_the_terminal(cli: Cli) -> None:
    contents = (("a", "\x1b[2J"), ("b", "x\ny"), ("c", b"\xff\x9b"))
    cli.client.put_logs(STORE, encode(LogGroup(logs=(Log(time=1, contents=contents),))), hash_key=LOW)
    printed = cli("pull", STORE, 0).out
    assert printed == "1970-01-01T00:00:01Z  0  a=\\x1b[2J  b=x\\ny  c=\\xff\\x9b\n"


@pytest.mark.long
def test_more_than_one_answer_is_pulled(cli: Cli) -> None:
    lines = [str(number) for number in range(450)]
    put(cli, *lines)
    assert cli("pull", STORE, 0, "--field", "line").out.split() == lines


def test_invalid_positions_are_reported(cli: Cli) -> None:
    for arguments, message in (
        (("--from", "yesterday"), "use unix seconds, a time such as 2026-01-31T08:00:00Z, or an age"),
        (("--from-cursor", "abc"), "copy a cursor from"),
        (("--limit", "0"), "x>=1"),
    ):
        result = cli("pull", STORE, 0, *arguments)
        assert result.status == 2
        assert message in result.err
    assert "ShardNotExist" in cli("pull", STORE, 7).err
    assert cli("pull", STORE, "x").status == 2


# --- tail ----------------------------------------------------------------------------------------


def printed(running: Running) -> list[str]:
    return [json.loads(line)["line"] for line in running.out.splitlines(keepends=True) if line.endswith("\n")]


@pytest.mark.long
def test_a_tail_follows_all_shards_and_their_splits_and_merges(either: Cli) -> None:
    put(either, "before")
    with either.started("tail", STORE, "-o", "json") as running:
        expected: list[str] = []

        def until_printed(*lines: str) -> None:
            expected.extend(lines)
            wait_until(
                lambda: sorted(printed(running)) == sorted(expected),
                f"{expected}; {running.out} {running.err}",
                guard_s=GUARD_S,
            )

        numbers = count()

        def put_until_one_is_printed() -> bool:
            assert running.process.poll() is None, running.err
            put(either, f"first {next(numbers)}")
            return bool(printed(running))

        # The tail begins at the end, which it has fixed once it prints something.
        wait_until(put_until_one_is_printed, f"a log; {running.err}", guard_s=GUARD_S)
        last = f"first {next(numbers) - 1}"
        wait_until(lambda: last in printed(running), "the last of them", guard_s=GUARD_S)
        expected += printed(running)
        assert "before" not in expected
        put(either, "high", key=HIGH)
        until_printed("high")
        either.client.split_shard(STORE, 0)
        put(either, "in a child", key=LOW)
        either.client.merge_shards(STORE, 2)
        put(either, "in a grandchild", key=LOW)
        until_printed("in a child", "in a grandchild")
        lines = printed(running)
        assert lines.index("in a child") < lines.index("in a grandchild")
        assert running.interrupt(signal.SIGINT) == 0
        assert running.err == ""


@pytest.mark.long
def test_a_tail_of_everything_has_the_parents_first(cli: Cli) -> None:
    parents = [f"parent-{number}" for number in range(PULL_COUNT + 1)]  # more than one answer
    put(cli, *parents)
    cli.client.split_shard(STORE, 0)
    put(cli, "child")
    cli.client.merge_shards(STORE, 2)
    put(cli, "grandchild")
    result = cli("tail", STORE, "--from", "begin", "-n", len(parents) + 2, "--field", "line")
    assert (result.status, result.out.split()) == (0, [*parents, "child", "grandchild"])
    only = cli("tail", STORE, "--from", "begin", "--shard", 2, "-n", 1, "--field", "line")
    assert only.out == "child\n"
    missing = cli("tail", STORE, "--shard", 77)
    assert missing.status == 1
    assert "has no shard 77" in missing.err


@pytest.mark.long
def test_tail_and_watch_outlive_a_restart_of_the_service(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with running_service(tmp_path / "service") as service:
        cli = Cli(service, "demo", "http", tmp_path, capsys)
        cli.client.create_project()
        cli.client.create_logstore(STORE, shards=2)
        put(cli, "before")
        tail = ("tail", STORE, "--from", "begin", "-o", "json")
        watch = ("lag", STORE, "--watch", "--interval", "0.2", "-o", "json")
        with cli.started(*tail) as running, cli.started(*watch) as watching:
            wait_until(lambda: printed(running) == ["before"], f"a log; {running.err}", guard_s=GUARD_S)
            wait_until(lambda: "[]" in watching.out, f"a look; {watching.err}", guard_s=GUARD_S)
            service.terminate()
            for one in (running, watching):
                wait_until(lambda one=one: "it is tried again" in one.err, "the outage", guard_s=GUARD_S)
            service.start()
            put(cli, "after")
            wait_until(lambda: len(printed(running)) == 2, f"the next log; {running.err}", guard_s=GUARD_S)
            assert printed(running) == ["before", "after"]
            looks = watching.out.count("[]")
            wait_until(lambda: watching.out.count("[]") > looks, f"{watching.err}", guard_s=GUARD_S)
            assert (running.interrupt(signal.SIGTERM), watching.interrupt(signal.SIGINT)) == (0, 0)
        cli.client.close()


@pytest.mark.long
@pytest.mark.parametrize("command", ["pull", "tail"])
def test_a_reader_that_ends_first_is_no_failure(cli: Cli, command: str) -> None:
    lines = ["x" * 1000] * 500
    cli.client.put_logs(STORE, group_of(*lines), hash_key=LOW)
    arguments = ("pull", STORE, "0") if command == "pull" else ("tail", STORE, "--from", "begin")
    with subprocess.Popen(
        [*COMMAND, *arguments],
        cwd=ROOT,
        env={**os.environ, **cli.environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().endswith("x\n")
        process.stdout.close()
        if command == "tail":
            put(cli, "more")  # only a write notices that the reader is gone
        assert process.wait(START_GUARD_S) == 0
        assert process.stderr.read() == ""
