"""Decides which of several objects that refer to one consumer group may run its workers, and which may adopt
it.

Without an owner, two objects with one group would each apply their own settings and run their own workers.
The owner is the object that first proved access to the group: the log service answered an observation with
the object's own access key. The proof is stored in the status, which the author of an object cannot write, so
naming a group takes nothing from those who consume it. An object without proof never owns a group that
another one has proven access to; if no object has, an object with access stores its proof before it does
anything else. An object that has proven access keeps the group until its key has been missing or rejected for
`REFUSED_FOR_S`, and then has to prove it again, after the others. Two objects refer to the same group if
endpoint, project, logstore and group are equal, and both consume a group or both a subscription. A
subscription is made to be shared: objects that consume it as the same type, with the same key and order, all
run workers, and only an object that wants something else has an owner above it.

A group that existed before the object needs one decision more. A typing error in ``spec.consumerGroup``, or a
staging object with the name of production, would otherwise join a live group: it would change the group's
settings and take shards from the consumers of others. ``spec.adoption`` decides. A group that the object has
created or adopted before is its own, even with foreign consumers in it, which are then only reported.
"""

from collections.abc import Iterable

from loghub_operator.api.adoption import group_path
from loghub_operator.api.conditions import rfc3339
from loghub_operator.api.fields import unix_s
from loghub_operator.api.status import OwnershipStatus
from loghub_operator.api.v1alpha1 import Adoption, LogHubConsumerGroup
from loghub_operator.model.memory import Stillness
from loghub_operator.model.observed import (
    Available,
    LogServiceObserved,
    ObservedState,
    Peer,
    ServiceErrorReason,
    WorkerNames,
    WorkerObserved,
)
from loghub_operator.plan.listing import comma_list

# Clients save checkpoints about once a minute while they consume; longer than a restart of one takes.
RECENT_S = 300.0


def foreign_consumers(
    service: LogServiceObserved, workers: WorkerNames | None, now: float
) -> tuple[str, ...]:
    """Live consumers of the group that are not workers of this object.

    ``workers`` is None for an object that neither owns the group nor runs workers for it: workers that were
    started for a group of another log service, before an edit of the endpoint, consume nothing here. A
    consumer with the name of a worker then belongs to an object of the same name, often in another cluster,
    or to this object before it was recreated; in that case it is gone after the group's timeout.

    An endpoint without extensions does not list consumers. There, a consumer is live if it saved a checkpoint
    within `RECENT_S`, so a consumer of a stream without logs is not seen.
    """
    live = _consumers(service, now)
    return live if workers is None else workers.foreign(live)


def consumers_without_pods(
    service: LogServiceObserved, workers: Iterable[WorkerObserved], names: WorkerNames, now: float
) -> tuple[str, ...]:
    """Live consumers of the group other than the ``workers`` that exist. A worker that was stopped before it
    left is live until the group's timeout; if it stays, it is a worker of an object of the same name.

    An endpoint without extensions does not say who is live, and the object's workers saved checkpoints just
    now: there consumers with the name of a worker count only if their checkpoints still move (`still_since`).
    """
    existing = {worker.name for worker in workers}
    live = tuple(name for name in _consumers(service, now) if name not in existing)
    lists_consumers = isinstance(service, Available) and service.consumers is not None
    return live if lists_consumers else names.foreign(live)


def still_since(service: LogServiceObserved, before: Stillness | None, now: float) -> Stillness | None:
    """Since when the checkpoints rest, seen from now on or as the previous reconcile remembers ``before``;
    None if the endpoint lists its consumers, or does not answer. Call it once no worker exists.
    """
    if not isinstance(service, Available) or service.consumers is not None:
        return before
    seen = tuple((shard.shard, shard.checkpoint, shard.checkpoint_unix_s) for shard in service.shards)
    if before is None:
        return Stillness(since_unix_s=now, checkpoints=seen)
    moved = set(seen) - set(before.checkpoints)
    if not moved:
        return before
    numbers = {shard for shard, _, _ in moved}
    names = {shard.checkpoint_consumer or "unnamed" for shard in service.shards if shard.shard in numbers}
    return Stillness(since_unix_s=now, checkpoints=seen, moved_by=tuple(sorted(names)))


