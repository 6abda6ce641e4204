"""Decides which of several objects that refer to one consumer group may run its workers.

Otherwise two objects with one group would each apply their own settings and run their own workers. The oldest
object owns the group: by creation time, then namespace, then name. The others only keep their finalizer until
it is deleted. Two objects refer to the same group if endpoint, project, logstore and group are equal.
"""

from collections.abc import Iterable

from loghub_operator.api.v1alpha1 import LogHubConsumerGroup
from loghub_operator.model.observed import Peer


def owner_of(resource: LogHubConsumerGroup, peers: Iterable[Peer]) -> Peer | None:
    """The object that owns the group; None if ``resource`` does."""
    oldest = min(peers, default=None)
    return oldest if oldest is not None and oldest < peer(resource) else None


def named(owner: Peer, resource: LogHubConsumerGroup) -> str:
    """The owner's name for a reader of this object, who may not be allowed to see objects in another
    namespace.
    """
    if owner.namespace == resource.metadata.namespace:
        return f"LogHubConsumerGroup {owner.name}"
    return "a LogHubConsumerGroup of another namespace"


def peer(resource: LogHubConsumerGroup) -> Peer:
    """This object as the others see it."""
    metadata = resource.metadata
    return Peer(
        created=metadata.creation_timestamp or "",
        namespace=metadata.namespace,
        name=metadata.name,
        leaving=metadata.deletion_timestamp is not None,
    )


def remaining_claimants(peers: Iterable[Peer]) -> tuple[Peer, ...]:
    """The objects that still use the group after this one is deleted."""
    return tuple(sorted(one for one in peers if not one.leaving))
