"""The service's log configuration: JSON or readable lines, on stderr.

Whatever writes a line, it is limited (`line_limit`) and does not wait for its reader (`line_writer`).
"""

import logging
import sys
import time
from dataclasses import dataclass, field
from typing import Any

import structlog

from loghub.service.line_limit import LineLimit, limited
from loghub.service.line_writer import LineWriter


@dataclass(frozen=True, slots=True)
class LogLines:
    """The lines of this process: its log, and what it tells the process that has started it."""

    writer: LineWriter = field(default_factory=LineWriter)
    announcements: LineWriter = field(default_factory=lambda: LineWriter(1))
    limit: LineLimit = field(default_factory=LineLimit)

    def lost(self) -> dict[str, int]:
        """How many lines are not in the log, by the reason."""
        return {"repeated": self.limit.left_out, "not read": self.writer.dropped}

    def close(self) -> None:
        self.announcements.close()
        self.writer.close()


class _QueueLogger:
    """structlog's logger of lines that are complete."""

    def __init__(self, writer: LineWriter) -> None:
        self.msg = writer.write
        self.debug = self.info = self.warning = self.error = self.critical = writer.write


class _OfLibraries(logging.Handler):
    """What libraries log, in the same form."""

    def emit(self, record: logging.LogRecord) -> None:
        line: dict[str, Any] = {"library": record.name, "message": record.getMessage()}
        structlog.get_logger("loghub.service").log(
            record.levelno, "message of a library", exc_info=record.exc_info, **line
        )


def configure(log_format: str) -> LogLines:
    """Configure the format ``json`` or ``console``. Callers never log secrets or log data."""
    lines = LogLines()
    renderer = (
        structlog.processors.JSONRenderer()
        if log_format == "json"
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )
    structlog.configure(
        processors=[
            limited(lines.limit, time.monotonic),
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=lambda *_: _QueueLogger(lines.writer),
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(level=logging.WARNING, handlers=[_OfLibraries()], force=True)
    # Its warnings are about single requests: a client could fill the log with malformed ones.
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    return lines
