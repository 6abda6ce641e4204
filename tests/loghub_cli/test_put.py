"""``loghub put``: what is in a file or comes by a pipe is in the logstore, once and in order."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from loghub.wire import loggroup
from loghub.wire.loggroup import LogGroup
from tests.loghub.client.contract import HIGH, LOW
from tests.loghub_cli.command import COMMAND, STORE, Cli
from tests.support import ROOT, running_service, wait_until

GUARD_S = 120.0


def groups(cli: Cli, shard: int) -> list[LogGroup]:
    cursor = cli.client.get_cursor(STORE, shard, "begin")
    pulled = cli.client.pull_logs(STORE, shard, cursor=cursor, count=1000)
    return [loggroup.decode(body) for body in loggroup.split(pulled.body)]


def values(cli: Cli, shard: int = 0) -> list[str]:
    return [
        value.decode() if isinstance(value, bytes) else value
        for group in groups(cli, shard)
        for log in group.logs
        for _, value in log.contents
    ]


def test_the_lines_of_a_file_are_put_in_order(either: Cli, tmp_path: Path) -> None:
    lines = [f"line {number} äöü" for number in range(2500)]
    file = tmp_path / "a.log"
    file.write_text("\n".join(lines))  # the last line has no line end
    result = either.json("put", STORE, file, "--key", LOW)
    assert (result["logs"], result["logGroups"]) == (2500, 3)
    assert values(either) == lines


@pytest.mark.long
def test_standard_input_is_put_until_its_end(cli: Cli) -> None:
    result = cli.run("put", STORE, "-", "--key", HIGH, "-o", "json", text="a\r\n\nb\n").value
    assert (result["logs"], result["logGroups"]) == (3, 1)
    assert values(cli, 1) == ["a", "", "b"], "without line ends"


@pytest.mark.long
@pytest.mark.parametrize("where", ["standard input", "a pipe with a name"])
def test_a_log_that_comes_alone_does_not_wait_for_others(cli: Cli, tmp_path: Path, where: str) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    descriptor = os.open(pipe, os.O_RDWR)  # a pipe without readers cannot be opened for writing only
    file = "-" if where == "standard input" else pipe
    with (
        pipe.open("wb", buffering=0) as writer,
        cli.started("put", STORE, file, "--linger", "0.1", "--key", LOW, stdin=descriptor) as running,
    ):
        os.close(descriptor)
        writer.write(b"alone\n")
        wait_until(lambda: values(cli) == ["alone"], f"the log; {running.err}", guard_s=GUARD_S)
    followed = cli("put", STORE, pipe, "--follow")
    assert followed.status == 2
    assert "is not a regular file" in followed.err


def test_topic_source_tags_and_field_are_those_of_the_options(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "a.log"
    file.write_bytes(b"bad \xff byte\n")
    options = ("--topic", "t", "--source", "s", "--tag", "host=h1", "--tag", "zone=z=1", "--field", "message")
    assert cli("put", STORE, file, *options, "--key", LOW).status == 0
    (group,) = groups(cli, 0)
    assert (group.topic, group.source, group.tags) == ("t", "s", (("host", "h1"), ("zone", "z=1")))
    assert group.logs[0].contents == (("message", rb"bad \xff byte"),)
    assert abs(group.logs[0].time - time.time()) < 3600
    wrong = cli("put", STORE, file, "--tag", "host")
    assert wrong.status == 2
    assert "is not NAME=VALUE" in wrong.err


def test_json_lines_come_out_as_they_went_in(cli: Cli, tmp_path: Path) -> None:
    first = {"__time__": 1_700_000_000, "__topic__": "t", "__source__": "s", "__tag__:host": "h", "a": "1"}
    second = {**first, "__time_ns__": 5, "__topic__": "other", "b": "ü"}
    (tmp_path / "in.json").write_text("\n".join(map(json.dumps, (first, second, {"n": 7, "list": [1]}))))
    assert cli.json("put", STORE, tmp_path / "in.json", "--lines", "json", "--key", LOW)["logGroups"] == 3
    printed = cli("pull", STORE, 0, "-o", "json").out
    records = [json.loads(line) for line in printed.splitlines()]
    assert {key: records[0][key] for key in first} == first
    assert {key: records[1][key] for key in second} == second
    assert (records[2]["n"], records[2]["list"]) == ("7", "[1]")

    (tmp_path / "out.json").write_text(printed)
    cli.json("put", STORE, tmp_path / "out.json", "--lines", "json", "--key", HIGH)
    assert groups(cli, 1) == groups(cli, 0)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("[1]", "line 2 is not a JSON object"),
        ("{", "line 2 is not JSON"),
        ('{"__time__": "soon"}', "line 2 must have a __time__ that is a whole number"),
        ('{"a": "' + "x" * (1 << 20) + 'y"}', "line 2 has a value of more than 1048576 bytes, in 'a'"),
    ],
    ids=["array", "no JSON", "time", "long"],
)
def test_a_line_that_is_no_log_ends_it_and_what_is_before_is_put(
    cli: Cli, tmp_path: Path, line: str, message: str
) -> None:
    file = tmp_path / "in.json"
    file.write_text('{"a": "1"}\n' + line + '\n{"a": "3"}\n')
    result = cli("put", STORE, file, "--lines", "json", "--key", LOW)
    assert result.status == 2
    assert message in result.err
    assert "1 logs in 1 log groups are written" in result.err
    assert values(cli) == ["1"]


def test_mistakes_are_reported_in_one_line(cli: Cli, tmp_path: Path) -> None:
    missing = cli("put", STORE, tmp_path / "absent.log")
    assert missing.status == 1
    assert "No such file" in missing.err
    for arguments in (
        (STORE, "--follow"),
        (STORE, tmp_path / "a", "--from-end"),
        (STORE, "--rate", "0"),
        (STORE, "--key", "abc"),
        (STORE, "--batch-logs", "0"),
        ("UPPER",),
    ):
        assert cli("put", *arguments).status == 2
    (tmp_path / "a").write_text("x\n")
    refused = cli("put", "missing", tmp_path / "a")
    assert refused.status == 1
    assert "LogStoreNotExist" in refused.err
    assert "0 logs in 0 log groups are written; lines 1 to 1 and those after them are not" in refused.err


@pytest.mark.long
def test_a_followed_file_is_put_across_rotation_and_truncation(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "app.log"
    file.write_text("1\n2\n")
    follow = ("put", STORE, file, "--follow", "--linger", "0.1", "--key", LOW, "-o", "json")
    with cli.started(*follow) as running:

        def until(*expected: str) -> None:
            wait_until(
                lambda: sorted(values(cli)) == sorted(expected), f"{expected}; {running.err}", guard_s=GUARD_S
            )

        until("1", "2")
        with file.open("a") as writer:
            writer.write("3\nunfin")
            writer.flush()
            until("1", "2", "3")
            file.rename(tmp_path / "app.log.1")
            writer.write("ished\nlast of the old file\n")
        file.write_text("new 1\n")
        until("1", "2", "3", "unfinished", "last of the old file", "new 1")
        with file.open("r+") as writer:  # as logrotate's copytruncate does
            writer.truncate()
            writer.write("t\n")
        until("1", "2", "3", "unfinished", "last of the old file", "new 1", "t")
        assert running.interrupt(signal.SIGINT) == 0
        assert json.loads(running.out)["logs"] == 7


@pytest.mark.long
def test_a_followed_file_may_begin_at_its_end(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "app.log"
    file.write_text("old\n")
    with cli.started(
        "put", STORE, file, "--follow", "--from-end", "--linger", "0.1", "--key", LOW
    ) as running:
        position = Path(f"/proc/{running.process.pid}/fd")
        wait_until(lambda: _has_open(position, file), f"the open file; {running.err}", guard_s=GUARD_S)
        # It is opened and positioned before the first look, which the next line waits for.
        wait_until(lambda: _offset(running.process.pid, file) == 4, "its end", guard_s=GUARD_S)
        with file.open("a") as writer:
            writer.write("new\n")
        wait_until(lambda: values(cli) == ["new"], f"the new line; {running.err}", guard_s=GUARD_S)
        assert running.interrupt(signal.SIGTERM) == 0


def _has_open(folder: Path, file: Path) -> bool:
    return _descriptor(folder, file) is not None


def _descriptor(folder: Path, file: Path) -> str | None:
    for link in folder.iterdir():
        try:
            if link.readlink() == file:
                return link.name
        except OSError:
            continue
    return None


def _offset(pid: int, file: Path) -> int:
    name = _descriptor(Path(f"/proc/{pid}/fd"), file)
    text = Path(f"/proc/{pid}/fdinfo/{name}").read_text() if name else "pos: -1"
    return int(text.split()[1])


@pytest.mark.long
def test_a_rate_is_not_exceeded(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "a.log"
    file.write_text("".join(f"{number}\n" for number in range(60)))
    began = time.monotonic()
    result = cli.json("put", STORE, file, "--rate", 40, "--key", LOW)
    # The first batch of ten is free; the others wait for the 50 before the last of them.
    assert time.monotonic() - began >= 50 / 40
    assert (result["logs"], result["logGroups"]) == (60, 6)
    assert values(cli) == [str(number) for number in range(60)]


@pytest.mark.long
def test_progress_is_shown_on_a_terminal_only(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "a.log"
    file.write_text("line\n" * 40)
    assert cli("put", STORE, file, "--rate", 40).err == ""
    terminal, stderr = os.openpty()
    with subprocess.Popen(
        [*COMMAND, "put", STORE, str(file), "--rate", "40"],
        cwd=ROOT,
        env={**os.environ, **cli.environment},
        stdout=subprocess.DEVNULL,
        stderr=stderr,
    ) as process:
        os.close(stderr)
        assert process.wait(GUARD_S) == 0
        shown = os.read(terminal, 4096).decode()
        os.close(terminal)
    assert "30 logs, 0.0 of 0.0 MB, " in shown
    assert shown.endswith("\r\x1b[K"), "the line is removed at the end"


@pytest.mark.long
def test_an_interrupted_put_says_what_is_written(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "a.log"
    file.write_text("".join(f"{number}\n" for number in range(100_000)))
    with cli.started("put", STORE, file, "--rate", 100, "--key", LOW, "-o", "json") as running:
        wait_until(lambda: len(values(cli)) > 0, f"some logs; {running.err}", guard_s=GUARD_S)
        assert running.interrupt(signal.SIGINT) == 1
        count = json.loads(running.out)["logs"]
    assert "interrupted before the end of the input" in running.err
    assert values(cli) == [str(number) for number in range(count)]
    assert count < 100_000


@pytest.mark.long
def test_a_restart_of_the_service_is_waited_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with running_service(tmp_path / "service") as service:
        cli = Cli(service, "demo", "http", tmp_path, capsys)
        cli.client.create_project()
        cli.client.create_logstore(STORE, shards=1)
        service.terminate()
        file = tmp_path / "a.log"
        file.write_text("a\nb\n")
        with cli.started("put", STORE, file, "-o", "json") as running:
            wait_until(lambda: "it is tried again" in running.err, "the outage", guard_s=GUARD_S)
            service.start()
            assert running.process.wait(GUARD_S) == 0, running.err
        assert values(cli) == ["a", "b"]
        service.terminate()
        failed = cli("put", STORE, file, "--retry-for", "0.1")
        assert failed.status == 1
        assert "did not answer" in failed.err
        assert "0 logs in 0 log groups are written" in failed.err
        cli.client.close()
