"""Finds and kills worker processes of an earlier run that was killed before it could stop them.

Two runs must not have consumers of the same name. The processes are identified by their environment, which
names the worker's own scratch folder and is inherited by everything that a worker starts. A process ID alone
may belong to an unrelated process by now. Without ``/proc``, on systems other than Linux, none is found.
"""

import contextlib
import os
import signal
from pathlib import Path

from loghub.worker_contract import ENV_STATE_DIR


def find_orphans(workers: Path) -> tuple[int, ...]:
    """The IDs of this user's processes whose scratch folder is below ``workers``."""
    prefix = f"{ENV_STATE_DIR}={workers}/".encode()
    found = []
    for entry in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if any(variable.startswith(prefix) for variable in entry.read_bytes().split(b"\0")):
                found.append(int(entry.parent.name))
    return tuple(sorted(found))


def end_orphans(workers: Path) -> int:
    """Kills the processes and returns their number. Their uncommitted logs are delivered again by the next
    consumer."""
    orphans = find_orphans(workers)
    for pid in orphans:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    return len(orphans)
