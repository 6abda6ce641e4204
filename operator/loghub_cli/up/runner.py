"""Runs one consumer group on this machine from start to stop.

`LocalGroup` connects the stored object, the supervisor of the worker processes, the edge to the log service
and the reconcile loop, and watches the user's file. A file that is saved while its group is up is applied
whole, or rejected in words. Only `InvalidResourceError` is raised about its content: an editor saves
half-typed files, and none of them ends the group.

`ReconcileLoop` runs the same rounds (`loghub_operator.plan.planner`) as
`loghub_operator.controller.reconciler` does in the cluster; `loghub_cli.up.backend` observes and carries out.
"""

import asyncio
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from loghub.backoff import backoff_s
from loghub.client.http import HttpLogHub
from loghub.client.port import Credentials, LogHub, Timeouts
from loghub.clock import Clock
from loghub.contract.worker import ENV_CREDENTIALS_DIR
from loghub.wire.errors import LogHubException
from loghub_cli.up.backend import LocalBackend, local_placement, reject_cluster_references
from loghub_cli.up.credentials import read_folder, without_keys
from loghub_cli.up.manifest import CrFile, apiserver_message
from loghub_cli.up.object_store import LocalObject
from loghub_cli.up.paths import Root
from loghub_cli.up.snapshot import GroupSnapshot, RunObserver, changes
from loghub_cli.up.supervisor import Supervisor
from loghub_cli.up.worker_process import WorkerProgram
from loghub_operator.api import (
    InvalidResourceError,
    LogHubConsumerGroup,
    Phase,
    Problem,
    Status,
    parse_resource,
)
from loghub_operator.clients.log_service import LogServicePool
from loghub_operator.logservice.access import LogServiceAccess
from loghub_operator.model.actions import Action, ActionRefused, EmitEvent, RemoveFinalizer
from loghub_operator.model.memory import Memory
from loghub_operator.model.observed import ObservedState, Placement, UserCodeFiles
from loghub_operator.plan.planner import finish, plan
from loghub_operator.plan.status.builder import with_failure
from loghub_operator.plan.subject import subject_of
from loghub_operator.resources.worker_config import AFTER_DRAIN_S, DRAIN_TIMEOUT_S


def apply_edit(file: CrFile, record: LocalObject) -> tuple[LocalObject, UserCodeFiles]:
    """The stored object and the code with the edit. Raises `InvalidResourceError`, after which nothing has
    changed, and OSError if the disk does not take it."""
    document = file.read()
    changed = parse_resource(document)
    _reject_changed_endpoint(record.resource(), changed)
    code = file.code(changed)
    reject_cluster_references(changed, code)
    return LocalObject.accept(record.folder, document), code


def _reject_changed_endpoint(before: LogHubConsumerGroup, changed: LogHubConsumerGroup) -> None:
    """The connection, its key and the record of who created the group belong to the original endpoint."""
    if changed.spec.endpoint != before.spec.endpoint:
        message = "cannot be changed while the group is up; stop it and start it again"
        raise InvalidResourceError((Problem("spec.endpoint", message),))


SETTLED_S = 2.0  # the log service does not report its changes
UNSETTLED_S = 0.5  # a process changes its state in less, and a round costs a few requests
# A user waits in front of the terminal for the service to come back.
MAX_BACKOFF_S = 10.0


class Objects(Protocol):
    """Where the object comes from, and where its status is written."""

    def current(self) -> LogHubConsumerGroup:
        """The object as it is now."""

    def write_status(self, status: Status) -> None:
        """Raises `OSError`."""


class Backend(Protocol):
    """Observes, and carries out."""

    async def observe(self, resource: LogHubConsumerGroup) -> ObservedState: ...

    async def carry_out(self, resource: LogHubConsumerGroup, action: Action) -> None:
        """Raises `LogHubException`, `ActionRefused` or `OSError`."""


