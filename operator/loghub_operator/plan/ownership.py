"""Decides which of several objects that refer to one consumer group may run its workers.

Otherwise two objects with one group would each apply their own settings and run their own workers. The owner
is the object that first proved access to the group: the log service answered an observation with the object's
own access key. The proof is stored in the status, which the author of an object cannot write, so naming a
group takes nothing from those who consume it. An object without proof never owns a group that another one has
proven access to; if nobody has, an object with access stores its proof before it does anything else. An
object that has proven access keeps the group until its key has been missing or rejected for `REFUSED_FOR_S`,
and then has to prove it again, after the others. Two objects refer to the same group if endpoint, project,
logstore and group are equal.
"""

from collections.abc import Iterable

from loghub_operator.api.adoption import group_path, stored_ownership
from loghub_operator.api.conditions import rfc3339
from loghub_operator.api.patterns import unix_s
from loghub_operator.api.status import OwnershipStatus
from loghub_operator.api.v1alpha1 import LogHubConsumerGroup
from loghub_operator.model.observed import Available, ObservedState, Peer, ServiceErrorReason

REFUSED_FOR_S = 600.0  # longer than it takes to rotate a key, and than most mistakes with a Secret last
_REFUSED = (ServiceErrorReason.CREDENTIALS_MISSING, ServiceErrorReason.AUTHENTICATION_FAILED)


def owner_of(resource: LogHubConsumerGroup, peers: Iterable[Peer]) -> Peer | None:
    """The object that owns the group; None if ``resource`` does, or if no object has proven access."""
    proven = (one for one in peers if one.access_since)
    first = min(proven, key=lambda one: one.rank, default=None)
    return first if first is not None and first.rank < peer(resource).rank else None


def must_store_proof(resource: LogHubConsumerGroup, observed: ObservedState) -> bool:
    """Whether the object has access and may not act before that is stored, because another object could
    prove access at the same time.
    """
    own = peer(resource)
    if own.access_since or not observed.peers or not isinstance(observed.service, Available):
        return False
    return not any(one.access_since for one in observed.peers)


def evaluate_ownership(resource: LogHubConsumerGroup, observed: ObservedState, now: float) -> OwnershipStatus:
    """What to store after this observation. An outage proves nothing, so it changes nothing."""
    before = stored_ownership(resource)
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


def peer(resource: LogHubConsumerGroup) -> Peer:
    """This object as the others see it."""
    metadata, stored = resource.metadata, stored_ownership(resource)
    return Peer(
        created=metadata.creation_timestamp or "",
        namespace=metadata.namespace,
        name=metadata.name,
        access_since=(stored.access_since if stored else None) or "",
        leaving=metadata.deletion_timestamp is not None,
    )


def remaining_claimants(peers: Iterable[Peer]) -> tuple[Peer, ...]:
    """The objects that still use the group after this one is deleted: those with access to it."""
    remaining = (one for one in peers if one.access_since and not one.leaving)
    return tuple(sorted(remaining, key=lambda one: one.rank))
