"""The worker's log: format, level, and where it goes. `test_key_rotation` reads the log of a worker on Spark.

The second half is about the log file: its rotation, and volumes on which it cannot be written.
"""

import gzip
import io
import json
import logging
import logging.config
import os
import queue
import re
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import structlog

from loghub.contract.sinks import ParquetSink
from loghub.contract.worker import LogFile as LogFileSettings
from loghub.contract.worker import LogLevel, LogSettings, encode_settings
from loghub_worker import __main__ as program
from loghub_worker.log import QUEUE_LINES, WorkerLogFile, configure_log
from loghub_worker.settings import WorkerSettings
from tests.loghub_worker.support import GUARD_S, worker_config, worker_environment
from tests.support import ROOT, wait_until


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


CANNOT_WRITE = "the log file cannot be written; the lines are on standard error only"
WRITTEN_AGAIN = "the log file is written again"
NOT_COMPRESSED = "backups of the log file cannot be compressed"
DEV_FULL = Path("/dev/full")
Start = Callable[..., WorkerLogFile]


class Reports:
    """What was reported: each event and its message."""

    def __init__(self) -> None:
        self._all: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()

    def __call__(self, event: str, message: str) -> None:
        self._all.put((event, message))

    def next(self) -> tuple[str, str]:
        """Wait for the next one."""
        return self._all.get(timeout=GUARD_S)

    def rest(self) -> list[tuple[str, str]]:
        return [self._all.get() for _ in range(self._all.qsize())]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log" / "w-0.log"


@pytest.fixture
def reports() -> Reports:
    return Reports()


@pytest.fixture
def start(path: Path, reports: Reports) -> Iterator[Start]:
    started = []

    def begin(**changes: Any) -> WorkerLogFile:
        settings = {"max_bytes": 100, "max_backups": 3, "compress": False} | changes
        started.append(WorkerLogFile(path, report=reports, **settings))
        return started[-1]

    yield begin
    for one in started:
        one.close()


def files(path: Path) -> list[str]:
    return sorted(one.name for one in path.parent.iterdir())


def text_of(file: Path) -> str:
    return (gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()).decode()


def lines(path: Path) -> list[str]:
    """Every line, the oldest first."""

    def age(file: Path) -> int:
        number = re.fullmatch(r".*\.log\.(\d+)(\.gz)?", file.name)
        return int(number[1]) if number else 0

    ordered = sorted(path.parent.iterdir(), key=age, reverse=True)
    return [line for file in ordered for line in text_of(file).splitlines()]


@pytest.mark.parametrize("compress", [False, True])
def test_every_line_of_several_threads_is_there_once_and_no_file_is_too_large(
    start: Start, path: Path, reports: Reports, compress: bool
) -> None:
    threads, count, max_bytes = 8, 400, 4096
    file = start(max_bytes=max_bytes, max_backups=100, compress=compress)

    def log(thread: int) -> None:
        for number in range(count):
            file.write(f"{thread} {number} {'ü' * (number % 50)}")

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(log, range(threads)))
    assert file.close(60)
    numbers = defaultdict(list)
    for line in lines(path):
        thread, number, *_ = line.split(" ")
        numbers[int(thread)].append(int(number))
    assert numbers == {thread: list(range(count)) for thread in range(threads)}
    sizes = [len(text_of(one).encode()) for one in path.parent.iterdir()]
    assert len(sizes) > 20
    assert max(sizes) <= max_bytes
    suffixes = {one.suffix for one in path.parent.iterdir() if one != path}
    assert (".gz" in suffixes, len(suffixes) == 1) == (compress, compress)
    assert reports.rest() == []


@pytest.mark.parametrize(("compress", "suffix"), [(False, ""), (True, ".gz")])
def test_only_so_many_backups_are_kept_the_latest_with_number_one(
    start: Start, path: Path, compress: bool, suffix: str
) -> None:
    file = start(max_bytes=10, compress=compress)
    for number in range(9):
        file.write(f"line {number}")  # two lines are more than ten bytes
    assert file.close()
    assert files(path) == ["w-0.log", *(f"w-0.log.{n}{suffix}" for n in (1, 2, 3))]
    assert lines(path) == ["line 5", "line 6", "line 7", "line 8"]


def test_a_line_longer_than_a_file_has_a_file_of_its_own(start: Start, path: Path) -> None:
    file = start(max_bytes=10)
    for line in ("short", "x" * 50, "short"):
        file.write(line)
    assert file.close()
    assert [text_of(path.with_name(name)) for name in files(path)] == ["short\n", "x" * 50 + "\n", "short\n"]


def test_backups_of_earlier_settings_are_kept_in_order_and_removed_in_turn(start: Start, path: Path) -> None:
    """Compression was switched on, then off, and the number was lowered."""
    for number, changes in enumerate(({}, {"compress": True}, {"max_backups": 2})):
        file = start(max_bytes=10, **changes)
        for line in range(2):
            file.write(f"line {number}{line}")
        assert file.close()
        if number == 1:
            assert lines(path) == ["line 00", "line 01", "line 10", "line 11"]
            assert files(path) == ["w-0.log", "w-0.log.1.gz", "w-0.log.2.gz", "w-0.log.3"]
    assert files(path) == ["w-0.log", "w-0.log.1", "w-0.log.2"]
    assert lines(path) == ["line 11", "line 20", "line 21"]


