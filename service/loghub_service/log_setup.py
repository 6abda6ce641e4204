"""The service's log: JSON or readable lines on stderr, limited in number, written by a thread of their own.

A client may cause a line as often as it likes. One limit holds for all lines, and not one at each place that
writes a line, so that no place is forgotten. A line that repeats a line of the last minute is left out, and
so is a line beyond a number of lines of its kind in a minute: an attacker may use a new name each time. The
next line of the kind says how many were left out.

A pipe that its reader does not read blocks its writer: on the event loop that would end all heartbeats, until
the reader goes on. So lines wait in a bounded queue; a line that finds it full is dropped and counted. The
thread writes to the file descriptor, not to `sys.stderr`, whose lock it would hold while it is blocked.
"""

import logging
import os
import sys
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass, field
from typing import Any

import structlog

_QUIET_S = 60.0  # a repeated problem shows in the log at least once a minute
MAX_LINES = 60  # of a kind within `_QUIET_S`: one a second
# Different lines of a kind, so that memory is bounded; more of them count as new lines.
_MAX_REMEMBERED = 1000
_MAX_KINDS = 1000  # far above the number of kinds
_ALWAYS = "critical"


@dataclass(slots=True)
class _Kind:
    lines: deque[float] = field(default_factory=lambda: deque(maxlen=MAX_LINES))
    last_s: OrderedDict[str, float] = field(default_factory=OrderedDict)
    left_out: int = 0  # since the last line


class LineLimit:
    """Decides for each line by its kind, which is its text, and by its other content. Any thread may use
    it."""

    def __init__(self) -> None:
        self.left_out = 0  # of all kinds, ever
        self._kinds: OrderedDict[str, _Kind] = OrderedDict()
        self._lock = threading.Lock()

    def left_out_before(self, kind: str, says: str, *, now_s: float) -> int | None:
        """How many lines of the kind were left out before this one; None if this one is left out, too."""
        with self._lock:
            seen = self._kinds.setdefault(kind, _Kind())
            self._kinds.move_to_end(kind)
            while len(self._kinds) > _MAX_KINDS:
                self._kinds.popitem(last=False)
            if not self._should_log(seen, says, now_s):
                seen.left_out += 1
                self.left_out += 1
                return None
            left_out, seen.left_out = seen.left_out, 0
            return left_out

    @staticmethod
    def _should_log(seen: _Kind, says: str, now_s: float) -> bool:
        last_s = seen.last_s.get(says)
        if last_s is not None and now_s - last_s < _QUIET_S:
            return False
        if len(seen.lines) == MAX_LINES and now_s - seen.lines[0] < _QUIET_S:
            return False
        seen.lines.append(now_s)
        seen.last_s[says] = now_s
        seen.last_s.move_to_end(says)
        while len(seen.last_s) > _MAX_REMEMBERED:
            seen.last_s.popitem(last=False)
        return True


def limited(limit: LineLimit, now_s: Callable[[], float]) -> structlog.types.Processor:
    """The limit as structlog's first processor. A line that says why the service ends is never left out."""

    def process(_: Any, method: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        if method == _ALWAYS:
            return line
        says = repr([(name, value) for name, value in line.items() if name != "exc_info"])
        left_out = limit.left_out_before(str(line.get("event")), says, now_s=now_s())
        if left_out is None:
            raise structlog.DropEvent
        if left_out:
            line["left_out"] = left_out
        return line

    return process


_QUEUE_BYTES = 1 << 20  # some thousand lines while nobody reads the log; further ones are counted
_LINE_BYTES = 16 << 10  # a longer line is cut to this: only a traceback is longer
_CLOSE_S = 2.0  # a reader that has stopped does not keep the process from ending


class LineWriter:
    """A queue of lines for one file descriptor. Any thread may write; `close` waits for the remaining
    lines."""

    def __init__(self, descriptor: int = 2, *, queue_bytes: int = _QUEUE_BYTES) -> None:
        self.dropped = 0
        self._descriptor = descriptor
        self._queue_bytes = queue_bytes
        self._lines: deque[bytes] = deque()
        self._waiting_bytes = 0  # of the lines and of the one that is being written
        self._closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="log-lines", daemon=True)
        self._thread.start()

    def write(self, line: str) -> None:
        """Never blocks, and drops the line if too many wait."""
        data = line.encode(errors="backslashreplace")[:_LINE_BYTES] + b"\n"
        with self._changed:
            if self._closed or self._waiting_bytes + len(data) > self._queue_bytes:
                self.dropped += 1
                return
            self._lines.append(data)
            self._waiting_bytes += len(data)
            self._changed.notify()

    def close(self, timeout_s: float = _CLOSE_S) -> None:
        """Write the waiting lines, unless the reader has stopped; accept no more."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while (lines := self._next()) is not None:
            self._write_out(lines)
            with self._changed:
                self._waiting_bytes -= len(lines)

    def _next(self) -> bytes | None:
        """The lines that wait, in one piece; None after the last of them."""
        with self._changed:
            while not self._lines and not self._closed:
                self._changed.wait()
            if not self._lines:
                return None
            lines = b"".join(self._lines)
            self._lines.clear()
            return lines

    def _write_out(self, lines: bytes) -> None:
        view = memoryview(lines)
        try:
            while view:
                view = view[os.write(self._descriptor, view) :]
        except OSError:
            return  # the reader has closed it, so no line can report that


@dataclass(frozen=True, slots=True)
class LogLines:
    """The lines of this process: its log, and its messages to the process that has started it."""

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
    """The lines of libraries in the same form."""

    def emit(self, record: logging.LogRecord) -> None:
        line: dict[str, Any] = {"library": record.name, "message": record.getMessage()}
        structlog.get_logger("loghub_service").log(
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
