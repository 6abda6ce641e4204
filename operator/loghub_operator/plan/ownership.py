"""Decides which of several objects that refer to one consumer group may run its workers.

Otherwise two objects with one group would each apply their own settings and run their own workers. The owner
is the object that first proved access to the group: the log service answered an observation with the object's
own access key. The proof is stored in the status, which the author of an object cannot write, so naming a
group takes nothing from those who consume it. An object without proof never owns a group that another one has
proven access to; if nobody has, an object with access stores its proof before it does anything else. An
object that has proven access keeps the group until its key has been missing or rejected for `REFUSED_FOR_S`,
and then has to prove it again, after the others. Two objects refer to the same group if endpoint, project,
logstore and group are equal.

Decides whether an object may adopt a consumer group that existed before it.

A typing error in ``spec.consumerGroup``, or a staging object with the name of production, would otherwise
join a live group: it would change the group's settings and take shards from the consumers of others.
``spec.adoption`` decides. A group that the object has created or adopted before is its own, whatever runs in
it; foreign consumers are then only reported.
"""

from collections.abc import Iterable

from loghub_operator.api.adoption import group_path
from loghub_operator.api.conditions import rfc3339
from loghub_operator.api.fields import unix_s
from loghub_operator.api.status import OwnershipStatus
from loghub_operator.api.v1alpha1 import Adoption, LogHubConsumerGroup
from loghub_operator.model.memory import Stillness
from loghub_operator.model.observed import Available, ObservedState, Peer, ServiceErrorReason
from loghub_operator.plan.listing import listed
from loghub_operator.plan.subject import Subject

# Clients save checkpoints about once a minute while they consume; longer than a restart of one takes.
RECENT_S = 300.0


def foreign_consumers(subject: Subject) -> tuple[str, ...]:
    """Live consumers of the group that are not workers of this object.

    An object that neither owns the group nor runs workers for it has none there: workers that were started
    for a group of another log service, before an edit of the endpoint, are none of this one. A consumer with
    the name of one is then a worker of an object of the same name, often in another cluster, or of this one
    before it was recreated; in that case it is gone after the group's timeout.

    An endpoint without extensions does not list consumers: there they are those that saved a checkpoint
    within `RECENT_S`, so a consumer of a stream without logs is not seen.
    """
    service = subject.observed.service
    if not isinstance(service, Available) or service.group is None:
        return ()
    live = _consumers(service, subject.observed.at_unix_s)
    return subject.foreign(live) if subject.has_record or subject.runs_workers else live


def consumers_without_pods(subject: Subject) -> tuple[str, ...]:
    """Live consumers of the group other than the workers that exist. A worker that was stopped before it left
    is one until the group's timeout; one that stays is a worker of an object of the same name.

    An endpoint without extensions does not say who is live, and the object's workers saved checkpoints just
    now: there consumers with the name of a worker count only if their checkpoints still move (`still_since`).
    """
    observed, service = subject.observed, subject.observed.service
    if not isinstance(service, Available) or service.group is None:
        return ()
    existing = {worker.name for worker in observed.workers}
    live = tuple(name for name in _consumers(service, observed.at_unix_s) if name not in existing)
    return live if service.consumers is not None else subject.foreign(live)


def still_since(observed: ObservedState, now: float) -> Stillness | None:
    """Since when the checkpoints rest, seen from now on or as the previous reconcile remembers; None if the
    endpoint lists its consumers, or does not answer. Call it once no worker exists.
    """
    service, before = observed.service, observed.memory.stillness
    if not isinstance(service, Available) or service.consumers is not None:
        return before
    seen = tuple((one.shard, one.checkpoint, one.checkpoint_unix_s) for one in service.shards)
    if before is None:
        return Stillness(since_unix_s=now, checkpoints=seen)
    moved = set(seen) - set(before.checkpoints)
    if not moved:
        return before
    numbers = {shard for shard, _, _ in moved}
    names = {one.checkpoint_consumer or "unnamed" for one in service.shards if one.shard in numbers}
    return Stillness(since_unix_s=now, checkpoints=seen, moved_by=tuple(sorted(names)))


