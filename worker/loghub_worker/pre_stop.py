"""``python -m loghub_worker.pre_stop``: request a stop of the worker in this container, as SIGTERM does.

The pod's preStop hook runs this program. The kubelet signals only the entry point of an image, and a custom
entry point, such as a shell, does not necessarily forward the signal; the worker would then be killed while
it holds its shards.

The program returns immediately, because the kubelet itself waits for the worker until the grace period ends.
If no worker runs, there is nothing to do. Exit status: always 0.
"""

import contextlib
import os
import signal
from collections.abc import Mapping
from pathlib import Path

from loghub.atomic_file import replace_file
from loghub.contract.worker import ENV_STATE_DIR

PID_FILE = "pid"


def record_pid(state_dir: Path) -> None:
    """Record this process as the worker that `request_stop` signals; its signal handlers must be set. Raises
    `OSError`."""
    replace_file(state_dir / PID_FILE, str(os.getpid()).encode())


def request_stop(environment: Mapping[str, str]) -> None:
    """Signal the worker whose state folder this environment names."""
    with contextlib.suppress(OSError, ValueError, KeyError):  # not started yet, or already ended
        os.kill(int(Path(environment[ENV_STATE_DIR], PID_FILE).read_text()), signal.SIGTERM)


if __name__ == "__main__":
    request_stop(os.environ)
