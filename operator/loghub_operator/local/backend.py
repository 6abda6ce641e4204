"""The local half of `loghub_operator.observe.observer` and `loghub_operator.apply.executor`: observes one
consumer group on this machine and carries the actions of a plan out."""

from collections.abc import Callable

from loghub.clock import Clock
from loghub.domain.state_inference import WorkerReport
from loghub.wire.errors import LogHubException
from loghub_operator.api import LogHubConsumerGroup
from loghub_operator.api.adoption import GroupRecord
from loghub_operator.local.checkpoint_backup import CheckpointBackups
from loghub_operator.local.object_store import Record
from loghub_operator.local.peers import peers_of
from loghub_operator.local.processes.supervisor import Supervisor, WorkerView
from loghub_operator.local.site import local_worker_spec, variables_of
from loghub_operator.logservice.access import LogServiceAccess
from loghub_operator.logservice.group_changes import surely_not_created
from loghub_operator.logservice.group_state import Unresolved
from loghub_operator.logservice.initial_shards import last_initial_shard
from loghub_operator.logservice.worker_report import report_of
from loghub_operator.model import actions
from loghub_operator.model.actions import Action, ActionRefused, EmitEvent
from loghub_operator.model.checkpoint_reset import StoredCheckpoints, backup_name
from loghub_operator.model.observed import ObservedState, Placement
from loghub_operator.model.shard_failures import shard_failures
from loghub_operator.model.state_reports import state_reports


class LocalBackend:
    """Keeps no state of its own: the record is on disk, and the supervisor has the processes."""

    def __init__(
        self,
        *,
        record: Callable[[], Record],
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
            worker_spec=local_worker_spec(resource, placement, last_initial_shard=last_initial),
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
