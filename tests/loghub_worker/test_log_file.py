"""The worker's log file: its rotation, and volumes on which it cannot be written."""

import gzip
import logging
import logging.config
import os
import queue
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from loghub_worker.log import QUEUE_LINES, WorkerLogFile
from tests.support import wait_until

CANNOT_WRITE = "the log file cannot be written; the lines are on standard error only"
WRITTEN_AGAIN = "the log file is written again"
NOT_COMPRESSED = "backups of the log file cannot be compressed"
DEV_FULL = Path("/dev/full")
GUARD_S = 120.0
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
    try:
        logging.config.dictConfig({"version": 1})
        logging.disable(logging.CRITICAL)
        file.write("after")
        assert file.close()
    finally:
        logging.disable(logging.NOTSET)
    assert lines(path) == ["before", "after"]
