"""Access to the log service of each group, in a cluster and for `loghub up` alike.

A `LogServiceAccess` opens the client of a group's project and makes the calls of `loghub_operator.logservice`
in the threads of the pool. Where a group's access key comes from is up to the caller. Endpoints are refused
over which an access key and logs would be readable on the public internet, or at which a node keeps what is
not for the author of an object.

The last access key that its log service accepted is remembered for each object, for the object's deletion.
While a namespace is deleted, its Secrets and its groups go in any order. Without the key the workers could
not leave the group, and the group could not be deleted. A finalizer on the user's Secret would keep the
namespace from ending where no operator runs; a key in memory is lost with the operator, which is then as it
was without.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from typing import TypedDict

from loghub.client.port import Credentials, LogHub
from loghub.client.target import BadEndpoint
from loghub.clock import Clock
from loghub.domain.state_inference import WorkerReport
from loghub.wire import names
from loghub.wire.errors import EndpointUnreachable, LogHubError, LogHubException
from loghub_operator.api.v1alpha1 import LogHubConsumerGroup
from loghub_operator.clients.log_service import LogServicePool
from loghub_operator.logservice.group_changes import (
    change_group,
    change_shards,
    change_subscription,
    commit_checkpoints,
    resolve_targets,
)
from loghub_operator.logservice.group_state import ConsumerGroupKey, Unresolved, observe_service
from loghub_operator.logservice.other_logstores import (
    dead_letter_place,
    read_dead_letter,
    read_retries,
    retry_place,
)
from loghub_operator.logservice.shard_cursors import CursorCache, Name, RunAll
from loghub_operator.model.actions import ActionRefused, CommitCheckpoints, GroupChange, ShardChange
from loghub_operator.model.observed import (
    Available,
    LogServiceObserved,
    OtherLogstore,
    ResetObserved,
    ServiceErrorReason,
    StoredCheckpoints,
    Unavailable,
    needs_observation,
)

# Twenty times as many groups as one operator is made for; an object whose key was forgotten is deleted
# without it.
MAX_OBJECTS = 10_000


class AcceptedCredentials:
    """By UID of the object; of more than `MAX_OBJECTS` objects, the objects that were not used longest are
    forgotten."""

    def __init__(self) -> None:
        self._tried: OrderedDict[str, Credentials] = OrderedDict()
        self._accepted: OrderedDict[str, Credentials] = OrderedDict()

    def trying(self, uid: str, credentials: Credentials) -> None:
        """The next answer of the log service is about this key."""
        _put(self._tried, uid, credentials)

    def accepted(self, uid: str) -> None:
        """The log service accepted the key that was tried last."""
        if uid in self._tried:
            _put(self._accepted, uid, self._tried[uid])

    def last(self, uid: str) -> Credentials | None:
        """The key that was accepted last."""
        return self._accepted.get(uid)

    def forget(self, uid: str) -> None:
        """The object is released."""
        self._tried.pop(uid, None)
        self._accepted.pop(uid, None)


def _put(keys: OrderedDict[str, Credentials], uid: str, credentials: Credentials) -> None:
    keys[uid] = credentials
    keys.move_to_end(uid)
    if len(keys) > MAX_OBJECTS:
        keys.popitem(last=False)


def insecure_endpoint(endpoint: str, allowed_http_hosts: Iterable[str], *, remedy: str) -> Unavailable | None:
    """Why no request may be sent to the endpoint; None if requests may be sent. ``remedy`` says how the
    host can be allowed."""
    allowed = tuple(allowed_http_hosts)
    message = _why_not(endpoint, allowed)
    if not message:
        return None
    return Unavailable(reason=ServiceErrorReason.INSECURE_ENDPOINT, message=f"{message}, or {remedy}")


def _why_not(endpoint: str, allowed: tuple[str, ...]) -> str:
    """A pattern such as ``*`` is meant for the log services of a company, so it allows no node's address."""
    try:
        host = names.host_in(endpoint)
    except ValueError:
        host = ""
    if names.serves_a_node(host) and host not in allowed:
        return (
            f"{endpoint} is an address of the node (link-local, or its cloud's metadata), where no log "
            "service is; no request is sent to it. Use the host name of the log service"
        )
    if names.is_exposed(endpoint, allowed):
        return (
            f"{endpoint} is not encrypted, and its host is neither inside the cluster nor a private address; "
            "no request is sent to it. Use https"
        )
    return ""


