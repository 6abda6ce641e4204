"""Runs the workers of one consumer group as processes on this machine.

The supervisor does what the StatefulSet controller and the kubelet do in a cluster: it carries out the steps
of `loghub_cli.up.process_plan`, restarts processes that end, and reports the state of each worker. Settings
are tried in a process of their own before a worker stops for them: the worker's program does what its start
checks and ends (`loghub_worker.start_check`). With Spark that takes as long, and as much memory, as the start
of one more worker.

Worker processes of an earlier run that was killed are found and killed, since two runs must not have
consumers of the same name. They are identified by their environment, which names the worker's own scratch
folder and is inherited by everything that a worker starts; a process ID alone may belong to an unrelated
process by now. Without ``/proc``, on systems other than Linux, none is found.
"""

import asyncio
import contextlib
import os
import shutil
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from loghub.atomic_file import replace_file
from loghub.clock import Clock
from loghub.contract.dry_run import CHECK
from loghub.contract.worker import DRAIN_REQUESTED, ENV_STATE_DIR, WorkerStatus
from loghub_cli.up.paths import GroupFolder, WorkerFolder
from loghub_cli.up.process_plan import (
    STEADY_S,
    DesiredWorkers,
    EndTrial,
    Slot,
    Start,
    Stop,
    Trial,
    Try,
    next_start_s,
    plan_steps,
    restart_pause_s,
)
from loghub_cli.up.worker_process import (
    NOT_APPLIED,
    ChildProgram,
    ProcessState,
    WorkerProgram,
    exit_message,
    last_words,
    prepare,
    read_status,
    worker_of,
)
from loghub_operator.api.conditions import LocalReason
from loghub_operator.model.observed import ObservedStatefulSet, WorkerObserved
from loghub_operator.model.revision import UNKNOWN, Revision, WorkerSpec


def find_orphans(workers: Path) -> tuple[int, ...]:
    """The IDs of this user's processes whose scratch folder is below ``workers``."""
    prefix = f"{ENV_STATE_DIR}={workers}/".encode()
    orphans = []
    for entry in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if any(variable.startswith(prefix) for variable in entry.read_bytes().split(b"\0")):
                orphans.append(int(entry.parent.name))
    return tuple(sorted(orphans))


def end_orphans(workers: Path) -> int:
    """Kills the processes and returns their number. Their uncommitted logs are delivered again by the next
    consumer."""
    orphans = find_orphans(workers)
    for pid in orphans:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    return len(orphans)


# A start takes a minute or two on a machine with too much to do; code of a user that hangs takes forever.
MAX_S = 600.0


