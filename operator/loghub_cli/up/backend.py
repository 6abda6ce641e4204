"""Observes one consumer group on this machine and carries the actions of a plan out: the local half of
`loghub_operator.observe.observer` and `loghub_operator.apply.applier`.

What a cluster provides to a worker comes from elsewhere: code from the user's file
(`loghub_cli.up.manifest`), claims are folders, variables are written out. A resource that refers to something
that only a cluster can provide is rejected before anything starts. Backups of checkpoints from before a reset
are files with the names that the ConfigMaps of `loghub_operator.resources.metadata` have. The peers of a
group are the other groups of this machine that refer to the same consumer group. One that is stopped counts
too: its workers go on with the checkpoints at the next `loghub up`.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from loghub.atomic_file import replace_file
from loghub.clock import Clock
from loghub.contract.worker import WorkerConfig
from loghub.domain.state_inference import WorkerReport
from loghub.wire.errors import LogHubException
from loghub_cli.up.embedded_service import service_meant
from loghub_cli.up.object_store import LocalObject
from loghub_cli.up.paths import GroupFolder, Root
from loghub_cli.up.supervisor import Supervisor, WorkerView
from loghub_operator.api import InvalidResourceError, LogHubConsumerGroup, Problem
from loghub_operator.api.adoption import GroupRecord
from loghub_operator.logservice.access import LogServiceAccess
from loghub_operator.logservice.group_changes import surely_not_created
from loghub_operator.logservice.group_state import Unresolved, report_of
from loghub_operator.logservice.shard_cursors import last_initial_shard
from loghub_operator.model import actions
from loghub_operator.model.actions import Action, ActionRefused, EmitEvent
from loghub_operator.model.observed import (
    CheckpointBackup,
    ObservedState,
    Peer,
    Placement,
    StoredCheckpoints,
    UserCodeFiles,
    backup_name,
    shard_failures,
    state_reports,
)
from loghub_operator.model.revision import Revision, WorkerSpec
from loghub_operator.plan.checkpoint_reset import needed_backups, superseded
from loghub_operator.plan.subject import peer
from loghub_operator.resources.worker_config import config_hash


class _BackupFile(msgspec.Struct, rename="camel"):
    """A backup as stored. Users undo a reset with it, so its keys do not follow the names in the code."""

    requested_at: str
    before: Mapping[int, str]
    targets: Mapping[int, str]


@dataclass(frozen=True, slots=True)
class CheckpointBackups:
    """A folder with one file per backup; a file is written once and never changed. Older ones are removed."""

    folder: Path

    def keep(self, name: str, backup: CheckpointBackup, *, source: str | None = None) -> None:
        """Writes the backup unless it exists: the existing file holds the checkpoints from before the reset.
        Removes older ones, but not the ``source`` of the reset. Raises `OSError`."""
        path = self._path(name)
        if not path.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            file = _BackupFile(requested_at=backup.requested_at, before=backup.before, targets=backup.targets)
            replace_file(path, msgspec.json.format(msgspec.json.encode(file)))
        for old in superseded(self._requested_at(), needed=needed_backups(name, source)):
            self._path(old).unlink(missing_ok=True)

    def _requested_at(self) -> dict[str, str]:
        """By name; without files that cannot be decoded, which a user may have put there."""
        times: dict[str, str] = {}
        for path in self.folder.glob("*.json"):
            with suppress(ValueError):
                backup = self.read(path.stem)
                if backup is not None:
                    times[path.stem] = backup.requested_at
        return times

    def read(self, name: str) -> CheckpointBackup | None:
        """Reads a backup; None if it does not exist. Raises ValueError if it cannot be decoded, for example
        after a manual change."""
        try:
            file = msgspec.json.decode(self._path(name).read_bytes(), type=_BackupFile)
        except FileNotFoundError:
            return None
        except msgspec.DecodeError as error:
            raise ValueError(f"{self._path(name)} cannot be read: {error}") from None
        return CheckpointBackup(requested_at=file.requested_at, before=file.before, targets=file.targets)

    def source(self, name: str | None) -> dict[str, str] | None:
        """The backup's checkpoints in the form of a ConfigMap's data; None if there is no such backup."""
        backup = None if name is None else self.read(name)
        return None if backup is None else {str(shard): cursor for shard, cursor in backup.before.items()}

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.json"


def peers_of(resource: LogHubConsumerGroup, folder: GroupFolder) -> tuple[Peer, ...]:
    """First in rank first, as `loghub_operator.observe.group_index` has them; `folder` is its own."""
    service = Root(folder.folder.parents[1]).service
    group = _group(resource, service)
    others = (other for other in _beside(folder) if _group(other, service) == group)
    return tuple(sorted((peer(other) for other in others), key=lambda one: one.rank))


def _beside(folder: GroupFolder) -> Iterator[LogHubConsumerGroup]:
    """A record that cannot be read is reported where its own group is started or shown."""
    for path in folder.folder.parent.glob("*"):
        record = None if path == folder.folder else LocalObject.load(GroupFolder(path))
        if record is not None:
            with suppress(InvalidResourceError):
                yield record.resource()


def _group(resource: LogHubConsumerGroup, service: Path) -> tuple[str, str, str, str]:
    spec = resource.spec
    return (service_meant(spec.endpoint, service), spec.project, spec.logstore, resource.group)


def local_placement(
    resource: LogHubConsumerGroup, *, endpoint: str, volumes: Path, code: UserCodeFiles
) -> Placement:
    """The placement on this machine. A claim is a folder of the same name; a loopback address needs no host
    name for the project."""
    written, code_source = resource.spec.pipeline.sink_volume_claim, resource.spec.pipeline.code
    claim = None if code_source is None else code_source.volume_claim
    rejected = resource.spec.pipeline.on_failure.folder
    log_file = resource.spec.worker.log.file
    log_claim = None if log_file is None else log_file.volume_claim
    return Placement(
        endpoint=endpoint,
        sink_root=str(volumes / written if written is not None else volumes),
        needs_project_address=False,
        code_root=str(volumes / claim.name if claim is not None else volumes),
        dead_letter_root=str(volumes / rejected.volume_claim if rejected is not None else volumes),
        log_root=str(volumes / log_claim if log_claim is not None else volumes),
        code=code,
    )


def variables_of(resource: LogHubConsumerGroup) -> dict[str, str]:
    """The user's own variables for every worker."""
    return {one.name: one.value or "" for one in resource.spec.worker.env}


