"""The worker's log: format, level, and where it goes. `test_key_rotation` reads that of a worker on Spark."""

import io
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import structlog

from loghub.contract.sinks import ParquetSink
from loghub.contract.worker import LogFile as LogFileSettings
from loghub.contract.worker import LogLevel, LogSettings, encode_settings
from loghub_worker import __main__ as program
from loghub_worker.log import WorkerLogFile, configure_log
from loghub_worker.settings import WorkerSettings
from tests.loghub_worker.support import GUARD_S, worker_config, worker_environment
from tests.support import ROOT


@pytest.fixture
def as_before() -> Iterator[None]:
    yield
    structlog.reset_defaults()


def fail(secret: str) -> None:
    text = f"{secret} and more"
    raise ValueError(f"{len(text)} is odd")


def log_an_exception() -> None:
    try:
        fail("hush" + "-hush")
    except ValueError:
        structlog.get_logger().exception("internal error", number=7)


@pytest.mark.usefixtures("as_before")
def test_an_exception_is_logged_with_its_place_but_without_values_of_variables(
    capsys: pytest.CaptureFixture[str],
) -> None:
    configure_log(LogSettings())
    log_an_exception()
    output = capsys.readouterr().err
    for text in ("internal error", "number=7", "Traceback", "in fail", "ValueError: 18 is odd"):
        assert text in output
    assert "hush-hush" not in output


@pytest.mark.usefixtures("as_before")
def test_a_message_in_json_is_one_object_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    configure_log(LogSettings(format="JSON"))
    log_an_exception()
    structlog.get_logger().info("two\nlines", path=Path("/a"), error=OSError("no"))
    first, second = (json.loads(line) for line in capsys.readouterr().err.splitlines())
    assert (first["event"], first["level"], first["number"]) == ("internal error", "error", 7)
    assert first["timestamp"].endswith("Z")
    assert "ValueError: 18 is odd" in first["exception"]
    assert "hush-hush" not in first["exception"]
    assert (second["event"], second["error"]) == ("two\nlines", "OSError('no')")


@pytest.mark.usefixtures("as_before")
@pytest.mark.parametrize(
    ("level", "logged"),
    [
        ("Debug", ["debug", "info", "warning", "error"]),
        ("Info", ["info", "warning", "error"]),
        ("Warn", ["warning", "error"]),
        ("Error", ["error"]),
    ],
)
def test_less_severe_messages_are_left_out(
    level: LogLevel, logged: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also by loggers that exist already, and the same on standard error and in the file."""
    log = structlog.get_logger()
    configure_log(LogSettings(level="Error"))
    log.info("left out")
    path = tmp_path / "log"
    file = WorkerLogFile(path, max_bytes=1 << 20, max_backups=1, compress=False, report=unexpected)
    configure_log(LogSettings(level=level, format="JSON"), file)
    for method in ("debug", "info", "warning", "error"):
        getattr(log, method)("said")
    assert file.close()
    on_stderr = capsys.readouterr().err
    assert [json.loads(line)["level"] for line in on_stderr.splitlines()] == logged
    assert path.read_text() == on_stderr


def unexpected(event: str, message: str) -> None:
    raise AssertionError(f"{event}: {message}")


@pytest.mark.usefixtures("as_before")
def test_the_file_has_the_lines_of_all_threads_in_the_order_of_standard_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", on_stderr := io.StringIO())
    path = tmp_path / "log"
    file = WorkerLogFile(path, max_bytes=1 << 20, max_backups=1, compress=False, report=unexpected)
    configure_log(LogSettings(format="JSON"), file)

    def log_lines(thread: int) -> None:
        for number in range(500):
            structlog.get_logger().info("line", thread=thread, number=number)

    before_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(log_lines, range(4)))
    finally:
        sys.setswitchinterval(before_s)
    assert file.close()
    assert path.read_text() == on_stderr.getvalue()
    assert path.read_text().count("\n") == 2000


class Full(io.StringIO):
    """A standard error on a full disk, as with `loghub up`."""

    def write(self, text: str) -> int:
        raise OSError(28, "No space left on device")


@pytest.mark.usefixtures("as_before")
def test_a_standard_error_on_a_full_disk_ends_no_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", Full())
    path = tmp_path / "log"
    file = WorkerLogFile(path, max_bytes=1 << 20, max_backups=1, compress=False, report=unexpected)
    configure_log(LogSettings(), file)
    structlog.get_logger().error("still in the file")
    assert file.close()
    assert "still in the file" in path.read_text()


@pytest.mark.usefixtures("as_before")
def test_a_worker_ends_only_after_its_file_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(_: WorkerSettings) -> int:
        structlog.get_logger().error("the last message")
        return 0

    monkeypatch.setattr(program, "_run", run)
    for name, value in variables_of(tmp_path, LogSettings(file=LogFileSettings())).items():
        monkeypatch.setenv(name, value)
    assert program.main() == 0
    assert "log file" not in {thread.name for thread in threading.enumerate()}
    assert "the last message" in (tmp_path / "state" / "log" / "w-0.log").read_text()


def variables_of(folder: Path, log: LogSettings) -> dict[str, str]:
    config = worker_config("http://127.0.0.1:9", ParquetSink(path=str(folder / "sink")), log=log)
    (folder / "config.json").write_bytes(encode_settings(config))
    return worker_environment(folder, name="w-0", credentials_dir=folder)


def failing_worker(folder: Path, log: LogSettings) -> tuple[int, str]:
    """Exit status and standard error of a worker process that finds no Java."""
    folder.mkdir(exist_ok=True)
    variables = variables_of(folder, log)
    environment = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    ended = subprocess.run(
        [sys.executable, "-m", "loghub_worker"],
        cwd=ROOT,
        env=environment | variables | {"PATH": str(folder)},
        stderr=subprocess.PIPE,
        text=True,
        timeout=GUARD_S,
        check=False,
    )
    return ended.returncode, ended.stderr


@pytest.mark.long
def test_the_file_has_the_last_message_of_a_worker_that_ends_at_once(tmp_path: Path) -> None:
    status, on_stderr = failing_worker(tmp_path, LogSettings(format="JSON", file=LogFileSettings()))
    assert status == 1
    assert (tmp_path / "state" / "log" / "w-0.log").read_text() == on_stderr
    assert json.loads(on_stderr.splitlines()[-1])["reason"] == "JavaMissing"


@pytest.mark.long
def test_a_file_that_cannot_be_written_is_reported_once_and_changes_nothing_else(tmp_path: Path) -> None:
    folder = tmp_path / "no-folder"
    folder.write_text("in the way")
    status, on_stderr = failing_worker(
        tmp_path / "w-0", LogSettings(format="JSON", file=LogFileSettings(folder=str(folder)))
    )
    messages = [json.loads(line) for line in on_stderr.splitlines()]
    assert status == 1
    assert "JavaMissing" in {message.get("reason") for message in messages}
    (reported,) = [message for message in messages if "log file" in message["event"]]
    assert reported["file"] == str(folder / "w-0.log")
    assert "exists" in reported["message"]
