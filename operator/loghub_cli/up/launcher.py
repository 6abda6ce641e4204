"""``python -I launcher.py PARENT COMMAND...``: replaces itself with a program that ends when its parent does.

With it, no child process outlives the process that started it, not even after a kill -9. On Linux the kernel
sends the signal (prctl PR_SET_PDEATHSIG). On other systems nothing does, and the next start finds the orphans
(`loghub_cli.up.supervisor`). The module imports only the standard library.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1  # the number in linux/prctl.h


def main() -> None:
    """Runs the command; ``argv`` is the parent's process ID, then the command."""
    parent, command = int(sys.argv[1]), sys.argv[2:]
    if sys.platform == "linux":
        if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
            sys.exit(f"prctl: {os.strerror(ctypes.get_errno())}")
        if os.getppid() != parent:  # the parent ended before prctl was called
            sys.exit("the parent has ended")
    os.execvp(command[0], command)  # noqa: S606 - without a shell, on purpose


if __name__ == "__main__":
    main()