@dataclass(frozen=True, slots=True)
class ProcessEnvironment:
    """Workers as processes of this machine: their settings are all that is applied."""

    def worker_spec(self, resource: LogHubConsumerGroup, config: WorkerConfig) -> WorkerSpec:
        """Implements `loghub_operator.model.observed.WorkerEnvironment`."""
        revision = revision_of(config, variables_of(resource), generation=resource.metadata.generation)
        return WorkerSpec(revision=revision, config=config)


def revision_of(config: WorkerConfig, variables: Mapping[str, str], *, generation: int) -> Revision:
    """The user's variables take the place of a pod template."""
    text = json.dumps(dict(variables), sort_keys=True).encode()
    return Revision(
        settings=config_hash(config),
        pod_template=hashlib.sha256(text).hexdigest()[:16],
        generation=generation,
    )


def reject_cluster_references(resource: LogHubConsumerGroup, code: UserCodeFiles) -> None:
    """Raises `InvalidResourceError` with every reference to something that only a cluster can provide."""
    no_objects = "there are no Secrets and ConfigMaps on this machine; give a value"
    problems = [
        Problem(f"spec.worker.env[{number}].valueFrom", no_objects)
        for number, variable in enumerate(resource.spec.worker.env)
        if variable.value_from is not None
    ]
    if code.error:
        message = f"{code.error}; on this machine it must be a document in the same file"
        kind = "python" if resource.spec.pipeline.python is not None else "processor"
        problems.append(Problem(f"spec.pipeline.{kind}.configMap", message))
    if problems:
        raise InvalidResourceError(tuple(problems))


