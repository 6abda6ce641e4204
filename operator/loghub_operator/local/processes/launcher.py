"""Become another program that ends when its parent does.

What for: ``python -I launcher.py PARENT COMMAND...``: no process of ours outlives the one that
started it, not even after a kill -9. What it must not know: what is started; it imports only
the standard library. Read next: `loghub_operator.local.processes.child_process`.

Linux sends the signal (prctl PR_SET_PDEATHSIG). Elsewhere nothing does, and what is left is
found at the next start (`loghub_operator.local.processes.orphans`).
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    """``argv``: the parent's process id, then the command."""
    parent, command = int(sys.argv[1]), sys.argv[2:]
    if sys.platform == "linux":
        if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
            sys.exit(f"prctl: {os.strerror(ctypes.get_errno())}")
        if os.getppid() != parent:  # it ended before the wish was noted
            sys.exit("the parent has ended")
    os.execvp(command[0], command)  # noqa: S606 - without a shell, on purpose


if __name__ == "__main__":
    main()
