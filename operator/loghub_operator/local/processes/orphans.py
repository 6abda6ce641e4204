"""Processes of an earlier run that was killed and could not end them.

What for: two runs must not work under one name. What it must not know: what they do. Read
next: `loghub_operator.local.cli`.

They are known by their environment, which names the worker's own scratch folder and is
inherited by everything that a worker starts; a process number alone may be somebody else's by
now. Without a ``/proc`` (not Linux) none is found.
"""

import contextlib
import os
import signal
from pathlib import Path

from loghub.worker_contract import ENV_STATE_DIR


def find_leftovers(workers: Path, proc: Path = Path("/proc")) -> tuple[int, ...]:
    """Process numbers whose scratch folder lies under `workers`; those of other users are not seen."""
    mark = f"{ENV_STATE_DIR}={workers}/".encode()
    found = []
    for entry in proc.glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if any(variable.startswith(mark) for variable in entry.read_bytes().split(b"\0")):
                found.append(int(entry.parent.name))
    return tuple(sorted(found))


def end_leftovers(workers: Path) -> int:
    """Kill them; how many there were. What they had under way is delivered again by whoever is next."""
    leftovers = find_leftovers(workers)
    for pid in leftovers:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    return len(leftovers)