@pytest.mark.skipif(not DEV_FULL.exists(), reason="there is no /dev/full")
def test_a_full_volume_is_reported_once_and_nothing_else_happens(
    start: Start, path: Path, reports: Reports
) -> None:
    path.parent.mkdir()
    path.symlink_to(DEV_FULL)
    file = start()
    for number in range(20):
        file.write(f"lost {number}")
    assert file.close()
    assert reports.rest() == [(CANNOT_WRITE, "[Errno 28] No space left on device")]


@pytest.mark.skipif(not DEV_FULL.exists(), reason="there is no /dev/full")
def test_a_line_that_found_no_space_is_not_written_later(start: Start, path: Path, reports: Reports) -> None:
    path.parent.mkdir()
    path.symlink_to(DEV_FULL)
    file = start()
    file.write("lost")
    assert reports.next()[0] == CANNOT_WRITE
    path.unlink()
    file.write("kept")
    assert reports.next() == (WRITTEN_AGAIN, "lines missing in it: 1")
    assert file.close()
    assert lines(path) == ["kept"]


def test_a_file_that_can_be_written_again_goes_on_and_the_gap_is_reported(
    start: Start, path: Path, reports: Reports
) -> None:
    path.parent.write_text("in the way of the folder")
    file = start()
    file.write("lost")
    event, message = reports.next()
    assert event == CANNOT_WRITE
    assert "exists" in message
    path.parent.unlink()
    file.write("kept")
    assert reports.next() == (WRITTEN_AGAIN, "lines missing in it: 1")
    assert file.close()
    assert lines(path) == ["kept"]


def test_a_file_that_cannot_be_rotated_grows_no_further(start: Start, path: Path, reports: Reports) -> None:
    blocked = path.with_name("w-0.log.1")
    (blocked / "full").mkdir(parents=True)
    file = start(max_bytes=10, max_backups=1)  # so the folder ought to be removed
    for line in ("line 1", "line 2", "line 3"):
        file.write(line)
    assert reports.next()[0] == CANNOT_WRITE
    assert file.close()
    assert path.read_text() == "line 1\n"
    assert reports.rest() == []


def test_backups_that_cannot_be_compressed_are_kept_as_they_are(
    start: Start, path: Path, reports: Reports
) -> None:
    part = path.with_name("w-0.log.part")
    part.mkdir(parents=True)  # in the way of what is being compressed
    file = start(max_bytes=10, compress=True)
    for line in ("line 1", "line 2", "line 3"):
        file.write(line)
    assert file.close()
    (event, _), *more = reports.rest()
    assert (event, more) == (NOT_COMPRESSED, [])
    part.rmdir()
    file = start(max_bytes=10, compress=True)
    file.write("line 4")
    assert file.close()
    assert files(path) == ["w-0.log", "w-0.log.1.gz", "w-0.log.2", "w-0.log.3"]
    assert lines(path) == ["line 1", "line 2", "line 3", "line 4"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes")
def test_a_volume_that_hangs_delays_nobody_who_logs(start: Start, path: Path, reports: Reports) -> None:
    """Opening a named pipe takes until another process reads it."""
    path.parent.mkdir()
    os.mkfifo(path)
    file = start()
    for number in range(QUEUE_LINES + 10):
        file.write(f"line {number}")
    assert reports.rest() == [(CANNOT_WRITE, "more is logged than it takes")]
    assert not file.close(0.05)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    assert file.close(GUARD_S)
    os.close(reader)


def test_a_line_that_was_cut_off_does_not_spoil_the_next_one(start: Start, path: Path) -> None:
    path.parent.mkdir()
    path.write_text('{"event": "whole"}\n{"event": "cut')
    file = start()
    file.write('{"event": "next"}')
    assert file.close()
    assert lines(path) == ['{"event": "whole"}', '{"event": "cut', '{"event": "next"}']


def test_a_file_that_was_removed_is_made_again_at_its_rotation(
    start: Start, path: Path, reports: Reports
) -> None:
    file = start(max_bytes=10)
    file.write("line 1")
    wait_until(path.exists, "the file")
    path.unlink()
    for line in ("line 2", "line 3"):
        file.write(line)
    assert file.close()
    assert lines(path)[-1] == "line 3"
    assert reports.rest() == []


def test_code_that_configures_logging_changes_nothing(start: Start, path: Path) -> None:
    """It disables the loggers that exist and closes the handlers of all."""
    file = start()
    file.write("before")
    wait_until(lambda: path.exists() and path.stat().st_size > 0, "the line")
    loggers = [one for one in logging.root.manager.loggerDict.values() if isinstance(one, logging.Logger)]
    disabled = {one: one.disabled for one in loggers}
    try:
        logging.config.dictConfig({"version": 1})
        logging.disable(logging.CRITICAL)
        file.write("after")
        assert file.close()
    finally:
        logging.disable(logging.NOTSET)
        for one in loggers:
            one.disabled = disabled[one]
    assert lines(path) == ["before", "after"]
