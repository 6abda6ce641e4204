"""Access to the log service of each group, in a cluster and for `loghub up` alike.

A `LogServiceAccess` opens the client of a group's project and makes the calls of
`loghub_operator.logservice` in the threads of the pool. Where a group's access key comes from is up to the
caller.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping

from loghub.client.port import Credentials, LogHub
from loghub.client.target import BadEndpoint
from loghub.clock import Clock
from loghub.domain.state_inference import WorkerReport
from loghub_operator.api.v1alpha1 import LogHubConsumerGroup
from loghub_operator.clients.log_service_pool import LogServicePool
from loghub_operator.logservice.checkpoints import commit_checkpoints, resolve_targets
from loghub_operator.logservice.group_changes import change_group, change_shards
from loghub_operator.logservice.group_key import GroupKey
from loghub_operator.logservice.group_state import Unresolved, observe_service
from loghub_operator.logservice.shard_cursors import EndCursorCache
from loghub_operator.model.actions import ActionRefused, CommitCheckpoints, GroupChange, ShardChange
from loghub_operator.model.checkpoint_reset import CheckpointBackup, ResetObserved
from loghub_operator.model.observed import (
    LogServiceObserved,
    ServiceErrorReason,
    ShardObserved,
    Unavailable,
)


class LogServiceUnavailable(ActionRefused):
    """There is no client for a group; ``why`` is what an observation reports."""

    def __init__(self, why: Unavailable) -> None:
        super().__init__(why.message)
        self.why = why


class LogServiceAccess:
    """Clients and calls for any number of groups.

    ``endpoint`` and ``credentials`` return those of a group; the latter raises `LogServiceUnavailable` if
    there are none. Every method that calls the log service raises it too, or `LogHubException`.
    """

    def __init__(
        self,
        *,
        pool: LogServicePool,
        endpoint: Callable[[LogHubConsumerGroup], str],
        credentials: Callable[[LogHubConsumerGroup], Awaitable[Credentials]],
        clock: Clock,
    ) -> None:
        self._pool = pool
        self._endpoint = endpoint
        self._credentials = credentials
        self._clock = clock
        self._ends = EndCursorCache()

    async def client(self, resource: LogHubConsumerGroup) -> LogHub:
        """Returns the client of the group's project; the same one as long as the access key is the same."""
        return self._open(resource, await self._credentials(resource))

    def _open(self, resource: LogHubConsumerGroup, credentials: Credentials) -> LogHub:
        try:
            return self._pool.client(self._endpoint(resource), resource.spec.project, credentials)
        except BadEndpoint as error:  # for example a port out of range
            why = Unavailable(reason=ServiceErrorReason.ENDPOINT_UNREACHABLE, message=str(error))
            raise LogServiceUnavailable(why) from error

    async def credentials_or_reason(self, resource: LogHubConsumerGroup) -> Credentials | Unavailable:
        """Returns the access key for an observation, which reports why there is none."""
        try:
            return await self._credentials(resource)
        except LogServiceUnavailable as error:
            return error.why

    def client_or_reason(
        self, resource: LogHubConsumerGroup, credentials: Credentials | Unavailable
    ) -> LogHub | Unavailable:
        """Returns the client for an observation, or why there is none."""
        if isinstance(credentials, Unavailable):
            return credentials
        try:
            return self._open(resource, credentials)
        except LogServiceUnavailable as error:
            return error.why

    async def observe(
        self,
        resource: LogHubConsumerGroup,
        client: LogHub | Unavailable,
        reports: Callable[[Unresolved], Awaitable[Mapping[str, WorkerReport | None]]],
    ) -> LogServiceObserved:
        """Observes the group. ``reports`` asks the workers, and is called only if the log service does not
        report the states of shards. Never raises for a response of the log service.
        """
        if isinstance(client, Unavailable):
            return client
        observed = await self._pool.call(
            observe_service, client, resource, ends=self._ends, clock=self._clock
        )
        return observed.resolved(await reports(observed)) if isinstance(observed, Unresolved) else observed

    async def reset_targets(
        self,
        resource: LogHubConsumerGroup,
        client: LogHub,
        shards: Iterable[ShardObserved],
        *,
        backup: CheckpointBackup | None,
        source: Mapping[str, str] | None,
    ) -> ResetObserved:
        """Observes what a checkpoint reset needs (`resolve_targets`)."""
        return await self._pool.call(
            resolve_targets, client, resource, shards, backup=backup, source=source, clock=self._clock
        )

    async def change_group(self, resource: LogHubConsumerGroup, action: GroupChange) -> bool:
        """Returns False if the group should be created and another client already created it."""
        return await self._pool.call(change_group, await self.client(resource), GroupKey.of(resource), action)

    async def change_shards(self, resource: LogHubConsumerGroup, action: ShardChange) -> None:
        """Splits or merges; raises `ReshardRefused` if the log service rejects it."""
        client = await self.client(resource)
        await self._pool.call(change_shards, client, resource.spec.logstore, action)

    async def commit_checkpoints(self, resource: LogHubConsumerGroup, action: CommitCheckpoints) -> None:
        """Commits the checkpoints of a reset."""
        client = await self.client(resource)
        await self._pool.call(commit_checkpoints, client, GroupKey.of(resource), action, self._clock)
