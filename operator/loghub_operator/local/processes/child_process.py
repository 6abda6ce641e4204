"""Starts, watches and stops a child process that ends together with this process.

The embedded service, the workers and the demo's producer are such processes. Start children only from the
main thread, because the kernel ends a child when the thread that started it ends
(`loghub_operator.local.processes.launcher`).
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

_LAUNCHER = Path(__file__).with_name("launcher.py")


class Child:
    """A running program; ``on_exit`` is called in the event loop once it has ended."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str],
        log: Path,
        on_exit: Callable[["Child"], None],
    ) -> None:
        assert threading.current_thread() is threading.main_thread()
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            self._popen = subprocess.Popen(
                [sys.executable, "-I", str(_LAUNCHER), str(os.getpid()), *command],
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # so that only this process receives a Ctrl-C
            )
        self.ended = asyncio.Event()
        self._on_exit = on_exit
        self._loop = asyncio.get_running_loop()
        threading.Thread(target=self._watch, name=f"child-{self.pid}", daemon=True).start()

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def exit_status(self) -> int | None:
        """As in `subprocess`: negative for a signal's number; None while the process runs."""
        return self._popen.returncode

    @property
    def alive(self) -> bool:
        return not self.ended.is_set()

    def signal(self, number: signal.Signals) -> None:
        """Sends the signal unless the process has ended."""
        if self.alive and self._popen.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    async def end(self, grace_s: float) -> None:
        """Sends SIGTERM, then SIGKILL after the grace period, and waits until the process has ended."""
        self.signal(signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                await self.ended.wait()
        self.signal(signal.SIGKILL)
        await self.ended.wait()

    def _watch(self) -> None:
        if hasattr(os, "waitid"):
            # The child is not reaped yet, so its ID still names its process group and its session.
            os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
            _end_session(self.pid)
        self._popen.wait()
        with contextlib.suppress(RuntimeError):  # the loop has ended before the child
            self._loop.call_soon_threadsafe(self._notify)

    def _notify(self) -> None:
        self.ended.set()
        self._on_exit(self)


def _end_session(leader: int) -> None:
    """Ends what is left of a session: in its process group a JVM, and on Linux also what has a group of its
    own, as the processes of processors with those that their code has started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended
            session = int(stat.read_text().rpartition(")")[2].split()[3])
            if session == leader:
                os.kill(int(stat.parent.name), signal.SIGKILL)


def exit_message(status: int) -> str:
    """``exit status 3`` or ``killed by SIGKILL``."""
    if status >= 0:
        return f"exit status {status}"
    try:
        return f"killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"killed by signal {-status}"