class ReconcileLoop:
    """Reconciles one group in one event loop until the object is released."""

    def __init__(
        self,
        *,
        objects: Objects,
        backend: Backend,
        clock: Clock,
        on_round: Callable[[ObservedState, Status], None] | None = None,
    ) -> None:
        self._objects = objects
        self._backend = backend
        self._clock = clock
        self._on_round = on_round
        self._wake = asyncio.Event()
        self._failures = 0
        self._memory: Memory | None = None
        self.released = False

    def wake(self) -> None:
        """Reconcile now, because something changed."""
        self._wake.set()

    async def run(self) -> None:
        """Until the object is released; cancel it to stop before."""
        while not self.released:
            self._wake.clear()
            wait_s = await self.round()
            try:
                async with asyncio.timeout(wait_s):
                    await self._wake.wait()
            except TimeoutError:
                pass

    async def round(self) -> float:
        """One round; the seconds until the next, if nothing wakes us before."""
        resource = self._objects.current()
        observed = await self._backend.observe(resource)
        subject = subject_of(resource, observed, self._memory)
        planned, error = plan(subject, self._clock.unix_s()), None
        try:
            for action in planned.actions:
                await self._backend.carry_out(resource, action)
                self.released = self.released or isinstance(action, RemoveFinalizer)
        except (LogHubException, ActionRefused, OSError) as raised:
            error = raised
        outcome = finish(subject, planned, error, self._clock.unix_s())
        self._memory, status, failed = outcome.memory, outcome.status, outcome.error is not None
        if status != resource.status and not self.released:
            status = self._written(resource, status)
        if self._on_round is not None:
            self._on_round(observed, status)
        self._failures = self._failures + 1 if failed else 0
        if failed:
            return backoff_s(self._failures, first_s=2 * UNSETTLED_S, max_s=MAX_BACKOFF_S)
        did = any(not isinstance(action, EmitEvent) for action in planned.actions)
        return SETTLED_S if not did and status.phase is Phase.RUNNING else UNSETTLED_S

    def _written(self, resource: LogHubConsumerGroup, status: Status) -> Status:
        """A disk that is full ends no group: what is shown says so, and the next round tries again."""
        try:
            self._objects.write_status(status)
        except OSError as error:
            message, now = f"the status cannot be kept: {error}", self._clock.unix_s()
            deadline_s = resource.spec.worker.progress_deadline_seconds
            return with_failure(status, message, now, before=status, deadline_s=deadline_s)
        return status


