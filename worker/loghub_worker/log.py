"""The worker's own log: to standard error, and to a file of bounded size if the settings name one.

The file is for reading, and nothing depends on it. A volume that is full, read-only or hangs must not stop
the worker, nor a thread that logs, such as the heartbeats' thread. So one thread writes the file from a
bounded queue. A line that does not fit into the queue, or cannot be written, is left out of the file and
counted; standard error has it.

Only the worker's main process logs through this. Spark's JVM and Python processes, and user code that prints
or logs through Python's `logging`, share its standard output and standard error unchanged
(docs/worker-log.md).
"""

import contextlib
import gzip
import logging
import os
import queue
import re
import shutil
import sys
import threading
from collections.abc import Callable
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path

import structlog
from structlog.typing import Processor

from loghub.contract.worker import LogSettings
from loghub_worker.settings import WorkerSettings

QUEUE_LINES = 10_000  # some seconds of a busy log while a disk hangs, in a few megabytes
CLOSE_S = 5.0  # how long the end of a worker waits for the file, within the grace period of its pod
FASTEST = 1  # the level of gzip: log lines shrink to a tenth already
COMPRESSED = ".gz"
_PART = ".part"  # a backup that is being compressed

Report = Callable[[str, str], None]  # what has changed, and the error or a number


class WorkerLogFile:
    """The file; `write` may be called by any thread and returns at once."""

    def __init__(
        self, path: Path, *, max_bytes: int, max_backups: int, compress: bool, report: Report
    ) -> None:
        """``report`` is called by any thread, once when the file can no longer be written and once when it
        can again. It must not write to this file."""
        self._handler = _RotatedFile(path, max_bytes, max_backups, compress=compress, report=report)
        self._lines: queue.Queue[str | None] = queue.Queue(QUEUE_LINES)
        self._thread = threading.Thread(target=self._run, name="log file", daemon=True)
        self._thread.start()

    def write(self, line: str) -> None:
        """Append a line, without its line break."""
        try:
            self._lines.put_nowait(line)
        except queue.Full:
            self._handler.miss("more is logged than it takes")

    def close(self, timeout_s: float = CLOSE_S) -> bool:
        """Write what is in the queue and close the file. False if that takes too long."""
        try:
            self._lines.put(None, timeout=timeout_s)
        except queue.Full:
            return False
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while (line := self._lines.get()) is not None:
            self._handler.handle(logging.makeLogRecord({"msg": line}))
        self._handler.close()


