"""The local half of `loghub_operator.observe.observer` and `loghub_operator.apply.executor`: observes one
consumer group on this machine and carries the actions of a plan out."""

from collections.abc import Callable
from dataclasses import replace

from loghub.client.port import Credentials, LogHub
from loghub.client.target import BadEndpoint
from loghub.clock import Clock
from loghub.domain.state_inference import WorkerReport
from loghub_operator.api import LogHubConsumerGroup
from loghub_operator.clients.log_service_pool import LogServicePool
from loghub_operator.local.checkpoint_backup import KeptCheckpoints
from loghub_operator.local.object_store import Record
from loghub_operator.local.processes.supervisor import Supervisor
from loghub_operator.local.site import variables_of
from loghub_operator.logservice.checkpoints import move_checkpoints, resolve_targets
from loghub_operator.logservice.group_changes import change_group, change_shards
from loghub_operator.logservice.group_key import GroupKey
from loghub_operator.logservice.group_state import Unresolved, observe_service
from loghub_operator.logservice.shard_cursors import EndCursorCache
from loghub_operator.logservice.worker_report import report_of
from loghub_operator.model import actions
from loghub_operator.model.actions import Action, ActionRefused, GroupChange, ShardChange
from loghub_operator.model.observed import (
    ObservedState,
    ObservedStatefulSet,
    Placement,
    ServiceError,
    ServiceErrorReason,
    ServiceObserved,
)
from loghub_operator.model.reposition import MoveObserved, needs_a_look, record_name


class LocalEdge:
    """Keeps no state of its own: the record is on disk, and the supervisor has the processes."""

    def __init__(
        self,
        *,
        record: Callable[[], Record],
        supervisor: Supervisor,
        kept: KeptCheckpoints,
        hubs: LogServicePool,
        site: Callable[[LogHubConsumerGroup], Placement],
        credentials: Callable[[], Credentials | ServiceError],
        clock: Clock,
        tell: Callable[[actions.EmitEvent], None],
    ) -> None:
        self._record = record
        self._supervisor = supervisor
        self._kept = kept
        self._hubs = hubs
        self._site = site
        self._credentials = credentials
        self._clock = clock
        self._ends = EndCursorCache()
        self._tell = tell

    async def observe(self, resource: LogHubConsumerGroup) -> ObservedState:
        """Observe once. An error of the log service is part of the observation."""
        self._supervisor.tick()
        hub = self.hub(resource)
        if isinstance(hub, ServiceError):
            service = ServiceObserved(trouble=hub)
        else:
            found = await self._hubs.call(observe_service, hub, resource, ends=self._ends, clock=self._clock)
            service = found.resolved(self._reports(found)) if isinstance(found, Unresolved) else found
        workers = self._supervisor.observed()  # as of after the answer
        return ObservedState(
            at_unix_s=self._clock.unix_s(),
            site=self._site(resource),
            service=service,
            worker_set=self._worker_set(resource),
            workers=workers,
            group_origin=self._record().origin,
            move=None if workers else await self._move(resource, service),
        )

    def _reports(self, found: Unresolved) -> dict[str, WorkerReport | None]:
        now, seen = self._clock.unix_s(), {}
        for view in self._supervisor.views():
            name, status = view.observed.name, view.status
            age_s = now - status.written_at if status is not None else 0.0
            seen[name] = report_of(status, consumer=name, age_s=age_s, timeout_s=found.timeout_s)
        return seen

    async def _move(self, resource: LogHubConsumerGroup, service: ServiceObserved) -> MoveObserved | None:
        order, hub = resource.spec.reset_checkpoints, self.hub(resource)
        if order is None or isinstance(hub, ServiceError) or not needs_a_look(resource):
            return None
        if service.trouble is not None or service.group is None:
            return None
        try:
            record = self._kept.read(record_name(resource))
            source = self._kept.source(order.config_map_name)
        except ValueError as error:
            return MoveObserved(trouble=str(error))
        return await self._hubs.call(
            resolve_targets, hub, resource, service.shards, record=record, source=source, clock=self._clock
        )

    def _worker_set(self, resource: LogHubConsumerGroup) -> ObservedStatefulSet | None:
        found = self._supervisor.worker_set
        if found is None:
            return None
        return replace(found, rolls=self._supervisor.variables != variables_of(resource))

    def hub(self, resource: LogHubConsumerGroup) -> LogHub | ServiceError:
        """The client of the group's project, or why there is none."""
        credentials = self._credentials()
        if isinstance(credentials, ServiceError):
            return credentials
        try:
            return self._hubs.client(self._site(resource).endpoint, resource.spec.project, credentials)
        except BadEndpoint as error:
            return ServiceError(reason=ServiceErrorReason.ENDPOINT_UNREACHABLE, message=str(error))

    async def carry_out(self, resource: LogHubConsumerGroup, observed: ObservedState, action: Action) -> None:  # noqa: ARG002 - as in the cluster
        """Raises `LogHubException`, `ActionRefused` or `OSError`."""
        match action:
            case actions.HoldObject() | actions.EnsureProjectAddress() | actions.ReleaseObject():
                # the record is ours alone; a loopback address needs no name; `commands` forgets at its end
                pass
            case actions.RecordGroupOrigin(origin):
                self._record().set_origin(origin)
            case actions.CreateGroup() | actions.UpdateGroup() | actions.DeleteGroup():
                await self._change_group(resource, action)
            case actions.KeepCheckpoints(name=name, record=record):
                self._kept.keep(name, record)
            case actions.MoveCheckpoints():
                await self._hubs.call(
                    move_checkpoints, self._reached(resource), GroupKey.of(resource), action, self._clock
                )
            case actions.ApplyWorkers():
                self._supervisor.apply(
                    action.config,
                    replicas=action.replicas,
                    config_hash=action.config_hash,
                    variables=variables_of(resource),
                )
            case actions.AskLeave(consumer):
                self._supervisor.ask_leave(consumer)
            case actions.RestartWorker(consumer):
                self._supervisor.restart(consumer)
            case actions.RemoveWorkers():
                self._supervisor.remove()
            case actions.SplitShard() | actions.MergeShards():
                await self._change_shards(resource, action)
            case actions.EmitEvent():
                self._tell(action)

    async def _change_shards(self, resource: LogHubConsumerGroup, action: ShardChange) -> None:
        hub = self.hub(resource)
        if isinstance(hub, ServiceError):
            raise ActionRefused(hub.message)
        await self._hubs.call(change_shards, hub, resource.spec.logstore, action)

    def _reached(self, resource: LogHubConsumerGroup) -> LogHub:
        hub = self.hub(resource)
        if isinstance(hub, ServiceError):
            raise ActionRefused(hub.message)
        return hub

    async def _change_group(self, resource: LogHubConsumerGroup, action: GroupChange) -> None:
        hub = self._reached(resource)
        if not await self._hubs.call(change_group, hub, GroupKey.of(resource), action):
            self._record().set_origin("Adopted")
