"""Look at one consumer group on this machine, and carry a plan's actions out.

What for: the local half of what `loghub_operator.observe` and `loghub_operator.apply` are in a
cluster. What it must not know: why. Read next: `loghub_operator.model` (what each action
promises), `loghub_operator.local.supervisor`.
"""

from collections.abc import Callable

from loghub.client.port import Credentials, LogHub
from loghub.client.target import BadEndpoint
from loghub.clock import Clock
from loghub_operator import model
from loghub_operator.api import LogHubConsumerGroup
from loghub_operator.hubs import Hubs
from loghub_operator.local.record import Record
from loghub_operator.local.supervisor import Supervisor
from loghub_operator.logservice import GroupKey, change_group, observe_service
from loghub_operator.model import (
    Action,
    ActionRefused,
    GroupChange,
    Observed,
    ServiceObserved,
    ServiceTrouble,
    Site,
    Trouble,
)


class LocalEdge:
    """Remembers nothing itself: the record is on disk, the processes are the supervisor's."""

    def __init__(
        self,
        *,
        record: Callable[[], Record],
        supervisor: Supervisor,
        hubs: Hubs,
        site: Callable[[LogHubConsumerGroup], Site],
        credentials: Callable[[], Credentials | Trouble],
        clock: Clock,
        tell: Callable[[model.EmitEvent], None],
    ) -> None:
        self._record = record
        self._supervisor = supervisor
        self._hubs = hubs
        self._site = site
        self._credentials = credentials
        self._clock = clock
        self._tell = tell

    async def observe(self, resource: LogHubConsumerGroup) -> Observed:
        """One look. Trouble with the log service is part of what is seen."""
        self._supervisor.tick()
        workers = self._supervisor.observed()
        hub = self.hub(resource)
        if isinstance(hub, Trouble):
            service = ServiceObserved(trouble=hub)
        else:
            expected = [worker.name for worker in workers]
            now = self._clock.unix_s()
            service = await self._hubs.call(observe_service, hub, resource, expected=expected, now_unix_s=now)
        return Observed(
            at_unix_s=self._clock.unix_s(),
            site=self._site(resource),
            service=service,
            worker_set=self._supervisor.worker_set,
            workers=self._supervisor.observed(),  # as of after the answer
            group_origin=self._record().origin,
        )

    def hub(self, resource: LogHubConsumerGroup) -> LogHub | Trouble:
        """The client of the group's project, or why there is none."""
        credentials = self._credentials()
        if isinstance(credentials, Trouble):
            return credentials
        try:
            return self._hubs.hub(self._site(resource).endpoint, resource.spec.project, credentials)
        except BadEndpoint as error:
            return Trouble(reason=ServiceTrouble.ENDPOINT_UNREACHABLE, message=str(error))

    async def carry_out(self, resource: LogHubConsumerGroup, observed: Observed, action: Action) -> None:  # noqa: ARG002 - as in the cluster
        """Raises `LogHubException`, `ActionRefused` or `OSError`."""
        match action:
            case model.HoldObject() | model.EnsureProjectAddress() | model.ReleaseObject():
                pass  # the record is ours alone; a loopback address needs no name; `up` forgets at its end
            case model.RecordGroupOrigin(origin):
                self._record().set_origin(origin)
            case model.CreateGroup() | model.UpdateGroup() | model.DeleteGroup():
                await self._change_group(resource, action)
            case model.ApplyWorkers():
                self._supervisor.apply(
                    action.config, replicas=action.replicas, config_hash=action.config_hash
                )
            case model.AskLeave(consumer):
                self._supervisor.ask_leave(consumer)
            case model.RestartWorker(consumer):
                self._supervisor.restart(consumer)
            case model.RemoveWorkers():
                self._supervisor.remove()
            case model.EmitEvent():
                self._tell(action)

    async def _change_group(self, resource: LogHubConsumerGroup, action: GroupChange) -> None:
        hub = self.hub(resource)
        if isinstance(hub, Trouble):
            raise ActionRefused(hub.message)
        if not await self._hubs.call(change_group, hub, GroupKey.of(resource), action):
            self._record().set_origin("Adopted")
