"""Runs the workers of one consumer group as processes on this machine.

The supervisor does what the StatefulSet controller and the kubelet do in a cluster: it carries out the steps
of `loghub_operator.local.processes.replica_plan`, restarts processes that end, and reports the state of each
worker."""

import asyncio
import contextlib
import shutil
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from loghub import worker_contract as contract
from loghub.atomic_file import replace_file
from loghub.clock import Clock
from loghub.worker_contract import DRAIN_REQUESTED, WorkerStatus
from loghub_operator.local.paths import GroupFolder, WorkerFolder
from loghub_operator.local.processes.child_process import Child, exit_words
from loghub_operator.local.processes.replica_plan import (
    STEADY_S,
    Slot,
    Start,
    Wanted,
    backoff_s,
    next_start_s,
    staffing,
)
from loghub_operator.local.processes.worker_state import Life, LocalReason, last_words, read_status, worker_of
from loghub_operator.model.observed import ObservedStatefulSet, WorkerObserved
from loghub_operator.model.revision import UNKNOWN, Revision, WorkerSpec
from loghub_operator.resources.worker_config import encode

LOG_BYTES = 16 << 20  # a start rotates a worker's log beyond this size; one older log is kept


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """The desired workers."""

    replicas: int
    spec: WorkerSpec
    variables: Mapping[str, str]  # the user's own

    @property
    def wanted(self) -> Wanted:
        return Wanted(replicas=self.replicas, revision=self.spec.revision.of_pods())


@dataclass(slots=True)
class _Post:
    """An ordinal: its process, if there is one, and the record of its earlier processes."""

    ordinal: int
    name: str
    folder: WorkerFolder
    revision: Revision = UNKNOWN
    child: Child | None = None
    stopping: bool = False
    forget_drain: bool = False  # the next start is like that of a new pod, without a drain request
    drain_requested_at_unix_s: float | None = None
    started_unix_s: float = 0.0
    ready_since_s: float | None = None
    failures: int = 0
    starts: int = 0
    start_at_s: float = 0.0
    words: tuple[str, str] | None = None  # the last failure's reason and message
    killer: asyncio.TimerHandle | None = field(default=None, repr=False)

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