class TrialRun:
    """The last trial; ``failure`` has its reason and message until other settings are tried."""

    def __init__(
        self,
        name: str,
        folder: WorkerFolder,
        program: WorkerProgram,
        clock: Clock,
        *,
        on_end: Callable[[], None],
    ) -> None:
        self._name = name
        self._folder = folder
        self._program = program
        self._clock = clock
        self._on_end = on_end
        self._child: ChildProgram | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._failures = 0
        self.state: Trial | None = None
        self.failure: tuple[str, str] | None = None
        self.starts = 0

    def start(self, spec: WorkerSpec, variables: Mapping[str, str]) -> None:
        """Tries the settings of ``spec``; ends an earlier trial."""
        self.end()
        revision = spec.revision.of_pods()
        if self.state is None or self.state.revision != revision:
            self._failures, self.failure = 0, None
        self.starts += 1
        self.state = Trial(revision=revision, running=True, passed=False, again_at_s=0.0)
        try:
            prepare(self._folder, spec, keep_state=False)
            self._child = self._program.start(
                self._name, self._folder, variables, on_exit=self._ended, arguments=(CHECK,)
            )
        except (OSError, ValueError) as error:  # as for a worker
            self._failed((LocalReason.START_FAILED, str(error)))
            return
        self._timer = asyncio.get_running_loop().call_later(MAX_S, self._give_up, self._child)

    def end(self) -> None:
        """Kills it if it runs; nothing is learned from it."""
        if self._timer is not None:
            self._timer.cancel()
        if self._child is not None:
            self._child.signal(signal.SIGKILL)
            self._child, self.state = None, None

    def _give_up(self, child: ChildProgram) -> None:
        self._failed((LocalReason.TRIAL_TIMED_OUT, f"it takes longer than {MAX_S:.0f} s"))
        self._child = None
        child.signal(signal.SIGKILL)

    def _ended(self, child: ChildProgram) -> None:
        if child is not self._child:
            return
        self._child = None
        shutil.rmtree(self._folder.state, ignore_errors=True)
        if self._timer is not None:
            self._timer.cancel()
        assert child.exit_status is not None
        assert self.state is not None
        if child.exit_status:
            self._failed(last_words(self._folder) or ("", exit_message(child.exit_status)))
        else:
            self.failure = None
            self.state = Trial(revision=self.state.revision, running=False, passed=True, again_at_s=0.0)
        self._on_end()

    def _failed(self, failure: tuple[str, str]) -> None:
        assert self.state is not None
        self._failures += 1
        self.failure = failure
        again_at_s = self._clock.monotonic_s() + restart_pause_s(self._failures)
        self.state = Trial(revision=self.state.revision, running=False, passed=False, again_at_s=again_at_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Requested:
    """The desired workers."""

    replicas: int
    spec: WorkerSpec
    variables: Mapping[str, str]  # the user's own

    @property
    def desired(self) -> DesiredWorkers:
        return DesiredWorkers(replicas=self.replicas, revision=self.spec.revision.of_pods())


@dataclass(slots=True)
class _ManagedWorker:
    """An ordinal: its process, if there is one, and the record of its earlier processes."""

    ordinal: int
    name: str
    folder: WorkerFolder
    revision: Revision = UNKNOWN
    child: ChildProgram | None = None
    stateful: bool = False  # its state outlives it, as a volume in a cluster does
    stopping: bool = False  # it was asked to end; True until the next start
    forget_drain: bool = False  # the next start is like the start of a new pod, without a drain request
    drain_requested_at_unix_s: float | None = None
    # As last read; it has been the same since `status_since_s`, and is None while no process has written one.
    status: WorkerStatus | None = None
    status_since_s: float = 0.0
    ready_since_s: float | None = None  # Invariant: None unless the process is alive
    failures: int = 0  # in a row, with these settings; 0 again once it has been ready for `STEADY_S`
    starts: int = 0
    start_at_s: float = 0.0  # not earlier: the back-off after the last failure
    failure: tuple[str, str] | None = None  # the last failure's reason and message; None while it is ready
    kill_timer: asyncio.TimerHandle | None = field(default=None, repr=False)

    @property
    def alive(self) -> bool:
        return self.child is not None and self.child.alive


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerView:
    """A worker, for display."""

    observed: WorkerObserved
    pid: int | None
    starts: int
    status: WorkerStatus | None  # as last reported by the worker; None before its first report
    trial: str = ""  # of other settings than it runs with: what is shown about it
    silent_s: float = 0.0  # for how long it has been the same


class Supervisor:
    """Supervises the workers of a group in one event loop; every method except `end` returns at once."""

    def __init__(
        self,
        *,
        name: str,
        folder: GroupFolder,
        program: WorkerProgram,
        clock: Clock,
        on_change: Callable[[], None],
    ) -> None:
        """``on_change`` is called when a process has ended."""
        self._name = name
        self._folder = folder
        self._program = program
        self._clock = clock
        self._on_change = on_change
        self._requested: _Requested | None = None
        self._workers: dict[int, _ManagedWorker] = {}
        self._timer: asyncio.TimerHandle | None = None
        trial = f"{name}-trial"
        self._trial = TrialRun(trial, folder.worker(trial), program, clock, on_end=self._trial_ended)

    # -- requests

    def apply(self, spec: WorkerSpec, *, replicas: int, variables: Mapping[str, str]) -> None:
        """Runs the ordinals 0 .. replicas-1 with these settings and the user's own variables."""
        self._requested = _Requested(replicas=replicas, spec=spec, variables=dict(variables))
        self.tick()

    def remove(self) -> None:
        """Stops all workers."""
        self._requested = None
        self.tick()

    def ask_leave(self, name: str) -> None:
        """Requests that this worker drain and leave the group. The time of the first request is kept,
        unless it lies ahead, because the clock was set back.
        """
        worker = self._worker_named(name)
        if worker is None:
            return
        now, before = self._clock.unix_s(), worker.drain_requested_at_unix_s
        if before is None:
            replace_file(worker.folder.drain, DRAIN_REQUESTED.encode())
        worker.drain_requested_at_unix_s = now if before is None else min(before, now)

    def restart(self, name: str) -> None:
        """Stops this worker, which stays a member of the group, and starts it again."""
        worker = self._worker_named(name)
        if worker is None:
            return
        worker.forget_drain = True
        if worker.alive and not worker.stopping:
            self._stop(worker)

    async def end(self) -> None:
        """Stops every worker without leaving the group, and waits until all processes have ended."""
        self.remove()
        self._trial.end()
        children = [worker.child for worker in self._workers.values() if worker.child is not None]
        await asyncio.gather(*(child.ended.wait() for child in children))
        if self._timer is not None:
            self._timer.cancel()

    def kill(self) -> None:
        """Sends SIGKILL to all workers at once, when the user does not want to wait."""
        self.remove()
        self._trial.end()
        for worker in self._workers.values():
            if worker.child is not None:
                worker.child.signal(signal.SIGKILL)

    # -- state

    @property
    def worker_set(self) -> ObservedStatefulSet | None:
        if self._requested is None:
            return None
        return ObservedStatefulSet(replicas=self._requested.replicas, revision=self._requested.spec.revision)

    @property
    def trials(self) -> int:
        """How often settings were tried."""
        return self._trial.starts

    @property
    def _desired(self) -> DesiredWorkers | None:
        return None if self._requested is None else self._requested.desired

    def views(self) -> tuple[WorkerView, ...]:
        """Every existing or desired worker, by ordinal."""
        workers = (
            worker for _, worker in sorted(self._workers.items()) if worker.alive or self._is_desired(worker)
        )
        return tuple(self._view(worker) for worker in workers)

    def observed(self) -> tuple[WorkerObserved, ...]:
        """The workers in the form that `loghub_operator.plan` expects."""
        return tuple(view.observed for view in self.views())

    # -- carrying out

    def tick(self) -> None:
        """Starts and stops processes as planned; called on every change and when a back-off ends."""
        now = self._clock.monotonic_s()
        self._note_readiness(now)
        for step in plan_steps(self._desired, self._slots(), self._trial.state, now=now):
            match step:
                case Start(ordinal):
                    self._start(ordinal)
                case Stop(ordinal):
                    self._stop(self._workers[ordinal])
                case EndTrial():
                    self._trial.end()
                case Try():
                    assert self._requested is not None
                    self._trial.start(self._requested.spec, self._requested.variables)
        for ordinal in [
            n for n, worker in self._workers.items() if not worker.alive and not self._is_desired(worker)
        ]:
            gone = self._workers.pop(ordinal)
            if not gone.stateful:
                shutil.rmtree(gone.folder.state, ignore_errors=True)
        self._arm(now)

    def _slots(self) -> list[Slot]:
        return [
            Slot(
                ordinal=worker.ordinal,
                revision=worker.revision,
                alive=worker.alive,
                ready=worker.ready_since_s is not None,
                stopping=worker.stopping,
                start_at_s=worker.start_at_s,
            )
            for worker in self._workers.values()
        ]

    def _note_readiness(self, now: float) -> None:
        for worker in self._workers.values():
            if not self._view(worker).observed.ready:
                worker.ready_since_s = None
                continue
            worker.failure = None
            if worker.ready_since_s is None:
                worker.ready_since_s = now
            elif now - worker.ready_since_s >= STEADY_S:
                worker.failures = 0

    def _arm(self, now: float) -> None:
        """Schedules the next `tick` for the end of the next back-off."""
        if self._timer is not None:
            self._timer.cancel()
        due = next_start_s(self._desired, self._slots(), self._trial.state)
        loop = asyncio.get_running_loop()
        self._timer = None if due is None else loop.call_later(max(0.05, due - now), self.tick)

    def _start(self, ordinal: int) -> None:
        name = f"{self._name}-{ordinal}"
        worker = self._workers.setdefault(ordinal, _ManagedWorker(ordinal, name, self._folder.worker(name)))
        try:
            self._launch(worker)
        except (OSError, ValueError) as error:  # for example a full disk, or a variable that cannot be one
            self._failed(worker, (LocalReason.START_FAILED, str(error)))

    def _launch(self, worker: _ManagedWorker) -> None:
        requested = self._requested
        assert requested is not None
        revision = requested.desired.revision
        if worker.revision != revision:
            worker.failures, worker.failure = 0, None
        if worker.forget_drain or worker.starts == 0:
            worker.folder.drain.unlink(missing_ok=True)
            worker.drain_requested_at_unix_s, worker.forget_drain = None, False
        worker.stateful = requested.spec.config.stateful
        prepare(worker.folder, requested.spec, keep_state=worker.stateful or worker.revision == revision)
        worker.revision, worker.stopping = revision, False
        worker.status, worker.ready_since_s = None, None
        worker.starts += 1
        worker.child = self._program.start(
            worker.name,
            worker.folder,
            requested.variables,
            on_exit=lambda child: self._ended(worker, child),
        )

    def _stop(self, worker: _ManagedWorker) -> None:
        assert worker.child is not None
        worker.stopping = True
        worker.child.signal(signal.SIGTERM)
        loop = asyncio.get_running_loop()
        worker.kill_timer = loop.call_later(self._program.grace_s, worker.child.signal, signal.SIGKILL)

    def _ended(self, worker: _ManagedWorker, child: ChildProgram) -> None:
        if worker.kill_timer is not None:
            worker.kill_timer.cancel()
        if not worker.stopping:
            assert child.exit_status is not None
            self._failed(worker, last_words(worker.folder) or ("", exit_message(child.exit_status)))
        worker.child, worker.ready_since_s = None, None
        # Tick first, so that `on_change` observes the next state and not this one.
        self.tick()
        self._on_change()

    def _trial_ended(self) -> None:
        self.tick()
        self._on_change()

    def _failed(self, worker: _ManagedWorker, failure: tuple[str, str]) -> None:
        worker.failures += 1
        worker.failure = failure
        worker.start_at_s = self._clock.monotonic_s() + restart_pause_s(worker.failures)

    def _is_outdated(self, worker: _ManagedWorker) -> bool:
        return worker.alive and self._desired is not None and worker.revision != self._desired.revision

    def _comes_next(self, worker: _ManagedWorker) -> bool:
        """Whether this worker is replaced first: its message is reported once."""
        outdated = [one.ordinal for one in self._workers.values() if self._is_outdated(one)]
        return worker.ordinal == max(outdated, default=None)

    def _trial_of(self, worker: _ManagedWorker) -> str:
        if self._trial.state is None or not self._is_outdated(worker):
            return ""
        if self._trial.failure is not None:
            reason = ": ".join(part for part in self._trial.failure if part)
            return f"{NOT_APPLIED}, and the workers run on as before: {reason}"
        return "" if self._trial.state.passed else "the change is tried, and the workers run on meanwhile"

    def _is_desired(self, worker: _ManagedWorker) -> bool:
        return self._desired is not None and worker.ordinal < self._desired.replicas

    def _worker_named(self, name: str) -> _ManagedWorker | None:
        return next((worker for worker in self._workers.values() if worker.name == name), None)

    def _view(self, worker: _ManagedWorker) -> WorkerView:
        status, now = read_status(worker.folder) if worker.alive else None, self._clock.monotonic_s()
        if status != worker.status:
            worker.status, worker.status_since_s = status, now
        silent_s = now - worker.status_since_s
        state = ProcessState(
            name=worker.name,
            ordinal=worker.ordinal,
            revision=worker.revision,
            alive=worker.alive,
            stopping=worker.stopping,
            drain_requested_at_unix_s=worker.drain_requested_at_unix_s,
            failure=worker.failure,
            rejected=self._trial.failure if self._comes_next(worker) else None,
        )
        return WorkerView(
            observed=worker_of(state, status, silent_s=silent_s),
            trial=self._trial_of(worker),
            pid=worker.child.pid if worker.child is not None else None,
            starts=worker.starts,
            status=status,
            silent_s=silent_s,
        )
