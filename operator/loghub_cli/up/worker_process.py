"""Starts, watches and stops a child process that ends together with this process, and derives the state of a
worker from its process.

The embedded service, the workers and the demo's producer are such processes. Start children only from the
main thread, because the kernel ends a child when the thread that started it ends (`loghub_cli.up.launcher`).
The state of a worker, `WorkerObserved`, follows from its status file, its termination message
(`loghub.contract.worker`) and the state of its process, as it follows from a pod in
`loghub_operator.observe.pods`.
"""

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from loghub.atomic_file import replace_file
from loghub.contract import worker as contract
from loghub.contract.worker import WorkerStatus, encode_settings, parse_termination_message
from loghub_cli.up.paths import WorkerFolder
from loghub_operator.api.conditions import LocalReason
from loghub_operator.model.observed import WorkerObserved, WorkerPhase
from loghub_operator.model.revision import Revision, WorkerSpec

NOT_APPLIED = "the change is not applied"
STALE_S = 30.0  # a worker whose status is older than this hangs
LAST_WORDS_BYTES = 4096  # as much as the kubelet reads of a termination message

_PHASES = {
    "starting": WorkerPhase.STARTING,
    "running": WorkerPhase.RUNNING,
    # Its heartbeats get no response: it must not deliver, so it is not ready.
    "fenced": WorkerPhase.STARTING,
    "draining": WorkerPhase.RUNNING,
    "left": WorkerPhase.LEFT,
    "failed": WorkerPhase.FAILED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessState:
    """What the supervisor knows of a worker; ``failure`` are the reason and message of its last failure, and
    ``rejected`` are the reason and message of settings that it would run with, had they passed their trial.
    """

    name: str
    ordinal: int
    revision: Revision
    alive: bool
    stopping: bool
    drain_requested_at_unix_s: float | None
    failure: tuple[str, str] | None
    rejected: tuple[str, str] | None = None


def worker_of(state: ProcessState, status: WorkerStatus | None, *, silent_s: float) -> WorkerObserved:
    """The worker as `loghub_operator.plan` expects it; ``status`` is None before its first report, and has
    not changed since ``silent_s``."""
    phase, reason, message = _phase(state, status, silent_s)
    return WorkerObserved(
        name=state.name,
        ordinal=state.ordinal,
        phase=phase,
        ready=phase is WorkerPhase.RUNNING,
        revision=state.revision,
        drain_requested=state.drain_requested_at_unix_s is not None,
        drain_requested_at_unix_s=state.drain_requested_at_unix_s,
        reason=reason,
        message=message,
        ignored_settings=() if status is None else tuple(status.ignored_settings),
    )


def _phase(state: ProcessState, status: WorkerStatus | None, silent_s: float) -> tuple[WorkerPhase, str, str]:
    if not state.alive:
        return (WorkerPhase.FAILED, *state.failure) if state.failure else (WorkerPhase.PENDING, "", "")
    if state.stopping:
        return WorkerPhase.STOPPING, "", ""
    if status is not None and silent_s > STALE_S:
        return (
            WorkerPhase.FAILED,
            LocalReason.WORKER_UNRESPONSIVE,
            f"the worker has not reported its status for {int(silent_s)} s",
        )
    # A phase of another release says at least that the worker is not known to be ready.
    phase = WorkerPhase.STARTING if status is None else _PHASES.get(status.phase, WorkerPhase.STARTING)
    if phase is WorkerPhase.STARTING and state.failure is not None and state.failure[0]:
        return WorkerPhase.FAILED, *state.failure  # reported until the worker is ready
    if state.rejected is not None and phase is WorkerPhase.RUNNING:
        reason, message = state.rejected
        return phase, reason, f"{NOT_APPLIED}: {message}"
    if status is None:
        return phase, "", ""
    return phase, status.reason, status.message


def read_status(folder: WorkerFolder) -> WorkerStatus | None:
    """The status that the worker wrote last; None if its current process has not written any: the status of
    an earlier process was removed. No time is compared, since the clock may have been set meanwhile."""
    try:
        return msgspec.json.decode(folder.status.read_bytes(), type=WorkerStatus)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None


def last_words(folder: WorkerFolder) -> tuple[str, str] | None:
    """The reason and message of a fatal error, which the worker writes as ``Reason: message``; None if there
    is no message."""
    try:
        text = folder.last_words.read_bytes()[:LAST_WORDS_BYTES].decode(errors="replace").strip()
    except OSError:
        return None
    return parse_termination_message(text) or (("", text) if text else None)


_LAUNCHER = Path(__file__).with_name("launcher.py")


def launched(command: Sequence[str]) -> list[str]:
    """The command of a process that ends with this one."""
    return [sys.executable, "-I", str(_LAUNCHER), str(os.getpid()), *command]


class ChildProgram:
    """A running program; ``on_exit`` is called in the event loop once it has ended."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str],
        log: Path,
        on_exit: Callable[["ChildProgram"], None],
    ) -> None:
        assert threading.current_thread() is threading.main_thread()
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            self._popen = subprocess.Popen(
                launched(command),
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
        """The exit code of `subprocess`: negative for a signal's number; None while the process runs."""
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
            end_session(self.pid)
        self._popen.wait()
        with contextlib.suppress(RuntimeError):  # the loop has ended before the child
            self._loop.call_soon_threadsafe(self._notify)

    def _notify(self) -> None:
        self.ended.set()
        self._on_exit(self)


def end_session(leader: int) -> None:
    """Ends what is left of a session: in its process group a JVM, and on Linux also each process that has a
    group of its own, such as the processes of processors with the processes that their code has started."""
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


LOG_BYTES = 16 << 20  # a start rotates a worker's log beyond this size; one older log is kept


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerProgram:
    """How to run a worker. ``environment`` is common to all workers; the variables of
    `loghub.contract.worker` that differ by worker are added to it."""

    command: Sequence[str]
    environment: Mapping[str, str]
    grace_s: float  # between SIGTERM and SIGKILL

    def start(
        self,
        name: str,
        folder: WorkerFolder,
        variables: Mapping[str, str],
        *,
        on_exit: Callable[[ChildProgram], None],
        arguments: Sequence[str] = (),
    ) -> ChildProgram:
        """A process in a folder that was prepared; ``variables`` are the user's own."""
        return ChildProgram(
            [*self.command, *arguments],
            environment={**self.environment, **variables, **worker_variables(name, folder)},
            log=folder.log,
            on_exit=on_exit,
        )


def prepare(folder: WorkerFolder, spec: WorkerSpec, *, keep_state: bool) -> None:
    """Creates the scratch folder, removes the status and message of earlier processes, and writes the
    settings. As in a pod, the scratch folder outlives a process, but not a change of the settings, unless it
    has the state of a pipeline."""
    if not keep_state:
        shutil.rmtree(folder.state, ignore_errors=True)
    folder.state.mkdir(parents=True, exist_ok=True)
    for stale in (folder.status, folder.last_words):
        stale.unlink(missing_ok=True)
    with contextlib.suppress(FileNotFoundError):
        if folder.log.stat().st_size > LOG_BYTES:
            folder.log.replace(folder.log.with_suffix(".1"))
    replace_file(folder.config, encode_settings(spec.config))


def worker_variables(name: str, folder: WorkerFolder) -> dict[str, str]:
    """The variables of `loghub.contract.worker` that differ by worker."""
    return {
        contract.ENV_CONFIG: str(folder.config),
        contract.ENV_CONSUMER: name,
        contract.ENV_DRAIN_FILE: str(folder.drain),
        contract.ENV_STATE_DIR: str(folder.state),
        contract.ENV_STATUS_FILE: str(folder.status),
        contract.ENV_TERMINATION_LOG: str(folder.last_words),
    }
