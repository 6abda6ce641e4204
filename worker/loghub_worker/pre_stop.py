"""``python -m loghub_worker.pre_stop``: ask the worker of this container to stop, as SIGTERM does.

What for: the pod's preStop hook. The kubelet signals an image's entry point, and one of the user's
own (a shell, say) need not pass that on; the worker would then be killed with its shards held. What
it must not know: how a worker drains. Read next: `loghub_worker.__main__` (who is asked).

Returns at once: the kubelet waits for the worker itself, as long as its grace period lasts.
Where no worker runs there is nothing to do. Exit status: always 0.
"""

import contextlib
import os
import signal
from collections.abc import Mapping
from pathlib import Path

from loghub.atomic_file import replace_file
from loghub.worker_contract import ENV_STATE_DIR

PID_FILE = "pid"


def can_be_asked(state_dir: Path) -> None:
    """This process is the worker from now on, and its signal handlers are set. Raises `OSError`."""
    replace_file(state_dir / PID_FILE, str(os.getpid()).encode())


def ask(environment: Mapping[str, str]) -> None:
    """Signal the worker whose files are in this environment's folder."""
    with contextlib.suppress(OSError, ValueError, KeyError):  # not started, or over
        os.kill(int(Path(environment[ENV_STATE_DIR], PID_FILE).read_text()), signal.SIGTERM)


if __name__ == "__main__":
    ask(os.environ)