def _consumers(service: Available, now: float) -> tuple[str, ...]:
    if service.consumers is not None:
        return service.consumers
    saved = {
        shard.checkpoint_consumer
        for shard in service.shards
        if shard.checkpoint_unix_s is not None and now - shard.checkpoint_unix_s < RECENT_S
    }
    return tuple(sorted(saved - {""}))


def adoption_refusal(subject: Subject, foreign: tuple[str, ...]) -> str | None:
    """Why the object must not adopt the group, as a message for users; None: it may, or need not."""
    service, resource = subject.observed.service, subject.resource
    if not isinstance(service, Available) or service.group is None or subject.has_record:
        return None
    match resource.spec.adoption:
        case Adoption.NEVER:
            why = "spec.adoption is Never"
        case Adoption.IF_IDLE if foreign:
            why = f"it has consumers that are not workers of this object: {listed(foreign)}"
        case _:
            return None
    return (
        f"consumer group {resource.group} existed before this object, and {why}; choose another "
        "consumerGroup, stop those consumers and wait until they are no longer live, or change spec.adoption"
    )


REFUSED_FOR_S = 600.0  # longer than it takes to rotate a key, and than most mistakes with a Secret last
_REFUSED = (ServiceErrorReason.CREDENTIALS_MISSING, ServiceErrorReason.AUTHENTICATION_FAILED)


def owner_of(own: Peer, peers: Iterable[Peer]) -> Peer | None:
    """The object that owns the group; None if ``own`` does, or if no object has proven access."""
    proven = (one for one in peers if one.access_since)
    first = min(proven, key=lambda one: one.rank, default=None)
    return first if first is not None and first.rank < own.rank else None


def must_store_proof(subject: Subject) -> bool:
    """Whether the object has access and may not act before that is stored, because another object could
    prove access at the same time.
    """
    observed = subject.observed
    if subject.own.access_since or not observed.peers or not isinstance(observed.service, Available):
        return False
    return not any(one.access_since for one in observed.peers)


def evaluate_ownership(subject: Subject, now: float) -> OwnershipStatus:
    """What to store after this observation. An outage proves nothing, so it changes nothing."""
    resource, observed, before = subject.resource, subject.observed, subject.ownership
    since = None if before is None else before.access_since
    refused = None if before is None else before.refused_since
    service = observed.service
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
        writable_shards=_writable_shards(before, observed),
        access_since=since,
        refused_since=refused,
    )


def _after(peers: Iterable[Peer], now: float) -> str:
    """When a proof is made now: never before one that is known, whatever the clock of this operator says.
    A clock that is behind the former leader's would otherwise take the group from the object that owns it.
    """
    latest = max((one.access_since for one in peers), default="")
    try:
        return rfc3339(max(now, unix_s(latest) + 1.0)) if latest else rfc3339(now)
    except (ValueError, OverflowError):  # not a time that an operator wrote
        return rfc3339(now)


def _writable_shards(before: OwnershipStatus | None, observed: ObservedState) -> int | None:
    """As found first, so that the shards that the operator adds later do not raise the bound for them."""
    if before is not None and before.writable_shards is not None:
        return before.writable_shards
    service = observed.service
    return sum(not one.read_only for one in service.shards) if isinstance(service, Available) else None


def named(owner: Peer, resource: LogHubConsumerGroup) -> str:
    """The owner's name for a reader of this object, who may not be allowed to see objects in another
    namespace.
    """
    if owner.namespace == resource.metadata.namespace:
        return f"LogHubConsumerGroup {owner.name}"
    return "a LogHubConsumerGroup of another namespace"


def remaining_claimants(peers: Iterable[Peer]) -> tuple[Peer, ...]:
    """The objects that still use the group after this one is deleted: those with access to it."""
    remaining = (one for one in peers if one.access_since and not one.leaving)
    return tuple(sorted(remaining, key=lambda one: one.rank))
