"""Writes the lines of the log in a thread of its own, since their reader may stop.

A pipe that nobody reads blocks its writer: on the event loop that would end all heartbeats, until the reader
goes on. So lines wait in a bounded queue; what finds it full is dropped and counted. The thread writes to the
file descriptor, not to `sys.stderr`, whose lock it would hold while it is blocked.
"""

import os
import threading
from collections import deque

_QUEUE_BYTES = 1 << 20  # some thousand lines
_LINE_BYTES = 16 << 10  # of which a longer one is the begin: a traceback, at most
_CLOSE_S = 2.0


class LineWriter:
    """A queue of lines for one file descriptor. Any thread may write; `close` waits for what is left."""

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
        """Write what waits, unless nobody reads it; accept nothing more."""
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
            return  # its reader has closed it: there is nobody to tell