class _CursorReading(TypedDict):
    """How cursors are read."""

    cache: CursorCache
    run_all: RunAll
    clock: Clock


DEAD_LETTER_EVERY_S = 60.0  # nothing is decided with it, and it is a few requests for each group
# Eight times as many groups as one operator is made for; a number that was forgotten is read again.
MAX_DEAD_LETTERS = 4096
MAX_KEYS = 10  # to ask for one project with


class LogServiceUnavailable(ActionRefused):
    """There is no client for a group; ``why`` is what an observation reports."""

    def __init__(self, why: Unavailable) -> None:
        super().__init__(why.message)
        self.why = why


class LogServiceAccess:
    """Clients and calls for any number of groups.

    ``endpoint`` and ``credentials`` return the URL and the access key of a group, or raise
    `LogServiceUnavailable`. Every method that calls the log service raises it too, or `LogHubException`.
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
        self._cursors = CursorCache(clock)
        self._accepted = AcceptedCredentials()
        # By object, since another one's key may have no rights there; in the order of use.
        self._dead_letters: OrderedDict[tuple[str, Name], tuple[OtherLogstore, float]] = OrderedDict()
        self._reading: _CursorReading = {"cache": self._cursors, "run_all": pool.run_all, "clock": clock}

    async def client(self, resource: LogHubConsumerGroup) -> LogHub:
        """Returns the client of the group's project; one client as long as the access key stays."""
        return self._open(resource, await self._key(resource))

    async def _key(self, resource: LogHubConsumerGroup) -> Credentials:
        """The access key; for a deletion the last accepted one, if the Secret was deleted first."""
        try:
            return await self._credentials(resource)
        except LogServiceUnavailable as error:
            last = self._accepted.last(resource.metadata.uid)
            missing = error.why.reason is ServiceErrorReason.CREDENTIALS_MISSING
            if last is None or not missing or resource.metadata.deletion_timestamp is None:
                raise
            return last

    def forget(self, resource: LogHubConsumerGroup) -> None:
        """The object is released: its key is not needed any more."""
        self._accepted.forget(resource.metadata.uid)

    def _open(self, resource: LogHubConsumerGroup, credentials: Credentials) -> LogHub:
        self._accepted.trying(resource.metadata.uid, credentials)
        try:
            return self._pool.client(self._endpoint(resource), resource.spec.project, credentials)
        except BadEndpoint as error:  # for example a port out of range
            why = Unavailable(reason=ServiceErrorReason.ENDPOINT_UNREACHABLE, message=str(error))
            raise LogServiceUnavailable(why) from error

    async def credentials_or_reason(self, resource: LogHubConsumerGroup) -> Credentials | Unavailable:
        """Returns the access key for an observation, which reports why there is none."""
        try:
            return await self._key(resource)
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
            observe_service,
            client,
            resource,
            **self._reading,
        )
        if isinstance(observed, Unavailable):
            return observed
        self._accepted.accepted(resource.metadata.uid)
        retries, dead_letter = await asyncio.gather(
            self._retries(resource, client), self._dead_letter(resource)
        )
        resolved = (
            observed.resolved(await reports(observed)) if isinstance(observed, Unresolved) else observed
        )
        return replace(resolved, retries=retries, dead_letter=dead_letter)

    async def _retries(self, resource: LogHubConsumerGroup, client: LogHub) -> OtherLogstore | None:
        place = retry_place(resource)
        if place is None or resource.metadata.deletion_timestamp is not None:
            return None
        return await self._pool.call(read_retries, client, resource, place, **self._reading)

    async def _dead_letter(self, resource: LogHubConsumerGroup) -> OtherLogstore | None:
        """The dead letter may be in another project, which the group's own key reaches."""
        place, key = dead_letter_place(resource), self._accepted.last(resource.metadata.uid)
        if place is None or key is None or resource.metadata.deletion_timestamp is not None:
            return None
        now, mine = self._clock.monotonic_s(), (resource.metadata.uid, place)
        dead_letter, until_s = self._dead_letters.pop(mine, (None, now))
        if dead_letter is None or now >= until_s:
            client = self._pool.client(self._endpoint(resource), place[1], key)
            dead_letter = await self._pool.call(read_dead_letter, client, place, **self._reading)
            until_s = now + DEAD_LETTER_EVERY_S
        self._dead_letters[mine] = dead_letter, until_s
        while len(self._dead_letters) > MAX_DEAD_LETTERS:
            self._dead_letters.popitem(last=False)
        return dead_letter

    async def project_error(
        self, resource: LogHubConsumerGroup, project: str, credentials: Credentials | Unavailable
    ) -> str:
        """Asks whether another project of the group's log service exists. Returns why that is not known, as a
        message for users, or "" if it exists.
        """
        if isinstance(credentials, Unavailable):
            return credentials.message
        try:
            client = self._pool.client(self._endpoint(resource), project, credentials)
            if await self._pool.call(client.project_exists):
                return ""
        except (LogServiceUnavailable, BadEndpoint, LogHubException) as error:
            return str(error)
        return f"project {project} does not exist"

    async def missing_projects(
        self, endpoint: str, projects: Iterable[str], *, uids: Iterable[str]
    ) -> frozenset[str]:
        """Returns the projects of which the log service says that they do not exist.

        It is asked with the keys that it accepted for the objects ``uids``, at most `MAX_KEYS` of them. A key
        without rights in a project learns nothing about it. A service that does not answer is not asked
        again.
        """
        accepted = (self._accepted.last(uid) for uid in uids)
        keys = tuple(dict.fromkeys(key for key in accepted if key is not None))[:MAX_KEYS]
        missing: set[str] = set()
        for project in projects:
            try:
                if await self._exists(endpoint, project, keys) is False:
                    missing.add(project)
            except (BadEndpoint, EndpointUnreachable):
                break
        return frozenset(missing)

    async def _exists(self, endpoint: str, project: str, keys: Iterable[Credentials]) -> bool | None:
        """None: no key has rights in the project. Raises BadEndpoint and EndpointUnreachable."""
        for key in keys:
            try:
                client = self._pool.client(endpoint, project, key)
                return await self._pool.call(client.project_exists)
            except LogHubError:
                continue
        return None

    async def observe_reset(
        self,
        resource: LogHubConsumerGroup,
        client: LogHub | Unavailable,
        service: LogServiceObserved,
        stored: Callable[[], Awaitable[StoredCheckpoints]],
        *,
        has_workers: bool,
        last_initial_shard: int | None,
    ) -> ResetObserved | None:
        """Observes what a checkpoint reset needs (`resolve_targets`); None if none is in progress, or if it
        cannot continue now, because workers still run or the log service does not answer. ``stored`` raises
        ValueError with a message for users.
        """
        if has_workers or isinstance(client, Unavailable) or not needs_observation(resource):
            return None
        if not isinstance(service, Available) or service.stored is None:
            return None
        try:
            checkpoints = await stored()
        except ValueError as error:
            return ResetObserved(error=str(error))
        return await self._pool.call(
            resolve_targets,
            client,
            resource,
            service.shards,
            checkpoints,
            last_initial_shard=last_initial_shard,
            clock=self._clock,
        )

    async def change_group(self, resource: LogHubConsumerGroup, action: GroupChange) -> None:
        """Creates, updates or deletes the group or the subscription. Raises `GroupExists` if another client
        has created it.
        """
        client = await self.client(resource)
        if resource.spec.subscription is not None:
            await self._pool.call(change_subscription, client, resource, action)
            return
        await self._pool.call(change_group, client, ConsumerGroupKey.of(resource), action)

    async def change_shards(self, resource: LogHubConsumerGroup, action: ShardChange) -> None:
        """Splits or merges; raises `ReshardRefused` if the log service rejects it."""
        client = await self.client(resource)
        await self._pool.call(change_shards, client, resource.spec.logstore, action)

    async def commit_checkpoints(self, resource: LogHubConsumerGroup, action: CommitCheckpoints) -> None:
        """Commits the checkpoints of a reset."""
        client = await self.client(resource)
        await self._pool.call(commit_checkpoints, client, ConsumerGroupKey.of(resource), action, self._clock)