class Supervisor:
    """Supervises the workers of a group in one event loop; every method except `end` returns at once."""

    def __init__(
        self,
        *,
        name: str,
        folder: GroupFolder,
        command: Sequence[str],
        environment: Mapping[str, str],
        clock: Clock,
        grace_s: float,
        on_change: Callable[[], None],
    ) -> None:
        """``environment`` is common to all workers; the variables of `loghub.worker_contract` that differ by
        worker are added to it. ``on_change`` is called when a process has ended."""
        self._name = name
        self._folder = folder
        self._command = command
        self._environment = environment
        self._clock = clock
        self._grace_s = grace_s
        self._on_change = on_change
        self._asked: _Asked | None = None
        self._posts: dict[int, _Post] = {}
        self._timer: asyncio.TimerHandle | None = None

    # -- requests

    def apply(self, spec: WorkerSpec, *, replicas: int, variables: Mapping[str, str]) -> None:
        """Runs the ordinals 0 .. replicas-1 with these settings and the user's own variables."""
        self._asked = _Asked(replicas=replicas, spec=spec, variables=dict(variables))
        self.tick()

    def remove(self) -> None:
        """Stops all workers."""
        self._asked = None
        self.tick()

    def ask_leave(self, name: str) -> None:
        """Requests that this worker drain and leave the group; the time of the first request is kept."""
        post = self._post_named(name)
        if post is None or post.drain_requested_at_unix_s is not None:
            return
        replace_file(post.folder.drain, DRAIN_REQUESTED.encode())
        post.drain_requested_at_unix_s = self._clock.unix_s()

    def restart(self, name: str) -> None:
        """Stops this worker, which stays a member of the group, and starts it again."""
        post = self._post_named(name)
        if post is None:
            return
        post.forget_drain = True
        if post.alive and not post.stopping:
            self._stop(post)

    async def end(self) -> None:
        """Stops every worker without leaving the group, and waits until all processes have ended."""
        self.remove()
        children = [post.child for post in self._posts.values() if post.child is not None]
        await asyncio.gather(*(child.ended.wait() for child in children))
        if self._timer is not None:
            self._timer.cancel()

    def kill(self) -> None:
        """Sends SIGKILL to all workers at once, when the user does not want to wait."""
        self.remove()
        for post in self._posts.values():
            if post.child is not None:
                post.child.signal(signal.SIGKILL)

    # -- state

    @property
    def worker_set(self) -> ObservedStatefulSet | None:
        if self._asked is None:
            return None
        return ObservedStatefulSet(replicas=self._asked.replicas, revision=self._asked.spec.revision)

    @property
    def _wanted(self) -> Wanted | None:
        return None if self._asked is None else self._asked.wanted

    def views(self) -> tuple[WorkerView, ...]:
        """Every existing or desired worker, by ordinal."""
        posts = (post for _, post in sorted(self._posts.items()) if post.alive or self._is_wanted(post))
        return tuple(self._view(post) for post in posts)

    def observed(self) -> tuple[WorkerObserved, ...]:
        """The same workers as `loghub_operator.plan` expects them."""
        return tuple(view.observed for view in self.views())

    # -- carrying out

    def tick(self) -> None:
        """Starts and stops processes as planned; called on every change and when a back-off ends."""
        now = self._clock.monotonic_s()
        self._note_readiness(now)
        for step in staffing(self._wanted, self._slots(), now=now):
            if isinstance(step, Start):
                self._start(step.ordinal)
            else:
                self._stop(self._posts[step.ordinal])
        for ordinal in [n for n, post in self._posts.items() if not post.alive and not self._is_wanted(post)]:
            shutil.rmtree(self._posts.pop(ordinal).folder.state, ignore_errors=True)
        self._arm(now)

    def _slots(self) -> list[Slot]:
        return [
            Slot(
                ordinal=post.ordinal,
                revision=post.revision,
                alive=post.alive,
                ready=post.ready_since_s is not None,
                stopping=post.stopping,
                start_at_s=post.start_at_s,
            )
            for post in self._posts.values()
        ]

    def _note_readiness(self, now: float) -> None:
        for post in self._posts.values():
            if not self._view(post).observed.ready:
                post.ready_since_s = None
                continue
            post.words = None
            if post.ready_since_s is None:
                post.ready_since_s = now
            elif now - post.ready_since_s >= STEADY_S:
                post.failures = 0

    def _arm(self, now: float) -> None:
        """Schedules the next `tick` for the end of the next back-off."""
        if self._timer is not None:
            self._timer.cancel()
        due = next_start_s(self._wanted, self._slots())
        loop = asyncio.get_running_loop()
        self._timer = None if due is None else loop.call_later(max(0.05, due - now), self.tick)

    def _start(self, ordinal: int) -> None:
        name = f"{self._name}-{ordinal}"
        post = self._posts.setdefault(ordinal, _Post(ordinal, name, self._folder.worker(name)))
        try:
            self._launch(post)
        except OSError as error:  # for example a full disk
            self._failed(post, (LocalReason.START_FAILED, str(error)))

    def _launch(self, post: _Post) -> None:
        asked = self._asked
        assert asked is not None
        revision = asked.wanted.revision
        if post.revision != revision:
            post.failures, post.words = 0, None
        if post.forget_drain or post.starts == 0:
            post.folder.drain.unlink(missing_ok=True)
            post.drain_requested_at_unix_s, post.forget_drain = None, False
        _prepare(post.folder, encode(asked.spec.config))
        post.revision, post.stopping = revision, False
        post.started_unix_s, post.ready_since_s = self._clock.unix_s(), None
        post.starts += 1
        post.child = Child(
            self._command,
            environment={**self._environment, **asked.variables, **_variables(post.name, post.folder)},
            log=post.folder.log,
            on_exit=lambda child: self._ended(post, child),
        )

    def _stop(self, post: _Post) -> None:
        assert post.child is not None
        post.stopping = True
        post.child.signal(signal.SIGTERM)
        loop = asyncio.get_running_loop()
        post.killer = loop.call_later(self._grace_s, post.child.signal, signal.SIGKILL)

    def _ended(self, post: _Post, child: Child) -> None:
        if post.killer is not None:
            post.killer.cancel()
        if not post.stopping:
            assert child.exit_status is not None
            self._failed(post, last_words(post.folder) or ("", exit_words(child.exit_status)))
        post.child, post.ready_since_s = None, None
        # Tick first, so that `on_change` observes the next state and not this one.
        self.tick()
        self._on_change()

    def _failed(self, post: _Post, words: tuple[str, str]) -> None:
        post.failures += 1
        post.words = words
        post.start_at_s = self._clock.monotonic_s() + backoff_s(post.failures)

    def _is_wanted(self, post: _Post) -> bool:
        return self._wanted is not None and post.ordinal < self._wanted.replicas

    def _post_named(self, name: str) -> _Post | None:
        return next((post for post in self._posts.values() if post.name == name), None)

    def _view(self, post: _Post) -> WorkerView:
        status = read_status(post.folder, since_unix_s=post.started_unix_s) if post.alive else None
        life = Life(
            name=post.name,
            ordinal=post.ordinal,
            revision=post.revision,
            alive=post.alive,
            stopping=post.stopping,
            drain_requested_at_unix_s=post.drain_requested_at_unix_s,
            words=post.words,
        )
        return WorkerView(
            observed=worker_of(life, status, now_unix_s=self._clock.unix_s()),
            pid=post.child.pid if post.child is not None else None,
            starts=post.starts,
            status=status,
        )


def _prepare(folder: WorkerFolder, config: bytes) -> None:
    """Creates an empty scratch folder, removes the status and message of earlier processes, and writes the
    settings."""
    shutil.rmtree(folder.state, ignore_errors=True)
    folder.state.mkdir(parents=True)
    for stale in (folder.status, folder.last_words):
        stale.unlink(missing_ok=True)
    with contextlib.suppress(FileNotFoundError):
        if folder.log.stat().st_size > LOG_BYTES:
            folder.log.replace(folder.log.with_suffix(".1"))
    replace_file(folder.config, config)


def _variables(name: str, folder: WorkerFolder) -> dict[str, str]:
    return {
        contract.ENV_CONFIG: str(folder.config),
        contract.ENV_CONSUMER: name,
        contract.ENV_DRAIN_FILE: str(folder.drain),
        contract.ENV_STATE_DIR: str(folder.state),
        contract.ENV_STATUS_FILE: str(folder.status),
        contract.ENV_TERMINATION_LOG: str(folder.last_words),
    }