class LocalBackend:
    """Keeps no state of its own: the record is on disk, and the supervisor has the processes."""

    def __init__(
        self,
        *,
        record: Callable[[], LocalObject],
        supervisor: Supervisor,
        log_service: LogServiceAccess,
        placement: Callable[[LogHubConsumerGroup], Placement],
        clock: Clock,
        report: Callable[[EmitEvent], None],
    ) -> None:
        self._record = record
        self._supervisor = supervisor
        self._log_service = log_service
        self._placement = placement
        self._clock = clock
        self._report = report

    async def observe(self, resource: LogHubConsumerGroup) -> ObservedState:
        """Makes one observation; an error of the log service is part of it."""
        self._supervisor.tick()
        credentials = await self._log_service.credentials_or_reason(resource)
        client = self._log_service.client_or_reason(resource, credentials)
        views = self._supervisor.views()

        async def reports(unresolved: Unresolved) -> dict[str, WorkerReport | None]:
            return self._reports(views, timeout_s=unresolved.timeout_s)

        service = await self._log_service.observe(resource, client, reports)
        workers = self._supervisor.observed()  # as of after the answer
        placement = self._placement(resource)
        recorded = self._record().group_record
        last_initial = last_initial_shard(recorded, service)
        reset = await self._log_service.observe_reset(
            resource,
            client,
            service,
            lambda: self._stored_checkpoints(resource),
            has_workers=bool(workers),
            last_initial_shard=last_initial,
        )
        reported = {view.observed.name: view.status for view in views}
        ready = {view.observed.name for view in views if view.observed.ready}
        return ObservedState(
            at_unix_s=self._clock.unix_s(),
            placement=placement,
            environment=ProcessEnvironment(),
            service=service,
            worker_set=self._supervisor.worker_set,
            workers=workers,
            group_record=recorded,
            last_initial_shard=last_initial,
            peers=peers_of(resource, self._record().folder),
            reset=reset,
            failures=shard_failures(reported, ready=ready),
            states=state_reports(reported, ready=ready),
        )

    def _reports(self, views: tuple[WorkerView, ...], *, timeout_s: float) -> dict[str, WorkerReport | None]:
        now = self._clock.unix_s()
        reports: dict[str, WorkerReport | None] = {}
        for view in views:
            name, status = view.observed.name, view.status
            # It may have been written some time before it was seen; the wall clock may have been set.
            age_s = view.silent_s if status is None else max(view.silent_s, now - status.written_at)
            reports[name] = report_of(status, consumer=name, age_s=age_s, timeout_s=timeout_s)
        return reports

    async def _stored_checkpoints(self, resource: LogHubConsumerGroup) -> StoredCheckpoints:
        backups = self._backups()
        source = backups.source(resource.spec.reset_source)
        return StoredCheckpoints(backup=backups.read(backup_name(resource)), source=source)

    def _backups(self) -> CheckpointBackups:
        return CheckpointBackups(self._record().folder.checkpoints)

    async def carry_out(self, resource: LogHubConsumerGroup, action: Action) -> None:
        """Raises `LogHubException`, `ActionRefused` or `OSError`."""
        match action:
            case actions.AddFinalizer() | actions.EnsureProjectService() | actions.RemoveFinalizer():
                # The record is ours alone, a loopback address needs no name, and `commands` forgets the
                # record at its end.
                pass
            case actions.RecordGroupOrigin(record):
                self._record().set_group_record(record)
            case actions.CreateGroup(last_initial_shard=last):
                try:
                    await self._log_service.change_group(resource, action)
                except (LogHubException, ActionRefused) as error:
                    if surely_not_created(error):
                        self._record().set_group_record(GroupRecord("Refused", last))
                    raise
            case actions.UpdateGroup() | actions.DeleteGroup():
                await self._log_service.change_group(resource, action)
            case actions.BackUpCheckpoints(name=name, backup=backup):
                self._backups().keep(name, backup, source=resource.spec.reset_source)
            case actions.CommitCheckpoints():
                await self._log_service.commit_checkpoints(resource, action)
            case actions.ApplyWorkers(replicas=replicas, spec=spec):
                self._supervisor.apply(spec, replicas=replicas, variables=variables_of(resource))
            case actions.DrainWorker(consumer):
                self._supervisor.ask_leave(consumer)
            case actions.RestartWorker(consumer):
                self._supervisor.restart(consumer)
            case actions.RemoveWorkers():
                self._supervisor.remove()
            case actions.SplitShard() | actions.MergeShards():
                await self._log_service.change_shards(resource, action)
            case actions.EmitEvent():
                self._report(action)
