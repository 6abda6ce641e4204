"""Reads the state of one consumer group from the log service.

This is the log-service half of an observation, the same in a cluster and for `loghub up`; changes are in
`loghub_operator.logservice.group_changes`. The calls are synchronous, one after the other, and each is
bounded by the adapter; callers run them in a thread. The embedded service returns a group's whole state in
one response. The real SLS does not, so `loghub.domain.state_inference` infers the states from the shards,
checkpoints, end cursors and the workers' own reports (docs/shard-states.md 4). The reports do not come from
the log service, so the caller adds them to an `Unresolved` observation. A status is evidence only of what its
worker holds as a member of the group. A worker that is no member may still hold shards by its name until its
session times out, and it does not know which; so it has no report until then.

Answers that no log service gives are refused before anything follows from them. The author of an object
chooses the endpoint, so anyone may answer there. A number that the status cannot hold would end every
reconcile, the object's deletion included, and a text of megabytes or a number beyond 64 bits would make the
API server refuse the status, so that the old one stayed. The work per observation grows with the number of
shards, and is shared by all groups.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from loghub.client.port import CheckpointInfo, GroupInfo, LogHub, ShardInfo, ShardStatus
from loghub.clock import Clock
from loghub.contract.worker import STATUS_FRESH_S, WorkerStatus
from loghub.domain.lag import NONE_LEFT, UNKNOWN, Lag, ShardMarks, shard_lag
from loghub.domain.shards import BadHashKey, HashRange, Shard, infer_parents
from loghub.domain.state_inference import Inferred, SeenShard, WorkerReport, infer_state
from loghub.wire import cursor as wire_cursor
from loghub.wire.errors import Code, EndpointUnreachable, ExtensionMissing, LogHubError, LogHubException
from loghub_operator.api.v1alpha1 import LogHubConsumerGroup
from loghub_operator.logservice.shard_cursors import (
    QUERY_BOUND_S,
    CursorCache,
    CursorQuery,
    RunAll,
    ShardCursors,
)
from loghub_operator.logservice.subscriptions import read_subscription
from loghub_operator.model.observed import (
    Available,
    GroupSettings,
    LogServiceObserved,
    ServiceErrorReason,
    ShardObserved,
    Unavailable,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupKey:
    """A consumer group and its logstore."""

    logstore: str
    group: str

    @classmethod
    def of(cls, resource: LogHubConsumerGroup) -> "ConsumerGroupKey":
        return cls(logstore=resource.spec.logstore, group=resource.group)


MAX_SHARDS = 4096  # SLS allows a few hundred writable ones; the rest are read-only, within retention
HIGHEST_SHARD = 2**31 - 1  # the id of a shard is a signed 32-bit number in SLS
MAX_TEXT = 256  # of a consumer's name (`loghub.wire.names`); a cursor is shorter
MAX_LAG = 2**63 // MAX_SHARDS  # so that the sum over all shards is a 64-bit number


class ImplausibleAnswer(Exception):  # noqa: N818 - says what is wrong
    """An answer that no log service gives; the message quotes nothing of it."""


def check_numbers(shards: Collection[int]) -> None:
    """The numbers of the shards of a logstore. Raises `ImplausibleAnswer`."""
    if len(shards) > MAX_SHARDS:
        raise ImplausibleAnswer(f"lists more than {MAX_SHARDS} shards")
    if not all(0 <= shard <= HIGHEST_SHARD for shard in shards):
        raise ImplausibleAnswer("lists shards whose numbers are negative or too large")
    if len(set(shards)) < len(shards):
        raise ImplausibleAnswer("lists a shard twice")


def check_shards(shards: Collection[ShardObserved]) -> None:
    """What is reported of the shards. Raises `ImplausibleAnswer`."""
    check_numbers([one.shard for one in shards])
    for shard in shards:
        if not all(0 <= parent <= HIGHEST_SHARD for parent in shard.parents):
            raise ImplausibleAnswer("lists shards whose parents have numbers that are negative or too large")
        if any(len(text) > MAX_TEXT for text in _texts(shard)):
            raise ImplausibleAnswer("reports names of consumers, or cursors, that are too long")
        if any(lag is not None and abs(lag) > MAX_LAG for lag in (shard.lag_s, shard.lag_logs)):
            raise ImplausibleAnswer("reports a lag that is too large")


def _texts(shard: ShardObserved) -> Iterable[str]:
    return shard.holder, shard.next_holder, shard.checkpoint, shard.checkpoint_consumer, shard.end_cursor


def report_of(
    status: WorkerStatus | None, *, consumer: str, age_s: float, timeout_s: float
) -> WorkerReport | None:
    """The report of this consumer; None if its status proves nothing.

    ``age_s`` is the age of the status by the clock of the machine that wrote it, negative if that was set
    back. ``timeout_s`` is the group's at the log service. A worker that shuts down holds its shards until it
    releases them: the log service has not assigned them to another consumer, so they are not in transfer.
    """
    if status is None or status.consumer != consumer or abs(age_s) > STATUS_FRESH_S:
        return None
    if status.last_heartbeat_age_s is None or status.phase == "failed":
        return None  # it has not joined, or its process ends
    if status.last_heartbeat_age_s + age_s >= timeout_s:
        return WorkerReport()  # whatever it lists: its session has expired, and with it every assignment
    if status.phase not in ("running", "draining"):
        return None
    held = frozenset(shard.shard for shard in status.shards)
    beyond_end = frozenset(one.shard for one in status.shards if one.beyond_end > 0)
    if status.phase == "draining":
        return WorkerReport(held=held, beyond_end=beyond_end)
    draining = frozenset(one.shard for one in status.shards if one.draining)
    return WorkerReport(held=held, draining=draining, beyond_end=beyond_end)


_REASONS: Mapping[str, ServiceErrorReason] = {
    Code.PROJECT_NOT_EXIST: ServiceErrorReason.PROJECT_NOT_FOUND,
    Code.LOG_STORE_NOT_EXIST: ServiceErrorReason.LOGSTORE_NOT_FOUND,
    Code.SIGNATURE_NOT_MATCH: ServiceErrorReason.AUTHENTICATION_FAILED,
    Code.UNAUTHORIZED: ServiceErrorReason.AUTHENTICATION_FAILED,
    Code.INVALID_ACCESS_KEY_ID: ServiceErrorReason.AUTHENTICATION_FAILED,
    "AccessDenied": ServiceErrorReason.AUTHENTICATION_FAILED,
    Code.SERVER_BUSY: ServiceErrorReason.THROTTLED,
}
_QUOTA = "QuotaExceed"  # what the codes of quotas end in, such as ShardReadQuotaExceed
_SLOWER = (429, 503)  # too many requests, and unavailable: a retry at once makes both worse
GROUP_MISSING = (Code.CONSUMER_GROUP_NOT_EXIST, "GroupNotExist")
TOO_SLOW = f"the log service did not return the end cursors of all shards within {QUERY_BOUND_S:.0f} s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Unresolved:
    """An observation of a group whose log service does not report the states of shards, without the states.

    ``observed`` has everything else, with the shards in the order of ``seen``.
    """

    observed: Available
    seen: tuple[SeenShard, ...]
    order: bool
    timeout_s: int  # of a consumer, as the log service has it

    def resolved(self, reports: Mapping[str, WorkerReport | None]) -> Available:
        """The observation with the states; ``reports`` has every consumer that may hold a shard."""
        states = infer_state(self.seen, order=self.order, reports=reports)
        # Only the workers know: the cursors here were read one after the other, and a worker may have
        # advanced in between.
        beyond = frozenset(shard for one in reports.values() if one is not None for shard in one.beyond_end)
        shards = (_with_state(one, states[one.shard]) for one in self.observed.shards)
        return replace(
            self.observed, shards=tuple(_beyond_end(one) if one.shard in beyond else one for one in shards)
        )


def observe_service(
    client: LogHub, resource: LogHubConsumerGroup, *, cache: CursorCache, run_all: RunAll, clock: Clock
) -> LogServiceObserved | Unresolved:
    """Makes one observation; ``cache`` outlives an observation. Never raises for a response
    of the log service."""
    try:
        observed = _observed(client, resource, cache, run_all, clock)
        if not isinstance(observed, Unavailable):
            check_shards((observed.observed if isinstance(observed, Unresolved) else observed).shards)
    except LogHubException as error:
        return unavailable(error, resource)
    except BadHashKey:  # not quoted, since an unknown server may have sent it
        return _not_sls("lists shards whose keys are no hash keys")
    except ImplausibleAnswer as error:
        return _not_sls(str(error))
    return observed


def _observed(
    client: LogHub, resource: LogHubConsumerGroup, cache: CursorCache, run_all: RunAll, clock: Clock
) -> LogServiceObserved | Unresolved:
    if resource.spec.subscription is not None:
        subscribed = read_subscription(client, resource)
        return (
            _without_group(client.list_shards(resource.spec.logstore)) if subscribed is None else subscribed
        )
    if not client.has_extensions():
        return _without_states(client, resource, cache, run_all, clock)
    key = ConsumerGroupKey.of(resource)
    observed = _from_extension(client, key)
    return _to_reshard(client, key, observed) if _reshards(resource) else observed


def _not_sls(why: str) -> Unavailable:
    message = f"what answers at this endpoint {why}; check the URL"
    return Unavailable(reason=ServiceErrorReason.REQUEST_REJECTED, message=message)


def unavailable(error: LogHubException, resource: LogHubConsumerGroup) -> Unavailable:
    """Translates an error for the status; an adapter's message never contains an access key.

    The request ID is left out: it differs in each reconcile, so the status would never stop changing.
    """
    spec = resource.spec
    if isinstance(error, EndpointUnreachable):
        return Unavailable(reason=ServiceErrorReason.ENDPOINT_UNREACHABLE, message=str(error))
    if not isinstance(error, LogHubError):
        return Unavailable(reason=ServiceErrorReason.REQUEST_REJECTED, message=str(error))
    if error.code == Code.BAD_RESPONSE:
        # The message comes from an unknown server, so it does not belong in the status.
        message = f"the server at this endpoint (HTTP {error.status}) does not speak the SLS protocol"
        return Unavailable(reason=ServiceErrorReason.REQUEST_REJECTED, message=f"{message}; check the URL")
    reason = _reason(error)
    message = {
        ServiceErrorReason.PROJECT_NOT_FOUND: f"project {spec.project} does not exist",
        ServiceErrorReason.LOGSTORE_NOT_FOUND: (
            f"logstore {spec.logstore} does not exist in project {spec.project}"
        ),
        ServiceErrorReason.AUTHENTICATION_FAILED: (
            f"the access key in Secret {spec.credentials_secret.name} was rejected"
        ),
        ServiceErrorReason.THROTTLED: f"the log service limits the requests in project {spec.project}",
    }.get(reason, "the log service rejected the request")
    return Unavailable(
        reason=reason, message=f"{message} ({error.code}, HTTP {error.status}: {error.message})"
    )


def _reason(error: LogHubError) -> ServiceErrorReason:
    """Only what is about the key says that it was rejected: such an owner loses its group."""
    reason = _REASONS.get(str(error.code))
    if reason is not None:
        return reason
    if str(error.code).endswith(_QUOTA) or error.status in _SLOWER:
        return ServiceErrorReason.THROTTLED
    return (
        ServiceErrorReason.AUTHENTICATION_FAILED
        if error.status == 401
        else ServiceErrorReason.REQUEST_REJECTED
    )


def _from_extension(client: LogHub, key: ConsumerGroupKey) -> Available:
    try:
        status = client.group_status(key.logstore, key.group)
    except LogHubError as error:
        if error.code in GROUP_MISSING:
            return _without_group(client.list_shards(key.logstore))
        raise
    return Available(
        group=GroupSettings(timeout_s=status.group.timeout_s, order=status.group.order),
        shards=tuple(_reported_shard(shard) for shard in sorted(status.shards, key=lambda one: one.shard)),
        consumers=tuple(sorted(consumer.name for consumer in status.consumers)),
    )


def _reported_shard(shard: ShardStatus) -> ShardObserved:
    states = {"not_alloc", "already_alloc", "wait", "transfer", "over"}
    observed = ShardObserved(
        shard=shard.shard,
        state=shard.state if shard.state in states else "unknown",  # type: ignore[arg-type]
        holder=shard.holder,
        next_holder=shard.next_holder,
        checkpoint=shard.checkpoint,
        checkpoint_unix_s=_seconds(shard.checkpoint_updated_unix_us),
        checkpoint_consumer=shard.checkpoint_consumer,
        lag_s=shard.lag_s,
        lag_logs=shard.lag_logs,
        lag_groups=shard.lag_groups,
        end_cursor=shard.end_cursor,
        read_only=shard.read_only,
        parents=shard.parents,
    )
    if not shard.checkpoint or not shard.end_cursor:
        return observed
    # Both are of one moment.
    is_beyond = wire_cursor.decode(shard.checkpoint) > wire_cursor.decode(shard.end_cursor)
    return _beyond_end(observed) if is_beyond else observed


def _beyond_end(shard: ShardObserved) -> ShardObserved:
    """How much is left to read is not known: log groups may have been written before the position."""
    return replace(shard, beyond_end=True, lag_s=None, lag_logs=None, lag_groups=None)


def _seconds(unix_us: int) -> float | None:
    return unix_us / 1e6 if unix_us > 0 else None


def _reshards(resource: LogHubConsumerGroup) -> bool:
    shards = resource.spec.scaling.shards
    return shards.auto_split or shards.auto_merge


def _to_reshard(client: LogHub, key: ConsumerGroupKey, observed: Available) -> Available:
    others = _others(key, client.list_groups(key.logstore)) + _of_kafka(client, key)
    others += len(client.list_subscriptions(key.logstore)) if client.has_subscriptions() else 0
    return replace(_with_keys(observed, client.list_shards(key.logstore)), other_groups=others)


def _others(key: ConsumerGroupKey, groups: Iterable[GroupInfo]) -> int:
    return sum(one.name != key.group for one in groups)


def _of_kafka(client: LogHub, key: ConsumerGroupKey) -> int:
    """The groups of Kafka clients, to which a shard is a partition; an older embedded service lists none."""
    try:
        return len(client.list_kafka_groups(key.logstore))
    except ExtensionMissing:
        return 0


def _with_keys(observed: Available, shards: Iterable[ShardInfo]) -> Available:
    """Adds what only the list of shards contains; a shard created between the two responses stays as is."""
    infos = {one.shard: one for one in shards}
    return replace(observed, shards=tuple(_keyed(one, infos.get(one.shard)) for one in observed.shards))


def _keyed(shard: ShardObserved, info: ShardInfo | None) -> ShardObserved:
    if info is None:
        return shard
    return replace(
        shard,
        begin_key=info.begin_key,
        end_key=info.end_key,
        created_unix_s=float(info.created_unix_s) if info.created_unix_s > 0 else None,
    )


def _without_group(shards: tuple[ShardInfo, ...]) -> Available:
    """No consumer holds a shard and nothing has been consumed, so every shard can be assigned."""
    parents = _parents(shards)
    free = (
        ShardObserved(
            shard=shard.shard, state="not_alloc", read_only=shard.read_only, parents=parents[shard.shard]
        )
        for shard in sorted(shards, key=lambda shard: shard.shard)
    )
    return Available(shards=tuple(free))


def _parents(shards: tuple[ShardInfo, ...]) -> dict[int, tuple[int, ...]]:
    check_numbers([one.shard for one in shards])
    return infer_parents(
        Shard(
            shard=shard.shard,
            keys=HashRange.parse(begin_key=shard.begin_key, end_key=shard.end_key),
            read_only=shard.read_only,
        )
        for shard in shards
    )


def _without_states(
    client: LogHub, resource: LogHubConsumerGroup, cache: CursorCache, run_all: RunAll, clock: Clock
) -> Available | Unresolved:
    key, spec = ConsumerGroupKey.of(resource), resource.spec
    name = (spec.endpoint, spec.project, spec.logstore)
    query = CursorQuery(client, name, clock=clock, cache=cache, run_all=run_all)
    shards = client.list_shards(key.logstore)
    groups = client.list_groups(key.logstore)
    group = next((one for one in groups if one.name == key.group), None)
    if group is None:
        return _without_group(shards)
    parents = _parents(shards)
    saved = {one.shard: one for one in client.get_checkpoints(key.logstore, key.group)}
    cursors = query.cursors(shards, {shard: _position(one) for shard, one in saved.items()})
    seen = tuple(
        _seen_shard(shard, cursors[shard.shard], saved.get(shard.shard), parents[shard.shard])
        for shard in sorted(shards, key=lambda shard: shard.shard)
    )
    observed = (
        _shard_without_state(shard, cursors[shard.shard], saved.get(shard.shard), clock.unix_s())
        for shard in seen
    )
    observation = Available(
        group=GroupSettings(timeout_s=group.timeout_s, order=group.order),
        shards=tuple(observed),
        other_groups=_others(key, groups),
        lag_error=TOO_SLOW if any(one.late for one in cursors.values()) else "",
    )
    return Unresolved(
        observed=_with_keys(observation, shards), seen=seen, order=group.order, timeout_s=group.timeout_s
    )


def _with_state(shard: ShardObserved, inferred: Inferred) -> ShardObserved:
    return replace(
        shard,
        state=inferred.state.value if inferred.state else "unknown",
        holder=inferred.holder or "",
    )


def _position(saved: CheckpointInfo | None) -> int | None:
    return wire_cursor.decode(saved.cursor) if saved and saved.cursor else None


def _seen_shard(
    shard: ShardInfo, cursors: ShardCursors, saved: CheckpointInfo | None, parents: tuple[int, ...]
) -> SeenShard:
    return SeenShard(
        shard=shard.shard,
        read_only=shard.read_only,
        parents=parents,
        begin_cursor=cursors.begin,
        end_cursor=cursors.end,
        checkpoint=_position(saved),
        checkpoint_consumer=saved.consumer if saved else "",
    )


def _shard_without_state(
    seen: SeenShard, cursors: ShardCursors, saved: CheckpointInfo | None, now_unix_s: float
) -> ShardObserved:
    lag = _lag(seen, cursors, now_unix_s)
    return ShardObserved(
        shard=seen.shard,
        state="unknown",
        checkpoint=saved.cursor if saved else "",
        checkpoint_unix_s=_seconds(saved.updated_unix_us) if saved else None,
        checkpoint_consumer=seen.checkpoint_consumer,
        lag_s=lag.seconds,
        lag_logs=lag.logs,  # known where nothing is left
        lag_groups=lag.groups,
        end_cursor="" if seen.end_cursor is None else wire_cursor.encode(seen.end_cursor),
        read_only=seen.read_only,
        parents=seen.parents,
    )


def _lag(seen: SeenShard, cursors: ShardCursors, now_unix_s: float) -> Lag:
    """Without a checkpoint, the lag depends on where the workers would start, so it is unknown; an empty
    shard has no lag wherever they would start."""
    if seen.checkpoint is None and cursors.begin is not None and cursors.begin == cursors.end:
        return NONE_LEFT
    behind = seen.checkpoint is not None and cursors.end is not None and seen.checkpoint < cursors.end
    if behind and cursors.begin is None:  # the begin cursor was not requested before the deadline
        return UNKNOWN
    position = ShardMarks(
        position=seen.checkpoint,
        begin_cursor=cursors.begin,
        end_cursor=cursors.end,
        next_received_unix_s=cursors.next_received_unix_s,
    )
    return shard_lag(position, now_unix_s=now_unix_s)
