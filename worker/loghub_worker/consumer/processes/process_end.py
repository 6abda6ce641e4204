"""How a process of processors ends, and what that means for the calls that ran in it."""

import contextlib
import os
import signal
import subprocess

from loghub_worker.consumer.user_code import RemoteError

CLOSE_S = 5.0  # for a process to end by itself after its shards were given up


class CallFailedError(RemoteError):
    """A call had no answer."""


class ProcessEndedError(CallFailedError):
    """The process ended during the call, by itself or killed by something else."""


class ProcessUnavailableError(CallFailedError):
    """The process is being started, or ended because of another shard."""


class CallTimedOutError(CallFailedError):
    """The call took too long, nothing else ran in the process, and it was killed."""


class CallSuspectedError(CallFailedError):
    """The call took too long, and the process was killed; but another call that ran there may be the cause,
    because it kept every thread from running."""


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill the process if it does not end by itself soon, now that its channel has ended."""
    try:
        process.wait(CLOSE_S)
    except subprocess.TimeoutExpired:
        process.kill()


def reap(process: subprocess.Popen[bytes]) -> int:
    """Wait for the end of the process, and end those that the user's code has started; the exit status. As
    long as there are any, its id names their group and nothing else."""
    status = process.wait()
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    return status


def ended_message(status: int, why_killed: str) -> str:
    if why_killed:
        return f"killed by the worker: {why_killed}"
    if status >= 0:
        return f"exit status {status}"
    return f"killed by signal {-status}" + (", perhaps because memory ran out" if status == -9 else "")