class _RotatedFile(RotatingFileHandler):
    """Only the thread of a `WorkerLogFile` writes to it.

    It belongs to no logger, so that code of the user that configures Python's `logging` does not disable it.
    """

    def __init__(
        self, path: Path, max_bytes: int, max_backups: int, *, compress: bool, report: Report
    ) -> None:
        super().__init__(
            path, maxBytes=max_bytes, backupCount=max_backups, encoding="utf-8", errors="replace", delay=True
        )
        self._path = path
        self._compress = compress
        self._report = report
        self._missing = 0  # lines since the last one that was written
        self._counting = threading.Lock()
        self._failed = False  # the line that is being written
        self._uncompressed = False

    def emit(self, record: logging.LogRecord) -> None:
        self._failed = False
        super().emit(record)
        if self._failed:
            return
        with self._counting:
            missing, self._missing = self._missing, 0
        if missing:
            self._report("the log file is written again", f"lines missing in it: {missing}")

    def shouldRollover(self, record: logging.LogRecord) -> bool:  # noqa: N802 - the name in logging
        """By the number of bytes; the method that this replaces counts characters."""
        if self.stream is None:
            self.stream = self._open()
        size = self.stream.seek(0, os.SEEK_END)
        line = f"{record.msg}{self.terminator}".encode(errors="replace")
        return size > 0 and size + len(line) > self.maxBytes

    def doRollover(self) -> None:  # noqa: N802 - the name in logging
        """Compress the file only after every file has its new name, unlike the method that this replaces, and
        remove backups of earlier settings, too. A backup that cannot be compressed stays uncompressed."""
        self._close_stream()
        for number, backup in sorted(self._backups(), reverse=True):
            if number >= self.backupCount:
                backup.unlink(missing_ok=True)
            else:
                backup.replace(self._backup(number + 1, backup.suffix == COMPRESSED))
        latest = self._backup(1)
        with contextlib.suppress(FileNotFoundError):  # it was removed
            self._path.replace(latest)
        if self._compress:
            self._compress_file(latest)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: ARG002, N802 - the name in logging
        """Called while an exception is handled. Closing the file drops what its buffer still has; that would
        otherwise be written after the line had been counted as missing."""
        self._failed = True
        self._close_stream()
        self.miss(str(sys.exc_info()[1]))

    def miss(self, error: str) -> None:
        """Count a line that is not in the file."""
        with self._counting:
            self._missing += 1
            first = self._missing == 1
        if first:
            self._report("the log file cannot be written; the lines are on standard error only", error)

    def _open(self) -> TextIOWrapper:
        """A line that a full volume or a kill has cut off is ended, so that the next one stands alone."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        stream = super()._open()
        if self._is_cut_off():
            stream.write(self.terminator)
        return stream

    def _is_cut_off(self) -> bool:
        try:
            with self._path.open("rb") as file:
                file.seek(-1, os.SEEK_END)
                return file.read(1) != b"\n"
        except OSError:  # it is empty
            return False

    def _close_stream(self) -> None:
        stream, self.stream = self.stream, None
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()

    def _backups(self) -> list[tuple[int, Path]]:
        pattern = re.compile(re.escape(self._path.name) + rf"\.([1-9]\d*)({re.escape(COMPRESSED)})?")
        backups = ((pattern.fullmatch(path.name), path) for path in self._path.parent.iterdir())
        return [(int(match[1]), path) for match, path in backups if match is not None]

    def _backup(self, number: int, compressed: bool = False) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}{COMPRESSED if compressed else ''}")

    def _compress_file(self, backup: Path) -> None:
        part = self._path.with_name(f"{self._path.name}{_PART}")
        try:
            with backup.open("rb") as source, gzip.open(part, "wb", FASTEST) as target:
                shutil.copyfileobj(source, target)
            part.replace(self._backup(1, compressed=True))
            backup.unlink()
        except OSError as error:
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)
            if not self._uncompressed:
                self._report("backups of the log file cannot be compressed", str(error))
            self._uncompressed = True
        else:
            self._uncompressed = False


LEVELS = {"Debug": logging.DEBUG, "Info": logging.INFO, "Warn": logging.WARNING, "Error": logging.ERROR}
FOLDER = "log"  # in the state directory
MIB = 1 << 20


def configure_log(settings: LogSettings, file: WorkerLogFile | None = None) -> None:
    """Log with this level and in this format from now on, to standard error and to the file."""
    output = _Output(file)
    structlog.configure(
        processors=_processors(settings),
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[settings.level]),
        logger_factory=lambda *_: output,
    )


def open_log_file(settings: WorkerSettings) -> WorkerLogFile | None:
    """The file that the settings name; None if they name none. Nothing is opened yet, so nothing fails."""
    log = settings.config.log
    if log.file is None:
        return None
    folder = Path(log.file.folder) if log.file.folder is not None else settings.state_dir / FOLDER
    on_stderr = structlog.wrap_logger(
        _Output(None),
        processors=_processors(log),
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[log.level]),
    )
    path = folder / f"{settings.consumer}.log"

    def report(event: str, message: str) -> None:
        on_stderr.warning(event, file=str(path), message=message)

    return WorkerLogFile(
        path,
        max_bytes=log.file.max_size_mib * MIB,
        max_backups=log.file.max_backups,
        compress=log.file.compress,
        report=report,
    )


class _Output:
    """What structlog writes rendered lines to. The file has them in the order of standard error, whichever
    threads log at once."""

    def __init__(self, file: WorkerLogFile | None) -> None:
        self._stderr = structlog.PrintLogger(sys.stderr)
        self._file = file
        self._in_order = threading.Lock()

    def msg(self, message: str) -> None:
        with self._in_order:
            if self._file is not None:
                self._file.write(message)
            with contextlib.suppress(OSError):  # with `loghub up` it is a file, whose disk may be full
                self._stderr.msg(message)

    debug = info = warning = error = critical = msg


def _processors(settings: LogSettings) -> list[Processor]:
    """The processors are listed because structlog's default, where `rich` is installed, shows each frame's
    local variables with an exception, and one of them may be a key."""
    colors = sys.stderr.isatty() and settings.file is None
    return [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        structlog.processors.JSONRenderer()
        if settings.format == "JSON"
        else structlog.dev.ConsoleRenderer(colors=colors),
    ]
