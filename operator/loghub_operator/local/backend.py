"""The local half of `loghub_operator.observe.observer` and `loghub_operator.apply.executor`: observes one
consumer group on this machine and carries the actions of a plan out."""

from collections.abc import Callable

from loghub.client.port import LogHub
from loghub.clock import Clock
from loghub.domain.state_inference import WorkerReport
from loghub_operator.api import LogHubConsumerGroup
from loghub_operator.local.checkpoint_backup import CheckpointBackups
from loghub_operator.local.object_store import Record
from loghub_operator.local.processes.supervisor import Supervisor
from loghub_operator.local.site import local_worker_spec, variables_of
from loghub_operator.logservice.access import LogServiceAccess
from loghub_operator.logservice.group_state import Unresolved
from loghub_operator.logservice.worker_report import report_of
from loghub_operator.model import actions
from loghub_operator.model.actions import Action, EmitEvent
from loghub_operator.model.checkpoint_reset import ResetObserved, backup_name, needs_observation
from loghub_operator.model.observed import (
    Available,
    LogServiceObserved,
    ObservedState,
    Placement,
    Unavailable,
)


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
        service = await self._log_service.observe(resource, client, self._reports)
        workers = self._supervisor.observed()  # as of after the answer
        placement = self._placement(resource)
        return ObservedState(
            at_unix_s=self._clock.unix_s(),
            placement=placement,
            worker_spec=local_worker_spec(resource, placement),
            service=service,
            worker_set=self._supervisor.worker_set,
            workers=workers,
            group_origin=self._record().origin,
            reset=None if workers else await self._reset(resource, client, service),
        )

    async def _reports(self, found: Unresolved) -> dict[str, WorkerReport | None]:
        now = self._clock.unix_s()
        reports: dict[str, WorkerReport | None] = {}
        for view in self._supervisor.views():
            name, status = view.observed.name, view.status
            age_s = now - status.written_at if status is not None else 0.0
            reports[name] = report_of(status, consumer=name, age_s=age_s, timeout_s=found.timeout_s)
        return reports

    async def _reset(
        self, resource: LogHubConsumerGroup, client: LogHub | Unavailable, service: LogServiceObserved
    ) -> ResetObserved | None:
        order = resource.spec.reset_checkpoints
        if order is None or isinstance(client, Unavailable) or not needs_observation(resource):
            return None
        if not isinstance(service, Available) or service.group is None:
            return None
        try:
            backup = self._backups().read(backup_name(resource))
            source = self._backups().source(order.config_map_name)
        except ValueError as error:
            return ResetObserved(error=str(error))
        return await self._log_service.reset_targets(
            resource, client, service.shards, backup=backup, source=source
        )

    def _backups(self) -> CheckpointBackups:
        return CheckpointBackups(self._record().folder.checkpoints)

    async def carry_out(self, resource: LogHubConsumerGroup, action: Action) -> None:
        """Raises `LogHubException`, `ActionRefused` or `OSError`."""
        match action:
            case actions.AddFinalizer() | actions.EnsureProjectService() | actions.RemoveFinalizer():
                # The record is ours alone, a loopback address needs no name, and `commands` forgets the
                # record at its end.
                pass
            case actions.RecordGroupOrigin(origin):
                self._record().set_origin(origin)
            case actions.CreateGroup() | actions.UpdateGroup() | actions.DeleteGroup():
                if not await self._log_service.change_group(resource, action):
                    self._record().set_origin("Adopted")
            case actions.BackUpCheckpoints(name=name, backup=backup):
                self._backups().keep(name, backup)
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
