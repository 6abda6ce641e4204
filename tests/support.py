"""What tests of several parts share: a real service process, and a way to wait.

`running_service` runs `python -m loghub_service`, or a copy of a process that has done its imports, on a free
loopback port with its own data folder, and ends it in any case.
"""

import http.client
import json
import os
import signal
import ssl
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from loghub_consumer import service_process
from tests import warm_start

# Guards against a hang, not measures of speed.
START_GUARD_S = 120.0
STOP_GUARD_S = 120.0
# A wait may become longer by the first share, so that no more than the second one of it goes into asking: a
# request for the checkpoints of a group takes a millisecond of CPU time, half of it in the service.
PAUSE_SHARE, ASKING_SHARE = 0.1, 0.01

# Benchmarks, which are not run by pytest, measure processes that share no memory with another.
STARTS_WARM = "pytest" in sys.modules
ROOT = Path(__file__).parents[1]
# Of a process of a product that has no rich in its image. Where the command line is installed too, structlog
# loads it, which takes 60 ms of CPU time.
PYTHON_PATH = os.pathsep.join(
    filter(None, (str(ROOT / "tests" / "without_rich"), str(ROOT), os.environ.get("PYTHONPATH")))
)
_CALLS_SHOWN = 8  # of each thread, the last ones: where it waits, and for whom


def wait_until(
    condition: Callable[[], bool], what: str, *, guard_s: float = START_GUARD_S, every_s: float = 0.02
) -> None:
    """Return as soon as the condition holds; fail with ``what``, and with what all threads do, when it does
    not for very long. Where asking takes long, it asks less often the longer it waits."""
    began_s = asked_s = time.monotonic()
    while not condition():
        now_s = time.monotonic()
        if now_s > began_s + guard_s:
            failure = AssertionError(f"waited {guard_s:.0f} s for {what}")
            failure.add_note(stacks())
            raise failure
        pause_s = min((now_s - asked_s) / ASKING_SHARE, (now_s - began_s) * PAUSE_SHARE)
        time.sleep(max(every_s, pause_s))
        asked_s = time.monotonic()


def stacks() -> str:
    """Where the threads of this process are."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    return "\n".join(
        f"thread {names.get(ident, ident)}:\n{''.join(traceback.format_stack(frame, _CALLS_SHOWN))}"
        for ident, frame in sys._current_frames().items()
    )


def get(address: str, path: str, *, tls: bool = False) -> tuple[int, bytes]:
    """Status and body of a GET without a proxy; 0 without an answer. Any certificate is accepted."""
    connection = http.client.HTTPConnection(address, timeout=START_GUARD_S)
    if tls:
        context = ssl._create_unverified_context()
        connection = http.client.HTTPSConnection(address, timeout=START_GUARD_S, context=context)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read()
    except OSError:
        return 0, b""
    finally:
        connection.close()


class HandClock:
    """A clock that a test moves: unix and monotonic seconds are the same."""

    def __init__(self, now: float) -> None:
        self.now = now

    def monotonic_s(self) -> float:
        return self.now

    def unix_s(self) -> float:
        return self.now


class ServiceProcess(service_process.ServiceProcess):
    """The one of the library's users, which may also have TLS, variables of its process in ``environment``,
    and another program around it in ``module``; and is started as a copy of a process that has done its
    imports."""

    def __init__(
        self,
        folder: Path,
        *,
        port: int = 0,
        extra: tuple[str, ...] = (),
        environment: dict[str, str] | None = None,
        module: str = "loghub_service",
    ) -> None:
        super().__init__(folder, port=port, extra=extra)
        self._module = module
        self._environment = environment or {}

    @property
    def endpoint(self) -> str:
        return f"{'https' if self._has_tls else 'http'}://{self.host}:{self._port}"

    @property
    def _has_tls(self) -> bool:
        return "--tls-cert" in self._extra

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def events(self, name: str | None = None) -> list[dict[str, Any]]:
        """The lines of its log so far, all or those of one event. A running service writes a line a moment
        after the event: `await_events` waits for it."""
        text = self.log.read_text()
        whole = text[: text.rfind("\n") + 1].splitlines()
        lines = [json.loads(line) for line in whole if line.startswith("{")]
        return [line for line in lines if name in (None, line["event"])]

    def await_events(self, name: str, count: int = 1) -> list[dict[str, Any]]:
        """All lines of one event, once there are so many."""
        wait_until(lambda: len(self.events(name)) >= count, f"{count} lines in the log: {name}")
        return self.events(name)

    def is_ready(self) -> bool:
        return self.health()[0] == 200

    def health(self) -> tuple[int, bytes]:
        """Status and body of ``/healthz``; 0 without an answer."""
        return get(f"{self.host}:{self.port}", "/healthz", tls=self._has_tls)

    def _wait_until(self, condition: Callable[[], bool], what: str) -> None:
        wait_until(condition, what)

    def _launch(self, arguments: list[str], output: IO[bytes]) -> service_process.ServiceRun:
        if STARTS_WARM:
            return warm_start.start(arguments, os.environ | self._environment, output, module=self._module)
        return subprocess.Popen(
            [sys.executable, "-m", self._module, *arguments],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": PYTHON_PATH} | self._environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )

    def terminate(self) -> int:
        """Ask it to stop, wait, and give its exit status."""
        return self._end(signal.SIGTERM)

    def kill9(self) -> int:
        """Kill it with SIGKILL, and give its exit status."""
        return self.stop()

    def restart(self) -> None:
        """Stop it, if it runs, and start it again on the same port and data."""
        if self.running:
            self.terminate()
        self.start()


@contextmanager
def running_service(
    folder: Path,
    *,
    port: int = 0,
    extra: tuple[str, ...] = (),
    environment: dict[str, str] | None = None,
) -> Iterator[ServiceProcess]:
    """A started service under ``folder``; always ended at the end."""
    service = ServiceProcess(folder, port=port, extra=extra, environment=environment)
    folder.mkdir(parents=True, exist_ok=True)
    service.start()
    try:
        yield service
    finally:
        if service.running:
            service.kill9()
