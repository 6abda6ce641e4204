"""Starts the embedded service as a copy of a process that has imported it.

A run starts it some three hundred times, and 0.4 of the 0.45 CPU seconds of a start are its imports. So each
test process has one helper, which has imported the service, and forks for every start; what it forks runs a
module as `python -m` does: the service, or a test's own program around it. A service with a preloaded library
is the copy of a second helper, which has loaded the library too.
"""

import array
import gc
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO

ROOT = Path(__file__).parents[1]
MODULE = "loghub_service"  # that the helper has imported
PRELOADED = "LD_PRELOAD"  # is read while a process is loaded, unlike all other variables
MAX_MESSAGE_BYTES = 1 << 20  # arguments and variables of a program


class WarmProcess:
    """As much of `subprocess.Popen` as a service process needs."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._status: int | None = None
        self._ended = threading.Event()

    def ended(self, status: int) -> None:
        self._status = status
        self._ended.set()

    def poll(self) -> int | None:
        return self._status if self._ended.is_set() else None

    def wait(self, timeout: float | None = None) -> int:
        """The exit status, negative for a signal. Raises `subprocess.TimeoutExpired`."""
        if not self._ended.wait(timeout):
            raise subprocess.TimeoutExpired(MODULE, timeout or 0.0)
        assert self._status is not None
        return self._status

    def send_signal(self, number: int) -> None:
        if not self._ended.is_set():
            with suppress(ProcessLookupError):  # it has ended, and the helper has not said so yet
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class Helper:
    """The process that forks, and a thread that reads from it which of its children have ended."""

    def __init__(self, preloaded: str) -> None:
        self.owner = os.getpid()
        self.preloaded = preloaded
        environment = {name: value for name, value in os.environ.items() if name != PRELOADED}
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.warm_start", str(theirs.fileno())],
                cwd=ROOT,
                env=environment | ({PRELOADED: preloaded} if preloaded else {}),
                pass_fds=[theirs.fileno()],
            )
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._started: list[WarmProcess] = []
        self._running: dict[int, WarmProcess] = {}
        self._is_gone = False
        threading.Thread(target=self._read, name="warm-start", daemon=True).start()

    def start(
        self, module: str, arguments: list[str], environment: Mapping[str, str], output: IO[bytes]
    ) -> WarmProcess:
        """Run the module with these arguments and variables, and the output in this file."""
        request = json.dumps([module, arguments, dict(environment)]).encode()
        handles = array.array("i", [output.fileno()])
        with self._changed:
            self._socket.sendmsg([request], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, handles)])
            self._changed.wait_for(lambda: self._started or self._is_gone)
            if not self._started:
                raise RuntimeError("the process that starts services has ended")
            return self._started.pop()

    def _read(self) -> None:
        while answer := self._socket.recv(MAX_MESSAGE_BYTES):
            kind, pid, *rest = json.loads(answer)
            with self._changed:
                if kind == "started":
                    self._running[pid] = process = WarmProcess(pid)
                    self._started.append(process)
                    self._changed.notify_all()
                else:
                    self._running.pop(pid).ended(*rest)
        with self._changed:
            self._is_gone = True
            self._changed.notify_all()


_HELPERS: list[Helper] = []
_ONE_AT_A_TIME = threading.Lock()


def start(
    arguments: list[str], environment: Mapping[str, str], output: IO[bytes], *, module: str = MODULE
) -> WarmProcess:
    """Run the service, or a program around it. A test process that was forked has a helper of its own."""
    wanted = os.getpid(), environment.get(PRELOADED, "")
    with _ONE_AT_A_TIME:
        found = [one for one in _HELPERS if (one.owner, one.preloaded) == wanted]
        if not found:
            found = [Helper(wanted[1])]
            _HELPERS.append(found[0])
    return found[0].start(module, arguments, environment, output)


# -- the helper


def fork_on_request(control: socket.socket) -> tuple[str, list[str], dict[str, str], int] | None:
    """Fork for each request and report each child that has ended. Returns in a child what it runs; None in
    the helper as its test process ends."""
    woken, wakes = socket.socketpair()
    woken.setblocking(False)
    wakes.setblocking(False)
    signal.set_wakeup_fd(wakes.fileno())
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the test process ends it
    with selectors.DefaultSelector() as ready:
        ready.register(control, selectors.EVENT_READ)
        ready.register(woken, selectors.EVENT_READ)
        while True:
            found = {key.fileobj for key, _ in ready.select()}
            if woken in found:
                woken.recv(4096)
                _report_ended(control)
            if control not in found:
                continue
            message, ancillary, _, _ = control.recvmsg(MAX_MESSAGE_BYTES, socket.CMSG_SPACE(4))
            if not message:
                return None
            (output,) = array.array("i", ancillary[0][2])
            module, arguments, environment = json.loads(message)
            if (pid := os.fork()) == 0:
                break
            os.close(output)
            control.send(json.dumps(["started", pid]).encode())
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for one in (control, woken, wakes):
        one.close()
    return module, arguments, environment, output


def _report_ended(control: socket.socket) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        control.send(json.dumps(["ended", pid, os.waitstatus_to_exitcode(status)]).encode())


def main() -> None:
    del sys.modules[importlib.import_module(f"{MODULE}.__main__").__name__]  # it is run as the main module
    gc.freeze()  # what was imported stays shared with the children
    request = fork_on_request(socket.socket(fileno=int(sys.argv[1])))
    if request is None:
        return
    module, arguments, environment, output = request
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