def _consumers(service: LogServiceObserved, now: float) -> tuple[str, ...]:
    """The live consumers of the group; none if it does not exist, or the log service does not answer."""
    if not isinstance(service, Available) or service.stored is None:
        return ()
    if service.consumers is not None:
        return service.consumers
    saved = {
        shard.checkpoint_consumer
        for shard in service.shards
        if shard.checkpoint_unix_s is not None and now - shard.checkpoint_unix_s < RECENT_S
    }
    return tuple(sorted(saved - {""}))


def adoption_refusal(adoption: Adoption, consumed: str, foreign: tuple[str, ...]) -> str | None:
    """Why the object must not adopt what is ``consumed`` and existed before it, as a message for users; None:
    it may.
    """
    match adoption:
        case Adoption.NEVER:
            why = "spec.adoption is Never"
        case Adoption.IF_IDLE if foreign:
            why = f"it has consumers that are not workers of this object: {comma_list(foreign)}"
        case _:
            return None
    return (
        f"{consumed} existed before this object, and {why}; choose another "
        "consumerGroup, stop those consumers and wait until they are no longer live, or change spec.adoption"
    )


REFUSED_FOR_S = 600.0  # longer than it takes to rotate a key, and than most mistakes with a Secret last
_REFUSED = (ServiceErrorReason.CREDENTIALS_MISSING, ServiceErrorReason.AUTHENTICATION_FAILED)


def owner_of(own: Peer, peers: Iterable[Peer]) -> Peer | None:
    """The object that owns the group; None if ``own`` does, if no object has proven access, or if ``own``
    shares the subscription of the object that does.
    """
    proven = (peer for peer in peers if peer.access_since)
    first = min(proven, key=lambda peer: peer.rank, default=None)
    if first is None or first.rank > own.rank or first.shares_with(own):
        return None
    return first


def must_store_proof(own: Peer, peers: tuple[Peer, ...], service: LogServiceObserved) -> bool:
    """Whether the object has access and may not act before that is stored, because another object could
    prove access at the same time.
    """
    if own.access_since or not peers or not isinstance(service, Available):
        return False
    return not any(peer.access_since for peer in peers)


def evaluate_ownership(
    resource: LogHubConsumerGroup, observed: ObservedState, before: OwnershipStatus | None
) -> OwnershipStatus:
    """What to store after this observation, if ``before`` is stored: what it proves, it proves of its own
    time. An outage proves nothing, so it changes nothing.
    """
    since = None if before is None else before.access_since
    refused = None if before is None else before.refused_since
    service, now = observed.service, observed.at_unix_s
    if isinstance(service, Available):
        since, refused = since or _after(observed.peers, now), None
    elif service.reason in _REFUSED:
        # A time that lies ahead, because the clock was wrong then, would let the owner stay as much longer.
        refused = rfc3339(now if refused is None else min(now, unix_s(refused)))
        since = None if now - unix_s(refused) > REFUSED_FOR_S else since
    record = observed.group_record
    return OwnershipStatus(
        uid=resource.metadata.uid,
        endpoint=resource.spec.endpoint,
        group=group_path(resource),
        last_initial_shard=None if record is None else record.last_initial_shard,
        writable_shards=_writable_shards(before, service),
        access_since=since,
        refused_since=refused,
    )


def _after(peers: Iterable[Peer], now: float) -> str:
    """When a proof is made now: never before a proof that is known, even if the clock of this operator is
    behind. A clock that is behind the former leader's would otherwise take the group from the object that
    owns it.
    """
    latest = max((peer.access_since for peer in peers), default="")
    try:
        return rfc3339(max(now, unix_s(latest) + 1.0)) if latest else rfc3339(now)
    except (ValueError, OverflowError):  # not a time that an operator wrote
        return rfc3339(now)


def _writable_shards(before: OwnershipStatus | None, service: LogServiceObserved) -> int | None:
    """The number that was observed first: shards that the operator adds do not raise their own bound."""
    if before is not None and before.writable_shards is not None:
        return before.writable_shards
    return sum(not shard.read_only for shard in service.shards) if isinstance(service, Available) else None


def named(owner: Peer, namespace: str) -> str:
    """The owner's name for a reader of an object in ``namespace``, who may not be allowed to see objects in
    another one.
    """
    if owner.namespace == namespace:
        return f"LogHubConsumerGroup {owner.name}"
    return "a LogHubConsumerGroup of another namespace"


def remaining_claimants(peers: Iterable[Peer]) -> tuple[Peer, ...]:
    """The objects that still use the group after this one is deleted: the objects with access to it."""
    remaining = (peer for peer in peers if peer.access_since and not peer.leaving)
    return tuple(sorted(remaining, key=lambda peer: peer.rank))