# -P: the current folder is the user's, and may have files with the names of modules.
WORKER_COMMAND = (sys.executable, "-P", "-m", "loghub_worker")
FILES_EVERY_S = 0.3  # soon enough after a save, and one stat() each time
GRACE_S = float(DRAIN_TIMEOUT_S + AFTER_DRAIN_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    """The environment of a group: its root folder, log service, access key and clock."""

    root: Root
    endpoint: str  # URL of the log service
    credentials_dir: Path
    clock: Clock
    endpoints: Mapping[str, str] = field(default_factory=dict)  # of protocols whose clients are served

    @property
    def tls(self) -> bool:
        return self.endpoint.startswith("https:")


def connect(endpoint: str, project: str, credentials: Credentials) -> LogHub:
    """Returns a client whose time limits are short, so that it does not block a reconcile for long."""
    timeouts = Timeouts(connect_s=2.0, read_s=10.0, total_s=10.0)
    return HttpLogHub(endpoint, project, credentials=credentials, agent="loghub-up", timeouts=timeouts)


class LocalGroup:
    """A group that runs in one event loop, in the main thread. The caller holds the group's lock."""

    def __init__(
        self,
        record: LocalObject,
        *,
        file: CrFile | None,
        context: RunContext,
        observer: RunObserver,
        command: Sequence[str] = WORKER_COMMAND,
    ) -> None:
        """``file`` is None if there is no file to watch (`loghub down`)."""
        self._record = record
        self._file = file
        self._code = UserCodeFiles() if file is None else file.code(record.resource())
        self._context = context
        self._observer = observer
        self._folder = record.folder
        self._previous: GroupSnapshot | None = None
        self._change_pending = False  # a change that could not be stored yet
        self.supervisor = Supervisor(
            name=record.document["metadata"]["name"],
            folder=self._folder,
            program=WorkerProgram(
                command=command,
                environment={**without_keys(os.environ), ENV_CREDENTIALS_DIR: str(context.credentials_dir)},
                grace_s=GRACE_S,
            ),
            clock=context.clock,
            on_change=lambda: self.rounds.wake(),
        )
        self._pool = LogServicePool(connect, threads=2)
        self.rounds = ReconcileLoop(
            objects=self, backend=self._backend(), clock=context.clock, on_round=self._on_round
        )

    # -- the object

    def current(self) -> LogHubConsumerGroup:
        return self._record.resource()

    def write_status(self, status: Status) -> None:
        self._record.set_status(status)

    # -- start to stop

    async def run(self, stop: asyncio.Event) -> None:
        """Runs until stopped (the workers stay members of the group) or taken down."""
        tasks = [
            asyncio.create_task(self.rounds.run()),
            asyncio.create_task(self._watch_files()),
            asyncio.create_task(stop.wait()),
        ]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self.supervisor.end()
            self._pool.close()
        if self.rounds.released:
            self._record.forget()
            self._folder.down.unlink(missing_ok=True)

    async def _watch_files(self) -> None:
        last_error = ""
        while True:
            await asyncio.sleep(FILES_EVERY_S)
            try:
                self._check_files()
                last_error = ""
            except OSError as error:  # for example a full disk; tried again
                if str(error) != last_error:
                    self._observer.say(f"the change cannot be stored yet: {error}")
                last_error = str(error)

    def _check_files(self) -> None:
        down_requested = self._folder.down.exists()
        # The file first: a deletionPolicy that was saved before `down` applies to it.
        if self._file is not None and (self._file.changed() or self._change_pending):
            self._change_pending = True
            self._apply_change(self._file)
            self._change_pending = False
        if down_requested and self.current().metadata.deletion_timestamp is None:
            self._record.set_deleted(self._context.clock.unix_s())
            self._observer.say("taking the group down")
            self.rounds.wake()

    def _apply_change(self, file: CrFile) -> None:
        before, was = self.current().metadata, self._code
        if before.deletion_timestamp is not None:
            return
        try:
            self._record, self._code = apply_edit(file, self._record)
        except InvalidResourceError as error:
            rejected = "the change is rejected, and the group continues as before"
            self._observer.say(f"{rejected}: {apiserver_message(self._record.document, error)}")
            return
        if self.current().metadata.generation != before.generation or self._code != was:
            self._observer.say("the file was changed, and the change is accepted")
            self.rounds.wake()

    def _backend(self) -> LocalBackend:
        context = self._context
        return LocalBackend(
            record=lambda: self._record,
            supervisor=self.supervisor,
            log_service=LogServiceAccess(
                pool=self._pool,
                endpoint=lambda _: context.endpoint,
                credentials=self._credentials,
                clock=context.clock,
            ),
            placement=self._placement,
            clock=context.clock,
            report=lambda event: self._observer.say(f"{event.reason}: {event.message}"),
        )

    async def _credentials(self, _: LogHubConsumerGroup) -> Credentials:
        return read_folder(self._context.credentials_dir)

    def _placement(self, resource: LogHubConsumerGroup) -> Placement:
        context = self._context
        return local_placement(
            resource, endpoint=context.endpoint, volumes=context.root.volumes, code=self._code
        )

    def _on_round(self, observed: ObservedState, status: Status) -> None:
        snapshot = GroupSnapshot(at_unix_s=observed.at_unix_s, status=status, workers=self.supervisor.views())
        previous = self._previous or GroupSnapshot(at_unix_s=0.0, status=Status(), workers=())
        self._previous = snapshot
        for sentence in changes(previous.status, snapshot.status, previous.workers, snapshot.workers):
            self._observer.say(sentence)
        self._observer.show(snapshot)
