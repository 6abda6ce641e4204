"""Ends the processes that a worker started."""

import contextlib
import os
import signal
from pathlib import Path


def end_children(threads: Path = Path("/proc/self/task")) -> None:
    """End the processes that this one started. A JVM ends with its pipe, except for one whose start was
    interrupted: its port was never read, and it waits forever. This works on Linux; elsewhere that JVM is
    left."""
    for children in threads.glob("*/children"):
        for pid in _pids(children):
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGTERM)


def _pids(path: Path) -> list[str]:
    """The process ids in a file; none for a thread that has ended since it was listed, as Spark's threads do
    now."""
    try:
        return path.read_text().split()
    except OSError:
        return []
