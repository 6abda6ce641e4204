"""The worker's own log: to standard error, and to a file if the settings name one.

Only the worker's main process logs through this. Spark's JVM and Python processes, and whatever code of the
user prints or logs through Python's `logging`, share its standard output and standard error, and stay as
they are (docs/worker-log.md).
"""

import contextlib
import logging
import sys
import threading
from pathlib import Path

import structlog
from structlog.typing import Processor

from loghub.log_settings import LogSettings
from loghub_worker.log_file import LogFile
from loghub_worker.settings import WorkerSettings

LEVELS = {"Debug": logging.DEBUG, "Info": logging.INFO, "Warn": logging.WARNING, "Error": logging.ERROR}
FOLDER = "log"  # in the state directory
MIB = 1 << 20


def configure_log(settings: LogSettings, file: LogFile | None = None) -> None:
    """Log with this level and in this format from now on, to standard error and to the file."""
    output = _Output(file)
    structlog.configure(
        processors=_processors(settings),
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[settings.level]),
        logger_factory=lambda *_: output,
    )


def open_log_file(settings: WorkerSettings) -> LogFile | None:
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

    return LogFile(
        path,
        max_bytes=log.file.max_size_mib * MIB,
        max_backups=log.file.max_backups,
        compress=log.file.compress,
        report=report,
    )


class _Output:
    """What structlog writes rendered lines to. The file has them in the order of standard error, whichever
    threads log at once."""

    def __init__(self, file: LogFile | None) -> None:
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
